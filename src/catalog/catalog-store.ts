import { hash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { twinKey } from '../core/folding.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { countsOf, type FieldNews, fieldsOf, topmost } from '../core/values.ts';
import { isSeen, seen } from '../db/seen.ts';
import { isStored, preparedOnUse, sqlOf } from '../db/sqlite.ts';
import type { ProductRecord } from '../platform/schemas.ts';
import type { BranchProducts } from './branch-catalog.ts';
import {
  type Branch,
  type CatalogLookup,
  type CatalogMapping,
  MAPPING_FIELDS,
  type MappingField,
} from './product.ts';
import { ProductWriter, type WriteContext } from './product-rows.ts';

/** State of the mirror before a request to the platform. With it, a late answer never overwrites newer data. */
export interface ReadMark {
  push: number;
  orderSeq: number;
}

/**
 * A mirrored product that a list contradicts. `sku` is one of the product's skus, by which it can be requested; null if
 * none is known.
 */
export interface DoubtfulProduct {
  productId: string;
  sku: string | null;
}

/** How far the products of all branches have vanished in one reading of all branches. */
export interface Vanishing {
  /** Number of products before the reading. */
  of: number;
  vanished: number;
}

export interface CompletedSweep {
  branch: Branch;
  /** State of the mirror before the first page was requested. */
  mark: ReadMark;
  startedAtMs: number;
  pages: number;
  /** Ids of all products on the pages. */
  seen: ReadonlySet<string>;
  /** When the branch's values were read, if they come from other branches' lists instead of the branch's own. */
  readUntilMs?: number | undefined;
  /** Time of the schedule for which the branch was read; left out for any other reading. */
  scheduledMs?: number | undefined;
  /** What vanished in the branches before; left out if only this branch is read. */
  vanishing?: Vanishing | undefined;
}

export interface SweepEnd {
  /** Number of products marked as vanished. */
  vanished: number;
  /** Number of missing products that are kept, because they are most of the branch's, or of all. */
  doubted: number;
}

/** A branch whose list lacks most products, and since when. */
export interface DoubtedBranch {
  branch: string;
  missing: number;
  products: number;
  since: string;
}

/** Fewer products than this may have lost all their ids or stocks because a person took them away. */
const EMPTIED_MIN = 3;
/** Largest difference between two correct clocks. */
const FUTURE_MS = 300_000;

/** Returns the key of a configured branch in the tables `sweeps` and `_branch_products`. */
export function branchKey(branch: Branch): string {
  return branch.subsidiaryId ?? `ext:${branch.externalId ?? ''}`;
}

function statements(db: Database.Database) {
  return preparedOnUse({
    digest: () =>
      db.prepare<[string, string], { digest: string | null; vanished: string | null }>(`
      SELECT b.digest, p.vanished_at AS vanished FROM _branch_products b JOIN _products p USING (product_id)
      WHERE b.branch = +? AND b.product_id = +?`),
    listings: () =>
      db.prepare<[string], { branch: string; digest: string | null }>(
        'SELECT branch, digest FROM _branch_products WHERE product_id = ?',
      ),
    putListing: () =>
      db.prepare<[string, string, string | null]>(`
      INSERT INTO _branch_products (branch, product_id, digest) VALUES (?, ?, ?)
      ON CONFLICT (branch, product_id) DO UPDATE SET digest = excluded.digest`),
    forgetDigests: () =>
      db.prepare<string[]>('UPDATE _branch_products SET digest = NULL WHERE product_id = ? AND digest <> ?'),
    listed: () =>
      db.prepare<[string], DoubtfulProduct & { missingSince: string | null; isElsewhere: number }>(`
      SELECT product_id AS productId, missing_since AS missingSince,
        (SELECT min(sku) FROM _skus s WHERE s.product_id = b.product_id) AS sku,
        EXISTS (SELECT 1 FROM _branch_products o WHERE o.product_id = b.product_id AND o.branch <> b.branch) AS isElsewhere
      FROM _branch_products b WHERE branch = ?`),
    setMissing: () =>
      db.prepare<(string | null)[]>(
        'UPDATE _branch_products SET missing_since = ? WHERE branch = ? AND product_id = ?',
      ),
    doubted: () =>
      db.prepare<[], DoubtedBranch>(`
      SELECT branch, sum(missing_since IS NOT NULL) AS missing, count(*) AS products, min(missing_since) AS since
      FROM _branch_products GROUP BY branch HAVING missing > 0`),
    size: () => db.prepare<[], number>('SELECT count(*) FROM _products WHERE vanished_at IS NULL').pluck(),
    // The cross joins keep SQLite from beginning with all stocks of the branch for each product.
    rowCounts: () =>
      db.prepare<[{ branch: string }], { productId: string; rows: number }>(`
      SELECT product_id AS productId,
        (SELECT count(*) FROM _skus s CROSS JOIN _stocks k
          WHERE s.product_id = b.product_id AND k.sku = s.sku AND k.subsidiary_id = @branch)
        + (SELECT count(*) FROM _skus s JOIN integrations i
          WHERE s.product_id = b.product_id AND i.sku = s.sku AND i.subsidiary_id = @branch) AS rows
      FROM _branch_products b WHERE branch = @branch`),
    shownSku: () =>
      db
        .prepare<[string], string | null>(
          "SELECT CAST(payload ->> '$.children[0].sku' AS TEXT) FROM _products WHERE product_id = ?",
        )
        .pluck(),
    dropAllListings: () => db.prepare<[]>('DELETE FROM _branch_products'),
    dropListing: () =>
      db.prepare<string[]>('DELETE FROM _branch_products WHERE branch = ? AND product_id = ?'),
    markVanished: () =>
      db.prepare<string[]>(`
      UPDATE _products SET vanished_at = ?, updated_at = ? WHERE product_id = ? AND vanished_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM _branch_products b WHERE b.product_id = _products.product_id)`),
    dropMappings: () =>
      db.prepare<[string]>(`
      DELETE FROM integrations WHERE sku IN (SELECT sku FROM _skus WHERE product_id = ?)`),
    dropStocksOf: () =>
      db.prepare<string[]>(`
      DELETE FROM _stocks WHERE subsidiary_id = ? AND sku IN (SELECT sku FROM _skus WHERE product_id = ?)`),
    dropMappingsOf: () =>
      db.prepare<string[]>(`
      DELETE FROM integrations WHERE subsidiary_id = ? AND sku IN (SELECT sku FROM _skus WHERE product_id = ?)`),
    setVanished: () =>
      db.prepare<(string | null)[]>('UPDATE _products SET vanished_at = ? WHERE product_id = ?'),
    idsBetween: () =>
      db
        .prepare<[{ after: string; to: string | null }], string>(`
        SELECT product_id FROM _products
        WHERE product_id > @after AND (@to IS NULL OR product_id <= @to) AND vanished_at IS NULL`)
        .pluck(),
    putSweep: () =>
      db.prepare(`
      INSERT INTO _sweeps (branch, subsidiary_id, started_at, completed_at, completed_ms, as_of_seq, pages, products)
      VALUES (@branch, @subsidiaryId, @startedAt, @completedAt, @completedMs, @asOfSeq, @pages, @products)
      ON CONFLICT (branch) DO UPDATE SET subsidiary_id = excluded.subsidiary_id,
        started_at = excluded.started_at, completed_at = excluded.completed_at,
        completed_ms = excluded.completed_ms, as_of_seq = excluded.as_of_seq,
        pages = excluded.pages, products = excluded.products`),
    // The stocks of the missing products were not read, so they keep the time of the reading before.
    putDoubtedSweep: () =>
      db.prepare<string[]>('UPDATE _sweeps SET started_at = ?, completed_at = ? WHERE branch = ?'),
    sizes: () => db.prepare<[], { branch: string; products: number }>('SELECT branch, products FROM _sweeps'),
    dropSweep: () => db.prepare<[string]>('DELETE FROM _sweeps WHERE branch = ?'),
    // Finds the branches with one index step for each, instead of reading all rows.
    branches: () =>
      db
        .prepare<[], string>(`
        WITH RECURSIVE listing (branch) AS (
          SELECT min(branch) FROM _branch_products
          UNION ALL SELECT (SELECT min(branch) FROM _branch_products WHERE branch > listing.branch)
          FROM listing WHERE branch IS NOT NULL)
        SELECT branch FROM listing WHERE branch IS NOT NULL UNION SELECT branch FROM _sweeps`)
        .pluck(),
    moveOrdered: () =>
      db.prepare(`
      UPDATE _stock_counts SET dirty = 1 WHERE (sku, subsidiary_id) IN (
        SELECT sku, subsidiary_id FROM _stock_steps WHERE subsidiary_id = coalesce(@subsidiaryId, subsidiary_id))
        AND given_up = 0
        AND ${isSeen('holding-branch', "''", '_stock_counts.subsidiary_id')}`),
    stock: () =>
      db.prepare<[string, string | null], { qty: number | string | null }>(
        'SELECT qty FROM _stocks WHERE sku = ? AND subsidiary_id = ?',
      ),
    mark: () =>
      db.prepare<[], ReadMark>(`
      SELECT (SELECT value FROM marks WHERE name = 'push') AS push,
        coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0) AS orderSeq`),
  });
}

/** Mirrors the platform's catalogue. Each method is one short transaction. */
export class CatalogStore {
  readonly #clock: Clock;
  readonly #writer: ProductWriter;
  readonly #db: Database.Database;
  readonly #branches: readonly Branch[];
  readonly #sql: ReturnType<typeof statements>;
  /** Records of a branch's present reading that say nothing of what the mirror has, by branch and product. */
  readonly #emptied = new Map<string, Map<string, ProductRecord>>();

  constructor({ db, branches, clock }: { db: Database.Database; branches: readonly Branch[]; clock: Clock }) {
    this.#db = db;
    this.#branches = branches;
    this.#clock = clock;
    this.#writer = new ProductWriter(db);
    this.#sql = statements(db);
  }

  /**
   * Returns the present state of the mirror. Call it before requesting a page or product, so that later pushes count
   * as newer.
   */
  readMark(): ReadMark {
    return this.#sql.mark.get() ?? { push: 0, orderSeq: 0 };
  }

  /** Mirrors one page of GET /product/list. Unchanged records write nothing. */
  applyPage(branch: Branch, records: readonly ProductRecord[], mark: ReadMark): { written: number } {
    return this.#transaction(() => ({
      written: records.filter((record) => this.#applyListed(branch, record, mark)).length,
    }));
  }

  /** Mirrors a product from GET /product, which covers every branch. Returns true if rows were written. */
  applyRead(record: ProductRecord, mark: ReadMark): boolean {
    return this.#transaction(() => {
      const digest = hash('sha256', record.raw);
      const listings = this.#sql.listings.all(record.id);
      if (listings.length > 0 && listings.every((listing) => listing.digest === digest)) return false;
      const result = this.#writer.write(record, this.#context(mark, 'all'));
      if (result.changed > 0 || result.kept > 0) this.#sql.forgetDigests.run(record.id, digest);
      return true;
    });
  }

  /** Returns products that the branch listed before but that are not in `seen`. */
  unlisted(branch: Branch, seen: ReadonlySet<string>): DoubtfulProduct[] {
    return this.#sql.listed
      .all(branchKey(branch))
      .filter(({ productId }) => !seen.has(productId))
      .map(({ productId, sku }) => ({ productId, sku }));
  }

  /**
   * Returns the branch's listed products of which the mirror has too many stocks and mappings, as `isTooMany` decides.
   * `sku` is from the product's newest record, because the product may have lost another sku.
   */
  exceeding(branch: Branch, isTooMany: (productId: string, rows: number) => boolean): DoubtfulProduct[] {
    return this.#sql.rowCounts
      .all({ branch: branchKey(branch) })
      .filter(({ productId, rows }) => isTooMany(productId, rows))
      .map(({ productId }) => ({ productId, sku: this.#sql.shownSku.get(productId) ?? null }));
  }

  /**
   * Ends a complete and consistent sweep. A product that no branch lists any more is marked as vanished. If most of a
   * branch's products, or of all, are missing or have lost all their stocks, ids or skus, they are kept until a reading
   * for a later time of the schedule lacks them too.
   */
  completeSweep(sweep: CompletedSweep): SweepEnd {
    return this.#transaction(() => {
      const { branch, mark, startedAtMs, pages, seen, readUntilMs } = sweep;
      const key = branchKey(branch);
      const { subsidiaryId } = branch;
      const nowMs = this.#clock.nowMs();
      const at = isoUtc(nowMs);
      const listed = this.#sql.listed.all(key);
      const emptied = this.#emptied.get(key) ?? new Map<string, ProductRecord>();
      this.#emptied.delete(key);
      const isThere = (productId: string) => seen.has(productId) && !emptied.has(productId);
      for (const { productId, missingSince } of listed) {
        if (missingSince !== null && isThere(productId)) this.#sql.setMissing.run(null, key, productId);
      }
      const missing = listed.filter(({ productId }) => !isThere(productId));
      const { of, vanished: before } = sweep.vanishing ?? { of: this.#sql.size.get() ?? 0, vanished: 0 };
      const gone = missing.filter(({ productId }) => !seen.has(productId));
      const vanishing = before + gone.filter(({ isElsewhere }) => isElsewhere === 0).length;
      const counted = emptied.size >= EMPTIED_MIN ? missing : gone;
      const areMost = counted.length * 2 > listed.length || vanishing * 2 > of;
      let [vanished, doubted] = [0, 0];
      for (const { productId, missingSince } of missing) {
        const sinceMs = missingSince === null ? Number.POSITIVE_INFINITY : Date.parse(missingSince);
        if (areMost && !(sinceMs < (sweep.scheduledMs ?? Number.NEGATIVE_INFINITY))) {
          doubted += 1;
          // No time yet, or one that a wrong clock noted in the future.
          if (sinceMs > nowMs + FUTURE_MS) this.#sql.setMissing.run(at, key, productId);
          continue;
        }
        const record = seen.has(productId) ? emptied.get(productId) : undefined;
        if (record) this.#writeEmptied(branch, record, mark);
        else if (this.#unlist(key, productId, at)) vanished += 1;
        else if (subsidiaryId !== null) {
          this.#sql.dropStocksOf.run(subsidiaryId, productId);
          this.#sql.dropMappingsOf.run(subsidiaryId, productId);
        }
      }
      if (sweep.vanishing) sweep.vanishing.vanished += vanished;
      if (readUntilMs !== undefined) this.#list(key, seen);
      if (doubted > 0) {
        this.#sql.putDoubtedSweep.run(isoUtc(startedAtMs), at, key);
        return { vanished, doubted };
      }
      this.#sql.putSweep.run({
        branch: key,
        subsidiaryId,
        startedAt: isoUtc(startedAtMs),
        completedAt: at,
        completedMs: Math.floor(readUntilMs ?? nowMs),
        asOfSeq: mark.orderSeq,
        pages,
        products: seen.size,
      });
      noteFields(this.#db, nowMs);
      // The sweep shows which orders the platform has subtracted, so counts of stocks with order steps are computed
      // again.
      this.#sql.moveOrdered.run({ subsidiaryId });
      return { vanished, doubted };
    });
  }

  /** Returns the branches whose list lacks products that are kept. */
  doubted(): DoubtedBranch[] {
    return this.#sql.doubted.all();
  }

  /** Returns the number of products that have not vanished. */
  size(): number {
    return this.#sql.size.get() ?? 0;
  }

  /**
   * At a branch, applies products as the hub has them. A product that the branch has no more is marked as vanished, as
   * in a sweep.
   */
  applyProducts({ products, gone, range }: BranchProducts): void {
    const lost = new Set(gone);
    if (range) for (const id of this.#sql.idsBetween.all(range)) lost.add(id);
    // Listings are left over from when this machine was a store without a hub. With them, no product would vanish.
    this.#sql.dropAllListings.run();
    const nowMs = this.#clock.nowMs();
    for (const { productId: id, vanishedAt, updatedAt: at, skus, ...rest } of products) {
      lost.delete(id);
      const record = { ...rest, id, children: skus };
      // A branch does not push to the platform, so the hub's data is newer even than what an earlier store pushed.
      this.#writer.write(
        { ...record, raw: JSON.stringify(record) },
        { mark: Number.MAX_SAFE_INTEGER, asOfSeq: 0, nowMs, at, speaksFor: 'all' },
      );
      if (vanishedAt !== null) this.#sql.setVanished.run(vanishedAt, id);
    }
    const at = isoUtc(nowMs);
    for (const id of lost) {
      this.#sql.markVanished.run(at, at, id);
      this.#sql.dropMappings.run(id);
    }
  }

  /**
   * At a branch, records that the hub's whole catalogue has arrived. No quantity counts as confirmed, because the
   * branch itself read nothing from the platform.
   */
  noteWhole(): void {
    const nowMs = this.#clock.nowMs();
    const at = isoUtc(nowMs);
    for (const branch of this.#branches) {
      this.#sql.putSweep.run({
        branch: branchKey(branch),
        subsidiaryId: null,
        startedAt: at,
        completedAt: at,
        completedMs: nowMs,
        asOfSeq: 0,
        pages: 0,
        products: 0,
      });
    }
  }

  /**
   * Deletes the listings and sweep times of all branches except `branches`, because nobody updates them any more.
   * Stocks of products that remaining branches list are kept.
   */
  keepOnly(branches: readonly Branch[]): void {
    const keys = branches.map(branchKey);
    const at = isoUtc(this.#clock.nowMs());
    this.#transaction(() => {
      for (const key of this.#sql.branches.all()) {
        if (keys.includes(key)) continue;
        for (const { productId } of this.#sql.listed.all(key)) this.#unlist(key, productId, at);
        this.#sql.dropSweep.run(key);
      }
    });
  }

  /** Returns for each branch the number of products in its last completed sweep. */
  sizes(): Map<string, number> {
    return new Map(this.#sql.sizes.all().map(({ branch, products }) => [branch, products]));
  }

  /** Returns whether the record's quantities in the branch differ from the mirrored ones. */
  differsIn({ subsidiaryId }: Branch, { children }: ProductRecord): boolean {
    return children.some(({ sku, stocks }) =>
      stocks.some((stock) => {
        if (stock.subsidiaryId !== subsidiaryId) return false;
        const mirrored = this.#sql.stock.get(sku, subsidiaryId);
        return mirrored === undefined || !isStored(mirrored.qty, stock.qty);
      }),
    );
  }

  /** Removes a listing. Returns true if no other branch lists the product, so that it has vanished. */
  #unlist(key: string, productId: string, at: string): boolean {
    this.#sql.dropListing.run(key, productId);
    if (this.#sql.markVanished.run(at, at, productId).changes === 0) return false;
    this.#sql.dropMappings.run(productId);
    return true;
  }

  /** Records listings of a branch that were found in other branches' lists. */
  #list(key: string, seen: ReadonlySet<string>): void {
    const listed = new Set(this.#sql.listed.all(key).map(({ productId }) => productId));
    for (const productId of seen) if (!listed.has(productId)) this.#sql.putListing.run(key, productId, null);
  }

  #applyListed(branch: Branch, record: ProductRecord, mark: ReadMark): boolean {
    const key = branchKey(branch);
    const digest = hash('sha256', record.raw);
    const known = this.#sql.digest.get(key, record.id);
    if (known?.digest === digest && known.vanished === null) return false;
    const emptied = this.#emptied.get(key) ?? new Map<string, ProductRecord>();
    this.#emptied.set(key, emptied);
    emptied.delete(record.id);
    const speaksFor = this.#speaksFor(branch, record.id);
    const isEmptied = !record.isPartial && this.#writer.losesAll(record, speaksFor);
    if (isEmptied) emptied.set(record.id, record);
    const result = this.#writer.write(record, this.#context(mark, isEmptied ? [] : speaksFor));
    this.#sql.putListing.run(key, record.id, result.kept > 0 || isEmptied ? null : digest);
    // Digests of other branches' records are deleted, because those records may have the old values and must be read
    // again.
    if (result.changed > 0) this.#sql.forgetDigests.run(record.id, digest);
    return true;
  }

  /** Writes a record that has lost what the mirror has, because it is believed. */
  #writeEmptied(branch: Branch, record: ProductRecord, mark: ReadMark): void {
    const key = branchKey(branch);
    const digest = hash('sha256', record.raw);
    const { kept } = this.#writer.write(record, this.#context(mark, this.#speaksFor(branch, record.id)));
    this.#sql.putListing.run(key, record.id, kept > 0 ? null : digest);
    this.#sql.setMissing.run(null, key, record.id);
    this.#sql.forgetDigests.run(record.id, digest);
  }

  /** Returns the branches that a record of a branch's list covers. */
  #speaksFor(branch: Branch, productId: string): WriteContext['speaksFor'] {
    const key = branchKey(branch);
    const { subsidiaryId } = branch;
    const otherBranches = this.#sql.listings.all(productId).some((listing) => listing.branch !== key);
    // The stocks of a branch known only by its external id cannot be distinguished from those of other branches, unless
    // it is the only branch.
    const own = subsidiaryId === null ? [] : [subsidiaryId];
    return otherBranches ? own : 'all';
  }

  #context(mark: ReadMark, speaksFor: WriteContext['speaksFor']): WriteContext {
    const nowMs = this.#clock.nowMs();
    return { mark: mark.push, asOfSeq: mark.orderSeq, nowMs, at: isoUtc(nowMs), speaksFor };
  }

  #transaction<T>(action: () => T): T {
    WRITES.set(this.#db, (WRITES.get(this.#db) ?? 0) + 1);
    return sqlOf(this.#db).transaction(action);
  }
}

