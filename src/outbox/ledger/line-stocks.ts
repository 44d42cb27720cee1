import type Database from 'better-sqlite3';
import type { BranchDirectory } from '../../catalog/product.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import { noteSku } from '../../orders/merging/placed-lines.ts';
import { placesOfId, type StockKey, stockTarget } from './stock-ledger.ts';

interface SentLine extends Record<'sku' | 'externalId' | 'name', string | null> {
  number: number;
  quantity: number | string | null;
}

/** A quantity of a stock. `externalId`: the id by which the order named the product; '' if it named none. */
export type StockQty = StockKey & { externalId: string; qty: number };
/** Quantities by `qtyKey`. */
export type Quantities = Map<string, StockQty>;
/**
 * Stocks that each line takes from, as they were found when the line first arrived. The key is the order's store, the
 * line's externalId, and without one its name, as a JSON array.
 */
type LinePlaces = Record<string, [sku: string, subsidiaryId: string][]>;

interface FoundLines {
  /** Quantities that the order's lines take from stocks. */
  lines: Quantities;
  /** Keys of stocks that the order has a line below zero of: nobody knows what the platform makes of it. */
  belowZero: ReadonlySet<string>;
  /** Earlier external id of the order's branch, set if the branch is now called as the order's store says. */
  formerName?: string | undefined;
}

/** Finds the stocks of order lines and stores them in `_ledger_orders`. The caller opens the transaction. */
export class LineStocks {
  readonly #sql: Sql;
  readonly #branches: BranchDirectory;

  constructor(db: Database.Database, branches: BranchDirectory) {
    this.#sql = sqlOf(db);
    this.#branches = branches;
  }

  /**
   * Finds and stores the stocks of new lines. An order whose store belongs to no configured branch stays in its earlier
   * branch, because a branch is usually renamed at the platform first. `had`: what the order took until now.
   */
  find(orderId: string, store: string | null, had: Quantities): FoundLines {
    const text = 'SELECT places, is_unplaced AS isUnplaced FROM _ledger_orders WHERE order_id = ?';
    const before = this.#sql.row<{ places: string; isUnplaced: number }>(text, orderId);
    const places = JSON.parse(before?.places ?? '{}') as LinePlaces;
    const former = this.#formerStore(places, store, had);
    const isStaying = former !== undefined && this.isForeign(store);
    const inStore = isStaying ? former : store;
    const quantities: Quantities = new Map();
    const belowZero = new Set<string>();
    // An order that stays is resolved again at the next start, when the configuration may name its store.
    let isUnplaced = Number(isStaying);
    /** Keys of stocks that a line takes of, but does not say how many. */
    const unread = new Set<string>();
    let isAnyAnonymous = false;
    for (const { number, sku, externalId, name, quantity } of this.#linesOf(orderId)) {
      const sent = quantity === null ? 0 : Number(quantity);
      // A line below zero takes nothing, and gives nothing back before it is counted.
      const qty = Number.isFinite(sent) ? Math.max(0, sent) : 0;
      const line = JSON.stringify([inStore, externalId, externalId === null ? name : null]);
      const found = places[line] ?? this.#placesOf(inStore, externalId, name);
      if (found.length > 0) places[line] = found;
      if (sku === null) noteSku(this.#sql, orderId, number, found);
      if (externalId === null && name === null) isAnyAnonymous = true;
      if (quantity === null || !Number.isFinite(sent)) {
        for (const [sku, subsidiaryId] of found)
          unread.add(qtyKey({ sku, subsidiaryId, externalId: externalId ?? '' }));
      }
      // A line of 0 takes nothing, but its stocks are stored, because an edit may raise its quantity.
      if (sent === 0 || !Number.isFinite(sent)) continue;
      if (found.length === 0 && qty > 0) isUnplaced = 1;
      for (const [sku, subsidiaryId] of found) {
        const named = { sku, subsidiaryId, externalId: externalId ?? '' };
        const key = qtyKey(named);
        // Rounds sums of decimal fractions (weights), which floating-point numbers represent inexactly.
        const sum = Number(((quantities.get(key)?.qty ?? 0) + qty).toFixed(9));
        quantities.set(key, { ...named, qty: sum });
        if (sent < 0) belowZero.add(key);
      }
    }
    // A line that does not say how many, or of what, takes nothing back that the order took before.
    for (const [key, taken] of had) {
      const isSaid = !unread.has(key) && !(isAnyAnonymous && this.isBranch(inStore, taken.subsidiaryId));
      if (!isSaid && taken.qty > (quantities.get(key)?.qty ?? 0)) quantities.set(key, taken);
    }
    const now = JSON.stringify(places);
    if (now !== before?.places || isUnplaced !== before.isUnplaced) {
      const note = 'UPDATE _ledger_orders SET places = ?, is_unplaced = ? WHERE order_id = ?';
      this.#sql.run(note, now, isUnplaced, orderId);
    }
    const taken = [...quantities.values()].flatMap(({ subsidiaryId, qty }) =>
      qty > 0 ? [subsidiaryId] : [],
    );
    const isRenamed = isStaying || this.isIn(had, taken);
    return { lines: quantities, belowZero, formerName: isRenamed ? former : undefined };
  }

  /** Returns what these lines of an order take from the stocks that `find` stored for them. */
  ofLines(orderId: string, numbers: readonly number[]): Quantities {
    const text = 'SELECT places FROM _ledger_orders WHERE order_id = ?';
    const places = Object.entries(JSON.parse(this.#sql.value<string>(text, orderId) ?? '{}') as LinePlaces);
    const quantities: Quantities = new Map();
    for (const { number, externalId, name, quantity } of this.#linesOf(orderId)) {
      const qty = Number(quantity);
      if (!numbers.includes(number) || !(qty > 0)) continue;
      const isLine = ([key]: [string, unknown]) => {
        const [, id, byName] = JSON.parse(key) as (string | null)[];
        return id === externalId && (externalId !== null || byName === name);
      };
      // A branch that was renamed has the same stock under both of its names.
      const stocks = new Map(
        places
          .filter(isLine)
          .flatMap(([, found]) => found)
          .map(([sku, subsidiaryId]) => ({ sku, subsidiaryId, externalId: externalId ?? '' }))
          .map((named) => [qtyKey(named), named]),
      );
      for (const [key, named] of stocks) {
        const sum = Number(((quantities.get(key)?.qty ?? 0) + qty).toFixed(9));
        quantities.set(key, { ...named, qty: sum });
      }
    }
    return quantities;
  }

  #linesOf(orderId: string): SentLine[] {
    return this.#sql.rows<SentLine>(
      `SELECT line AS number, sku, product_external_id AS externalId, product_name AS name, quantity
       FROM order_items WHERE order_id = ?`,
      orderId,
    );
  }

  /**
   * Returns the store that the order named when its stocks were found, if the order names another now and only one of
   * the two is configured. Only then may both be names of the same branch.
   */
  #formerStore(places: LinePlaces, store: string | null, had: Quantities): string | undefined {
    const stores = Object.entries(places)
      .filter(([, found]) => found.some(([sku, subsidiaryId]) => isTaken(had, { sku, subsidiaryId })))
      .map(([line]) => (JSON.parse(line) as [string | null])[0]);
    const [former] = stores;
    if (typeof former !== 'string' || stores.includes(store)) return undefined;
    return this.isForeign(former) === this.isForeign(store) ? undefined : former;
  }

