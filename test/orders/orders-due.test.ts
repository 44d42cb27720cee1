import { expect, it } from 'vitest';
import { sqlOf } from '../../src/db/sqlite.ts';
import { readBoard } from '../../src/orders/reading/order-queries.ts';
import { OBSERVED_MS, openTestMirror, poll, receive, sampleNotification } from './open-test-mirror.ts';

const HOUR_MS = 3_600_000;
const inHours = (hours: number) => new Date(Date.now() + hours * HOUR_MS).toISOString();

function scheduled(number: number, scheduledDate: string | undefined, more: Record<string, unknown> = {}) {
  const createdAt = `2026-01-0${number}T10:00:00.000Z`;
  return sampleNotification(number, { isScheduled: true, scheduledDate, createdAt, ...more });
}

function dueRows(mirror: ReturnType<typeof openTestMirror>['mirror']) {
  const sql =
    'SELECT code, due_at AS dueAt, due_in_minutes AS dueInMinutes, acked_at AS ackedAt, status FROM orders_due ORDER BY due_at, code';
  return mirror.read((db) =>
    sqlOf(db).rows<{
      code: number;
      dueAt: string | null;
      dueInMinutes: number | null;
      ackedAt: string | null;
    }>(sql),
  );
}

it('lists what is scheduled and not over by when it is due', async () => {
  const { mirror } = openTestMirror();
  const [late, soon, later] = [inHours(-1.01), inHours(2.01), inHours(30.01)];
  await receive(mirror, scheduled(1, later), scheduled(2, late), sampleNotification(3), scheduled(4, soon));
  await poll(mirror, [scheduled(5, 'mañana a las 8'), scheduled(6, undefined)]);
  await mirror.write((db) =>
    sqlOf(db).run(
      "INSERT INTO _order_acks (order_id, branch, acked_at, source) SELECT order_id, '', ?, ? FROM orders WHERE code = 4",
      ...['2026-01-15T12:00:00.000Z', 'http'],
    ),
  );
  expect(dueRows(mirror)).toMatchObject([
    { code: 5, dueAt: null, dueInMinutes: null },
    { code: 6, dueAt: null, dueInMinutes: null },
    { code: 2, dueAt: late, dueInMinutes: -60, ackedAt: null },
    { code: 4, dueAt: soon, dueInMinutes: 120, ackedAt: '2026-01-15T12:00:00.000Z' },
    { code: 1, dueAt: later, dueInMinutes: 1800 },
  ]);
  await receive(
    mirror,
    scheduled(4, soon, { status: 'dispatched' }),
    scheduled(2, late, { status: 'cancel' }),
  );
  expect(dueRows(mirror).map(({ code }) => code)).toEqual([5, 6, 1]);
  expect(mirror.orders.list({ due: true, limit: 3 }).map(({ code }) => code)).toEqual([5, 6, 1]);
});

it('leaves out an order that the platform says is not scheduled', async () => {
  const { mirror } = openTestMirror();
  await receive(mirror, scheduled(1, inHours(1), { isScheduled: false }));
  expect(dueRows(mirror)).toEqual([]);
  await receive(mirror, scheduled(2, inHours(1), { isScheduled: undefined }));
  expect(dueRows(mirror)).toMatchObject([{ code: 2 }]);
});

it('has on the board what is due next, however long ago it was placed', async () => {
  const { mirror } = openTestMirror();
  const due = inHours(1);
  await receive(mirror, scheduled(1, due), ...[12, 13, 14].map((number) => sampleNotification(number)));
  const board = mirror.read((db) => readBoard(db, { open: 1, ended: 10 }, OBSERVED_MS));
  expect(board).toHaveLength(2);
  expect(board.find(({ code }) => code === 1)).toMatchObject({ isScheduled: true, scheduledFor: due });
  expect(board.find(({ code }) => code !== 1)).toMatchObject({ isScheduled: false, scheduledFor: null });
});

it('reads the view and the board by the index of scheduled orders', () => {
  const { mirror } = openTestMirror();
  const plan = mirror.read((db) =>
    sqlOf(db).rows<{ detail: string }>('EXPLAIN QUERY PLAN SELECT * FROM orders_due ORDER BY scheduled_for'),
  );
  expect(plan[0]?.detail).toContain('orders_scheduled');
  expect(plan.map(({ detail }) => detail).join()).not.toContain('TEMP B-TREE');
});