const COLUMNS: Record<MappingField, string> = {
  extId: 'ext_id',
  productIdPosA: 'product_id_pos_a',
  productCodePosB: 'product_code_pos_b',
};

function selectMappings(where: (column: string) => string): string {
  return MAPPING_FIELDS.map(
    (field) => `
      SELECT sku, product_id AS productId, subsidiary_id AS subsidiaryId, '${field}' AS field,
        ${COLUMNS[field]} AS externalId
      FROM integrations WHERE ${where(COLUMNS[field])} AND (@within IS NULL OR subsidiary_id = @within)`,
  ).join(' UNION ALL ');
}

/** Selects mappings of the branch `within`, or of all branches if it is null. */
interface MappingQuery {
  name: string;
  within: string | null;
}

function lookups(db: Database.Database) {
  return preparedOnUse({
    sweeps: () =>
      db.prepare<[], { branch: string; startedAt: string }>(
        'SELECT branch, started_at AS startedAt FROM _sweeps',
      ),
    product: () =>
      db
        .prepare<[string], string>(
          `SELECT s.product_id FROM _skus s JOIN _products p USING (product_id)
         WHERE s.sku = +? AND p.vanished_at IS NULL`,
        )
        .pluck(),
    ofSku: () =>
      db.prepare<[MappingQuery], CatalogMapping>(
        selectMappings((column) => `sku = @name AND ${column} <> ''`),
      ),
    byExternalId: () =>
      db.prepare<[MappingQuery], CatalogMapping>(selectMappings((column) => `${column} = @name`)),
    externalIds: () =>
      db
        .prepare<[], string>(
          `SELECT ext_id FROM integrations WHERE ext_id IS NOT NULL
           UNION SELECT product_id_pos_a FROM integrations WHERE product_id_pos_a IS NOT NULL
           UNION SELECT product_code_pos_b FROM integrations WHERE product_code_pos_b IS NOT NULL`,
        )
        .pluck(),
  });
}

