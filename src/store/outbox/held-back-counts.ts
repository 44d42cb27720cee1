import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import type { StockChangeItem } from '../../domain/platform/platform.ts';
import type { Basis, LineRow } from './outbox-row.ts';

/** The last count of a stock that was sent, and what was sent instead where orders had taken something of it. */
export interface HeldBackCount {
  target: string;
  /** JSON text of the change as the POS handed it over. */
  body: string;
  conflictKey: string;
  basis: Basis;
  sku: string | null;
  subsidiaryId: string | null;
  asOfSeq: number;
  /** Of the hand-over; a correction is no newer word. */
  version: number;
  /** Newest event of the order feed when it was judged. */
  heardSeq: number;
  sentQty: number;
  /** When the platform had it for certain. */
  sentAt: string;
}

const COLUMNS = `h.target, h.body, h.conflict_key AS conflictKey, h.basis, h.sku, h.subsidiary_id AS subsidiaryId,
  h.as_of_seq AS asOfSeq, h.version, h.heard_seq AS heardSeq, h.sent_qty AS sentQty, h.sent_at AS sentAt`;

/** Nothing for the stock waits, is held or is under way. */
const IDLE = `
  NOT EXISTS (
    SELECT 1 FROM outbox o WHERE o.kind = 'stock' AND o.target = h.target AND o.state = 'pending'
      AND o.held_guard IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM outbox o WHERE o.kind = 'stock' AND o.target = h.target AND o.state = 'pending'
      AND o.held_guard IS NOT NULL)
  AND NOT EXISTS (
    SELECT 1 FROM outbox o WHERE o.kind = 'stock' AND o.conflict_key = h.conflict_key AND o.state = 'sending')
  AND NOT EXISTS (
    SELECT 1 FROM outbox o WHERE o.kind = 'stock' AND o.target = h.target AND o.state = 'rejected'
      AND o.version >= h.version)`;

/** Places of what orders with events after `@seq` named, by id, or by the product's name where they gave no id. */
const NAMED_SINCE = `
  SELECT DISTINCT i.product_external_id AS externalId, i.product_name AS name
  FROM order_events e JOIN order_items i USING (order_id) WHERE e.seq > @seq`;
// CROSS JOIN: from what was ordered to where it stands, by index; the other way round each item of the catalogue is read.
const PLACES_SINCE = `
  WITH named AS (${NAMED_SINCE})
  SELECT i.sku, i.subsidiary_id FROM named n CROSS JOIN integrations i ON i.ext_id = n.externalId
  UNION SELECT i.sku, i.subsidiary_id FROM named n CROSS JOIN integrations i ON i.product_id_pos_a = n.externalId
  UNION SELECT i.sku, i.subsidiary_id FROM named n CROSS JOIN integrations i ON i.product_code_pos_b = n.externalId
  UNION SELECT k.sku, k.subsidiary_id FROM named n CROSS JOIN products p ON p.name = n.name
    CROSS JOIN skus s USING (product_id) CROSS JOIN stocks k USING (sku) WHERE n.externalId IS NULL`;

type CountedRow = Omit<LineRow, 'queueSeq'>;

interface SentCount {
  sentQty: number;
  heldBack: number;
  sentAt: string;
  heardSeq: number;
}

/** Statements on `held_back_counts`. Transactions are the caller's. */
export class HeldBackCounts {
  readonly #put: Database.Statement;
  readonly #confirm: Database.Statement;
  readonly #dropUnplaced: Database.Statement;
  readonly #drop: Database.Statement<[string]>;
  readonly #reduced: Database.Statement<[], HeldBackCount>;
  readonly #touched: Database.Statement<[{ seq: number }], HeldBackCount>;
  readonly #settled: Database.Statement<[number], HeldBackCount>;
  readonly #blocked: Database.Statement<[], number | null>;
  readonly #clear: Database.Statement;
  readonly #dropOld: Database.Statement<[string]>;

