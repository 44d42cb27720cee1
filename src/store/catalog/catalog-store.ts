import { hash } from 'node:crypto';
import type Database from 'better-sqlite3';
import type { ProductRecord, Unlisted } from '../../domain/platform/platform.ts';
import type { Branch } from '../../domain/product/catalog-lookup.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { ProductWriter, type WriteContext } from './product-writer.ts';

/** Taken before the platform is asked, so that what is mirrored from its answer never undoes something newer. */
export interface ReadMark {
  push: number;
  orderSeq: number;
}

export interface PageResult {
  /** Products whose rows were written. */
  written: number;
  /** Products that were the same, for which nothing was written. */
  unchanged: number;
}

export interface CompletedSweep {
  branch: Branch;
  /** Taken before the first page was asked for. */
  mark: ReadMark;
  startedAtMs: number;
  pages: number;
  /** Ids of every product that the pages listed. */
  seen: ReadonlySet<string>;
}

export interface SweepRow {
  branch: string;
  subsidiaryId: string | null;
  startedAt: string;
  completedAt: string;
  pages: number;
  products: number;
}

/** How `sweeps` and `branch_products` name a configured branch. */
export function branchKey(branch: Branch): string {
  return branch.subsidiaryId ?? `ext:${branch.externalId ?? ''}`;
}

