import type Database from 'better-sqlite3';
import { expect } from 'vitest';
import type { Alarms } from '../../src/core/alarm.ts';
import type { Clock } from '../../src/core/time.ts';
import type { Leases } from '../../src/db/lease.ts';
import { retentionRun } from '../../src/health/retention.ts';
import type { RetentionSettings } from '../../src/health/retention-rules.ts';
import { isEnded, type OrderSource } from '../../src/orders/merging/order.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { observation, sampleNotification } from './open-test-mirror.ts';

type RetentionReport = Awaited<ReturnType<typeof retentionRun>>;

type RetentionOptions = Parameters<typeof retentionRun>[0];

export const DAY_MS = 86_400_000;
export const START_MS = Date.UTC(2026, 0, 1);
const SETTINGS: RetentionSettings = {
  eventsMs: 90 * DAY_MS,
  payloadsMs: 30 * DAY_MS,
  ordersMs: 400 * DAY_MS,
  outboxMs: 30 * DAY_MS,
  quarantineMs: 90 * DAY_MS,
  maxBytes: 1024 ** 3,
  personalDataMs: 0,
};
const log = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, fatal() {} };

/** Makes a clock whose wall time stands still. Its monotonic time advances only by sleeps, which take no real time. */
function clockOn(day: number): Clock {
  let monoMs = 0;
  return {
    bootId: 'boot',
    nowMs: () => START_MS + day * DAY_MS,
    monotonicMs: () => monoMs,
    sleep: async (ms) => {
      monoMs += ms;
    },
  };
}

interface RunOptions {
  settings?: Partial<RetentionSettings>;
  /** Methods that replace those of the mirror. */
  mirror?: Partial<RetentionOptions['mirror']>;
  leases?: Partial<Leases>;
  /** How far the platform's clock is ahead of the machine's. */
  skewMs?: number;
}

export async function run(mirror: Mirror, day: number, options: RunOptions = {}) {
  const told: string[] = [];
  const taken: string[] = [];
  const alarms: Alarms = {
    note: (key, trouble) => told.push(`${trouble === null ? '-' : '+'}${key}`),
  };
  const leases: Leases = {
    acquire: (name) => taken.push(name),
    renew: () => true,
    release: (name) => taken.push(`end of ${name}`),
    ...options.leases,
  };
  const report: RetentionReport = await retentionRun(
    {
      mirror: {
        read: (action) => mirror.read(action),
        write: (action) => mirror.write(action),
        hasRoomInWal: () => mirror.hasRoomInWal(),
        customers: mirror.customers,
        ...options.mirror,
      },
      settings: { ...SETTINGS, ...options.settings },
      leases,
      alarms,
      log,
      clock: clockOn(day),
      skewMs: () => options.skewMs ?? 0,
      beat: () => {},
    },
    new AbortController().signal,
  );
  return { ...report, told, taken };
}

export const at = (day: number) => START_MS + day * DAY_MS;
export const idOf = (number: number) => String(sampleNotification(number).internalOrderId);

export async function keep(
  mirror: Mirror,
  day: number,
  number: number,
  status: string,
  source: OrderSource = 'poll',
) {
  const sent = { ...sampleNotification(number, { status }), nonce: `${day}` };
  const extra = { observedAtMs: at(day) };
  await mirror.save([{ kind: 'order', observation: observation(source, sent, extra) }]);
}

export function ack(mirror: Mirror, number: number) {
  return mirror.write((db) =>
    db
      .prepare(
        "INSERT OR IGNORE INTO _order_acks (order_id, branch, acked_at, source) VALUES (?, '', '2026-01-01T00:00:00Z', 'test')",
      )
      .run(idOf(number)),
  );
}

export function rows<Row>(mirror: Mirror, sql: string): Row[] {
  return mirror.read((db) => db.prepare<[], Row>(sql).all());
}
export const seqs = (mirror: Mirror) => mirror.orders.eventsAfter(0, 10_000).map(({ seq }) => seq);
export const writes = (mirror: Mirror) => mirror.read((db) => [mirror.walBytes(), db.pragma('data_version')]);

