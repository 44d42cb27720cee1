import type Database from 'better-sqlite3';
import { isKnownStatus } from '../../domain/order/order-status.ts';
import { Counter, type MetricFamily } from '../../local/metrics/metric-family.ts';

/** Events looked at in one scrape: after a first import the figures catch up over the next few. */
const EVENTS_AT_ONCE = 20_000;

interface EventRow {
  source: string;
  status: string | null;
  isFirst: number;
  events: number;
}

/** Counts the change feed from where it stood at the start, whichever process wrote it. */
export class EventCounts {
  readonly #orders = new Counter({
    name: 'tillsync_orders_received_total',
    help: 'Orders seen for the first time since the start, by the way they came.',
    labels: ['source'],
  });
  readonly #events = new Counter({
    name: 'tillsync_order_events_total',
    help: 'Entries of the change feed since the start, by the way they came and the status they brought.',
    labels: ['source', 'status'],
  });
  #seq: number;

  constructor(newestSeq: number) {
    this.#seq = newestSeq;
    for (const source of ['webhook', 'poll']) this.#orders.add(0, { source });
  }

  families(db: Database.Database, newestSeq: number): MetricFamily[] {
    const to = Math.min(newestSeq, this.#seq + EVENTS_AT_ONCE);
    if (to > this.#seq) {
      const rows = db
        .prepare<[number, number], EventRow>(
          `SELECT source, status, previous_status IS NULL AS isFirst, count(*) AS events FROM order_events
           WHERE seq > ? AND seq <= ? GROUP BY source, status, isFirst`,
        )
        .all(this.#seq, to);
      this.#seq = to;
      for (const { source, status, isFirst, events } of rows) {
        this.#events.add(events, { source, status: statusLabel(status) });
        if (isFirst === 1) this.#orders.add(events, { source });
      }
    }
    return [this.#orders, this.#events];
  }
}

/** The platform may send any text; only those of its document become a label. */
export function statusLabel(status: string | null): string {
  if (status === null) return 'none';
  return isKnownStatus(status) ? status : 'other';
}
