import { expect, it } from 'vitest';
import { orderHistory, ordersToBook } from '../../src/orders/reading/order-queries.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { HOLDING, holding, send } from './held-back-steps.ts';
import { order, outgoing, product } from './outbox-fixture.ts';
import { TEA } from './swept-outbox.ts';

type Out = ReturnType<typeof outgoing>;

/** A store whose POS counted 20 of article A and 30 of article B, with an order of 2 A and 1 B. */
function ordered(): Out {
  const out = holding();
  count(out, { A: 20, B: 30 });
  order(out, 'o1', 'B1', [
    ['A', 2],
    ['B', 1],
  ]);
  expect(offered(out)).toEqual({ A: 18, B: 29 });
  return out;
}

function count(out: Out, counts: Record<string, number>): void {
  out.accept(
    'stock',
    Object.entries(counts).map(([externalId, qty]) => ({
      externalId,
      qty,
      subsidiaryId: 's1',
    })),
  );
  while (send(out).length > 0);
}

function offered(out: Out): Record<string, number> {
  while (out.dispatcher.catchUp({ holdBack: true }));
  const rows = out.db
    .prepare<[], [string, number]>(
      "SELECT json_extract(body, '$.externalId'), wanted_qty FROM _stock_ledger WHERE subsidiary_id = 's1' ORDER BY 1",
    )
    .raw()
    .all();
  return Object.fromEntries(rows);
}

const acknowledge = (out: Out, without: number[], seq?: number) =>
  out.reservations.acknowledge([{ orderId: 'o1', without, seq }], 'http')[0];
const toBook = (out: Out) => ordersToBook(out.db, { after: 0, limit: 9 }).map(({ orderId }) => orderId);
const paid = (out: Out, items: Parameters<typeof order>[3]) => order(out, 'o1', 'B1', items, 'inProcess');

it('books all but the lines that it leaves out, until it is acknowledged as a whole', () => {
  const out = ordered();
  count(out, { A: 18 });
  expect(offered(out)).toEqual({ A: 16, B: 29 });
  expect(acknowledge(out, [2])?.state).toBe('new');
  expect(offered(out)).toEqual({ A: 18, B: 29 });
  expect(acknowledge(out, [2])?.state).toBe('known');
  count(out, { B: 29 });
  expect(offered(out)).toEqual({ A: 18, B: 28 });
  expect(acknowledge(out, [])?.state).toBe('new');
  expect(offered(out)).toEqual({ A: 18, B: 29 });
  expect(acknowledge(out, [])?.state).toBe('known');
});

it('leaves the order to be booked, for the POS and for a person', () => {
  const out = holding();
  paid(out, [
    ['A', 2],
    ['B', 1],
  ]);
  acknowledge(out, [2]);
  expect(toBook(out)).toEqual(['o1']);
  acknowledge(out, []);
  expect(toBook(out)).toEqual([]);
});

it('leaves out one of two lines of the same article', () => {
  const out = holding();
  count(out, { A: 20 });
  paid(out, [
    ['A', 2],
    ['A', 3],
  ]);
  expect(offered(out)).toEqual({ A: 15 });
  count(out, { A: 18 });
  acknowledge(out, [2]);
  expect(offered(out)).toEqual({ A: 15 });
  count(out, { A: 15 });
  acknowledge(out, []);
  expect(offered(out)).toEqual({ A: 15 });
});

it('leaves out fewer lines at the next time, and books nothing twice', () => {
  const out = ordered();
  expect(acknowledge(out, [1, 2])?.state).toBe('new');
  expect(offered(out)).toEqual({ A: 18, B: 29 });
  count(out, { A: 18 });
  expect(acknowledge(out, [2])?.state).toBe('new');
  expect(offered(out)).toEqual({ A: 18, B: 29 });
  for (let times = 0; times < 3; times++) acknowledge(out, [2]);
  const steps = out.db
    .prepare('SELECT sku, qty, booked_version IS NULL AS open FROM _stock_steps ORDER BY sku')
    .all();
  expect(steps).toEqual([
    { sku: '10', qty: 2, open: 0 },
    { sku: '11', qty: 1, open: 1 },
  ]);
});

