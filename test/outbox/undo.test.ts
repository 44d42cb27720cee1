/** Tests src/outbox/sending/known-values.ts. */

import { expect, it } from 'vitest';
import { isoUtc } from '../../src/core/time.ts';
import type { SubmittedChange } from '../../src/outbox/intake/change.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { type UndoFilter, undoLines } from '../../src/outbox/sending/undo.ts';
import { product, SEND_ALL } from './outbox-fixture.ts';
import { done, swept } from './swept-outbox.ts';

type Out = ReturnType<typeof swept>;

function handOver(out: Out, qtys: Record<string, number>, reference: string, origin = 'cli ana') {
  const items = Object.entries(qtys).map(
    ([externalId, qty]): SubmittedChange => ({
      kind: 'stock',
      change: { externalId, qty, subsidiaryId: 's1' },
      reference,
    }),
  );
  out.intake.accept(items, { source: 'cli', origin, guards: GUARDS_OFF });
}

function send(out: Out) {
  for (const kind of ['stock', 'product'] as const) {
    const { callId, items } = out.dispatcher.claim(kind, 100, SEND_ALL);
    if (callId !== null) out.dispatcher.settle(callId, done(items));
  }
}

const short = (out: Out, filter: UndoFilter) =>
  undoLines(out.db, filter).map(({ target, verdict, now, before }) => ({ target, verdict, now, before }));

it('undo names the count before a wrong inventory, and what the platform had where nobody had counted', () => {
  const out = swept();
  handOver(out, { A: 4 }, 'good');
  send(out);
  handOver(out, { A: 0, B: 0 }, 'wrong', 'cli ana, stock.csv');
  // If a file was submitted twice, the undo restores the value before the first submission.
  send(out);
  handOver(out, { A: 0 }, 'wrong', 'cli ana, stock.csv');
  send(out);
  const wanted = [
    { target: 'sku:10@s1', verdict: 'undo', now: { qty: 0 }, before: expect.objectContaining({ qty: 4 }) },
    { target: 'sku:11@s1', verdict: 'undo', now: { qty: 0 }, before: expect.objectContaining({ qty: 3 }) },
  ];
  expect(short(out, { reference: 'wrong' })).toEqual(wanted);
  expect(short(out, { file: 'stock.csv', branch: 's1' })).toEqual(wanted);
  expect(short(out, { file: 'stock.csv', branch: 's2' })).toEqual([]);
  expect(short(out, { file: 'ock.csv' })).toEqual([]);
});

it('undo leaves what was changed since, and hands the rest over as of the orders that the count contained', () => {
  const out = swept();
  handOver(out, { A: 4, B: 9 }, 'good');
  send(out);
  handOver(out, { A: 0, B: 0 }, 'wrong');
  send(out);
  handOver(out, { B: 6 }, 'later');
  const lines = undoLines(out.db, { reference: 'wrong' });
  expect(lines.map(({ verdict }) => verdict)).toEqual(['undo', 'changed-since']);
  expect(lines[0]?.item).toMatchObject({ change: { sku: '10', subsidiaryId: 's1', qty: 4 }, asOfSeq: 0 });
  const [line] = lines;
  if (!line?.item) throw new Error('Nothing to undo.');
  out.intake.accept([line.item], { source: 'cli', guards: GUARDS_OFF, asOfSeq: 99 });
  const asOf = out.db.prepare(
    "SELECT as_of_seq FROM _outbox WHERE target = 'sku:10@s1' AND state = 'pending'",
  );
  expect(asOf.pluck().get()).toBe(0);
  send(out);
  expect(
    out.db.prepare("SELECT qty FROM stocks WHERE sku = '10' AND subsidiary_id = 's1'").pluck().get(),
  ).toBe(4);
});