  constructor(db: Database.Database) {
    const insert = `INTO held_back_counts
        (target, body, conflict_key, basis, sku, subsidiary_id, as_of_seq, sent_qty, held_back, sent_at, confirmed_at,
        version, heard_seq)
      VALUES (@target, @body, @conflictKey, @basis, @sku, @subsidiaryId, @asOfSeq, @sentQty, @heldBack, @sentAt,
        @confirmedAt, @version, @heardSeq)`;
    this.#put = db.prepare(`INSERT OR REPLACE ${insert}`);
    this.#confirm = db.prepare(`
      INSERT ${insert} ON CONFLICT (target) DO UPDATE SET body = excluded.body, as_of_seq = excluded.as_of_seq,
        sent_qty = excluded.sent_qty, held_back = excluded.held_back, confirmed_at = excluded.confirmed_at,
        version = excluded.version, heard_seq = excluded.heard_seq`);
    // What was sent by its own words before the mirror knew that they mean this stock, by the targets that had.
    this.#dropUnplaced = db.prepare(`
      WITH words AS (
        SELECT 'ext:' || value AS target
        FROM integrations i, json_each(json_array(i.ext_id, i.product_id_pos_a, i.product_code_pos_b))
        WHERE i.sku = @sku AND i.subsidiary_id = @subsidiaryId AND value IS NOT NULL)
      DELETE FROM held_back_counts WHERE +sku IS NULL AND target IN (
        SELECT target FROM words
        UNION SELECT target || '@' || @subsidiaryId FROM words
        UNION SELECT h.target FROM words w CROSS JOIN held_back_counts h
          ON h.target > w.target || '@ext:' AND h.target < w.target || '@ext;')`);
    this.#drop = db.prepare('DELETE FROM held_back_counts WHERE target = ?');
    this.#reduced = db.prepare(
      `SELECT ${COLUMNS} FROM held_back_counts h WHERE h.held_back <> 0 AND ${IDLE}`,
    );
    this.#touched = db.prepare(`
      SELECT ${COLUMNS} FROM (${PLACES_SINCE}) t CROSS JOIN held_back_counts h USING (sku, subsidiary_id)
      WHERE h.held_back = 0 AND ${IDLE}
      UNION ALL
      SELECT ${COLUMNS} FROM held_back_counts h WHERE h.sku IS NULL AND h.held_back = 0 AND ${IDLE}`);
    this.#settled = db.prepare(`
      SELECT ${COLUMNS} FROM outbox c JOIN held_back_counts h USING (target)
      WHERE c.change_id = ? AND c.kind = 'stock' AND ${IDLE}`);
    this.#blocked = db
      .prepare<[], number | null>(`SELECT min(h.heard_seq) FROM held_back_counts h WHERE NOT (${IDLE})`)
      .pluck();
    this.#clear = db.prepare('DELETE FROM held_back_counts');
    this.#dropOld = db.prepare(
      'DELETE FROM held_back_counts WHERE held_back = 0 AND coalesce(confirmed_at, sent_at) < ?',
    );
  }

  /** The platform took a count. */
  keep(row: CountedRow, sent: SentCount): void {
    this.#dropUnplaced.run(row);
    this.#put.run({ ...row, ...sent, confirmedAt: null });
  }

  /** A count needed no call, since the platform has what is to be sent of it: since the last one, as far as is known. */
  confirm(row: CountedRow, sent: SentCount): void {
    this.#dropUnplaced.run(row);
    this.#confirm.run({ ...row, ...sent, confirmedAt: sent.sentAt });
  }

  forget(target: string): void {
    this.#drop.run(target);
  }

  /**
   * Counts of stocks for which nothing waits, is held or is under way: those of which something was held back, and
   * those of what was part of an order that was heard of after the event `seq`.
   */
  idle(seq: number): HeldBackCount[] {
    return [...this.#reduced.all(), ...this.#touched.all({ seq })];
  }

  /** The counts that these changes were, where nothing newer for their stocks waits, is held or is under way. */
  idleOf(changeIds: readonly number[]): HeldBackCount[] {
    return changeIds.flatMap((changeId) => this.#settled.get(changeId) ?? []);
  }

  /** The newest event that all counts have heard of which cannot be corrected now; Infinity: each can. */
  blockedSeq(): number {
    return this.#blocked.get() ?? Number.POSITIVE_INFINITY;
  }

  clear(): void {
    this.#clear.run();
  }

  /** Forgets counts of which nothing was held back, said before `until`. */
  dropOld(until: string): number {
    return this.#dropOld.run(until).changes;
  }
}

/** The count's own body, a stock's. */
export function countedBody(count: HeldBackCount): StockChangeItem | undefined {
  const body = JSON.parse(count.body) as ChangeBody;
  return 'qty' in body ? body : undefined;
}