it('takes nothing back that was acknowledged before', () => {
  const out = ordered();
  count(out, { A: 18, B: 29 });
  acknowledge(out, []);
  expect(acknowledge(out, [2])?.state).toBe('known');
  expect(offered(out)).toEqual({ A: 18, B: 29 });
});

it('goes on keeping back a line whose product the catalogue gets later', () => {
  const out = holding();
  count(out, { A: 20 });
  paid(out, [
    ['A', 2],
    ['C', 4],
  ]);
  count(out, { A: 18 });
  acknowledge(out, [2]);
  const cocoa = product('p2', 'Cocoa', [{ sku: '12', stocks: { s1: ['C', 9] } }]);
  out.sweep([TEA, cocoa]);
  count(out, { C: 9 });
  expect(offered(out)).toEqual({ A: 18, C: 5 });
  count(out, { C: 5 });
  acknowledge(out, []);
  expect(offered(out)).toEqual({ A: 18, C: 5 });
});

it('keeps back what an edit adds to a line that was left out', () => {
  const out = ordered();
  count(out, { A: 18 });
  acknowledge(out, [2]);
  order(out, 'o1', 'B1', [
    ['A', 2],
    ['B', 5],
  ]);
  expect(offered(out)).toEqual({ A: 18, B: 25 });
  expect(acknowledge(out, [2], 1)).toMatchObject({ state: 'rejected' });
  expect(acknowledge(out, [2])?.state).toBe('new');
  expect(offered(out)).toEqual({ A: 18, B: 25 });
  count(out, { B: 25 });
  acknowledge(out, []);
  expect(offered(out)).toEqual({ A: 18, B: 25 });
});

it('gives back what a cancellation frees, of booked lines and of those left out', () => {
  const out = ordered();
  count(out, { A: 18 });
  acknowledge(out, [2]);
  order(
    out,
    'o1',
    'B1',
    [
      ['A', 2],
      ['B', 1],
    ],
    'cancel',
  );
  expect(offered(out)).toEqual({ A: 18, B: 30 });
});

it('is refused by name for a line that the order has not, and for an order that has not arrived', () => {
  const out = ordered();
  expect(acknowledge(out, [2, 3])).toEqual({
    orderId: 'o1',
    state: 'rejected',
    message: 'The order has no line 3. Number of its lines: 2.',
  });
  expect(orderHistory(out.db, 'o1').acknowledged).toBe(null);
  const [other] = out.reservations.acknowledge([{ orderId: 'o2', without: [1] }], 'http');
  expect(other).toMatchObject({ state: 'rejected' });
  expect(other?.message).toContain('The mirror does not have the order yet');
});

it('waits for the inbox as every acknowledgement does, and then leaves the same lines out', () => {
  const out = ordered();
  const nowIso = () => new Date(out.clock.nowMs()).toISOString();
  out.clock.jumpWall(1_000);
  out.reservations.acknowledge([{ orderId: 'o1', without: [2] }], 'http', { beforeInbox: nowIso() });
  const row = { table: 'stock_changes', id: '1', key: 'stock:1', keyHex: '01', tooLong: null } as const;
  const value = { externalId: 'A', qty: 18, subsidiaryId: 's1' };
  const change = { ...row, kind: 'stock', reference: null, handedAt: nowIso(), value } as const;
  out.inbox.ingest({ changes: [change], acks: [], more: false }, GUARDS_OFF);
  out.clock.jumpWall(1_000);
  out.intake.inboxWasEmpty(nowIso());
  while (send(out).length > 0);
  expect(offered(out)).toEqual({ A: 18, B: 29 });
});

const HALF_HOUR_MS = 31 * 60_000;

it('never sells a line that was left out, however late it is counted', () => {
  const edited = holding();
  count(edited, { A: 20, B: 30 });
  paid(edited, [['A', 2]]);
  acknowledge(edited, []);
  paid(edited, [
    ['A', 2],
    ['B', 5],
  ]);
  acknowledge(edited, [2]);
  edited.clock.jumpWall(HALF_HOUR_MS);
  count(edited, { B: 30 });
  expect(offered(edited)).toEqual({ A: 18, B: 25 });

  const late = holding();
  paid(late, [
    ['A', 2],
    ['C', 4],
  ]);
  acknowledge(late, [2]);
  order(
    late,
    'o1',
    'B1',
    [
      ['A', 2],
      ['C', 4],
    ],
    'dispatched',
  );
  late.sweep([TEA, product('p2', 'Cocoa', [{ sku: '12', stocks: { s1: ['C', 9] } }])]);
  late.dispatcher.catchUp({ holdBack: true });
  late.clock.jumpWall(HALF_HOUR_MS);
  count(late, { C: 9 });
  expect(offered(late)).toEqual({ C: 5 });
});

