import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../../core/time.ts';
import { isSeen } from '../../db/seen.ts';
import { fromBit, type Sql, sqlOf } from '../../db/sqlite.ts';
import { newestSeq } from '../../orders/reading/mirror-file.ts';
import type { StockChangeItem } from '../../platform/schemas.ts';
import { type ChangeBody, countTime, type OutboxChange } from '../intake/change.ts';
import { VERSION } from '../sending/wanted.ts';
import {
  type Counted,
  HEARD_WITHIN_MS,
  judgeStock,
  lessSafety,
  type Step,
  type StockFacts,
} from './stock-rule.ts';

/** One stock, as a row of the view `_stock_ledger`. */
export interface LedgerStock {
  sku: string;
  subsidiaryId: string;
  /** The change that has the last count. */
  changeId: number;
  /** The ids by which the platform knows the stock. */
  address: Omit<StockChangeItem, 'qty'>;
  callId: number | null;
  callQty: number | null;
  callSeq: number | null;
  /** The platform's quantity when the call was sent; null if unknown. */
  callHadQty: number | null;
  attempts: number;
  countedQty: number;
  /** Pieces of orders that the count cannot include. */
  reservedQty: number;
  /** Pieces of orders that have not arrived yet, found by reading the platform's quantity. */
  unheardQty: number;
  /** Safety stock: pieces that are never offered. */
  safetyQty: number;
  /**
   * Quantity that the platform should have: the count, less pieces of orders that it cannot include, less the safety
   * stock; at least 0. Example: counted 10, ordered 2, safety stock 1 → 7.
   */
  wantedQty: number;
  /** Quantity that the platform has now by its own calculation; null if unknown. */
  expectedQty: number | null;
  /** Pieces ordered since the platform's quantity was confirmed. */
  orderedQty: number;
  confirmedSeq: number;
  /** Time of the platform quantity's last confirmation, in milliseconds by this machine's clock. */
  confirmedMs: number;
  show: boolean | null;
  /** Whether the stock's branch subtracts pieces of unbooked orders from its counts. */
  holds: boolean;
}

/** The last count of a stock, which is that of a change. */
export interface LastCount
  extends Pick<OutboxChange, 'changeId' | 'version' | 'asOfSeq' | 'countedAt' | 'handedAt'> {
  state: OutboxChange['state'] | 'counted';
  /** The call that sends it. */
  callId: number | null;
  qty: number;
}

/** The key of a stock: a sku in one branch. */
export type StockKey = Pick<LedgerStock, 'sku' | 'subsidiaryId'>;

type StockRow = Omit<LedgerStock, 'address' | 'show' | 'holds'> & {
  body: string;
  show: number | null;
  holds: number;
  showUncertain: number | null;
};

/** Returns the key of a stock as a target of the outbox. */
export function stockTarget({ sku, subsidiaryId }: StockKey): string {
  return `sku:${sku}@${subsidiaryId}`;
}

const COLUMNS = `sku, subsidiary_id AS subsidiaryId, change_id AS changeId, body, call_id AS callId, call_qty AS callQty, call_seq AS callSeq, call_had_qty AS callHadQty, attempts,
  counted_qty AS countedQty, reserved_qty AS reservedQty, unheard_qty AS unheardQty, safety_qty AS safetyQty, wanted_qty AS wantedQty, expected_qty AS expectedQty,
  ordered_qty AS orderedQty, confirmed_seq AS confirmedSeq, confirmed_ms AS confirmedMs, holds, show, show_uncertain AS showUncertain`;

/** SQL for whether the branch with the id in this column holds back. */
export const holdsBack = (column: string) => isSeen('holding-branch', "''", column);

const LEDGER = `
  SELECT ${COLUMNS} FROM _stock_ledger`;
/** SQL for when a count of the outbox was made, in milliseconds. */
const countedMs = (table: string) => `CASE WHEN ${table}.counted_at IS NULL THEN ${table}.handed_ms
  ELSE CAST(strftime('%s', ${table}.counted_at) AS INTEGER) * 1000 + CAST(substr(${table}.counted_at, 21, 3) AS INTEGER) END`;
const COUNTED_QTY = "round(json_extract(o.body, '$.qty') - n.folded_qty, 9)";
/**
 * The plus stops SQLite from planning the view again for each stock, which takes fifty times as long as the query.
 */
