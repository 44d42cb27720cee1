import { expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Change } from '../../src/outbox/intake/change.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { comeBackMs, WAITING_MAX } from '../../src/outbox/sending/call-plan.ts';
import { outgoing, product, SEND_ALL } from './outbox-fixture.ts';
import { done } from './swept-outbox.ts';
import { insert, pos, rowsOf, tempInbox } from './temp-inbox.ts';
import { fillLine } from './waiting-line.ts';

const GOODS = Array.from({ length: 8 }, (_, i) =>
  product(`p${i}`, `Product ${i}`, [{ sku: `${i}`, stocks: { s1: [`A${i}`, 50], s2: [`B${i}`, 50] } }]),
);

/** Makes a store of two branches; the first has room for only `room` more changes. */
function almostFull(room: number, ownName?: string) {
  const out = outgoing(undefined, undefined, undefined, { ownName });
  out.db.pragma('synchronous = OFF');
  out.sweep(GOODS);
  fillLine(out.db, 's1', WAITING_MAX - room);
  out.restart();
  const change = (externalId: string, qty: number): Change => ({
    kind: 'stock',
    change: { externalId, qty },
  });
  const take = (...items: [externalId: string, qty: number][]) => {
    const changes = items.map(([id, qty]) => change(id, qty));
    try {
      const how = { source: 'http', guards: GUARDS_OFF, whenFull: 'refuse' } as const;
      return out.intake.accept(changes, how).map(({ state }) => state);
    } catch (error) {
      return error as TillsyncError;
    }
  };
  return { ...out, take };
}

const waiting = ({ db }: { db: ReturnType<typeof outgoing>['db'] }) =>
  db.prepare<[], number>("SELECT count(*) FROM outbox WHERE state = 'pending'").pluck().get();

it('of a branch with 20,000 waiting takes no more, says when to come back, and leaves nothing half taken', () => {
  const out = almostFull(2);
  expect(out.take(['A0', 1], ['A1', 1])).toEqual(['pending', 'pending']);
  const before = waiting(out);
  const refused = out.take(['B0', 1], ['A2', 1]);
  expect(refused).toMatchObject({
    code: 'rate-limited',
    message:
      'Of branch s1 20000 changes wait to be sent, and no more are taken before some of them have left.',
    retryAfterMs: 5_000,
  });
  expect(waiting(out)).toBe(before);
});

it('counts what waits, however far apart its places in the queue are', () => {
  const out = almostFull(WAITING_MAX - 3);
  out.db
    .prepare("UPDATE _outbox SET queue_seq = queue_seq - 100000 WHERE state = 'pending' AND change_id = 1")
    .run();
  expect(out.take(['A0', 1], ['A1', 1], ['B0', 1])).toEqual(['pending', 'pending', 'pending']);
});

it('still takes what is sold out, what another branch has, and a newer value of what waits already', () => {
  const out = almostFull(1);
  expect(out.take(['A0', 1])).toEqual(['pending']);
  expect(out.take(['A0', 3], ['A0', 4])).toEqual(['pending', 'pending']);
  expect(out.take(['A5', 0], ['B5', 7])).toEqual(['pending', 'pending']);
  expect(out.take(['A6', 1])).toBeInstanceOf(TillsyncError);
  const { items } = out.dispatcher.claim('stock', 100, { ...SEND_ALL, skipUnchanged: false });
  expect(items[0]?.body).toMatchObject({ externalId: 'A5', qty: 0 });
});

it('has room again for each change that left', () => {
  const out = almostFull(0);
  expect(out.take(['A0', 1])).toBeInstanceOf(TillsyncError);
  const { callId, items } = out.dispatcher.claim('stock', 1, SEND_ALL);
  out.dispatcher.settle(callId ?? 0, done(items));
  expect(out.take(['A0', 1], ['A1', 1])).toBeInstanceOf(TillsyncError);
  expect(out.take(['A0', 1])).toEqual(['pending']);
});

it.each([
  ['a store of its own', undefined],
  ['a branch of a hub', 'B1'],
])(
  '%s lets the inbox wait: each row is taken once, in its order, and acknowledgements behind the counts',
  (_, ownName) => {
    const out = almostFull(2, ownName);
    const { path, inbox } = tempInbox();
    const db = pos(path);
    const counts: [string, number][] = [
      ['A0', 1],
      ['A1', 1],
      ['A0', 2],
      ['A2', 1],
      ['A3', 1],
    ];
    for (const [id, qty] of counts) insert(db, id, qty);
    db.exec("INSERT INTO order_acks (order_id) VALUES ('o1')");
    const look = () => {
      const report = out.inbox.ingest(inbox.read(), GUARDS_OFF);
      inbox.remove(rowsOf({ ...report.taken, alive: [], more: false }));
      out.inbox.forget(report.taken);
      return { taken: report.accepted.length, acks: report.acks.length, full: report.full?.code ?? null };
    };
    expect(look()).toEqual({ taken: 3, acks: 0, full: 'rate-limited' });
    expect(look()).toEqual({ taken: 0, acks: 0, full: 'rate-limited' });
    const send = () => {
      const { callId, items } = out.dispatcher.claim('stock', 1, SEND_ALL);
      out.dispatcher.settle(callId ?? 0, done(items));
    };
    send();
    expect(look()).toEqual({ taken: 1, acks: 0, full: 'rate-limited' });
    send();
    expect(look()).toEqual({ taken: 1, acks: 1, full: null });
    expect(inbox.read()).toMatchObject({ changes: [], acks: [] });
    expect(out.db.prepare("SELECT count(*) FROM _seen WHERE kind = 'inbox-row'").pluck().get()).toBe(0);
    const told = "SELECT json_extract(body, '$.qty') FROM _outbox WHERE target = 'sku:0@s1'";
    expect(out.db.prepare(told).pluck().all()).toEqual([2]);
  },
);

it('asks to come back later the more branches share the calls', () => {
  expect([0, 1, 10, 500].map(comeBackMs)).toEqual([5_000, 5_000, 50_000, 300_000]);
});
