import { expect, it } from 'vitest';
import { assignOrder } from '../../src/link/assign.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { BranchStore, type Chain, type HubStore, openChain } from './chain-rig.ts';

/** Tests how a hub handles the stock counts of its branches. */

const idOf = (number: number) => `65a1${String(number).padStart(20, '0')}`;
const RULES = { holdBack: 'auto', sendAsIs: true, skipUnchanged: true } as const;
const stocks = { 'sub-1': ['P1', 30], 'sub-2': ['P1', 30] } as Record<string, [string, number]>;
const TEA = product('p1', 'Tea', [{ sku: '10', stocks }]);

/** Makes one call with all waiting changes. Returns the sent quantities by branch. */
async function send({ services }: HubStore): Promise<Record<string, number>> {
  const { callId, items } = await services.stores.write(({ dispatcher }) => {
    while (dispatcher.catchUp(RULES));
    return dispatcher.claim('stock', 100, RULES);
  });
  if (callId === null) return {};
  const answers = items.map(({ changeId }) => ({ changeId, state: 'done' as const }));
  await services.stores.write(({ dispatcher }) => dispatcher.settle(callId, answers));
  return Object.fromEntries(
    items.map(({ target, body }) => [target.split('@')[1], 'qty' in body ? body.qty : Number.NaN]),
  );
}

const holding = (hub: HubStore) =>
  hub.rows<{ branch: string }>("SELECT name AS branch FROM _seen WHERE kind = 'holding-branch' ORDER BY 1");

async function orderOfEach({ hub, settle, clock }: Chain, first: number): Promise<void> {
  const createdAt = new Date(clock.nowMs()).toISOString();
  await hub.order(first, 'B1', 'payment-approved', createdAt);
  await hub.order(first + 1, 'B2', 'payment-approved', createdAt);
  await settle();
}

it("a hub holds back of each branch once that branch's own POS has acknowledged", async () => {
  const chain = await openChain();
  const { hub, branches, settle } = chain;
  const [one, two] = branches;
  await hub.sweep([TEA]);
  await settle();
  await orderOfEach(chain, 1);
  // An acknowledgement that a person typed, at the branch or at the hub, does not make the hub hold stock back.
  await orderOfEach(chain, 11);
  await one.services.outbox.acknowledge([idOf(11)], 'cli');
  await hub.services.outbox.acknowledge([idOf(12)], 'cli');
  await settle();
  await send(hub);
  expect(holding(hub)).toEqual([]);

  await one.services.outbox.acknowledge([idOf(1)], 'http');
  await settle();
  await send(hub);
  expect(holding(hub)).toEqual([{ branch: 'sub-1' }]);
  await orderOfEach(chain, 3);
  for (const branch of branches) await branch.count('P1', 20, 'first');
  await settle();
  expect(await send(hub)).toEqual({ 'sub-1': 18, 'sub-2': 20 });

  // B1's acknowledgement of an order of B2 does not make the hub hold back stock of B2.
  await one.services.outbox.acknowledge([idOf(4)], 'http');
  await settle();
  await send(hub);
  expect(holding(hub)).toEqual([{ branch: 'sub-1' }]);
  await two.services.outbox.acknowledge([idOf(2)], 'http');
  await settle();
  await send(hub);
  expect(holding(hub)).toEqual([{ branch: 'sub-1' }, { branch: 'sub-2' }]);
});