/** Number of transactions that changed the catalogue on each connection. */
const WRITES = new WeakMap<Database.Database, number>();

/** Finds in the mirror which product a change means. A vanished product counts as unknown. */
export class MirrorCatalog implements CatalogLookup {
  readonly #db: Database.Database;
  readonly #branches: readonly string[];
  readonly #sql: ReturnType<typeof lookups>;
  #isComplete = false;
  /** All ids by `twinKey`, and the state of the catalogue of which they are. */
  #twins: { stamp: string; ids: Map<string, string[]> } | undefined;

  constructor({ db, branches }: { db: Database.Database; branches: readonly Branch[] }) {
    this.#db = db;
    this.#branches = branches.map(branchKey);
    this.#sql = lookups(db);
  }

  get isComplete(): boolean {
    this.#isComplete ||= this.sweptMs !== undefined;
    return this.#isComplete;
  }

  /** Start of the oldest of the branches' last complete sweeps; undefined while a branch has none. */
  get sweptMs(): number | undefined {
    const swept = new Map(
      this.#sql.sweeps.all().map(({ branch, startedAt }) => [branch, Date.parse(startedAt)]),
    );
    const times = this.#branches.map((branch) => swept.get(branch));
    return times.length > 0 && times.every((each) => each !== undefined) ? Math.min(...times) : undefined;
  }

