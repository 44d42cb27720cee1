import type Database from 'better-sqlite3';
import { fromBit } from '../db/sqlite.ts';
import type { StockChangeItem } from '../platform/platform.ts';
import type { ChangeBody } from './change.ts';
import { bodyOf, type LineRow } from './queue.ts';

/** One stock of the view `stock_ledger`. */
export interface LedgerStock {
  sku: string;
  subsidiaryId: string;
  countedSeq: number;
  countedVersion: number;
  /** The change that brought the last count. */
  changeId: number;
  /** JSON: how the platform is told which stock is meant. */
  address: string;
  callId: number | null;
  callQty: number | null;
  callSeq: number | null;
  attempts: number;
  countedQty: number;
  /** What orders took that the count cannot contain. */
  reservedQty: number;
  /** What the platform shall have: the count less that. */
  wantedQty: number;
  /** What the platform has by itself now; null: nobody can tell. */
  expectedQty: number | null;
  /** What was ordered since the platform's quantity was confirmed. */
  orderedQty: number;
  confirmedSeq: number;
  /** By this machine's clock. */
  confirmedMs: number;
  show: boolean | null;
}

type Row = Omit<LedgerStock, 'show'> & { show: number | null; showUncertain: number | null };

/** What a stock is called in the outbox. */
export function stockTarget({ sku, subsidiaryId }: Pick<LedgerStock, 'sku' | 'subsidiaryId'>): string {
  return `sku:${sku}@${subsidiaryId}`;
}

const COLUMNS = `sku, subsidiary_id AS subsidiaryId, counted_seq AS countedSeq, counted_version AS countedVersion,
  change_id AS changeId, address, call_id AS callId, call_qty AS callQty, call_seq AS callSeq, attempts,
  counted_qty AS countedQty, reserved_qty AS reservedQty, wanted_qty AS wantedQty, expected_qty AS expectedQty,
  ordered_qty AS orderedQty, confirmed_seq AS confirmedSeq, confirmed_ms AS confirmedMs, show,
  show_uncertain AS showUncertain`;

/** No newer count of it waits in the line, none is under way, and the platform did not refuse the last one. */
const IS_OPEN = `n.dirty = 1 AND n.call_id IS NULL AND n.counted_version > n.refused_version
  AND NOT EXISTS (SELECT 1 FROM outbox o INDEXED BY outbox_waiting WHERE o.kind = 'stock'
    AND o.target = 'sku:' || n.sku || '@' || n.subsidiary_id AND o.state = 'pending' AND o.held_guard IS NULL)`;

/**
 * A stock is desired state: the last count less what orders took that it cannot contain, compared with what the platform
 * is believed to have. Both are derived by the view `stock_ledger`; here is every write there is. Transactions are the
 * caller's.
 */
export class StockLedger {
  readonly #count: Database.Statement;
  readonly #one: Database.Statement<[string, string], Row>;
  readonly #isUnderWay: Database.Statement<[string, string], number>;
  readonly #open: Database.Statement<[number], { sku: string; subsidiaryId: string }>;
  readonly #openCount: Database.Statement<[], number>;
  readonly #settled: Database.Statement<[string, string]>;
  readonly #send: Database.Statement;
  readonly #ofCall: Database.Statement<[number, number], Row>;
  readonly #done: Database.Statement<[string, string]>;
  readonly #again: Database.Statement<[string, string]>;
  readonly #refused: Database.Statement;
  readonly #underWay: Database.Statement<[], Row>;
  readonly #giveUp: Database.Statement<[number]>;
  readonly #orders: Database.Statement<[string, string, number], string>;