it('a hub counts as booked what the POS of a renamed branch, or of the branch a person chose, acknowledges', async () => {
  const { hub, branches, settle, clock } = await openChain();
  const [, two] = branches;
  await hub.sweep([TEA]);
  await settle();
  const ofNorte = '[[branches]]\nsubsidiary_id = "sub-2"\nexternal_id = "Norte"';
  hub.configure(`[[branches]]\nsubsidiary_id = "sub-1"\nexternal_id = "B1"\n${ofNorte}`);
  await hub.stop();
  await hub.start();
  hub.services.state.hub.rename('B2', 'Norte', 'sub-2');
  await hub.hub.check();
  const at = new Date(clock.nowMs()).toISOString();
  await hub.order(1, 'Norte', 'payment-approved', at);
  await hub.order(2, 'B9', 'payment-approved', at);
  await hub.services.mirror.write((db) => assignOrder(db, idOf(2), 'B2', at));
  await settle();
  const toBook = () => hub.rows<{ id: string }>('SELECT order_id AS id FROM orders_to_book ORDER BY 1');
  expect(toBook()).toEqual([{ id: idOf(1) }, { id: idOf(2) }]);
  await two.services.outbox.acknowledge([idOf(1)], 'http');
  await settle();
  expect(toBook()).toEqual([{ id: idOf(2) }]);
  await two.services.outbox.acknowledge([idOf(2)], 'http');
  await settle();
  expect(toBook()).toEqual([]);
});

it("a hub keeps a late count's orders back until the next count, though they are acknowledged", async () => {
  const chain = await openChain();
  const { hub, branches, settle, clock } = chain;
  const [one] = branches;
  const acknowledge = async (number: number) => {
    await one.services.outbox.acknowledge([idOf(number)], 'http');
    await settle();
    return send(hub);
  };
  /** The POS counts while the line is down, and the hub hears of an order for two pieces meanwhile. */
  const countWhileDown = async (qty: number, number: number) => {
    await one.count('P1', qty, `down ${number}`);
    await clock.advance(60_000);
    await hub.order(number, 'B1', 'payment-approved');
    await settle();
    return send(hub);
  };
  await hub.sweep([TEA]);
  await settle();
  await orderOfEach(chain, 1);
  await acknowledge(1);
  expect(holding(hub)).toEqual([{ branch: 'sub-1' }]);

  expect(await countWhileDown(20, 3)).toEqual({ 'sub-1': 18 });
  expect(await acknowledge(3)).toEqual({});
  // The next count has that order, but not the one of the second time that the line is down.
  expect(await countWhileDown(17, 5)).toEqual({ 'sub-1': 15 });
  expect(await acknowledge(5)).toEqual({});
  await one.count('P1', 16, 'up');
  await hub.order(6, 'B2', 'payment-approved');
  await settle();
  expect(await send(hub)).toEqual({ 'sub-1': 16 });
});

it('a hub takes a count that came late as made when its branch was handed it', async () => {
  const { hub, branches, settle, clock } = await openChain();
  const [one] = branches;
  await hub.sweep([TEA]);
  await settle();
  const counted = (qty: number, ageMs: number) => {
    const countedAt = new Date(clock.nowMs() - ageMs).toISOString();
    const change = { externalId: 'P1', subsidiaryId: 'sub-1', qty };
    return hub.services.stores.write(({ intake }) =>
      intake.accept([{ kind: 'stock', change, countedAt }], { source: 'cli', guards: GUARDS_OFF }),
    );
  };
  // While the line is down, the branch is handed a count that does not say when it was made.
  await one.count('P1', 43, 'down');
  await clock.advance(3_600_000);
  await settle();
  expect(await send(hub)).toEqual({ 'sub-1': 43 });
  await clock.advance(5_000);
  expect(await counted(2, 3_700_000)).toMatchObject([{ state: 'superseded' }]);
  expect(await counted(0, 300_000)).toMatchObject([{ state: 'pending' }]);
  expect(await send(hub)).toEqual({ 'sub-1': 0 });
  expect(hub.rows("SELECT counted_at FROM outbox WHERE reference = 'B1: down'")).toEqual([
    { counted_at: null },
  ]);

  // The hub takes a time ahead of its own clock as the time of arrival.
  await one.count('P1', 7, 'ahead');
  await one.services.mirror.write(
    (db) => void db.exec("UPDATE _outbox SET handed_ms = 32472144000000 WHERE reference = 'ahead'"),
  );
  await settle();
  await clock.advance(1_000);
  expect(await counted(8, 0)).toMatchObject([{ state: 'pending' }]);
});