interface Snapshot {
  newestSeq: number;
  orders: { id: string; status: string | null; seq: number; updatedAt: string; payload: string }[];
  events: { seq: number; id: string; at: string }[];
  payloads: { key: number; id: string; at: string }[];
  unbooked: { id: string; seq: number }[];
}

export function snapshot(mirror: Mirror): Snapshot {
  return {
    newestSeq: mirror.orders.newestSeq(),
    orders: rows(mirror, 'SELECT order_id AS id, status, seq, updated_at AS updatedAt, payload FROM orders'),
    events: rows(mirror, 'SELECT seq, order_id AS id, observed_at AS at FROM order_events'),
    payloads: rows(
      mirror,
      'SELECT payload_id AS key, order_id AS id, received_at AS at FROM _order_payloads',
    ),
    unbooked: rows(
      mirror,
      'SELECT order_id AS id, min(seq) AS seq FROM _stock_steps WHERE booked_version IS NULL GROUP BY 1',
    ),
  };
}

/** Checks that retention kept the documented promises, without calling the rules of retention. */
export function judge(
  before: Snapshot,
  after: Snapshot,
  { day, tight, acked }: { day: number; tight: boolean; acked: ReadonlySet<string> },
): void {
  const older = (iso: string, days: number) => Date.parse(iso) < at(day) - days * DAY_MS;
  const orderOf = (id: string) => before.orders.find((order) => order.id === id);
  const isUnread = ({ id, status }: Snapshot['orders'][number]) =>
    acked.size > 0 && !acked.has(id) && status === 'dispatched';
  const kept = <Row extends object>(list: Row[], row: Row) =>
    list.some((each) => JSON.stringify(each) === JSON.stringify(row));
  expect(after.newestSeq).toBe(before.newestSeq);
  expect(after.unbooked).toEqual(before.unbooked);
  for (const order of before.orders.filter((each) => !kept(after.orders, each))) {
    expect(isEnded(order.status)).toBe(true);
    expect(older(order.updatedAt, 400)).toBe(true);
    expect(before.unbooked.map(({ id }) => id)).not.toContain(order.id);
    expect(isUnread(order)).toBe(false);
  }
  for (const event of before.events.filter((each) => !kept(after.events, each))) {
    const order = orderOf(event.id);
    expect(older(event.at, tight ? 7 : 90)).toBe(true);
    expect(event.seq).not.toBe(before.newestSeq);
    expect(before.unbooked.map(({ seq }) => seq)).not.toContain(event.seq);
    if (order && kept(after.orders, order)) expect(event.seq).not.toBe(order.seq);
    if (order) expect(isEnded(order.status) && !isUnread(order)).toBe(true);
  }
  for (const payload of before.payloads.filter((each) => !kept(after.payloads, each))) {
    expect(older(payload.at, tight ? 1 : 30)).toBe(true);
    expect(isEnded(orderOf(payload.id)?.status)).toBe(true);
  }
  for (const order of after.orders) {
    expect(
      after.events.some(({ seq }) => seq === order.seq),
      'its newest event',
    ).toBe(true);
  }
}

/**
 * Adds to the stock ledger an order that takes pieces since the event `seq`; by default, since the order's newest
 * event.
 */
export function holdBack(db: Database.Database, orderId: string, seq?: number): void {
  db.prepare(
    `INSERT OR IGNORE INTO _ledger_orders (order_id, seq, first_seq, takes, placed_ms, places)
     SELECT order_id, coalesce(@seq, seq), 0, 1, 0, '{}' FROM orders WHERE order_id = @orderId`,
  ).run({ orderId, seq: seq ?? null });
  db.prepare(
    `INSERT INTO _stock_steps (sku, subsidiary_id, order_id, seq, qty, placed_ms, is_first)
     SELECT '10', 's1', order_id, seq, 1, 0, 1 FROM _ledger_orders
     WHERE order_id = ? AND order_id NOT IN (SELECT order_id FROM _stock_steps)`,
  ).run(orderId);
}
