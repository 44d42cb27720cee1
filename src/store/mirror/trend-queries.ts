import type Database from 'better-sqlite3';
import { HOUR_MS, lastHours, quantile, type TrendHour } from '../../domain/health/trends.ts';
import { isoUtc } from '../../domain/time/clock.ts';

/** Settled changes of one hour that are looked at, newest first: what bounds the time this takes. */
const SAMPLE = 500;

interface Settled {
  createdAt: string;
  settledAt: string;
}

/** Orders and pushed changes of the last hours, oldest first: reads by the indexes on their times. */
export function readTrends(db: Database.Database, nowMs: number, hours: number): TrendHour[] {
  const orders = db.prepare<[string, string], number>(
    'SELECT count(*) FROM orders WHERE created_at >= ? AND created_at < ?',
  );
  const settled = db.prepare<[string, string, number], Settled & { state: string }>(
    `SELECT state, created_at AS createdAt, settled_at AS settledAt FROM outbox
     WHERE settled_at >= ? AND settled_at < ? ORDER BY settled_at DESC LIMIT ?`,
  );
  const settledCount = db.prepare<[string, string], number>(
    'SELECT count(*) FROM outbox WHERE settled_at >= ? AND settled_at < ?',
  );
  return lastHours(nowMs, hours).map((fromMs) => {
    const from = isoUtc(fromMs);
    const to = isoUtc(fromMs + HOUR_MS);
    const sample = settled.all(from, to, SAMPLE);
    const delays = sample.filter(({ state }) => state === 'done').map(delayMs);
    // Of more than the sample, its share of sent ones speaks for all.
    const all = sample.length < SAMPLE ? sample.length : (settledCount.pluck().get(from, to) ?? 0);
    const pushed = sample.length === 0 ? 0 : Math.round((delays.length / sample.length) * all);
    const [pushMedianMs, pushP95Ms] = [quantile(delays, 0.5), quantile(delays, 0.95)];
    return { from, orders: orders.pluck().get(from, to) ?? 0, pushed, pushMedianMs, pushP95Ms };
  });
}

function delayMs({ createdAt, settledAt }: Settled): number {
  return Math.max(Date.parse(settledAt) - Date.parse(createdAt), 0);
}