it('a hub undoes a hand-over of its branches, but what one of them has changed since', async () => {
  const { hub, branches, settle } = await openChain();
  const [one, two] = branches;
  await hub.sweep([TEA]);
  await settle();
  const handOver = async (qtys: [number, number], reference: string) => {
    await one.count('P1', qtys[0], reference);
    await two.count('P1', qtys[1], reference);
    await settle();
    return send(hub);
  };
  expect(await handOver([9, 12], 'good')).toEqual({ 'sub-1': 9, 'sub-2': 12 });
  // After two wrong values in a row, `undo` restores the value before the first one.
  expect(await handOver([0, 0], 'wrong')).toEqual({ 'sub-1': 0, 'sub-2': 0 });
  expect(await handOver([1, 1], 'wrong')).toEqual({ 'sub-1': 1, 'sub-2': 1 });
  await one.count('P1', 6, 'later');
  await settle();
  expect(await send(hub)).toEqual({ 'sub-1': 6 });

  const { outbox } = hub.services;
  // The hub puts the branch's name before the reference of the POS.
  const lines = ['B1: wrong', 'B2: wrong'].flatMap((reference) => outbox.undoLines({ reference }));
  const verdicts = lines.map(({ target, verdict, before }) => [target, verdict, before]);
  expect(verdicts).toEqual([
    ['sku:10@sub-1', 'changed-since', expect.objectContaining({ qty: 9 })],
    ['sku:10@sub-2', 'undo', expect.objectContaining({ qty: 12 })],
  ]);
  expect(outbox.undoLines({ reference: 'B1: wrong', branch: 'sub-2' })).toEqual([]);
  await outbox.undo(
    lines.filter(({ verdict }) => verdict === 'undo'),
    'cli ana',
    'reference wrong',
  );
  expect(await send(hub)).toEqual({ 'sub-2': 12 });
  // A forced `undo` also replaces the value that was counted later.
  const forced = outbox.undoLines({ reference: 'B1: wrong' });
  await outbox.undo(forced, 'cli ana', 'reference wrong');
  expect(await send(hub)).toEqual({ 'sub-1': 9 });
});

it('a hub moves a count of a branch with the id, and leaves one by sku with the sku', async () => {
  const { hub, branches, settle } = await openChain();
  const [one] = branches;
  const shelves = (ids: string[]) =>
    product(
      'p1',
      'Tea',
      ids.map((id, i) => ({ sku: String(10 + i), stocks: { 'sub-1': [id, 30] } })),
    );
  await hub.sweep([shelves(['P1', 'P2', 'P3'])]);
  await settle();
  await one.count('P1', 20, 'first');
  await one.services.outbox.submit([{ kind: 'stock', change: { sku: '11', qty: 7 } }], 'http');
  await settle();
  await send(hub);
  const counts = () =>
    hub.rows("SELECT sku, counted_qty AS qty FROM _stock_ledger WHERE subsidiary_id = 'sub-1' ORDER BY sku");
  expect(counts()).toEqual([
    { sku: '10', qty: 20 },
    { sku: '11', qty: 7 },
  ]);
  await hub.sweep([shelves(['P2', 'P3', 'P1'])]);
  await settle();
  await send(hub);
  expect(counts()).toEqual([
    { sku: '11', qty: 7 },
    { sku: '12', qty: 20 },
  ]);
});

