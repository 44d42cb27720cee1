import type Database from 'better-sqlite3';

/** Events of the order feed that are looked through at first; older confirmations are not trusted. */
const LOOK_BACK_EVENTS = 20_000;

/**
 * Which products were part of an order since when, so that a value which the mirror seems to have already is not
 * taken for the platform's when an order may have changed it since. Read from the order feed as it grows. An item
 * with modifiers carries no id (document, "Item"), so it touches the product of its name, or, where the mirror
 * has no such name, everything.
 */
export class SoldSince {
  readonly #newest: Database.Statement<[], number>;
  readonly #events: Database.Statement<[number, number], SoldItem>;
  readonly #nameOf: Database.Statement<[string], string | null>;
  readonly #lastSeq = new Map<string, number>();
  readonly #lastSeqOfName = new Map<string, number>();
  #lastSeqOfUnknown = 0;
  #from: number | undefined;
  #scannedTo = 0;

  constructor(db: Database.Database) {
    this.#newest = db.prepare<[], number>('SELECT coalesce(max(seq), 0) FROM order_events').pluck();
    this.#events = db.prepare(`
      SELECT e.seq, i.product_external_id AS externalId, i.product_name AS name,
        i.product_external_id IS NULL AND EXISTS (SELECT 1 FROM products p WHERE p.name = i.product_name) AS isNamed
      FROM order_events e JOIN order_items i USING (order_id)
      WHERE e.seq > ? AND e.seq <= ?`);
    this.#nameOf = db
      .prepare<[string], string | null>(
        'SELECT name FROM skus JOIN products USING (product_id) WHERE sku = ?',
      )
      .pluck();
  }

  /** Takes in what the feed has brought since the last time. */
  catchUp(): void {
    const newest = this.#newest.get() ?? 0;
    this.#from ??= Math.max(0, newest - LOOK_BACK_EVENTS);
    this.#scannedTo = Math.max(this.#scannedTo, this.#from);
    for (const { seq, externalId, name, isNamed } of this.#events.iterate(this.#scannedTo, newest)) {
      if (externalId !== null) raise(this.#lastSeq, externalId, seq);
      else if (isNamed && name !== null) raise(this.#lastSeqOfName, name, seq);
      else this.#lastSeqOfUnknown = Math.max(seq, this.#lastSeqOfUnknown);
    }
    this.#scannedTo = Math.max(this.#scannedTo, newest);
  }

  /** Whether no order that may hold the sku was heard of after `seq`. Branches are not told apart. */
  isUntouchedSince(seq: number, sku: string, externalIds: readonly string[]): boolean {
    if (seq < (this.#from ?? 0) || this.#lastSeqOfUnknown > seq) return false;
    if (this.#lastSeqOfName.size > 0) {
      const name = this.#nameOf.get(sku);
      if (name != null && (this.#lastSeqOfName.get(name) ?? 0) > seq) return false;
    }
    return externalIds.every((externalId) => (this.#lastSeq.get(externalId) ?? 0) <= seq);
  }
}

interface SoldItem {
  seq: number;
  externalId: string | null;
  name: string | null;
  isNamed: number;
}

function raise(lastSeq: Map<string, number>, key: string, seq: number): void {
  lastSeq.set(key, Math.max(seq, lastSeq.get(key) ?? 0));
}
