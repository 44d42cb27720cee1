/** Tests that each reference of a submission finds its change, also after a newer change was merged into it. */

import { expect, it } from 'vitest';
import type { SubmittedChange } from '../../src/outbox/intake/change.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { undoLines } from '../../src/outbox/sending/undo.ts';
import { SEND_ALL } from './outbox-fixture.ts';
import { done, swept } from './swept-outbox.ts';

type Out = ReturnType<typeof swept>;
type Values = { price?: number; name?: string } | { qty: number };

function handOver(out: Out, reference: string | null, values: Values, origin = 'http till') {
  const item: SubmittedChange =
    'qty' in values
      ? { kind: 'stock', change: { externalId: 'A', subsidiaryId: 's1', ...values }, reference }
      : { kind: 'product', change: { sku: '10', ...values }, reference };
  const [accepted] = out.intake.accept([item], { source: 'http', origin, guards: GUARDS_OFF });
  return accepted?.changeId;
}

function send(out: Out) {
  for (const kind of ['stock', 'product'] as const) {
    const { callId, items } = out.dispatcher.claim(kind, 100, SEND_ALL);
    if (callId !== null) out.dispatcher.settle(callId, done(items));
  }
}

/** Returns the changes of a reference, by each way to ask for them. */
function found(out: Out, reference: string) {
  const bySql = out.db
    .prepare<[string], number>(
      'SELECT change_id FROM outbox_references r JOIN outbox USING (change_id) WHERE r.reference = ?',
    )
    .pluck();
  return {
    listed: out.queries.list({ reference, limit: 9 }).map(({ changeId }) => changeId),
    settled: out.queries.settledAfter(0, { reference, limit: 9 }).map(({ changeId }) => changeId),
    undone: undoLines(out.db, { reference }).map(({ changeId }) => changeId),
    bySql: bySql.all(reference),
  };
}

it.each<[string, Values[]]>([
  ['took its place', [{ qty: 5 }, { qty: 6 }, { qty: 7 }]],
  ['joined it', [{ price: 5 }, { name: 'Mate' }, { price: 7 }]],
])('each reference finds the change, where a newer value %s', (_, values) => {
  const out = swept();
  const ids = values.map((each, i) => handOver(out, `R${i}`, each));
  const [changeId] = ids;
  expect(ids).toEqual([changeId, changeId, changeId]);
  for (const isSent of [false, true]) {
    if (isSent) send(out);
    for (const reference of ['R0', 'R1', 'R2']) {
      const settled = isSent ? [changeId] : [];
      expect(found(out, reference)).toEqual({
        listed: [changeId],
        settled,
        undone: [changeId],
        bySql: [changeId],
      });
    }
  }
  expect(out.queries.list({ limit: 9 })).toMatchObject([{ reference: 'R2', replaced: 2 }]);
  out.clock.jumpWall(400 * 86_400_000);
  expect(out.admin.prune(out.clock.nowMs())).toBe(1);
  expect(found(out, 'R0')).toEqual({ listed: [], settled: [], undone: [], bySql: [] });
  expect(out.db.prepare('SELECT count(*) FROM _merged_references').pluck().get()).toBe(0);
});

it('a reference that comes again, or is followed by none, finds the change once', () => {
  const out = swept();
  for (const reference of ['R1', 'R2', 'R1', 'R1', 'R2', null]) handOver(out, reference, { qty: 4 });
  const [change] = out.queries.list({ limit: 9 });
  for (const reference of ['R1', 'R2']) expect(found(out, reference).bySql).toEqual([change?.changeId]);
  handOver(out, 'R1', { qty: 4 });
  expect(found(out, 'R1').bySql).toEqual([change?.changeId]);
  // Hand-overs by turns keep no more.
  expect(out.db.prepare('SELECT count(*) FROM _merged_references').pluck().get()).toBe(2);
});

it('the reference of a value that a guard holds finds it too', () => {
  const out = swept();
  const guards = { ...GUARDS_OFF, priceFactorMax: 2 };
  for (const [reference, price] of [
    ['R1', 9000],
    ['R2', 9900],
  ] as const) {
    const item: SubmittedChange = { kind: 'product', change: { sku: '10', price }, reference };
    out.intake.accept([item], { source: 'http', guards });
  }
  expect(out.queries.list({ reference: 'R1', limit: 9 })).toMatchObject([
    { reference: 'R2', heldGuard: 'price-factor' },
  ]);
});

it('undo of a value whose place a newer one took leaves that alone, and goes back to what was before its own', () => {
  const out = swept();
  handOver(out, 'old', { qty: 10 });
  send(out);
  handOver(out, 'R1', { qty: 5 }, 'cli ana, stock.csv');
  handOver(out, 'R2', { qty: 6 });
  const changeId = handOver(out, 'R3', { qty: 7 });
  for (const isSent of [false, true]) {
    if (isSent) send(out);
    const lines = (reference: string) =>
      undoLines(out.db, { reference }).map(({ verdict, now, before, changedBy }) => [
        verdict,
        now.qty,
        before?.qty,
        changedBy,
      ]);
    expect(lines('R1')).toEqual([['changed-since', 5, 10, changeId]]);
    expect(lines('R2')).toEqual([['changed-since', 6, 5, changeId]]);
    expect(lines('R3')).toEqual([['undo', 7, 6, null]]);
  }
  expect(undoLines(out.db, { reference: 'R1', file: 'stock.csv' })).toHaveLength(1);
  expect(undoLines(out.db, { reference: 'R2', file: 'stock.csv' })).toEqual([]);
});
