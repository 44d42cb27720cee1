import type Database from 'better-sqlite3';

/** Events of the order feed that are looked through at first; older confirmations are not trusted. */
const LOOK_BACK_EVENTS = 20_000;

/**
 * Which products were part of an order since when, so that a value which the mirror seems to have already is not
 * taken for the platform's when an order may have changed it since. Read from the order feed as it grows.
 */
export class SoldSince {
  readonly #newest: Database.Statement<[], number>;
  readonly #events: Database.Statement<[number, number], { seq: number; externalId: string }>;
  readonly #lastSeq = new Map<string, number>();
  #from: number | undefined;
  #scannedTo = 0;

  constructor(db: Database.Database) {
    this.#newest = db.prepare<[], number>('SELECT coalesce(max(seq), 0) FROM order_events').pluck();
    this.#events = db.prepare(`
      SELECT e.seq, i.product_external_id AS externalId
      FROM order_events e JOIN order_items i USING (order_id)
      WHERE e.seq > ? AND e.seq <= ? AND i.product_external_id IS NOT NULL`);
  }

  /** Takes in what the feed has brought since the last time. */
  catchUp(): void {
    const newest = this.#newest.get() ?? 0;
    this.#from ??= Math.max(0, newest - LOOK_BACK_EVENTS);
    this.#scannedTo = Math.max(this.#scannedTo, this.#from);
    for (const { seq, externalId } of this.#events.iterate(this.#scannedTo, newest)) {
      this.#lastSeq.set(externalId, Math.max(seq, this.#lastSeq.get(externalId) ?? 0));
    }
    this.#scannedTo = Math.max(this.#scannedTo, newest);
  }

  /** Whether no order with any of these ids was heard of after `seq`. Branches are not told apart. */
  isUntouchedSince(seq: number, externalIds: readonly string[]): boolean {
    if (seq < (this.#from ?? 0)) return false;
    return externalIds.every((externalId) => (this.#lastSeq.get(externalId) ?? 0) <= seq);
  }
}
