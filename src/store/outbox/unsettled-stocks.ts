import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import { bodyOf } from './outbox-row.ts';

type Place = [sku: string, subsidiaryId: string];

/** Of an item `i`: its order is not booked, or not taken in yet. */
const UNBOOKED = `(
  i.order_id IN (SELECT order_id FROM unbooked_orders WHERE acknowledged = 0)
  OR i.order_id IN (SELECT order_id FROM order_events
    WHERE seq > (SELECT value FROM marks WHERE name = 'orders.seen')))`;

/**
 * Stocks of which the mirror's quantity is not the platform's last word: a change for them is on its way, or
 * orders took something since the platform confirmed them, or are not booked yet. A count for one of them is
 * never passed over as unchanged; the sender judges it when its turn comes.
 */
export class UnsettledStocks {
  readonly #targets: Database.Statement<[], string>;
  readonly #unresolved: Database.Statement<[], { body: string }>;
  readonly #floor: Database.Statement<[], number | null>;
  readonly #swept: Database.Statement<[], [subsidiaryId: string, seq: number]>;
  readonly #sold: Database.Statement<[number], [externalId: string, seq: number]>;
  readonly #soldByName: Database.Statement<[number], Place>;
  readonly #soldUnnamed: Database.Statement<[number], number | null>;
  readonly #confirmedBefore: Database.Statement<[number], Place>;
  readonly #unbooked: Database.Statement<[], string>;
  readonly #unbookedByName: Database.Statement<[], Place>;
  readonly #places: Database.Statement<[string, string, string], [...Place, confirmedSeq: number]>;
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
    const confirmed = `max(k.confirmed_seq, coalesce(
      (SELECT max(as_of_seq) FROM sweeps w WHERE w.subsidiary_id = k.subsidiary_id), 0))`;
    this.#floor = db.prepare<[], number | null>(`SELECT min(${confirmed}) FROM stocks k`).pluck();
    this.#swept = db
      .prepare<[], [string, number]>(
        'SELECT subsidiary_id, as_of_seq FROM sweeps WHERE subsidiary_id IS NOT NULL',
      )
      .raw();
    this.#sold = db
      .prepare<[number], [string, number]>(
        `SELECT i.product_external_id, max(e.seq) FROM order_events e JOIN order_items i USING (order_id)
         WHERE e.seq > ? AND i.product_external_id IS NOT NULL GROUP BY 1`,
      )
      .raw();
    const sold = `order_events e JOIN order_items i USING (order_id)
      WHERE e.seq > ? AND i.product_external_id IS NULL`;
    this.#soldByName = db
      .prepare<[number], Place>(
        `SELECT k.sku, k.subsidiary_id
         FROM (SELECT i.product_name AS name, max(e.seq) AS seq FROM ${sold} GROUP BY 1) named
           JOIN products p USING (name) JOIN skus s USING (product_id) JOIN stocks k USING (sku)
         WHERE ${confirmed} < named.seq`,
      )
      .raw();
    this.#soldUnnamed = db
      .prepare<[number], number | null>(
        `SELECT max(e.seq) FROM ${sold}
           AND NOT EXISTS (SELECT 1 FROM products p WHERE p.name = i.product_name)`,
      )
      .pluck();
    this.#confirmedBefore = db
      .prepare<[number], Place>(`SELECT sku, subsidiary_id FROM stocks k WHERE ${confirmed} < ?`)
      .raw();
    this.#unbooked = db
      .prepare<[], string>(
        `SELECT DISTINCT i.product_external_id FROM order_items i
         WHERE i.product_external_id IS NOT NULL AND ${UNBOOKED}`,
      )
      .pluck();
    this.#unbookedByName = db
      .prepare<[], Place>(
        `SELECT DISTINCT k.sku, k.subsidiary_id FROM order_items i
           JOIN products p ON p.name = i.product_name JOIN skus s USING (product_id) JOIN stocks k USING (sku)
         WHERE i.product_external_id IS NULL AND ${UNBOOKED}`,
      )
      .raw();
    this.#places = db
      .prepare<[string, string, string], [...Place, number]>(
        `SELECT i.sku, i.subsidiary_id, ${confirmed}
         FROM integrations i JOIN stocks k USING (sku, subsidiary_id)
         WHERE i.ext_id = ? OR i.product_id_pos_a = ? OR i.product_code_pos_b = ?`,
      )
      .raw();
    this.#placesOfSku = db
      .prepare<[string], Place>('SELECT sku, subsidiary_id FROM stocks WHERE sku = ?')
      .raw();
  }

  /**
   * Target keys. `holdBack`: whether orders that are not booked yet reduce a count. `subsidiaryIds`: only stocks
   * of these branches matter; undefined: all.
   */
  keys(options: { holdBack: boolean; subsidiaryIds?: ReadonlySet<string> | undefined }): Set<string> {
    const { holdBack, subsidiaryIds } = options;
    const keys = new Set(this.#targets.iterate());
    for (const row of this.#unresolved.iterate()) this.#addNamed(bodyOf(row), keys);
    this.#addSold(this.#floorOf(subsidiaryIds), keys);
    if (holdBack) {
      for (const externalId of this.#unbooked.all()) this.#addNamed({ externalId }, keys);
      for (const [sku, subsidiaryId] of this.#unbookedByName.all()) keys.add(`sku:${sku}@${subsidiaryId}`);
    }
    return keys;
  }

  /**
   * An item with modifiers carries no id (document, "Item"), so it touches the product of its name, or, where the
   * mirror has no such name, everything.
   */
  #addSold(floor: number, keys: Set<string>): void {
    for (const [externalId, seq] of this.#sold.all(floor)) {
      for (const [sku, subsidiaryId, confirmedSeq] of this.#placesOf(externalId)) {
        if (confirmedSeq < seq) keys.add(`sku:${sku}@${subsidiaryId}`);
      }
    }
    for (const [sku, subsidiaryId] of this.#soldByName.iterate(floor)) keys.add(`sku:${sku}@${subsidiaryId}`);
    const seq = this.#soldUnnamed.get(floor) ?? 0;
    if (seq === 0) return;
    for (const [sku, subsidiaryId] of this.#confirmedBefore.iterate(seq)) {
      keys.add(`sku:${sku}@${subsidiaryId}`);
    }
  }

  /** What came before this is part of every quantity; a sweep spares the look at each. */
  #floorOf(subsidiaryIds: ReadonlySet<string> | undefined): number {
    const swept = new Map(this.#swept.all());
    const seqs = [...(subsidiaryIds ?? [])].map((subsidiaryId) => swept.get(subsidiaryId));
    if (seqs.length > 0 && seqs.every((seq) => seq !== undefined)) return Math.min(...seqs);
    return this.#floor.get() ?? 0;
  }

  #addNamed(body: ChangeBody | { externalId: string }, keys: Set<string>): void {
    const { externalId } = body;
    if (externalId !== undefined) {
      for (const [sku, subsidiaryId] of this.#placesOf(externalId)) keys.add(`sku:${sku}@${subsidiaryId}`);
    }
    if (!('sku' in body) || body.sku === undefined) return;
    for (const [sku, subsidiaryId] of this.#placesOfSku.all(String(body.sku))) {
      keys.add(`sku:${sku}@${subsidiaryId}`);
    }
  }

  #placesOf(externalId: string) {
    return this.#places.all(externalId, externalId, externalId);
  }
}
