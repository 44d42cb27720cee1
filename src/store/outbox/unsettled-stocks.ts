import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import { bodyOf } from './outbox-row.ts';

type Place = [sku: string, subsidiaryId: string];

/**
 * Stocks of which the mirror's quantity is not the platform's last word: a change for them is on its way, or orders
 * took something since the platform confirmed them, or are not booked yet. A count for one of them is never passed over
 * as unchanged; the sender judges it when its turn comes. To be read after the order feed was taken in.
 */
export class UnsettledStocks {
  readonly #targets: Database.Statement<[], string>;
  readonly #unresolved: Database.Statement<[], { body: string }>;
  readonly #moved: Database.Statement<[{ holdBack: number }], Place>;
  readonly #floor: Database.Statement<[], number>;
  readonly #confirmedBefore: Database.Statement<[number], Place>;
  readonly #places: Database.Statement<[string, string, string], Place>;
  readonly #placesOfSku: Database.Statement<[string], Place>;

  constructor(db: Database.Database) {
    // In parts, each of which an index answers: what is settled stays for a month.
    const open = ['pending', 'sending'].map((state) => `kind = 'stock' AND state = '${state}'`);
    this.#targets = db
      .prepare<[], string>(
        `SELECT target FROM outbox WHERE ${open[0]} AND held_guard IS NULL
         UNION ALL SELECT target FROM outbox WHERE ${open[0]} AND held_guard IS NOT NULL
         UNION ALL SELECT target FROM outbox WHERE ${open[1]}`,
      )
      .pluck();
    this.#unresolved = db.prepare(`
      SELECT body FROM outbox WHERE state IN ('pending', 'sending') AND basis <> 'mirror' AND kind = 'stock'`);
    this.#moved = db
      .prepare<[{ holdBack: number }], Place>(
        `SELECT DISTINCT t.sku, t.subsidiary_id FROM ledger_orders o CROSS JOIN order_takings t USING (order_id)
           LEFT JOIN stock_beliefs k USING (sku, subsidiary_id)
         WHERE max(o.live_since_seq, o.changed_seq) > coalesce(k.confirmed_seq, 0)
           OR (@holdBack AND o.takes = 1 AND o.booked = 0)
         UNION SELECT sku, subsidiary_id FROM stock_counts WHERE dirty = 1 AND @holdBack`,
      )
      .raw();
    // An item without an id whose name nobody knows may be any product; what came before the ledger, too.
    this.#floor = db
      .prepare<[], number>(
        `SELECT max((SELECT value FROM marks WHERE name = 'ledger.from'), coalesce(
           (SELECT max(max(live_since_seq, changed_seq)) FROM ledger_orders WHERE is_unplaced = 1), 0))`,
      )
      .pluck();
    this.#confirmedBefore = db
      .prepare<[number], Place>('SELECT sku, subsidiary_id FROM stock_beliefs WHERE confirmed_seq < ?')
      .raw();
    this.#places = db
      .prepare<[string, string, string], Place>(
        `SELECT i.sku, i.subsidiary_id FROM integrations i
         WHERE i.ext_id = ? OR i.product_id_pos_a = ? OR i.product_code_pos_b = ?`,
      )
      .raw();
    this.#placesOfSku = db
      .prepare<[string], Place>('SELECT sku, subsidiary_id FROM stocks WHERE sku = ?')
      .raw();
  }

  /** Target keys. `holdBack`: whether orders that are not booked yet reduce a count. */
  keys({ holdBack }: { holdBack: boolean }): Set<string> {
    const keys = new Set(this.#targets.iterate());
    const add = (places: Iterable<Place>) => {
      for (const [sku, subsidiaryId] of places) keys.add(`sku:${sku}@${subsidiaryId}`);
    };
    for (const row of this.#unresolved.iterate()) for (const place of this.#named(bodyOf(row))) add([place]);
    add(this.#moved.iterate({ holdBack: Number(holdBack) }));
    const floor = this.#floor.get() ?? 0;
    if (floor > 0) add(this.#confirmedBefore.iterate(floor));
    return keys;
  }

  #named(body: ChangeBody): Place[] {
    const { externalId } = body;
    const bySku = 'sku' in body && body.sku !== undefined ? this.#placesOfSku.all(String(body.sku)) : [];
    return externalId === undefined
      ? bySku
      : [...bySku, ...this.#places.all(externalId, externalId, externalId)];
  }
}
