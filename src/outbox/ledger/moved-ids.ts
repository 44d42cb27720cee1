import type Database from 'better-sqlite3';
import type { BranchDirectory, CatalogLookup } from '../../catalog/product.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import {
  type Address,
  countTime,
  literalAddress,
  literalTarget,
  type OutboxChange,
  type StockName,
} from '../intake/change.ts';
import { resolveStock } from '../intake/resolve.ts';
import type { KnownValues } from '../sending/known-values.ts';
import type { OutboxQueue } from '../sending/queue.ts';
import { meansItsStock } from '../sending/wanted.ts';
import { FORGET, placesOfId, type StockKey, stockTarget } from './stock-ledger.ts';

/** Maximum number of moved ids whose counts arrive in one transaction. */
const PART = 200;

interface MovedIdsOptions {
  db: Database.Database;
  clock: Clock;
  catalog: CatalogLookup;
  branches: BranchDirectory;
  queue: OutboxQueue;
  values: KnownValues;
}

/** A count by an id: the change that has it, and the stock that the id meant when it was counted. */
interface NamedCount extends StockKey {
  named: string;
  changeId: number;
  foldedQty: number;
  givenUp: 0 | 1;
}

/** Where a name leads now. */
interface Meaning extends StockKey {
  address: Address;
}

const COUNT =
  'sku, subsidiary_id AS subsidiaryId, change_id AS changeId, folded_qty AS foldedQty, given_up AS givenUp';
const KEEP_IDLE = `
  INSERT INTO _id_counts (named, external_id, sku, subsidiary_id, change_id, folded_qty, given_up)
  VALUES (@named, @externalId, @sku, @subsidiaryId, @changeId, @foldedQty, @givenUp)
  ON CONFLICT (named) DO UPDATE SET sku = excluded.sku, subsidiary_id = excluded.subsidiary_id,
    change_id = excluded.change_id, folded_qty = excluded.folded_qty, given_up = excluded.given_up`;
const ARRIVE = `
  INSERT INTO _stock_counts (sku, subsidiary_id, change_id, folded_qty, given_up, dirty)
  VALUES (@sku, @subsidiaryId, @changeId, @foldedQty, @givenUp, 1)
  ON CONFLICT (sku, subsidiary_id) DO UPDATE SET change_id = excluded.change_id, folded_qty = excluded.folded_qty,
    given_up = excluded.given_up, dirty = 1`;
/** SQL for counts by an id that does not mean their stock any more, although it may mean others too. */
const LEAVING = `
  SELECT DISTINCT o.named, n.sku, n.subsidiary_id AS subsidiaryId, n.change_id AS changeId, n.folded_qty AS foldedQty,
    n.given_up AS givenUp
  FROM _moved_ids m CROSS JOIN _stock_counts n USING (sku, subsidiary_id) CROSS JOIN _outbox o USING (change_id)
  WHERE o.named IS NOT NULL AND json_extract(o.named, '$.externalId') = m.external_id AND NOT ${meansItsStock('o')}`;
const namedIn = (held: string) => `
  SELECT o.change_id FROM _moved_ids m CROSS JOIN _outbox o
  WHERE o.kind = 'stock' AND o.target = 'sku:' || m.sku || '@' || m.subsidiary_id AND o.state = 'pending'
    AND o.held_guard IS ${held} AND o.basis = 'mirror' AND json_extract(o.body, '$.externalId') = m.external_id`;
/** SQL for waiting and held changes whose body names a moved id. */
const WAITING = `${namedIn('NULL')} UNION ${namedIn('NOT NULL')}`;
/** SQL for the stocks that a moved id meant or means. */
const CONCERNED = ['ext_id', 'product_id_pos_a', 'product_code_pos_b']
  .map(
    (column) =>
      `SELECT i.sku, i.subsidiary_id AS subsidiaryId FROM _moved_ids m CROSS JOIN integrations i ON i.${column} = m.external_id`,
  )
  .concat('SELECT sku, subsidiary_id FROM _moved_ids')
  .join(' UNION ');
/** Beginning of the message of a change that tillsync made because an id moved. */
const AGAIN = 'Counted again:';

/**
 * Follows ids that mean another stock than before. What was counted by an id belongs to the id: the count leaves the
 * old stock and counts for the new one, with its own time and version. What orders took by the id goes with it.
 * Example: X-2 counted 5 and X-3 counted 8 are swapped in the catalogue → the stock that had 5 has 8. The caller opens
 * the transaction.
 */
export class MovedIds {
  readonly #sql: Sql;
  readonly #options: MovedIdsOptions;