const OF_PLACE = 'WHERE sku = +? AND subsidiary_id = +?';
/**
 * SQL for stocks that must be judged: without a newer count in the queue or in a call, and with a last count that the
 * platform did not refuse.
 */
const DUE = `
  FROM _stock_counts n
  WHERE n.dirty = 1 AND n.call_id IS NULL AND n.given_up = 0
    AND NOT EXISTS (SELECT 1 FROM _outbox o WHERE o.kind = 'stock'
      AND o.target = 'sku:' || n.sku || '@' || n.subsidiary_id AND o.state = 'pending' AND o.held_guard IS NULL)`;
const nextDirty = (after: string) => `SELECT min(subsidiary_id) FROM _stock_counts WHERE dirty = 1 ${after}`;
/** SQL for the branches with stocks marked `dirty`. It finds each branch by one step in the index. */
const DIRTY_BRANCHES = `
  WITH RECURSIVE dirty_in (branch) AS (
    SELECT (${nextDirty('')})
    UNION ALL SELECT (${nextDirty('AND subsidiary_id > dirty_in.branch')}) FROM dirty_in WHERE branch IS NOT NULL)
  SELECT branch FROM dirty_in WHERE branch IS NOT NULL`;

const FACTS = `
  SELECT ${COUNTED_QTY} AS countedQty, o.as_of_seq AS countedSeq, o.version AS countedVersion, ${countedMs('o')} AS countedMs,
    o.handed_ms AS handedMs, ${holdsBack('n.subsidiary_id')} AS holds, n.call_id IS NOT NULL AS isUnderWay,
    k.believed_qty AS believedQty, coalesce(k.confirmed_seq, 0) AS confirmedSeq, coalesce(k.confirmed_ms, 0) AS confirmedMs,
    coalesce(l.missing_qty, 0) AS missingQty, coalesce(l.looked_seq, 0) AS missingSeq,
    (SELECT coalesce(max(seq), 0) FROM _ledger_orders WHERE is_unplaced = 1) AS unplacedSeq
  FROM _stock_counts n CROSS JOIN _outbox o USING (change_id)
    LEFT JOIN _stock_beliefs k ON k.sku = n.sku AND k.subsidiary_id = n.subsidiary_id
    LEFT JOIN _stock_notes l ON l.sku = n.sku AND l.subsidiary_id = n.subsidiary_id
  WHERE n.sku = +? AND n.subsidiary_id = +?`;
type FactsRow = Counted &
  Pick<StockFacts, 'believedQty' | 'confirmedSeq' | 'confirmedMs' | 'unplacedSeq'> & {
    holds: 0 | 1;
    isUnderWay: 0 | 1;
    missingQty: number;
    missingSeq: number;
  };
const STEPS = `
  SELECT order_id AS orderId, seq, qty, part, booked_version AS bookedVersion, booked_ms AS bookedMs,
    held_until_ms AS heldUntilMs, is_first AS isFirst, placed_ms AS placedMs
  FROM _stock_steps WHERE sku = +? AND subsidiary_id = +? ORDER BY seq`;

const LAST_COUNT = `
  SELECT n.change_id AS changeId, n.call_id AS callId, ${COUNTED_QTY} AS qty, o.as_of_seq AS asOfSeq, o.version, o.state,
    o.counted_at AS countedAt, o.handed_ms AS handedMs
  FROM _stock_counts n CROSS JOIN _outbox o USING (change_id) WHERE n.sku = +? AND n.subsidiary_id = +?`;
/** SQL that ends what was kept of a forgotten change, whose count is not the last one any more. */
export const FORGET = "DELETE FROM _outbox WHERE change_id = ? AND state = 'counted'";
/** A number that is larger than the number of orders of any stock. */
const MANY = 10_000;
/** Maximum number of rejected changes among which those of unknown products are searched, the newest first. */
const UNKNOWN_MAX = 500;
/**
 * SQL for whether a change with an unknown id was refused before the stock's last count. Then the id belongs to
 * another product, because the POS counted this product under a different id later.
 */
const isOlderThanCount = (name: string) => `coalesce(${name}.refused_since, ${name}.version) < coalesce(
  (SELECT c.version FROM _stock_counts n JOIN _outbox c USING (change_id)
   WHERE n.sku = @sku AND n.subsidiary_id = @subsidiaryId), 0)`;