it('undo gives a price its earlier value, and one that has not left its count', () => {
  const out = swept();
  const price = (price: number): SubmittedChange => ({
    kind: 'product',
    change: { sku: '10', price },
    reference: 'prices',
  });
  for (const each of [1500, 1700]) {
    out.intake.accept([price(each)], { source: 'http', guards: GUARDS_OFF });
    send(out);
  }
  expect(short(out, { reference: 'prices' })).toEqual([
    { target: 'sku:10', verdict: 'undo', now: { price: 1700 }, before: { price: 1000 } },
  ]);
  handOver(out, { A: 4 }, 'good');
  send(out);
  handOver(out, { A: 0, B: 1 }, 'waits');
  expect(short(out, { reference: 'waits' })).toMatchObject([
    { verdict: 'undo', before: { qty: 4 } },
    { verdict: 'unknown', before: null },
  ]);
});

it('undo gives back the value that waited to be sent, where a wrong one took its place', () => {
  const out = swept();
  const price = (price: number, reference: string): SubmittedChange => ({
    kind: 'product',
    change: { sku: '10', price },
    reference,
  });
  handOver(out, { A: 10 }, 'old');
  send(out);
  out.clock.jumpWall(60_000);
  const since = isoUtc(out.clock.nowMs());
  handOver(out, { A: 2 }, 'good');
  out.intake.accept([price(1500, 'good')], { source: 'http', guards: GUARDS_OFF });
  handOver(out, { A: 0 }, 'wrong');
  out.intake.accept([price(15, 'wrong')], { source: 'http', guards: GUARDS_OFF });
  // The same hand-over again takes the place of its own value.
  handOver(out, { A: 1 }, 'wrong');
  for (const sending of [false, true]) {
    if (sending) send(out);
    expect(short(out, { reference: 'wrong' })).toMatchObject([
      { verdict: 'undo', now: { price: 15 }, before: { price: 1500 } },
      { verdict: 'undo', now: { qty: 1 }, before: { qty: 2, asOfSeq: 0 } },
    ]);
    // The value that waited is of the same time, so an undo of that time goes back to the value before it.
    expect(short(out, { since, branch: 's1' })).toMatchObject([{ verdict: 'undo', before: { qty: 10 } }]);
  }
});

it('undo gives back the value that waited, and the visibility that the platform had', () => {
  const out = swept();
  handOver(out, { A: 10 }, 'old');
  send(out);
  handOver(out, { A: 2 }, 'good');
  const change = { externalId: 'A', qty: 0, show: false, subsidiaryId: 's1' };
  const wrong: SubmittedChange = { kind: 'stock', change, reference: 'wrong' };
  out.intake.accept([wrong], { source: 'cli', guards: GUARDS_OFF });
  send(out);
  expect(short(out, { reference: 'wrong' })).toEqual([
    {
      target: 'sku:10@s1',
      verdict: 'undo',
      now: { qty: 0, show: false },
      before: { qty: 2, show: true, asOfSeq: 0 },
    },
  ]);
});

it('undo follows an id to the stock that it means now, and leaves what was counted there since', () => {
  const out = swept();
  const lines = () =>
    undoLines(out.db, { reference: 'wrong' }, (name) => {
      const resolution = out.resolve({ kind: 'stock', change: { ...name, qty: 0 } });
      return resolution.state === 'resolved' ? resolution.target.key : undefined;
    }).map(({ target, verdict, item }) => [target, verdict, item?.change]);
  const back = { externalId: 'A', subsidiaryId: 's1', qty: 5 };
  for (const [qtys, reference] of [
    [{ A: 5 }, 'good'],
    [{ A: 50 }, 'wrong'],
    [{ B: 8 }, 'other'],
  ] as const) {
    handOver(out, qtys, reference);
    send(out);
  }
  expect(lines()).toEqual([['sku:10@s1', 'undo', back]]);
  const swapped = [
    { sku: '10', stocks: { s1: ['B', 50] } },
    { sku: '11', stocks: { s1: ['A', 8] } },
  ] as Parameters<typeof product>[2];
  out.sweep([product('p1', 'Tea', swapped)]);
  send(out);
  expect(lines()).toEqual([['sku:11@s1', 'undo', back]]);
  handOver(out, { A: 6 }, 'later');
  expect(lines()).toEqual([['sku:11@s1', 'changed-since', back]]);
});
