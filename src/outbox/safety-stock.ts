import type Database from 'better-sqlite3';
import { type Sql, sqlOf } from '../db/sqlite.ts';

/** What is kept back of stocks, so that the last ones in the shop are not sold online too. */
export interface SafetyRule {
  /** null: of every product. */
  sku: string | null;
  /** null: in every branch. */
  subsidiaryId: string | null;
  qty: number;
}

type Place = Pick<SafetyRule, 'sku' | 'subsidiaryId'>;

/** A rule that leaves nothing to be sold of anything that it speaks for. */
export interface OddRule extends SafetyRule {
  /** The highest count of them; null: the mirror knows no such stock. */
  highestQty: number | null;
}

/** What a rule speaks for, in words. */
export function safetyName({ sku, subsidiaryId }: Place): string {
  const what = sku === null ? 'every product' : `sku ${sku}`;
  return subsidiaryId === null ? what : `${what} in branch ${subsidiaryId}`;
}

/** What may be sold of a quantity, never below 0. */
export function lessSafety(qty: number, safetyQty: number): number {
  // Of decimal fractions (weights) without the noise of binary ones, as the view `stock_ledger` does it.
  return Math.max(0, Number((qty - safetyQty).toFixed(9)));
}

/**
 * The safety stock, in `stock_safety`. The most special rule speaks for a stock: that of its product in its branch, of
 * its product, of its branch, of all. The view `stock_ledger` takes it off what is wanted; a rule that changes has its
 * stocks looked at again, so that what differs is sent. Transactions are the caller's.
 */
export class SafetyStock {
  readonly #sql: Sql;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
  }

  /** Makes those of the configuration, which name no product, exactly these. */
  configure(rules: readonly SafetyRule[]): void {
    const before = this.list().filter(({ sku }) => sku === null);
    const isOne = (rule: SafetyRule) => (each: SafetyRule) => each.subsidiaryId === rule.subsidiaryId;
    for (const rule of before) if (!rules.some(isOne(rule))) this.remove(rule);
    for (const rule of rules) if (before.find(isOne(rule))?.qty !== rule.qty) this.set(rule);
  }

  set({ qty, ...place }: SafetyRule): void {
    this.#sql.run(
      `INSERT INTO stock_safety (sku, subsidiary_id, qty) VALUES (@sku, @subsidiaryId, @qty)
       ON CONFLICT (sku, subsidiary_id) DO UPDATE SET qty = excluded.qty`,
      { ...keyOf(place), qty },
    );
    this.#touch(place);
  }

  /** False when there is none. */
  remove(place: Place): boolean {
    const text = 'DELETE FROM stock_safety WHERE sku = @sku AND subsidiary_id = @subsidiaryId';
    const { changes } = this.#sql.run(text, keyOf(place));
    this.#touch(place);
    return changes > 0;
  }

  /** Of all products first, then by product. */
  list(): SafetyRule[] {
    return this.#sql.rows<SafetyRule>(`
      SELECT nullif(sku, '') AS sku, nullif(subsidiary_id, '') AS subsidiaryId, qty
      FROM stock_safety ORDER BY sku, subsidiary_id`);
  }

  /** Tells what is kept back of a stock, as the rules are now; null: it is not known which product or branch it is. */
  lookup(): (sku: string | null, subsidiaryId: string | null) => number {
    const rules = new Map(
      this.list().map(({ sku, subsidiaryId, qty }) => [JSON.stringify([sku, subsidiaryId]), qty]),
    );
    const of = (sku: string | null, subsidiaryId: string | null) =>
      rules.get(JSON.stringify([sku, subsidiaryId]));
    if (rules.size === 0) return () => 0;
    return (sku, subsidiaryId) =>
      of(sku, subsidiaryId) ?? of(sku, null) ?? of(null, subsidiaryId) ?? of(null, null) ?? 0;
  }

  /** Of a stock change that waits or was sent: what is kept back of it; undefined: nothing. */
  ofChange(changeId: number): { safetyQty: number; offeredQty: number } | undefined {
    const row = this.#sql.row<{ sku: string | null; subsidiaryId: string | null; body: string }>(
      `SELECT sku, subsidiary_id AS subsidiaryId, body FROM outbox WHERE change_id = ? AND kind = 'stock'`,
      changeId,
    );
    if (!row) return undefined;
    const { qty = 0 } = JSON.parse(row.body) as { qty?: number };
    const safetyQty = this.lookup()(row.sku, row.subsidiaryId);
    return safetyQty > 0 && qty > 0 ? { safetyQty, offeredQty: lessSafety(qty, safetyQty) } : undefined;
  }

  /** Rules by which nothing is ever offered, most likely a slip of the pen, and those of what nobody knows. */
  odd(): OddRule[] {
    return this.#sql.rows<OddRule>(`
      SELECT sku, subsidiaryId, qty, highestQty FROM (
        SELECT nullif(f.sku, '') AS sku, nullif(f.subsidiary_id, '') AS subsidiaryId, f.qty,
          (SELECT max(n.counted_qty) FROM stock_counts n
            WHERE f.sku IN ('', n.sku) AND f.subsidiary_id IN ('', n.subsidiary_id)) AS highestQty,
          EXISTS (SELECT 1 FROM stocks k
            WHERE f.sku IN ('', k.sku) AND f.subsidiary_id IN ('', k.subsidiary_id)) AS isKnown
        FROM stock_safety f WHERE f.qty > 0)
      WHERE highestQty <= qty OR isKnown = 0`);
  }

  #touch(place: Place): void {
    this.#sql.run(
      `UPDATE stock_counts SET dirty = 1
       WHERE @sku IN ('', sku) AND @subsidiaryId IN ('', subsidiary_id)`,
      keyOf(place),
    );
  }
}

/** As the table names it. */
function keyOf({ sku, subsidiaryId }: Place): { sku: string; subsidiaryId: string } {
  return { sku: sku ?? '', subsidiaryId: subsidiaryId ?? '' };
}