  productOf(sku: string): string | undefined {
    return this.#sql.product.get(sku);
  }

  mappingsOf(sku: string, within: string | null = null): CatalogMapping[] {
    return this.#sql.ofSku.all({ name: sku, within }).sort(byPlace);
  }

  byExternalId(externalId: string, within: string | null = null): CatalogMapping[] {
    return this.#sql.byExternalId.all({ name: externalId, within }).sort(byPlace);
  }

  twinsOf(externalId: string, within: string | null = null): CatalogMapping[] {
    const ids = this.#idsByTwinKey().get(twinKey(externalId)) ?? [];
    return ids
      .filter((id) => id !== externalId)
      .sort()
      .flatMap((id) => this.byExternalId(id, within));
  }

  /** Returns all ids by `twinKey`. They are read once for each state of the catalogue, because a file may have 20,000 unknown ids. */
  #idsByTwinKey(): ReadonlyMap<string, readonly string[]> {
    const stamp = `${WRITES.get(this.#db) ?? 0} ${this.#db.pragma('data_version', { simple: true })}`;
    if (this.#twins?.stamp !== stamp) {
      const ids = new Map<string, string[]>();
      for (const id of this.#sql.externalIds.iterate()) {
        const key = twinKey(id);
        const known = ids.get(key);
        if (known) known.push(id);
        else ids.set(key, [id]);
      }
      this.#twins = { stamp, ids };
    }
    return this.#twins.ids;
  }
}

