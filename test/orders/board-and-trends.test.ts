import { expect, it } from 'vitest';
import { readBoard, readTrends } from '../../src/orders/reading/order-queries.ts';
import { openTestMirror, poll, receive, sampleNotification } from './open-test-mirror.ts';

const NOW_MS = Date.parse('2026-01-15T12:34:56.000Z');

function order(number: number, status: string, createdAt = `2026-01-15T10:00:0${number % 10}.000Z`) {
  return sampleNotification(number, { status, createdAt });
}

it('shows the newest open orders, then those that ended last', async () => {
  const { mirror } = openTestMirror();
  const orders = [order(1, 'ready'), order(2, 'pending'), order(3, 'inProcess'), order(4, 'ready')];
  await receive(mirror, ...orders, order(4, 'dispatched'), order(2, 'cancel'));
  const board = (open: number, ended: number) =>
    mirror
      .read((db) => readBoard(db, { open, ended }, NOW_MS))
      .map(({ code, status }) => `${code} ${status}`);
  expect(board(10, 10)).toEqual(['3 inProcess', '1 ready', '2 cancel', '4 dispatched']);
  expect(board(1, 1)).toEqual(['3 inProcess', '2 cancel']);
  expect(mirror.read((db) => readBoard(db, { open: 1, ended: 0 }, NOW_MS))[0]).toMatchObject({
    customerFirstName: 'Ana',
    deliveryType: 'delivery',
    amountToPay: 15990,
    createdAt: '2026-01-15T10:00:03.000Z',
  });
});

it('shows the orders that ended before the numbers of events jumped', async () => {
  const { mirror } = openTestMirror();
  await receive(mirror, order(1, 'dispatched'));
  await mirror.write((db) =>
    db.exec("UPDATE sqlite_sequence SET seq = seq + 1000000 WHERE name = 'order_events'"),
  );
  await receive(mirror, order(2, 'dispatched'));
  const ended = mirror.read((db) => readBoard(db, { open: 1, ended: 10 }, NOW_MS));
  expect(ended.map(({ code }) => code)).toEqual([2, 1]);
});

it('counts orders in the hour of their creation, the present one last', async () => {
  const { mirror } = openTestMirror();
  const at = ['11:59:59.999', '12:00:00.000', '12:34:56.000', '13:00:00.000', '09:00:00.000'];
  const records = at.map((time, i) => order(i, 'ready', `2026-01-15T${time}Z`));
  await poll(mirror, [...records, order(8, 'ready', '15/01/2026 a las 12'), order(9, 'ready', '')]);
  const hours = mirror.read((db) => readTrends(db, NOW_MS, 4));
  expect(hours.map(({ from, orders }) => [from, orders])).toEqual([
    ['2026-01-15T09:00:00.000Z', 1],
    ['2026-01-15T10:00:00.000Z', 0],
    ['2026-01-15T11:00:00.000Z', 1],
    ['2026-01-15T12:00:00.000Z', 2],
  ]);
});

it('tells how long changes took to the platform, of those that it took', async () => {
  const { mirror } = openTestMirror();
  await mirror.write((db) => {
    const insert = db.prepare(`
      INSERT INTO _outbox (kind, target, conflict_key, body, fields, state, created_at, settled_at, priority,
        queue_seq, basis, source, version)
      VALUES ('stock', 't', 'k', '{}', 'qty', ?, ?, ?, 1, 1, 'mirror', 'http', 1)`);
    const settled = (state: string, at: string, tookMs: number) =>
      insert.run(
        state,
        new Date(Date.parse(at) - tookMs).toISOString(),
        new Date(Date.parse(at)).toISOString(),
      );
    for (let i = 1; i <= 100; i += 1) settled('done', '2026-01-15T12:10:00.000Z', i * 10);
    settled('rejected', '2026-01-15T12:10:00.000Z', 900_000);
    settled('superseded', '2026-01-15T12:10:00.000Z', 900_000);
    for (let i = 0; i < 900; i += 1) {
      settled(i % 3 === 0 ? 'superseded' : 'done', '2026-01-15T11:20:00.000Z', 40);
    }
  });
  const [before, last] = mirror.read((db) => readTrends(db, NOW_MS, 2));
  expect(last).toMatchObject({ pushed: 100, pushMedianMs: 500, pushP95Ms: 950 });
  expect(before).toMatchObject({ pushMedianMs: 40, pushP95Ms: 40 });
  expect(before?.pushed).toBeGreaterThan(590);
  expect(before?.pushed).toBeLessThan(610);
});

it('goes by the indexes alone, however many orders and changes there are', () => {
  const { mirror } = openTestMirror();
  const plans: string[] = [];
  mirror.read((db) => {
    const watched = new Proxy(db, {
      get(target, key) {
        if (key !== 'prepare') return Reflect.get(target, key);
        return (sql: string) => {
          const holes = (sql.match(/\?/g) ?? []).map(() => 1);
          const rows = target
            .prepare<number[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`)
            .all(...holes);
          plans.push(...rows.map(({ detail }) => detail));
          return target.prepare(sql);
        };
      },
    });
    readBoard(watched, { open: 1, ended: 1 }, NOW_MS);
    readTrends(watched, NOW_MS, 1);
  });
  expect(plans.length).toBeGreaterThan(4);
  // These indexes and tables are small, so scanning them is accepted.
  const small = /orders_open|orders_scheduled|CONSTANT|SUBQUERY/;
  const slow = plans.filter((plan) => /SCAN|TEMP B-TREE/.test(plan) && !small.test(plan));
  expect(slow).toEqual([]);
});