  constructor(options: MovedIdsOptions) {
    this.#options = options;
    this.#sql = sqlOf(options.db);
  }

  get isAny(): boolean {
    return this.#sql.value('SELECT 1 FROM _moved_ids LIMIT 1') !== undefined;
  }

  /**
   * Follows some moved ids. Returns true if others are left for another transaction. While a call sends one of their
   * stocks, only what waits is redirected: what the call says of its stock is known only when it has ended.
   */
  follow(): boolean {
    if (!this.isAny) return false;
    this.#redirect();
    if (this.#isUnderWay) return false;
    // All counts of all moved ids leave their stocks before one arrives, so that swaps and longer circles need no order.
    for (const count of this.#sql.rows<NamedCount>(LEAVING)) this.#leave(count);
    const ids = this.#sql.values<string>(`SELECT DISTINCT external_id FROM _moved_ids LIMIT ${PART}`);
    for (const id of ids) {
      for (const count of this.#sql.rows<NamedCount>(
        `SELECT named, ${COUNT} FROM _id_counts WHERE external_id = ?`,
        id,
      )) {
        const meaning = this.#meaningOf(JSON.parse(count.named) as StockName);
        if (!meaning) continue;
        this.#arrive(count, meaning);
        this.#sql.run('DELETE FROM _id_counts WHERE named = ?', count.named);
      }
    }
    for (const id of ids) {
      this.#moveSteps(id);
      this.#sql.run('DELETE FROM _moved_ids WHERE external_id = ?', id);
    }
    return this.isAny;
  }

  /** Returns the targets of the stocks whose ids are not followed yet. No call may begin to send them. */
  unfollowed(): Set<string> {
    return new Set(this.isAny ? this.#sql.rows<StockKey>(CONCERNED).map(stockTarget) : []);
  }

  /** Whether a call sends a stock that a moved id meant, or that it means now. */
  get #isUnderWay(): boolean {
    const sent = this.#sql.values<string>(`
      SELECT 'sku:' || sku || '@' || subsidiary_id FROM _stock_counts WHERE call_id IS NOT NULL
      UNION SELECT conflict_key FROM _outbox WHERE kind = 'stock' AND state = 'sending'`);
    if (sent.length === 0) return false;
    const concerned = this.unfollowed();
    return sent.some((target) => concerned.has(target));
  }

  /** Returns the one stock that a name means in the catalogue; undefined if there is none, or more than one. */
  #meaningOf(name: StockName): Meaning | undefined {
    const resolution = resolveStock({ ...name, qty: 0 }, { ...this.#options, alreadyRead: true });
    if (resolution.state !== 'resolved') return undefined;
    const { sku, subsidiaryId } = resolution.target;
    return sku === null || subsidiaryId === null
      ? undefined
      : { sku, subsidiaryId, address: resolution.address };
  }

  /** Takes a count from its stock. Its change has it until the id means a stock again. */
  #leave(count: NamedCount): void {
    const { named, sku, subsidiaryId, changeId } = count;
    const other = this.#sql.value<number>('SELECT change_id FROM _id_counts WHERE named = ?', named);
    const { externalId } = JSON.parse(named) as StockName;
    if (this.#isLater(changeId, other)) this.#sql.run(KEEP_IDLE, { ...count, externalId });
    this.#sql.run('DELETE FROM _stock_counts WHERE sku = ? AND subsidiary_id = ?', sku, subsidiaryId);
  }

  /** Makes a count the last one of the stock that its id means now, unless that was counted later. */
  #arrive(count: NamedCount, { address, ...to }: Meaning): void {
    const from = { sku: count.sku, subsidiaryId: count.subsidiaryId };
    const hasMoved = stockTarget(from) !== stockTarget(to);
    if (hasMoved) {
      this.#doubt(from);
      this.#doubt(to);
    }
    const counted = this.#options.queue.get(count.changeId);
    // What waits is judged in its turn.
    if (counted?.state === 'pending' || !counted || !('qty' in counted.body)) return;
    const there = 'SELECT change_id FROM _stock_counts WHERE sku = ? AND subsidiary_id = ?';
    const other = this.#sql.value<number>(there, to.sku, to.subsidiaryId);
    if (!this.#isLater(count.changeId, other)) return;
    if (other !== undefined) this.#sql.run(FORGET, other);
    if (!hasMoved) {
      this.#sql.run(ARRIVE, { ...count });
      return;
    }
    const qty = Number((counted.body.qty - count.foldedQty).toFixed(9));
    const changeId = this.#tell(counted, count, { ...to, address, qty });
    this.#sql.run(ARRIVE, { ...to, changeId, foldedQty: 0, givenUp: count.givenUp });
  }

  /** Whether a change has a later count than another one, or there is no other. */
  #isLater(changeId: number, otherId: number | undefined): boolean {
    const { queue } = this.#options;
    const one = queue.get(changeId);
    const other = otherId === undefined ? undefined : queue.get(otherId);
    if (!one || !other) return one !== undefined;
    const [at, otherAt] = [countTime(one), countTime(other)];
    return at > otherAt || (at === otherAt && one.version > other.version);
  }

  /** Notes a count as a change of its own at its new stock, and says at the old one what became of it. */
  #tell(
    { version, asOfSeq, countedAt, handedAt, named, changeId: oldId }: OutboxChange,
    from: NamedCount,
    { address, qty, ...to }: Meaning & { qty: number },
  ): number {
    const changeId = this.#nextVersion();
    const { externalId } = JSON.parse(from.named) as StockName;
    const target = stockTarget(to);
    this.#options.queue.putDone({
      ...({ kind: 'stock', source: 'hold-back', origin: 'tillsync', basis: 'mirror' } as const),
      ...to,
      ...{ changeId, version, target, conflictKey: target, branch: to.subsidiaryId },
      body: { externalId, ...address, qty },
      ...{ asOfSeq, countedAt, handedAt, named },
      message: `Counted again: id ${externalId} meant sku ${from.sku} before, and means sku ${to.sku} now.`,
      reference: null,
      heldGuard: null,
      zeroedAt: null,
      createdAt: isoUtc(this.#options.clock.nowMs()),
    });
    this.#sql.run(
      "UPDATE _outbox SET message = trim(coalesce(message, '') || ?) WHERE change_id = ? AND state = 'done'",
      ...[` Its id ${externalId} means sku ${to.sku} now: see change ${changeId}.`, oldId],
    );
    return changeId;
  }

  /** Moves the steps that orders took by an id to the stocks that the id means now. */
  #moveSteps(externalId: string): void {
    const places = Map.groupBy(placesOfId(this.#sql, externalId), ({ subsidiaryId }) => subsidiaryId);
    const taken = this.#sql.rows<StockKey>(
      `SELECT DISTINCT sku, subsidiary_id AS subsidiaryId FROM _stock_steps
       WHERE external_id = ? AND external_id <> ''`,
      externalId,
    );
    for (const [subsidiaryId, stocks] of Map.groupBy(taken, (stock) => stock.subsidiaryId)) {
      const meant = (places.get(subsidiaryId) ?? []).map(({ sku }) => sku);
      // An id that means nothing says nothing of what was taken by it.
      if (meant.length === 0) continue;
      const had = stocks.map(({ sku }) => sku);
      const [any] = had;
      const news = meant.filter((sku) => !had.includes(sku));
      const left = had.filter((sku) => !meant.includes(sku));
      if (any === undefined || (news.length === 0 && left.length === 0)) continue;
      for (const sku of news) {
        this.#sql.run(
          `INSERT OR IGNORE INTO _stock_steps
             (sku, subsidiary_id, order_id, seq, external_id, part, qty, booked_version, booked_ms, placed_ms, is_first, held_until_ms)
           SELECT @sku, subsidiary_id, order_id, seq, external_id, part, qty, booked_version, booked_ms, placed_ms, is_first, held_until_ms
           FROM _stock_steps WHERE sku = @any AND subsidiary_id = @subsidiaryId AND external_id = @externalId`,
          { sku, any, subsidiaryId, externalId },
        );
      }
      // A count by the sku stays with the sku, and so does what it may not contain: an edit must find that too.
      const bySku = `SELECT 1 FROM _stock_counts n JOIN _outbox o USING (change_id)
        WHERE n.sku = ? AND n.subsidiary_id = ? AND o.named IS NULL`;
      const kept = left.filter((sku) => this.#sql.value(bySku, sku, subsidiaryId) !== undefined);
      this.#rewritePlaces(externalId, subsidiaryId, [...meant, ...kept]);
      for (const sku of left) {
        if (kept.includes(sku)) continue;
        const drop = 'DELETE FROM _stock_steps WHERE sku = ? AND subsidiary_id = ? AND external_id = ?';
        this.#sql.run(drop, sku, subsidiaryId, externalId);
      }
      for (const sku of [...news, ...left]) this.#doubt({ sku, subsidiaryId });
    }
  }

  /** Notes for the orders that took by the id where its lines are, so that an edit finds the same stocks. */
  #rewritePlaces(externalId: string, subsidiaryId: string, meant: readonly string[]): void {
    const orders = this.#sql.rows<{ orderId: string; places: string }>(
      `SELECT order_id AS orderId, places FROM _ledger_orders WHERE order_id IN (
         SELECT order_id FROM _stock_steps WHERE external_id = ? AND external_id <> '' AND subsidiary_id = ?)`,
      ...[externalId, subsidiaryId],
    );
    for (const { orderId, places } of orders) {
      const lines = Object.entries(JSON.parse(places) as Record<string, [string, string][]>).map(
        ([line, stocks]): [string, [string, string][]] => {
          const [, id] = JSON.parse(line) as [string | null, string | null];
          const isHere = stocks.some(([, branch]) => branch === subsidiaryId);
          if (id !== externalId || !isHere) return [line, stocks];
          const others = stocks.filter(([, branch]) => branch !== subsidiaryId);
          return [line, [...others, ...meant.map((sku): [string, string] => [sku, subsidiaryId])]];
        },
      );
      const text = 'UPDATE _ledger_orders SET places = ? WHERE order_id = ?';
      this.#sql.run(text, JSON.stringify(Object.fromEntries(lines)), orderId);
    }
  }

  /** Resolves waiting and held changes again, by the words of the POS. */
  #redirect(): void {
    const at = isoUtc(this.#options.clock.nowMs());
    const { queue } = this.#options;
    const changes = this.#sql.values<number>(WAITING).flatMap((changeId) => queue.get(changeId) ?? []);
    const begun = changes.flatMap((change) => {
      const { named, sku, subsidiaryId, body } = change;
      if (!('qty' in body) || sku === null || subsidiaryId === null) return [];
      const name = named === null ? { sku, subsidiaryId } : (JSON.parse(named) as StockName);
      const words = { ...name, qty: body.qty };
      const resolution = resolveStock(words, { ...this.#options, alreadyRead: true });
      const target = 'target' in resolution ? resolution.target : undefined;
      const { externalId: _, subsidiaryId: _id, subsidiaryExternalId: _external, ...values } = body;
      const bodyOf = (address: Address) => ({ ...address, ...values }) as OutboxChange['body'];
      if (target?.key === change.target && 'address' in resolution) {
        queue.move({ ...change, body: bodyOf(resolution.address) }, at);
        return [];
      }
      // All leave their stocks first; one that means nothing now waits until its product is read.
      const count = this.#sql.row<Omit<NamedCount, 'named'>>(
        `SELECT ${COUNT} FROM _stock_counts WHERE change_id = ?`,
        change.changeId,
      );
      if (count && named !== null) this.#leave({ ...count, named });
      const { key, conflictKey } = literalTarget(words);
      const open = { ...change, target: key, conflictKey, sku: null, basis: 'needs-read' as const };
      queue.move({ ...open, body: bodyOf(literalAddress(words)) }, at);
      return target && 'address' in resolution
        ? [{ changeId: change.changeId, target, body: bodyOf(resolution.address) }]
        : [];
    });
    for (const { changeId, target, body } of begun) {
      const change = queue.get(changeId);
      if (change?.state !== 'pending') continue;
      const { key, ...ids } = target;
      const moved = { ...change, ...ids, target: key, basis: 'mirror' as const, body };
      // Once a count says when it was made, the times decide, and else the order of hand-overs.
      const isLastCount = queue.hasDated(moved);
      const rest = isLastCount ? queue.restOfCount(moved, moved) : moved;
      if ('overruledBy' in rest) queue.supersede(changeId, rest.overruledBy.changeId, at);
      else queue.move(rest, at, { isLastCount });
    }
  }

  /** Marks the platform's quantity as unknown: a call by the id may have reached the other stock. */
  #doubt(place: StockKey): void {
    const { values } = this.#options;
    values.doubt({ ...place, body: { externalId: '', qty: 0 } }, values.nextMark());
    const again = `UPDATE _stock_counts SET dirty = 1
      WHERE sku = ? AND subsidiary_id = ? AND given_up = 0`;
    this.#sql.run(again, place.sku, place.subsidiaryId);
  }

  #nextVersion(): number {
    const text = "UPDATE marks SET value = value + 1 WHERE name = 'outbox.version' RETURNING value";
    return this.#sql.value<number>(text) ?? 0;
  }
}

/** Returns the sentence that says why tillsync made this change; null if it is another's. */
export function countedAgain(sql: Sql, changeId: number): string | null {
  const message = sql.value<string | null>('SELECT message FROM _outbox WHERE change_id = ?', changeId);
  return message?.startsWith(AGAIN) ? (/^.*? now\./.exec(message)?.[0] ?? null) : null;
}