function byPlace(a: CatalogMapping, b: CatalogMapping): number {
  if (a.subsidiaryId !== b.subsidiaryId) return a.subsidiaryId < b.subsidiaryId ? -1 : 1;
  return a.sku < b.sku ? -1 : Number(a.sku > b.sku);
}

/**
 * Maximum and minimum number of products whose fields are read. A few suffice, because a new version of the platform
 * changes the fields of all products.
 */
const FIELDS_READ = 200;
const FIELDS_READ_MIN = 5;
const KNOWN_SHARE = 0.8;
const NEWS_FOR_MS = 86_400_000;
const FIELDS = seen('product-field');
const SET_GONE = "UPDATE _seen SET gone_since = ? WHERE kind = 'product-field' AND name = ?";

/** Records which fields nearly all products have, and which recorded fields no product has any more. */
function noteFields(db: Database.Database, nowMs: number): void {
  const sql = sqlOf(db);
  const newest = 'SELECT payload FROM _products WHERE vanished_at IS NULL ORDER BY rowid DESC LIMIT ?';
  const payloads = sql.values<string>(newest, FIELDS_READ);
  if (payloads.length < FIELDS_READ_MIN) return;
  const counts = countsOf(payloads.map(fieldsOf));
  const known = new Set(sql.values<string>(`SELECT name FROM ${FIELDS}`));
  const at = isoUtc(nowMs);
  for (const [name, count] of counts) {
    if (known.has(name)) {
      sql.run(`${SET_GONE} AND gone_since IS NOT NULL`, null, name);
    } else if (count >= KNOWN_SHARE * payloads.length) {
      sql.run("INSERT INTO _seen (kind, name, first_at) VALUES ('product-field', ?, ?)", name, at);
    }
  }
  const gone = [...known].filter((name) => !counts.has(name));
  for (const name of gone) sql.run(`${SET_GONE} AND gone_since IS NULL`, at, name);
}

/**
 * Returns fields that products got or lost within the last day. Fields of the mirror's first day do not count as new.
 */
export function productFieldNews(db: Database.Database, nowMs: number): FieldNews {
  const sql = sqlOf(db);
  const from = isoUtc(nowMs - NEWS_FOR_MS);
  const first = sql.value<string | null>(`SELECT min(first_at) FROM ${FIELDS}`) ?? null;
  if (first === null || first > from) return { added: [], gone: [] };
  const named = (column: string) =>
    topmost(new Set(sql.values<string>(`SELECT name FROM ${FIELDS} AND ${column} > ?`, from)));
  return { added: named('first_at'), gone: named('gone_since') };
}