it('is kept back though the first acknowledgement of the POS turns holding back on', () => {
  const out = outgoing();
  out.sweep([TEA]);
  out.reservations.begin('auto');
  paid(out, [
    ['A', 2],
    ['B', 1],
  ]);
  out.clock.jumpWall(3_600_000);
  count(out, { B: 30 });
  acknowledge(out, [2]);
  const rules = { ...HOLDING, holdBack: 'auto' } as const;
  while (out.dispatcher.catchUp({ holdBack: 'auto' }));
  out.clock.jumpWall(HALF_HOUR_MS);
  out.accept('stock', [{ externalId: 'B', qty: 30, subsidiaryId: 's1' }]);
  while (send(out, 'done', rules).length > 0);
  expect(out.db.prepare("SELECT wanted_qty FROM _stock_ledger WHERE sku = '11'").pluck().get()).toBe(29);
});

it('refuses numbers of lines from before an event that ordered the same lines otherwise', () => {
  const out = ordered();
  order(out, 'o1', 'B1', [
    ['B', 1],
    ['A', 2],
  ]);
  expect(acknowledge(out, [2], 1)).toMatchObject({
    state: 'rejected',
    message: expect.stringContaining("Event 2 changed the order's lines, after event 1."),
  });
  expect(acknowledge(out, [1], 2)?.state).toBe('new');
});

it('ends with a whole acknowledgement as of the order, whatever other orders do', () => {
  const out = holding();
  paid(out, [
    ['A', 2],
    ['B', 1],
  ]);
  order(out, 'o2', 'B1', [['A', 1]], 'inProcess');
  acknowledge(out, [2]);
  expect(acknowledge(out, [], 1)?.state).toBe('new');
  expect(toBook(out)).toEqual(['o2']);
  order(out, 'o2', 'B1', [['A', 1]], 'ready');
  expect(acknowledge(out, [2])?.state).toBe('known');
  expect(toBook(out)).toEqual(['o2']);
});

it('does not undo a whole one that waits for the inbox', () => {
  const out = holding();
  count(out, { A: 20, B: 30 });
  paid(out, [
    ['A', 2],
    ['B', 1],
  ]);
  const nowIso = () => new Date(out.clock.nowMs()).toISOString();
  count(out, { A: 18, B: 29 });
  out.reservations.acknowledge(['o1'], 'http', { beforeInbox: nowIso() });
  expect(acknowledge(out, [2])?.state).toBe('known');
  out.intake.inboxWasEmpty(nowIso());
  expect(offered(out)).toEqual({ A: 18, B: 29 });
  expect(toBook(out)).toEqual([]);
});

it('counts of an order whose store came later', () => {
  const out = holding();
  order(out, 'o1', null, [['A', 2]], 'inProcess');
  acknowledge(out, []);
  paid(out, [
    ['A', 2],
    ['B', 1],
  ]);
  while (out.dispatcher.catchUp({ holdBack: true }));
  acknowledge(out, [2]);
  expect(toBook(out)).toEqual(['o1']);
});

it('keeps no more back than the lines that are left, though they are cut or alternate', () => {
  const cut = holding();
  paid(cut, [
    ['A', 2],
    ['A', 3],
  ]);
  count(cut, { A: 18 });
  acknowledge(cut, [2]);
  paid(cut, [
    ['A', 2],
    ['A', 1],
  ]);
  acknowledge(cut, [2]);
  count(cut, { A: 18 });
  expect(offered(cut)).toEqual({ A: 17 });

  const both = holding();
  paid(both, [
    ['A', 2],
    ['A', 3],
  ]);
  acknowledge(both, [1]);
  acknowledge(both, [2]);
  count(both, { A: 15 });
  expect(offered(both)).toEqual({ A: 15 });
  expect(toBook(both)).toEqual([]);
});