  /**
   * Forgets the stocks of lines whose store the configuration gives to another branch now, if the product is there too,
   * and marks their orders to be resolved again.
   */
  forgetMoved(): void {
    const text = 'SELECT order_id AS orderId, places FROM _ledger_orders WHERE takes = 1';
    for (const { orderId, places } of this.#sql.rows<{ orderId: string; places: string }>(text)) {
      const lines = Object.entries(JSON.parse(places) as LinePlaces);
      const stay = lines.filter(([line, found]) => {
        const [store, externalId, name] = JSON.parse(line) as (string | null)[];
        const id = store == null ? undefined : this.#branches.idOf(store);
        if (id === undefined || found.some(([, subsidiaryId]) => subsidiaryId === id)) return true;
        return this.#placesOf(store ?? null, externalId ?? null, name ?? null)?.length === 0;
      });
      if (stay.length === lines.length) continue;
      const forget = 'UPDATE _ledger_orders SET places = ?, is_stale = 1 WHERE order_id = ?';
      this.#sql.run(forget, JSON.stringify(Object.fromEntries(stay)), orderId);
    }
  }

  /**
   * Returns the stocks of a line. If its id is unknown or missing, as for an item with modifiers (the platform's
   * document, "Item"), its name is looked up. If the product has several skus, the stocks of all are returned.
   */
  #placesOf(store: string | null, externalId: string | null, name: string | null): LinePlaces[string] {
    const byId = externalId === null ? [] : placesOfId(this.#sql, externalId);
    const places =
      byId.length > 0 || name === null
        ? byId
        : this.#sql.rows<StockKey>(
            `SELECT k.sku, k.subsidiary_id AS subsidiaryId
             FROM _products p JOIN _skus s USING (product_id) JOIN _stocks k USING (sku) WHERE p.name = +?`,
            name,
          );
    return places
      .filter(({ subsidiaryId }) => this.isBranch(store, subsidiaryId))
      .map(({ sku, subsidiaryId }) => [sku, subsidiaryId]);
  }

  /**
   * Returns whether an order's store may be this branch: null, or one of the branch's ids. A store that nobody knows
   * may be any branch without a configured external id; pieces are held back in each, because selling too little is
   * better than selling too much.
   */
  isBranch(store: string | null, subsidiaryId: string): boolean {
    if (store === null || store === subsidiaryId) return true;
    const externalId = this.#branches.externalIdOf(subsidiaryId);
    if (externalId !== undefined) return store === externalId;
    return this.#branches.idOf(store) === undefined && !this.#isStocked(store);
  }

  /** Returns whether neither the configuration nor the catalogue has this store. It may be the new id of a branch. */
  isForeign(store: string | null): boolean {
    const isConfigured = this.#branches.all.some(
      ({ subsidiaryId, externalId }) => store === subsidiaryId || store === externalId,
    );
    return store !== null && !isConfigured && !this.#isStocked(store);
  }

  /**
   * Returns whether the order takes something in each of these branches (internal ids), of which there is at least one.
   */
  isIn(had: Quantities, subsidiaryIds: readonly string[]): boolean {
    const takesIn = (id: string) =>
      [...had.values()].some(({ subsidiaryId, qty }) => qty > 0 && subsidiaryId === id);
    return subsidiaryIds.length > 0 && subsidiaryIds.every(takesIn);
  }

  #isStocked(subsidiaryId: string): boolean {
    return (
      this.#sql.value('SELECT 1 FROM _stocks WHERE subsidiary_id = ? LIMIT 1', subsidiaryId) !== undefined
    );
  }
}

/** Returns the key of a stock and the id by which an order took from it. */
export function qtyKey(taken: Omit<StockQty, 'qty'>): string {
  return `${stockTarget(taken)} ${taken.externalId}`;
}

function isTaken(had: Quantities, { sku, subsidiaryId }: StockKey): boolean {
  return [...had.values()].some(
    (each) => each.sku === sku && each.subsidiaryId === subsidiaryId && each.qty > 0,
  );
}