it('a hub leaves out the lines that the POS of a branch left out, until it acknowledges all', async () => {
  const chain = await openChain();
  const { hub, branches, settle } = chain;
  const [one] = branches;
  await hub.sweep([TEA]);
  await orderOfEach(chain, 1);
  const acknowledge = (without: number[]) =>
    one.services.outbox.acknowledge([{ orderId: idOf(1), without }], 'http');
  const open = () => hub.rows(`SELECT branch, without FROM order_acks WHERE order_id = '${idOf(1)}'`);
  expect((await acknowledge([2]))[0]?.state).toBe('new');
  await settle();
  expect(open()).toEqual([{ branch: 'B1', without: '[2]' }]);
  expect(hub.rows('SELECT order_id FROM orders_to_book')).toContainEqual({ order_id: idOf(1) });
  await acknowledge([]);
  await settle();
  expect(open()).toEqual([{ branch: 'B1', without: null }]);
  expect(hub.rows('SELECT order_id FROM orders_to_book')).not.toContainEqual({ order_id: idOf(1) });
});

it('a hub says to the branch why it refuses lines that an edit renumbered', async () => {
  const chain = await openChain();
  const { hub, branches, settle } = chain;
  const [one] = branches;
  await hub.sweep([TEA]);
  await orderOfEach(chain, 1);
  await one.services.outbox.acknowledge([{ orderId: idOf(1), without: [2] }], 'http');
  await hub.services.stores.write(({ db }) =>
    db.prepare('UPDATE _orders SET numbers_seq = 1000 WHERE order_id = ?').run(idOf(1)),
  );
  await settle();
  expect(hub.rows('SELECT without FROM order_acks')).toEqual([]);
  const refused = one.rows<{ message: string }>('SELECT message FROM refused_acks');
  expect(refused).toEqual([{ message: expect.stringContaining("Event 1000 changed the order's lines") }]);
  expect(one.rows('SELECT order_id FROM orders_to_book')).toEqual([{ order_id: idOf(1) }]);
});

it('a new machine of a lost branch has what the lost one acknowledged, and hands none of it up again', async () => {
  const chain = await openChain();
  const { hub, branches, settle, clock, server } = chain;
  const [lost, other] = branches;
  await hub.sweep([TEA]);
  for (const first of [1, 11, 21, 31]) await orderOfEach(chain, first);
  await lost.services.outbox.acknowledge([idOf(1)], 'http');
  await lost.services.outbox.acknowledge([{ orderId: idOf(11), without: [2] }], 'inbox');
  await lost.services.outbox.acknowledge([idOf(21)], 'cli');
  await other.services.outbox.acknowledge([idOf(2)], 'http');
  await settle();
  await clock.advance(60_000);
  await lost.stop();
  // What the lost machine handed up last is all that the hub has.
  const key = `U${'NEW'.padEnd(55, 'A')}`;
  hub.services.state.hub.invite('B1', key, clock.nowMs() + 1_000);
  hub.services.state.hub.join('B1', key, clock.nowMs());
  const machine = new BranchStore(clock, server, 'B1');
  await machine.start();
  await settle([machine]);

  const acked = 'SELECT order_id, branch, acked_at, source, without FROM order_acks';
  const toBook = "SELECT order_id, acked_at FROM orders_to_book WHERE store_external_id = 'B1' ORDER BY 1";
  expect(machine.rows(acked)).toEqual(hub.rows(`${acked} WHERE branch = 'B1'`));
  expect(machine.rows(acked)).toHaveLength(3);
  expect(machine.rows(toBook)).toEqual(hub.rows(toBook));
  expect(machine.rows(toBook)).toMatchObject([
    { order_id: idOf(11) },
    { order_id: idOf(31), acked_at: null },
  ]);
  expect(machine.rows('SELECT order_id FROM _up_acks')).toEqual([]);
  expect(machine.rows('SELECT u FROM _up_items')).toEqual([]);
  // The rest of the lines is acknowledged on the new machine.
  const [rest] = await machine.services.outbox.acknowledge([idOf(11)], 'http');
  expect(rest?.state).toBe('new');
  const [again] = await machine.services.outbox.acknowledge([idOf(1)], 'http');
  expect(again?.state).toBe('known');
  await settle([machine]);
  expect(hub.rows(toBook)).toMatchObject([{ order_id: idOf(31) }]);
});
