import { expect, it } from 'vitest';
import { orderHistory } from '../../src/orders/reading/order-queries.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import type { InboxAck, InboxBatch } from '../../src/outbox/intake/inbox.ts';
import { takeOn } from '../support/take-on-role.ts';
import { HOLDING, holding } from './held-back-steps.ts';
import { order, type outgoing } from './outbox-fixture.ts';

type Out = ReturnType<typeof outgoing>;

const isoAt = (out: Out) => new Date(out.clock.nowMs()).toISOString();
const tick = (out: Out) => out.clock.jumpWall(1_000);

function ack(
  orderId: string,
  { seq = null, handedAt = null, without = [] }: Partial<InboxAck> = {},
): InboxAck {
  const key = `ack:${orderId}-${seq}-${handedAt}`;
  return { table: 'order_acks', id: '1', key, keyHex: '01', tooLong: null, orderId, seq, handedAt, without };
}

function count(qty: number, handedAt: string | null): InboxBatch['changes'][number] {
  const row = { table: 'stock_changes', id: '1', key: `stock:${qty}`, keyHex: '01', tooLong: null } as const;
  return { ...row, kind: 'stock', reference: null, handedAt, value: { externalId: 'B', qty } };
}

const ingest = (out: Out, batch: Partial<InboxBatch>) =>
  out.inbox.ingest({ changes: [], acks: [], more: false, ...batch }, GUARDS_OFF);

/** Sends everything that waits, then returns the wanted quantity of the only counted stock. */
function wanted(out: Out): number {
  for (;;) {
    const { callId, items } = out.dispatcher.claim('stock', 100, HOLDING);
    if (callId === null) break;
    out.dispatcher.settle(
      callId,
      items.map(({ changeId }) => ({ changeId, state: 'done' })),
    );
  }
  return Number(out.db.prepare('SELECT wanted_qty FROM _stock_ledger').pluck().get());
}

it('an acknowledgement of the inbox is as of the event that it names, and one ahead is refused by name', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  order(out, 'o2', 'B1', [['B', 1]]);
  out.dispatcher.catchUp({ holdBack: true });
  order(out, 'o1', 'B1', [['B', 5]]);
  out.accept('stock', [{ externalId: 'B', qty: 20 }]);
  const { acks } = ingest(out, { acks: [ack('o1', { seq: 1 }), ack('o2', { seq: 99 }), ack('o3')] });
  expect(acks.map(({ state }) => state)).toEqual(['new', 'rejected', 'unheard']);
  expect(out.db.prepare('SELECT order_id, seq, message FROM refused_acks').all()).toEqual([
    { order_id: 'o2', seq: 99, message: 'Event 99 lies ahead: the newest event of the feed is 3.' },
  ]);
  expect(wanted(out)).toBe(16);
  ingest(out, { acks: [ack('o2', { seq: 2 })] });
  expect(out.db.prepare('SELECT count(*) FROM refused_acks').pluck().get()).toBe(0);
  expect(wanted(out)).toBe(17);
});

it('an order number in the inbox is refused with the orderId, until that order is acknowledged', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  out.db.prepare("UPDATE _orders SET code = 32 WHERE order_id = 'o1'").run();
  const { acks } = ingest(out, { acks: [ack('32')] });
  expect(acks).toMatchObject([{ orderId: '32', state: 'rejected' }]);
  expect(orderHistory(out.db, 'o1').refused?.message).toContain('Order 32 has the orderId o1');
  expect(out.db.prepare('SELECT count(*) FROM order_acks').pluck().get()).toBe(0);
  order(out, 'o2', 'B1', [['B', 1]]);
  out.db.prepare("UPDATE _orders SET code = 32 WHERE order_id = 'o2'").run();
  const several = ingest(out, { acks: [ack('32', { seq: 1 })] }).acks[0]?.message;
  expect(several).toContain('Orders with that number have the orderIds o2, o1');
  ingest(out, { acks: [ack('o1')] });
  expect(orderHistory(out.db, 'o2').refused).toBe(null);
});