  constructor(db: Database.Database) {
    this.#count = db.prepare(`
      INSERT INTO stock_counts (sku, subsidiary_id, counted_qty, counted_seq, counted_version, change_id, address)
      VALUES (@sku, @subsidiaryId, @qty, @asOfSeq, @version, @changeId, @address)
      ON CONFLICT (sku, subsidiary_id) DO UPDATE SET counted_qty = excluded.counted_qty,
        counted_seq = excluded.counted_seq, counted_version = excluded.counted_version,
        change_id = excluded.change_id, address = excluded.address
        WHERE excluded.counted_version >= stock_counts.counted_version`);
    this.#one = db.prepare(`SELECT ${COLUMNS} FROM stock_ledger WHERE sku = ? AND subsidiary_id = ?`);
    // Of the table alone: each count in line asks, and the view adds up orders.
    this.#isUnderWay = db
      .prepare<[string, string], number>(
        'SELECT 1 FROM stock_counts WHERE sku = ? AND subsidiary_id = ? AND call_id IS NOT NULL',
      )
      .pluck();
    this.#open = db.prepare(`
      SELECT n.sku, n.subsidiary_id AS subsidiaryId FROM stock_counts n INDEXED BY stock_counts_dirty
      WHERE ${IS_OPEN} LIMIT ?`);
    this.#openCount = db
      .prepare<[], number>(
        `SELECT count(*) FROM stock_counts n INDEXED BY stock_counts_dirty WHERE ${IS_OPEN}`,
      )
      .pluck();
    this.#settled = db.prepare('UPDATE stock_counts SET dirty = 0 WHERE sku = ? AND subsidiary_id = ?');
    this.#send = db.prepare(`
      UPDATE stock_counts SET call_id = @callId, call_qty = @qty, call_seq = @orderSeq, dirty = 0
      WHERE sku = @sku AND subsidiary_id = @subsidiaryId`);
    this.#ofCall = db.prepare(`SELECT ${COLUMNS} FROM stock_ledger WHERE call_id = ? AND change_id = ?`);
    this.#done = db.prepare(`
      UPDATE stock_counts SET call_id = NULL, attempts = 0 WHERE sku = ? AND subsidiary_id = ?`);
    this.#again = db.prepare(`
      UPDATE stock_counts SET call_id = NULL, attempts = attempts + 1, dirty = 1
      WHERE sku = ? AND subsidiary_id = ?`);
    this.#refused = db.prepare(`
      UPDATE stock_counts SET call_id = NULL, attempts = 0, refused_version = max(refused_version, @version)
      WHERE sku = @sku AND subsidiary_id = @subsidiaryId`);
    this.#underWay = db.prepare(`SELECT ${COLUMNS} FROM stock_ledger WHERE call_id IS NOT NULL`);
    this.#giveUp = db.prepare(
      'UPDATE stock_counts SET refused_version = counted_version WHERE change_id = ? AND call_id IS NULL',
    );
    this.#orders = db
      .prepare<[string, string, number], string>(
        `SELECT coalesce(r.code, r.order_id) FROM order_takings t JOIN ledger_orders o USING (order_id)
           JOIN orders r USING (order_id)
         WHERE t.sku = ? AND t.subsidiary_id = ? AND o.takes = 1 AND (o.booked = 0 OR o.live_since_seq > ?)
         ORDER BY o.live_since_seq LIMIT 6`,
      )
      .pluck();
  }

  /** A count of the line is about to be judged: it takes the place of an older one. */
  count(row: CountedRow, { qty, show: _show, ...address }: StockChangeItem): LedgerStock {
    const { sku, subsidiaryId, asOfSeq, version, changeId } = row;
    this.#count.run({ sku, subsidiaryId, qty, asOfSeq, version, changeId, address: JSON.stringify(address) });
    return stockOf(this.#one.get(sku, subsidiaryId) as Row);
  }

  /** Whether a call carries the stock now. */
  isUnderWay(sku: string, subsidiaryId: string): boolean {
    return this.#isUnderWay.get(sku, subsidiaryId) !== undefined;
  }

  /** Stocks to which something happened since they were looked at, and for which no count waits; at most `limit`. */
  open(limit: number): LedgerStock[] {
    return this.#open
      .all(limit)
      .flatMap(({ sku, subsidiaryId }) => this.#one.get(sku, subsidiaryId) ?? [])
      .map(stockOf);
  }

  get openCount(): number {
    return this.#openCount.get() ?? 0;
  }

  /** The platform has what is wanted. */
  isSettled({ sku, subsidiaryId }: Pick<LedgerStock, 'sku' | 'subsidiaryId'>): void {
    this.#settled.run(sku, subsidiaryId);
  }

  /** It leaves with a call. */
  isSent(stock: LedgerStock, call: { callId: number; qty: number; orderSeq: number }): void {
    const { sku, subsidiaryId } = stock;
    this.#send.run({ sku, subsidiaryId, ...call });
  }

  /** The stock that a call carries for a change. */
  ofCall(callId: number, changeId: number): LedgerStock | undefined {
    const row = this.#ofCall.get(callId, changeId);
    return row && stockOf(row);
  }

  settle(stock: LedgerStock, state: 'done' | 'rejected' | 'retry'): void {
    const { sku, subsidiaryId, countedVersion: version } = stock;
    if (state === 'done') this.#done.run(sku, subsidiaryId);
    else if (state === 'retry') this.#again.run(sku, subsidiaryId);
    else this.#refused.run({ sku, subsidiaryId, version });
  }

  /** Stocks under way in a call whose process died. */
  underWay(): LedgerStock[] {
    return this.#underWay.all().map(stockOf);
  }

  /** A person gave the change up: what it counted is not insisted on. */
  giveUp(changeId: number): void {
    this.#giveUp.run(changeId);
  }

  /** Numbers of the first orders that a count does not contain, for a person. */
  reservedBy({ sku, subsidiaryId, countedSeq }: LedgerStock): string[] {
    return this.#orders.all(sku, subsidiaryId, countedSeq).map(String);
  }
}

type CountedRow = Pick<LineRow, 'asOfSeq' | 'version' | 'changeId'> & { sku: string; subsidiaryId: string };

function stockOf({ showUncertain, show, ...row }: Row): LedgerStock {
  return { ...row, show: showUncertain === 0 ? fromBit(show) : null };
}

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