/** Mirrors what the platform says of its catalogue. Each method is one short transaction. */
export class CatalogStore {
  readonly #clock: Clock;
  readonly #writer: ProductWriter;
  readonly #db: Database.Database;
  readonly #digest: Database.Statement<[string, string], { digest: string | null; vanished: string | null }>;
  readonly #listings: Database.Statement<[string], { branch: string; digest: string | null }>;
  readonly #putListing: Database.Statement<[string, string, string | null]>;
  readonly #forgetDigests: Database.Statement<[string, string]>;
  readonly #listed: Database.Statement<[string], Unlisted>;
  readonly #dropListing: Database.Statement<[string, string]>;
  readonly #markVanished: Database.Statement<[string, string, string]>;
  readonly #dropMappings: Database.Statement<[string]>;
  readonly #putSweep: Database.Statement;
  readonly #sweeps: Database.Statement<[], SweepRow>;
  readonly #mark: Database.Statement<[], ReadMark>;
  readonly #moveOrdered: Database.Statement;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#db = db;
    this.#clock = clock;
    this.#writer = new ProductWriter(db);
    this.#digest = db.prepare(`
      SELECT b.digest, p.vanished_at AS vanished FROM branch_products b JOIN products p USING (product_id)
      WHERE b.branch = ? AND b.product_id = ?`);
    this.#listings = db.prepare('SELECT branch, digest FROM branch_products WHERE product_id = ?');
    this.#putListing = db.prepare(`
      INSERT INTO branch_products (branch, product_id, digest) VALUES (?, ?, ?)
      ON CONFLICT (branch, product_id) DO UPDATE SET digest = excluded.digest`);
    this.#forgetDigests = db.prepare(`
      UPDATE branch_products SET digest = NULL WHERE product_id = ? AND digest <> ?`);
    this.#listed = db.prepare(`
      SELECT product_id AS productId,
        (SELECT min(sku) FROM skus s WHERE s.product_id = b.product_id) AS sku
      FROM branch_products b WHERE branch = ?`);
    this.#dropListing = db.prepare('DELETE FROM branch_products WHERE branch = ? AND product_id = ?');
    this.#markVanished = db.prepare(`
      UPDATE products SET vanished_at = ?, updated_at = ? WHERE product_id = ? AND vanished_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM branch_products b WHERE b.product_id = products.product_id)`);
    this.#dropMappings = db.prepare(`
      DELETE FROM integrations WHERE sku IN (SELECT sku FROM skus WHERE product_id = ?)`);
    this.#putSweep = db.prepare(`
      INSERT INTO sweeps (branch, subsidiary_id, started_at, completed_at, completed_ms, as_of_seq, pages, products)
      VALUES (@branch, @subsidiaryId, @startedAt, @completedAt, @completedMs, @asOfSeq, @pages, @products)
      ON CONFLICT (branch) DO UPDATE SET subsidiary_id = excluded.subsidiary_id,
        started_at = excluded.started_at, completed_at = excluded.completed_at,
        completed_ms = excluded.completed_ms, as_of_seq = excluded.as_of_seq,
        pages = excluded.pages, products = excluded.products`);
    this.#sweeps = db.prepare(`
      SELECT branch, subsidiary_id AS subsidiaryId, started_at AS startedAt, completed_at AS completedAt, pages,
        products FROM sweeps ORDER BY branch`);
    this.#moveOrdered = db.prepare(`
      UPDATE stock_counts SET dirty = 1 WHERE (sku, subsidiary_id) IN (
        SELECT sku, subsidiary_id FROM order_takings WHERE subsidiary_id = coalesce(@subsidiaryId, subsidiary_id))`);
    this.#mark = db.prepare(`
      SELECT (SELECT value FROM marks WHERE name = 'push') AS push,
        coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0) AS orderSeq`);
  }

  /** To be taken before a page or a product is asked for. */
  readMark(): ReadMark {
    return this.#mark.get() ?? { push: 0, orderSeq: 0 };
  }

  /** Mirrors one page of GET /product/list. A record that is as it was writes nothing. */
  applyPage(branch: Branch, records: readonly ProductRecord[], mark: ReadMark): PageResult {
    return this.#transaction(() => {
      const result: PageResult = { written: 0, unchanged: 0 };
      for (const record of records) {
        if (this.#applyListed(branchKey(branch), branch.subsidiaryId, record, mark)) result.written += 1;
        else result.unchanged += 1;
      }
      return result;
    });
  }

  /** Mirrors a product read by GET /product, which speaks for every branch. True when rows were written. */
  applyRead(record: ProductRecord, mark: ReadMark): boolean {
    return this.#transaction(() => {
      const digest = hash('sha256', record.raw);
      const listings = this.#listings.all(record.id);
      if (listings.length > 0 && listings.every((listing) => listing.digest === digest)) return false;
      const result = this.#writer.write(record, this.#context(mark, 'all'));
      if (result.changed > 0 || result.kept > 0) this.#forgetDigests.run(record.id, digest);
      return true;
    });
  }

  /** Products that the branch listed before and that are not in `seen`. */
  unlisted(branch: Branch, seen: ReadonlySet<string>): Unlisted[] {
    return this.#listed.all(branchKey(branch)).filter(({ productId }) => !seen.has(productId));
  }

  /**
   * Ends a sweep that was whole and consistent: products that the branch lists no more, and no other branch
   * either, are marked as vanished. Returns how many were.
   */
  completeSweep(sweep: CompletedSweep): number {
    return this.#transaction(() => {
      const key = branchKey(sweep.branch);
      const nowMs = this.#clock.nowMs();
      const at = isoUtc(nowMs);
      let vanished = 0;
      for (const { productId } of this.unlisted(sweep.branch, sweep.seen)) {
        this.#dropListing.run(key, productId);
        if (this.#markVanished.run(at, at, productId).changes === 0) continue;
        this.#dropMappings.run(productId);
        vanished += 1;
      }
      this.#putSweep.run({
        branch: key,
        subsidiaryId: sweep.branch.subsidiaryId,
        startedAt: isoUtc(sweep.startedAtMs),
        completedAt: at,
        completedMs: Math.floor(nowMs),
        asOfSeq: sweep.mark.orderSeq,
        pages: sweep.pages,
        products: sweep.seen.size,
      });
      // The platform has told what it has of what orders took: where that is not what was thought, it is sent again.
      this.#moveOrdered.run({ subsidiaryId: sweep.branch.subsidiaryId });
      return vanished;
    });
  }

  /** The last completed sweep of each branch. */
  sweeps(): SweepRow[] {
    return this.#sweeps.all();
  }

  #applyListed(key: string, subsidiaryId: string | null, record: ProductRecord, mark: ReadMark): boolean {
    const digest = hash('sha256', record.raw);
    const known = this.#digest.get(key, record.id);
    if (known?.digest === digest && known.vanished === null) return false;
    const otherBranches = this.#listings.all(record.id).some((listing) => listing.branch !== key);
    // A branch that is named only by its external id cannot be told from others, unless it is the only one.
    const own = subsidiaryId === null ? [] : [subsidiaryId];
    const result = this.#writer.write(record, this.#context(mark, otherBranches ? own : 'all'));
    this.#putListing.run(key, record.id, result.kept > 0 ? null : digest);
    // Another branch's record may say what this one has just overruled.
    if (result.changed > 0) this.#forgetDigests.run(record.id, digest);
    return true;
  }

  #context(mark: ReadMark, speaksFor: WriteContext['speaksFor']): WriteContext {
    const nowMs = this.#clock.nowMs();
    return { mark: mark.push, asOfSeq: mark.orderSeq, nowMs, at: isoUtc(nowMs), speaksFor };
  }

  #transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }
}