it('an acknowledgement in the inbox is as of the event that was the newest when it was inserted', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  out.dispatcher.catchUp({ holdBack: true });
  tick(out);
  const handedAt = isoAt(out);
  tick(out);
  order(out, 'o1', 'B1', [['B', 5]]);
  out.accept('stock', [{ externalId: 'B', qty: 20 }]);
  ingest(out, { acks: [ack('o1', { handedAt })] });
  expect(wanted(out)).toBe(17);
  ingest(out, { acks: [ack('o1', { handedAt: isoAt(out) })] });
  expect(wanted(out)).toBe(20);
});

it('a count in the inbox contains no order that was heard of after it was inserted', () => {
  const out = holding();
  tick(out);
  const handedAt = isoAt(out);
  tick(out);
  order(out, 'o1', 'B1', [['B', 2]]);
  tick(out);
  ingest(out, { changes: [count(20, handedAt)] });
  out.reservations.acknowledge(['o1'], 'http');
  expect(wanted(out)).toBe(18);
  ingest(out, { changes: [count(19, isoAt(out))] });
  expect(wanted(out)).toBe(19);
});

it('a count in the inbox after the clock was set back contains what was heard of before', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  out.clock.jumpWall(-3_600_000);
  ingest(out, { changes: [count(18, isoAt(out))], acks: [ack('o1', { handedAt: isoAt(out) })] });
  expect(wanted(out)).toBe(18);
});

it('an acknowledgement by a command waits for the counts that lie in the inbox', () => {
  const out = holding();
  out.accept('stock', [{ externalId: 'B', qty: 40 }]);
  order(out, 'o1', 'B1', [['B', 2]]);
  tick(out);
  out.accept('stock', [{ externalId: 'B', qty: 40 }]);
  expect(wanted(out)).toBe(38);
  tick(out);
  const inserted = count(38, isoAt(out));
  tick(out);
  const typed = () => out.reservations.acknowledge(['o1'], 'cli', { beforeInbox: isoAt(out) })[0]?.state;
  expect([typed(), typed()]).toEqual(['new', 'known']);
  expect(wanted(out)).toBe(38);
  ingest(out, { changes: [inserted] });
  expect(out.intake.mayComeLate(isoAt(out))).toBe(true);
  out.intake.inboxWasEmpty(isoAt(out));
  expect(out.intake.mayComeLate(isoAt(out))).toBe(false);
  expect(out.db.prepare('SELECT booked_version FROM _stock_steps').pluck().all()).not.toContain(null);
  expect(wanted(out)).toBe(38);
});

it('an acknowledgement by a command of an order that is not heard of yet waits for the inbox too', () => {
  const out = holding();
  out.reservations.acknowledge(['o1'], 'cli', { beforeInbox: isoAt(out) });
  order(out, 'o1', 'B1', [['B', 2]]);
  out.accept('stock', [{ externalId: 'B', qty: 20 }]);
  expect(wanted(out)).toBe(18);
  out.intake.inboxWasEmpty(isoAt(out));
  expect(wanted(out)).toBe(20);
});

it('a branch acknowledges an order again before the first acknowledgement went up, also in one batch', () => {
  const out = holding();
  takeOn(out.db, 'branch');
  out.db.exec("INSERT INTO _link (one, line) VALUES (1, 'uplink')");
  order(out, 'o1', 'B1', [['B', 2]]);
  out.dispatcher.catchUp({ holdBack: true });
  order(out, 'o1', 'B1', [['B', 5]]);
  out.dispatcher.catchUp({ holdBack: true });
  const { acks } = ingest(out, { acks: [ack('o1', { seq: 1 }), ack('o1', { seq: 2 })] });
  expect(acks.map(({ state }) => state)).toEqual(['new', 'new']);
  order(out, 'o1', 'B1', [['B', 9]]);
  out.dispatcher.catchUp({ holdBack: true });
  expect(out.reservations.acknowledge(['o1'], 'http')).toMatchObject([{ state: 'new' }]);
  expect(out.db.prepare('SELECT order_id FROM _up_acks').pluck().all()).toEqual(['o1']);
});