const HANDED_VERSION = `SELECT max(version) FROM (
  SELECT max(${VERSION}) AS version FROM _wanted w LEFT JOIN _outbox o USING (change_id)
    WHERE w.kind = 'stock' AND subject = @target AND field = 'qty'
  UNION ALL SELECT version FROM _outbox u
    WHERE state IN ('pending', 'sending') AND basis <> 'mirror' AND kind = 'stock' AND branch IN ('', @subsidiaryId)
      AND NOT EXISTS (SELECT 1 FROM _outbox e WHERE e.kind = 'stock'
        AND e.target = u.target AND e.state = 'rejected' AND ${isOlderThanCount('e')})
  UNION ALL SELECT version FROM (SELECT * FROM _outbox
    WHERE state = 'rejected' ORDER BY change_id DESC LIMIT ${UNKNOWN_MAX}) u
    WHERE kind = 'stock' AND sku IS NULL AND branch IN ('', @subsidiaryId) AND NOT ${isOlderThanCount('u')})`;

/**
 * Knows which change has the last count of each stock (`_stock_counts`), and reads the view `_stock_ledger`, which computes
 * the wanted quantity and the platform's expected one. A count is the last one from when it is first judged, to be sent or
 * not; until then it may be taken back, and the one before it counts. The caller opens the transaction.
 */
export class StockLedger {
  readonly #db: Database.Database;
  readonly #sql: Sql;

  constructor(db: Database.Database) {
    this.#db = db;
    this.#sql = sqlOf(db);
  }

  /** Returns the last count of a stock; undefined if it was never counted. */
  lastCount({ sku, subsidiaryId }: StockKey): LastCount | undefined {
    const row = this.#sql.row<Omit<LastCount, 'handedAt'> & { handedMs: number }>(
      LAST_COUNT,
      sku,
      subsidiaryId,
    );
    return row && { ...row, handedAt: isoUtc(row.handedMs) };
  }

  /** Makes the count of a change the last one of its stock, unless `last`, the one until now, is newer. */
  count(
    { sku, subsidiaryId }: StockKey,
    change: Pick<OutboxChange, 'changeId' | 'version' | 'countedAt' | 'handedAt'>,
    last: LastCount | undefined,
  ): LedgerStock {
    const isNewer =
      last !== undefined && (change.version >= last.version || countTime(change) > countTime(last));
    if (!last || isNewer) {
      this.#sql.run(
        `INSERT INTO _stock_counts (sku, subsidiary_id, change_id) VALUES (?, ?, ?) ON CONFLICT (sku, subsidiary_id)
         DO UPDATE SET change_id = excluded.change_id, folded_qty = 0, given_up = 0`,
        ...[sku, subsidiaryId, change.changeId],
      );
      if (last?.state === 'counted') this.#sql.run(FORGET, last.changeId);
    }
    return this.#stocks(OF_PLACE, sku, subsidiaryId)[0] as LedgerStock;
  }

  /** Returns the stock; undefined if it was never counted. */
  ofStock({ sku, subsidiaryId }: StockKey): LedgerStock | undefined {
    return this.#stocks(OF_PLACE, sku, subsidiaryId)[0];
  }

  /** Returns the counted stocks of a product. */
  ofSku(sku: string): LedgerStock[] {
    return this.#stocks('WHERE sku = +? ORDER BY subsidiary_id', sku);
  }

  /**
   * Deletes an order's steps. Pieces that a count cannot include are subtracted from the count first: counted 10,
   * ordered 2 → 8.
   */
  foldOrder(orderId: string): void {
    const places = this.#sql.rows<StockKey>(
      'SELECT DISTINCT sku, subsidiary_id AS subsidiaryId FROM _stock_steps WHERE order_id = ?',
      orderId,
    );
    const before = places.flatMap((place) => this.ofStock(place) ?? []);
    this.#sql.run('DELETE FROM _stock_steps WHERE order_id = ?', orderId);
    for (const stock of before) {
      const folded = stock.reservedQty - (this.ofStock(stock)?.reservedQty ?? 0);
      const qty = Math.min(folded, Math.max(0, stock.countedQty));
      if (qty > 0) this.#set(stock, 'folded_qty = round(folded_qty + @qty, 9)', { qty });
    }
  }

  /**
   * Deletes the last count, because a person asked for it; the steps of orders stay. The platform's quantity is left
   * alone until the next count. Returns false if there is no count or a call is sending it.
   */
  forget({ sku, subsidiaryId }: StockKey): boolean {
    const text = 'DELETE FROM _stock_counts WHERE sku = ? AND subsidiary_id = ? AND call_id IS NULL';
    return this.#sql.run(text, sku, subsidiaryId).changes > 0;
  }

  /** Number of stocks with a count. */
  get size(): number {
    return this.#sql.value('SELECT count(*) FROM _stock_counts') ?? 0;
  }

  /** Returns the last count of each stock as submitted, by target key. */
  counts(): Map<string, number> {
    const rows = this.#sql.rows<StockKey & { qty: number }>(
      `SELECT n.sku, n.subsidiary_id AS subsidiaryId, ${COUNTED_QTY} AS qty FROM _stock_counts n JOIN _outbox o USING (change_id)`,
    );
    return new Map(rows.map(({ qty, ...place }) => [stockTarget(place), qty]));
  }

  /** Returns about `limit` stocks that must be judged and have no waiting count, equally many of each branch. */
  dirty(limit: number): LedgerStock[] {
    const branches = this.#sql.values<string>(DIRTY_BRANCHES);
    const share = Math.ceil(limit / Math.max(1, branches.length));
    const text = `SELECT n.sku, n.subsidiary_id AS subsidiaryId ${DUE} AND n.subsidiary_id = +? LIMIT +?`;
    const places = branches.flatMap((branch) => this.#sql.rows<StockKey>(text, branch, share));
    return places.flatMap(({ sku, subsidiaryId }) => this.#stocks(OF_PLACE, sku, subsidiaryId));
  }

  /** Returns the number of stocks that `dirty` would return, counted up to `limit`. */
  countDirty(limit: number): number {
    return this.#sql.value(`SELECT count(*) FROM (SELECT 1 ${DUE} LIMIT +?)`, limit) ?? 0;
  }

  /** Records that the stock needs no call: the platform has the wanted quantity, or the stock no longer exists. */
  markSettled(stock: StockKey): void {
    this.#set(stock, 'dirty = 0');
  }

  /**
   * Records the call that sends the stock, the change that it sends it with, which may be older than the count, and the
   * quantity sent.
   */
  markSent(
    stock: StockKey,
    call: { callId: number; changeId: number; qty: number; orderSeq: number; hadQty: number | null },
  ): void {
    const columns =
      'call_id = @callId, call_change_id = @changeId, call_qty = @qty, call_seq = @orderSeq, call_had_qty = @hadQty, dirty = 0';
    this.#set(stock, columns, call);
  }

  /** Returns the stock that a call is sending with a change. */
  ofCall(
    callId: number,
    { changeId, sku, subsidiaryId }: Pick<OutboxChange, 'changeId' | 'sku' | 'subsidiaryId'>,
  ): LedgerStock | undefined {
    const which = `${OF_PLACE} AND call_id = +? AND call_change_id = +?`;
    return this.#stocks(which, sku, subsidiaryId, callId, changeId)[0];
  }

  settle(stock: LedgerStock, state: 'done' | 'rejected' | 'retry'): void {
    if (state === 'done') this.#set(stock, 'call_id = NULL, attempts = 0');
    else if (state === 'retry') this.#set(stock, 'call_id = NULL, attempts = attempts + 1, dirty = 1');
    else this.#set(stock, 'call_id = NULL, attempts = 0, dirty = 0, given_up = 1');
  }

  /** Returns the stocks that a call is sending; after a crash, those of the dead process. */
  underWay(): LedgerStock[] {
    const text = 'SELECT sku, subsidiary_id AS subsidiaryId FROM _stock_counts WHERE call_id IS NOT NULL';
    return this.#sql.rows<StockKey>(text).flatMap((place) => this.ofStock(place) ?? []);
  }

  /** Gives up a change's count, because a person decided so. It is never sent. */
  giveUp(changeId: number): void {
    const text = 'UPDATE _stock_counts SET given_up = 1, dirty = 0 WHERE change_id = ? AND call_id IS NULL';
    this.#sql.run(text, changeId);
  }

  /**
   * Returns the version of the newest submission of a stock, even if it was refused; 0 if there is none. A submission
   * with an unknown id may mean any stock of its branch, except stocks counted after that id was first refused.
   */
  handedVersion(stock: StockKey): number {
    const { sku, subsidiaryId } = stock;
    return this.#sql.value(HANDED_VERSION, { sku, subsidiaryId, target: stockTarget(stock) }) ?? 0;
  }

  /** Returns the orders with pieces that a stock's count cannot contain, oldest first. */
  reservedBy(place: StockKey, limit = MANY): { orderId: string; code: number | null }[] {
    const facts = this.factsOf(place);
    const code = 'SELECT order_id AS orderId, code FROM _orders WHERE order_id = ?';
    const found: { orderId: string; code: number | null }[] = [];
    for (const orderId of facts ? judgeStock(facts).reservedBy : []) {
      if (found.length === limit) break;
      found.push(...this.#sql.rows<{ orderId: string; code: number | null }>(code, orderId));
    }
    return found;
  }

  /** Returns what the rule of a stock needs to know; undefined if the stock was never counted. */
  factsOf({ sku, subsidiaryId }: StockKey): StockFacts | undefined {
    const row = this.#sql.row<FactsRow>(FACTS, sku, subsidiaryId);
    if (!row) return undefined;
    const { believedQty, confirmedSeq, confirmedMs, holds, isUnderWay, missingQty, missingSeq, ...rest } =
      row;
    const { unplacedSeq, ...count } = rest;
    const steps = this.#sql.rows<Omit<Step, 'isFirst'> & { isFirst: 0 | 1 }>(STEPS, sku, subsidiaryId);
    return {
      ...{ count, believedQty, confirmedSeq, confirmedMs, unplacedSeq },
      steps: steps.map((step) => ({ ...step, isFirst: step.isFirst === 1 })),
      holds: holds === 1,
      isUnderWay: isUnderWay === 1,
      safetyQty: new SafetyStock(this.#db).lookup()(sku, subsidiaryId),
      missing: { qty: missingQty, seq: missingSeq },
    };
  }

  #stocks(which: string, ...params: unknown[]): LedgerStock[] {
    return this.#sql
      .rows<StockRow>(`${LEDGER} ${which}`, ...params)
      .map(({ body, showUncertain, show, holds, ...row }) => {
        const { qty: _, show: _show, ...address } = JSON.parse(body) as StockChangeItem;
        return { ...row, holds: holds === 1, address, show: showUncertain === 0 ? fromBit(show) : null };
      });
  }

  #set({ sku, subsidiaryId }: StockKey, columns: string, values: Record<string, number | null> = {}): void {
    const where = 'sku = @sku AND subsidiary_id = @subsidiaryId';
    this.#sql.run(`UPDATE _stock_counts SET ${columns} WHERE ${where}`, { sku, subsidiaryId, ...values });
  }
}

/**
 * Returns the target keys of stocks whose quantity in the mirror may differ from the platform's: a change is on its
 * way, orders arrived after the confirmation, orders are unbooked in a branch that holds back, or the stock must be
 * judged. A count of such a stock is never skipped as unchanged. Must be called after the order feed was followed.
 */
export function unsettledStocks(db: Database.Database): Set<string> {
  const sql = sqlOf(db);
  // Each part of the query uses its own index, because settled changes stay in the table for a month.
  const keys = new Set(
    sql.values<string>(`
      SELECT target FROM _outbox WHERE kind = 'stock' AND state = 'pending' AND held_guard IS NULL
      UNION ALL SELECT target FROM _outbox WHERE kind = 'stock' AND state = 'pending' AND held_guard IS NOT NULL
      UNION ALL SELECT target FROM _outbox WHERE kind = 'stock' AND state = 'sending'`),
  );
  const add = (places: readonly StockKey[]) => {
    for (const place of places) keys.add(stockTarget(place));
  };
  const unresolved = sql.values<string>(`
    SELECT body FROM _outbox WHERE state IN ('pending', 'sending') AND basis <> 'mirror' AND kind = 'stock'`);
  for (const text of unresolved) add(placesNamed(sql, JSON.parse(text) as ChangeBody));
  add(
    sql.rows<StockKey>(
      `SELECT DISTINCT t.sku, t.subsidiary_id AS subsidiaryId
       FROM _stock_steps t LEFT JOIN _stock_beliefs k USING (sku, subsidiary_id)
       WHERE t.seq > coalesce(k.confirmed_seq, 0) OR (t.booked_version IS NULL AND t.qty <> 0
         AND ${holdsBack('t.subsidiary_id')})
       UNION SELECT sku, subsidiary_id FROM _stock_counts WHERE dirty = 1`,
    ),
  );
  // An item without an id and with an unknown name may be any product, and so may an order from before the ledger
  // began.
  const from = sql.value(`
    SELECT max((SELECT value FROM marks WHERE name = 'ledger.from'), coalesce(
      (SELECT max(seq) FROM _ledger_orders WHERE is_unplaced = 1), 0))`);
  if (from !== undefined && from > 0) {
    const before = 'SELECT sku, subsidiary_id AS subsidiaryId FROM _stock_beliefs WHERE confirmed_seq < ?';
    add(sql.rows<StockKey>(before, from));
  }
  return keys;
}

/** Returns every stock that the ids of a change may mean. */
function placesNamed(sql: Sql, body: ChangeBody): StockKey[] {
  const byId = body.externalId === undefined ? [] : placesOfId(sql, body.externalId);
  const bySku =
    'sku' in body && body.sku !== undefined
      ? sql.rows<StockKey>(
          'SELECT sku, subsidiary_id AS subsidiaryId FROM _stocks WHERE sku = ?',
          String(body.sku),
        )
      : [];
  return [...bySku, ...byId];
}

// Without the plus before a parameter, here and in reservations.ts, SQLite plans the statement again for each value,
// which takes ten times as long as the query.
const PLACES_OF_ID = ['ext_id', 'product_id_pos_a', 'product_code_pos_b']
  .map((column) => `SELECT sku, subsidiary_id AS subsidiaryId FROM integrations WHERE ${column} = +?`)
  .join(' UNION ');

/** Returns every stock that has the externalId in one of the three mapping fields. */
export function placesOfId(sql: Sql, externalId: string): StockKey[] {
  return sql.rows(PLACES_OF_ID, externalId, externalId, externalId);
}

/** A rule of the safety stock, which keeps the last pieces of a shop from being offered online. */
export interface SafetyRule {
  /** Product of the rule; null for every product. */
  sku: string | null;
  /** Branch of the rule; null for every branch. */
  subsidiaryId: string | null;
  qty: number;
}

type SafetyScope = Pick<SafetyRule, 'sku' | 'subsidiaryId'>;

/** A rule that is probably a mistake: nothing can be sold of any of its stocks, or it applies to no known stock. */
interface OddRule extends SafetyRule {
  /** Highest count among the stocks of the rule; null if none of them was counted. */
  highestQty: number | null;
}

/** Returns words for the stocks that a rule covers. */
export function safetyName({ sku, subsidiaryId }: SafetyScope): string {
  const what = sku === null ? 'every product' : `sku ${sku}`;
  return subsidiaryId === null ? what : `${what} in branch ${subsidiaryId}`;
}

/**
 * Stores the safety stock, which the view `stock_safety` shows. The most specific rule applies to a stock: product in branch, then
 * product, then branch, then all. The view `_stock_ledger` subtracts it. A changed rule marks its stocks to be judged
 * again. The caller opens the transaction.
 */
export class SafetyStock {
  readonly #sql: Sql;
  readonly #isKept: boolean;

  /** `isKept` is false at a branch of a hub, where rules that were stored earlier no longer apply. */
  constructor(db: Database.Database, isKept = true) {
    this.#sql = sqlOf(db);
    this.#isKept = isKept;
  }

  /** Replaces the rules for all products, which come from the configuration. */
  configure(rules: readonly SafetyRule[]): void {
    const before = this.list().filter(({ sku }) => sku === null);
    const isOne = (rule: SafetyRule) => (each: SafetyRule) => each.subsidiaryId === rule.subsidiaryId;
    for (const rule of before) if (!rules.some(isOne(rule))) this.remove(rule);
    for (const rule of rules) if (before.find(isOne(rule))?.qty !== rule.qty) this.set(rule);
  }

  set({ qty, ...place }: SafetyRule): void {
    this.#sql.run(
      `INSERT INTO _stock_notes (sku, subsidiary_id, safety_qty) VALUES (@sku, @subsidiaryId, @qty)
       ON CONFLICT (sku, subsidiary_id) DO UPDATE SET safety_qty = excluded.safety_qty`,
      { ...keyOf(place), qty },
    );
    this.#touch(place);
  }

  /** Deletes a rule. Returns false if there is none. */
  remove(place: SafetyScope): boolean {
    const isPlace = 'sku = @sku AND subsidiary_id = @subsidiaryId';
    const text = `UPDATE _stock_notes SET safety_qty = NULL WHERE ${isPlace} AND safety_qty IS NOT NULL`;
    const { changes } = this.#sql.run(text, keyOf(place));
    const saysNothing = 'looked_ms IS NULL AND safety_qty IS NULL';
    this.#sql.run(`DELETE FROM _stock_notes WHERE ${isPlace} AND ${saysNothing}`, keyOf(place));
    this.#touch(place);
    return changes > 0;
  }

  /** Returns the rules for all products first, then by product. */
  list(): SafetyRule[] {
    return this.#sql.rows<SafetyRule>(`
      SELECT nullif(sku, '') AS sku, nullif(subsidiary_id, '') AS subsidiaryId, qty
      FROM stock_safety ORDER BY sku, subsidiary_id`);
  }

  /** Returns a function that returns a stock's safety quantity. It accepts null for an unknown product or branch. */
  lookup(): (sku: string | null, subsidiaryId: string | null) => number {
    const rules = new Map(
      this.list().map(({ sku, subsidiaryId, qty }) => [JSON.stringify([sku, subsidiaryId]), qty]),
    );
    const of = (sku: string | null, subsidiaryId: string | null) =>
      rules.get(JSON.stringify([sku, subsidiaryId]));
    if (!this.#isKept || rules.size === 0) return () => 0;
    return (sku, subsidiaryId) =>
      of(sku, subsidiaryId) ?? of(sku, null) ?? of(null, subsidiaryId) ?? of(null, null) ?? 0;
  }

  /**
   * Returns the safety quantity for a stock change, and the quantity that is offered; undefined if there is no safety
   * stock.
   */
  ofChange(changeId: number): { safetyQty: number; offeredQty: number } | undefined {
    const row = this.#sql.row<{ sku: string | null; subsidiaryId: string | null; body: string }>(
      `SELECT sku, subsidiary_id AS subsidiaryId, body FROM _outbox WHERE change_id = ? AND kind = 'stock'`,
      changeId,
    );
    if (!row) return undefined;
    const { qty = 0 } = JSON.parse(row.body) as { qty?: number };
    const safetyQty = this.lookup()(row.sku, row.subsidiaryId);
    return safetyQty > 0 && qty > 0 ? { safetyQty, offeredQty: lessSafety(qty, safetyQty) } : undefined;
  }

  /** Returns rules by which nothing can be sold, probably by mistake, and rules that apply to no known stock. */
  odd(): OddRule[] {
    return this.#sql.rows<OddRule>(`
      SELECT sku, subsidiaryId, qty, highestQty FROM (
        SELECT nullif(f.sku, '') AS sku, nullif(f.subsidiary_id, '') AS subsidiaryId, f.qty,
          (SELECT max(${COUNTED_QTY}) FROM _stock_counts n JOIN _outbox o USING (change_id)
            WHERE f.sku IN ('', n.sku) AND f.subsidiary_id IN ('', n.subsidiary_id)) AS highestQty,
          EXISTS (SELECT 1 FROM _stocks k
            WHERE f.sku IN ('', k.sku) AND f.subsidiary_id IN ('', k.subsidiary_id)) AS isKnown
        FROM stock_safety f WHERE f.qty > 0)
      WHERE highestQty <= qty OR isKnown = 0`);
  }

  #touch(place: SafetyScope): void {
    this.#sql.run(
      `UPDATE _stock_counts SET dirty = 1
       WHERE @sku IN ('', sku) AND @subsidiaryId IN ('', subsidiary_id)`,
      keyOf(place),
    );
  }
}

/** Returns the scope as stored in the table: `''` stands for every product or branch. */
function keyOf({ sku, subsidiaryId }: SafetyScope): { sku: string; subsidiaryId: string } {
  return { sku: sku ?? '', subsidiaryId: subsidiaryId ?? '' };
}

/** Time for which a read of the platform's quantity is valid for a count. */
const LOOK_SPEAKS_MS = 60_000;

/**
 * Stores in `_stock_notes` what the platform showed of scarce stocks that are read before their counts are sent. The
 * caller opens the transaction.
 */
export class StockLooks {
  readonly #db: Database.Database;
  readonly #sql: Sql;
  readonly #ledger: StockLedger;
  readonly #clock: Clock;

  constructor({ db, ledger, clock }: { db: Database.Database; ledger: StockLedger; clock: Clock }) {
    this.#db = db;
    this.#sql = sqlOf(db);
    this.#ledger = ledger;
    this.#clock = clock;
  }

  /** Whether the stock was read on the platform within the last minute. */
  isFresh({ sku, subsidiaryId }: StockKey): boolean {
    const text = 'SELECT looked_ms FROM _stock_notes WHERE sku = ? AND subsidiary_id = ?';
    const lookedMs = this.#sql.value<number | null>(text, sku, subsidiaryId) ?? null;
    return lookedMs !== null && Math.abs(this.#clock.nowMs() - lookedMs) < LOOK_SPEAKS_MS;
  }

  /**
   * Stores by how much the platform's quantity is lower than expected. `shown` writes the platform's answer into the
   * mirror.
   */
  note(place: StockKey, shown: () => void): void {
    const expectedQty = this.#ledger.ofStock(place)?.expectedQty ?? null;
    shown();
    const { sku, subsidiaryId } = place;
    const text = 'SELECT qty + 0 FROM _stocks WHERE sku = ? AND subsidiary_id = ? AND uncertain = 0';
    const qty = this.#sql.value<number | null>(text, sku, subsidiaryId) ?? null;
    const missing = expectedQty === null || qty === null ? 0 : Number((expectedQty - qty).toFixed(9));
    this.#put(place, { missing: Math.max(0, missing), refused: 0 });
  }

  /** Records that the platform did not show the stock. Its count is sent nevertheless. */
  noteRefused(place: StockKey): void {
    this.#put(place, { missing: 0, refused: 1 });
  }

  wasRefused({ sku, subsidiaryId }: StockKey): boolean {
    const text = 'SELECT 1 FROM _stock_notes WHERE sku = ? AND subsidiary_id = ? AND look_refused = 1';
    return this.#sql.row(text, sku, subsidiaryId) !== undefined;
  }

  get isEmpty(): boolean {
    return this.#sql.value('SELECT 1 FROM _stock_notes WHERE looked_ms IS NOT NULL LIMIT 1') === undefined;
  }

  /**
   * Deletes reads at least a minute older than the last good poll, which brought all orders placed before those reads.
   * Stocks that lacked pieces are judged again, in case no order explains them. Returns whether there are any.
   */
  end(lastPollOkMs: number): boolean {
    const before = lastPollOkMs - HEARD_WITHIN_MS;
    const missed = this.#sql.run(
      `UPDATE _stock_counts SET dirty = 1 WHERE given_up = 0 AND (sku, subsidiary_id) IN (
         SELECT sku, subsidiary_id FROM _stock_notes WHERE looked_ms <= ? AND missing_qty > 0)`,
      before,
    );
    this.#sql.run('DELETE FROM _stock_notes WHERE looked_ms <= ? AND safety_qty IS NULL', before);
    const forget = 'looked_ms = NULL, looked_seq = NULL, missing_qty = NULL, look_refused = NULL';
    this.#sql.run(`UPDATE _stock_notes SET ${forget} WHERE looked_ms <= ?`, before);
    return missed.changes > 0;
  }

  #put({ sku, subsidiaryId }: StockKey, { missing, refused }: { missing: number; refused: number }): void {
    this.#sql.run(
      `INSERT INTO _stock_notes (sku, subsidiary_id, looked_ms, looked_seq, missing_qty, look_refused)
       VALUES (@sku, @subsidiaryId, @lookedMs, @lookedSeq, @missing, @refused)
       ON CONFLICT (sku, subsidiary_id) DO UPDATE SET looked_ms = excluded.looked_ms, look_refused = excluded.look_refused,
         -- What an earlier look missed is not heard of yet either.
         missing_qty = excluded.missing_qty + max(0, coalesce(missing_qty, 0) - (SELECT total(max(0, s.qty))
           FROM _stock_steps s WHERE s.sku = @sku AND s.subsidiary_id = @subsidiaryId AND s.seq > looked_seq)),
         looked_seq = excluded.looked_seq`,
      { sku, subsidiaryId, lookedMs: this.#clock.nowMs(), lookedSeq: newestSeq(this.#db), missing, refused },
    );
  }
}
