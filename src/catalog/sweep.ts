import { type Alarms, type FreshnessBoard, freshnessOfFailure } from '../core/alarm.ts';
import { asTillsyncError, counted, hasCode, TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { Lease, type Leases } from '../db/lease.ts';
import type { PlatformClient } from '../platform/client.ts';
import type { CallOptions } from '../platform/platform.ts';
import type { ProductPage, ProductRecord } from '../platform/schemas.ts';
import {
  branchKey,
  type CatalogStore,
  type CompletedSweep,
  type DoubtfulProduct,
  type ReadMark,
  type SweepEnd,
  type Vanishing,
} from './catalog-store.ts';
import { CrossBranchListing } from './cross-branch.ts';
import type { Branch } from './product.ts';

export type { ReadMark } from './catalog-store.ts';

const TRIES_MAX = 3;
/**
 * Maximum number of products that are requested one by one after a branch was read. If more are missing in a list, they
 * must be missing in two readings before they count as vanished.
 */
const ASK_MAX = 20;
const PAGES_MAX = 100_000;
/** The platform's own page size (document, "Default page size"), used if the platform refuses a larger one. */
const DEFAULT_LIMIT = 20;

interface SweepOptions {
  platform: Pick<PlatformClient, 'productList' | 'productGet'>;
  /** The mirror's catalogue. Each write is one short durable transaction. */
  stores: {
    read<T>(action: (stores: { catalog: CatalogStore }) => T): T;
    write<T>(action: (stores: { catalog: CatalogStore }) => T): Promise<T>;
  };
  clock: Clock;
  pageSize: number;
}

/** Receives the products of a sweep: the mirror, or a comparison that writes nothing. */
export interface SweepTarget {
  page(records: readonly ProductRecord[], mark: ReadMark): Promise<{ written: number }>;
  product(record: ProductRecord, mark: ReadMark): Promise<unknown>;
  /** Called for an entry that cannot be read as a product. */
  unreadable(text: string): Promise<void>;
  /** Ends a complete and consistent sweep. */
  end(sweep: CompletedSweep): Promise<SweepEnd>;
}

export interface SweepRequest extends CallOptions {
  onProgress?: (done: number, total: number | null) => void;
  /** Called before each branch. */
  onBranch?: (branch: Branch) => void;
  /** Called while this process waits because another process is sweeping. */
  onBusy?: () => void;
  /** Time of the schedule for which the catalogue is read; left out for any other reading. */
  scheduledMs?: number | undefined;
}

/** State that the sweeps of all branches share. */
interface SweepSoFar {
  cover: CrossBranchListing;
  /** State of the mirror before the first list was requested. */
  mark: ReadMark;
  startedAtMs: number;
  /** Time at which the reading of the last complete list ended. */
  readUntilMs: number;
  /** Ids of products that were requested by themselves. One answer covers all branches, so none is requested twice. */
  asked: Set<string>;
  vanishing: Vanishing;
}

export interface SweepReport {
  branch: Branch;
  products: number;
  pages: number;
  written: number;
  vanished: number;
  /** Number of missing products that are kept, because most are missing. */
  doubted: number;
  unreadable: number;
  /** Number of restarts because the list shifted while it was read. */
  restarts: number;
}

interface Pass extends CompletedSweep {
  written: number;
  unreadable: number;
  seen: Set<string>;
  isConsistent: boolean;
}

/**
 * Reads every product of a branch by GET /product/list, oldest first, so that new products are added at the end. If the
 * total changes or a product appears twice, the list has shifted. It is then read again, and no product is marked as
 * vanished.
 */
export class CatalogSweep {
  readonly #o: SweepOptions;
  readonly #branch: Branch;
  readonly #target: SweepTarget;
  readonly #request: SweepRequest;
  readonly #soFar: SweepSoFar | undefined;

  /** `soFar` is set if this sweep is part of a sweep of all branches. */
  constructor(
    options: SweepOptions,
    branch: Branch,
    target: SweepTarget,
    request: SweepRequest = {},
    soFar?: SweepSoFar,
  ) {
    this.#o = options;
    this.#branch = branch;
    this.#target = target;
    this.#request = request;
    this.#soFar = soFar;
  }

  /**
   * Reads the branch. Throws the errors of `Platform.productList`, and `platform-garbled` if the list shifted at every
   * try.
   */
  async run(): Promise<SweepReport> {
    const told = await this.#confirm();
    if (told) return told;
    const report = await this.#whole();
    if (this.#soFar) this.#soFar.readUntilMs = this.#o.clock.nowMs();
    return report;
  }

  /**
   * Reads one page of the newest products. If the page and the number of products agree with what other branches'
   * lists say about this branch, the rest is not read. Returns undefined if the whole list must be read.
   */
  async #confirm(): Promise<SweepReport | undefined> {
    const branch = this.#branch;
    const soFar = this.#soFar;
    if (!soFar?.cover.mayHave(branch)) return undefined;
    const { cover, mark, startedAtMs, readUntilMs } = soFar;
    const { answer, mark: pageMark } = await this.#page(1, this.#o.pageSize, 'desc');
    const { docs, unreadable, totalDocs } = answer;
    const differs = (record: ProductRecord) =>
      this.#o.stores.read(({ catalog }) => catalog.differsIn(branch, record));
    if (unreadable.length > 0 || !cover.confirms(branch, docs, differs)) return undefined;
    for (const record of docs) cover.add(branch, record);
    const { written } = await this.#target.page(docs, pageMark);
    const seen = cover.of(branch);
    const missing = this.#o.stores.read(({ catalog }) => catalog.unlisted(branch, seen));
    if (seen.size !== totalDocs || docs.some(({ id }) => !seen.has(id)) || missing.length > ASK_MAX) {
      return undefined;
    }
    if (!(await this.#askForExcess(soFar))) return undefined;
    const end = await this.#end({ branch, mark, startedAtMs, pages: 1, seen, readUntilMs });
    this.#request.onProgress?.(seen.size, totalDocs);
    return { branch, products: seen.size, pages: 1, written, ...end, unreadable: 0, restarts: 0 };
  }

  /**
   * Requests the products of which the mirror has more stocks and mappings in this branch than the lists show, because
   * records of other branches delete none. Returns false if they are too many, so that this branch's list must be read.
   */
  async #askForExcess({ cover, asked }: SweepSoFar): Promise<boolean> {
    const branch = this.#branch;
    const isTooMany = (productId: string, rows: number) =>
      !asked.has(productId) && cover.hasFewer(branch, productId, rows);
    const excess = this.#o.stores.read(({ catalog }) => catalog.exceeding(branch, isTooMany));
    const first = excess.slice(0, ASK_MAX);
    for (const { productId } of first) asked.add(productId);
    await this.#askFor(first);
    return excess.length <= ASK_MAX;
  }

  #end(sweep: CompletedSweep): Promise<SweepEnd> {
    const { scheduledMs } = this.#request;
    return this.#target.end({ ...sweep, scheduledMs, vanishing: this.#soFar?.vanishing });
  }

  async #whole(): Promise<SweepReport> {
    const branch = this.#branch;
    let before: ReadonlySet<string> | undefined;
    let written = 0;
    for (let restarts = 0; restarts < TRIES_MAX; restarts++) {
      const pass = await this.#pass();
      written += pass.written;
      if (!pass.isConsistent) continue;
      const missing = this.#o.stores.read(({ catalog }) => catalog.unlisted(branch, pass.seen));
      const twiceMissing = before && missing.every(({ productId }) => before?.has(productId));
      if (missing.length > ASK_MAX && !twiceMissing) {
        before = new Set(missing.map(({ productId }) => productId));
        continue;
      }
      if (missing.length <= ASK_MAX) {
        for (const productId of await this.#askFor(missing)) pass.seen.add(productId);
      }
      const end = await this.#end(pass);
      const { pages, unreadable, seen } = pass;
      return { branch, products: seen.size, pages, written, ...end, unreadable, restarts };
    }
    throw new TillsyncError(
      'platform-garbled',
      `The product list of branch ${branch.subsidiaryId ?? branch.externalId} changed under each of ${TRIES_MAX} readings. What was read is in the mirror; nothing was taken for vanished.`,
      {
        hint: 'It is read again at the next sweep; a quieter hour may help (catalog.sweep).',
        retryable: true,
      },
    );
  }

  async #pass(): Promise<Pass> {
    const pass: Pass = {
      branch: this.#branch,
      mark: this.#readMark(),
      startedAtMs: this.#o.clock.nowMs(),
      pages: 0,
      written: 0,
      unreadable: 0,
      seen: new Set(),
      isConsistent: true,
    };
    const read = () => pass.seen.size + pass.unreadable;
    let limit = this.#o.pageSize;
    let total: number | null = null;
    for (let page = 1; page <= PAGES_MAX; page++) {
      const { answer, mark, used } = await this.#page(page, limit);
      limit = used;
      pass.pages += 1;
      if (page === 1) total = answer.totalDocs;
      if (answer.totalDocs !== total) pass.isConsistent = false;
      const before = read();
      await this.#keepPage(answer, mark, pass);
      this.#request.onProgress?.(pass.seen.size, total);
      if (read() === before || isLast(answer, page)) break;
    }
    if (total !== null && read() !== total) pass.isConsistent = false;
    return pass;
  }

  async #page(page: number, limit: number, order: 'asc' | 'desc' = 'asc') {
    const { subsidiaryId, externalId } = this.#branch;
    const address = subsidiaryId === null ? { externalId: externalId ?? '' } : { subsidiaryId };
    const ask = async (used: number) => {
      const query = { ...address, page, limit: used, order, orderBy: 'CreatedDate' } as const;
      return { used, ...(await this.#ask((how) => this.#o.platform.productList(query, how))) };
    };
    try {
      return await ask(limit);
    } catch (error) {
      const isPlain = hasCode(error, 'platform-garbled') && error.httpStatus === 400;
      const isRefused = isPlain || hasCode(error, 'platform-refused');
      if (page > 1 || limit <= DEFAULT_LIMIT || !isRefused) throw error;
      return await ask(DEFAULT_LIMIT);
    }
  }

  async #keepPage(answer: ProductPage, mark: ReadMark, pass: Pass): Promise<void> {
    for (const record of answer.docs) {
      const { id } = record;
      if (pass.seen.has(id)) pass.isConsistent = false;
      pass.seen.add(id);
      this.#soFar?.cover.add(this.#branch, record);
    }
    pass.written += (await this.#target.page(answer.docs, mark)).written;
    for (const text of answer.unreadable) {
      // A product that is readable in part is also in `answer.docs`, so it does not count as unreadable.
      if (!answer.docs.some(({ raw }) => raw === text)) pass.unreadable += 1;
      await this.#target.unreadable(text);
    }
  }

  /**
   * Requests each product, and returns the ids of those that exist. A deletion and a creation together shift the list
   * without changing its total, so a product that is missing there may still exist.
   */
  async #askFor(products: readonly DoubtfulProduct[]): Promise<string[]> {
    const found: string[] = [];
    for (const { productId, sku } of products) {
      if (sku === null) continue;
      const { answer, mark } = await this.#ask((how) => this.#o.platform.productGet({ sku }, how));
      if (answer?.id !== productId) continue;
      found.push(productId);
      await this.#target.product(answer, mark);
    }
    return found;
  }

  /** Calls the platform. The state of the mirror is read at the moment when the request is sent. */
  async #ask<T>(call: (how: CallOptions) => Promise<T>): Promise<{ answer: T; mark: ReadMark }> {
    const { signal, onWait } = this.#request;
    let mark = this.#readMark();
    const onSend = () => {
      mark = this.#readMark();
    };
    const answer = await call({ ...(signal && { signal }), ...(onWait && { onWait }), onSend });
    return { answer, mark };
  }

  #readMark(): ReadMark {
    return this.#o.stores.read(({ catalog }) => catalog.readMark());
  }
}

/**
 * Returns whether the answer is the last page. If the answer states no next page, no number of pages and no limit,
 * returns false, because any page may be short; the list then ends with the first page without new products.
 */
function isLast(answer: ProductPage, page: number): boolean {
  if (answer.hasNextPage !== null) return !answer.hasNextPage;
  if (answer.totalPages !== null) return page >= answer.totalPages;
  return answer.limit !== null && answer.docs.length + answer.unreadable.length < answer.limit;
}

const LEASE = 'catalog.sweep';
const LEASE_HOLD_MS = 600_000;
const LOOK_EVERY_MS = 500;

interface LeasedSweepOptions extends SweepOptions {
  leases: Leases;
  /** Puts a list entry that cannot be read as a product into quarantine. */
  quarantine: (text: string) => Promise<void>;
  alarms: Alarms;
  /** Whether this is a hub, where a command closes a branch. */
  isHub?: boolean;
}

/**
 * Sweeps a branch under a lease, so that only one process sweeps at a time. Otherwise a sweep that began earlier and
 * ends later could mark products as vanished that a newer sweep has found.
 */
export class LeasedSweep {
  readonly #o: LeasedSweepOptions;

  constructor(options: LeasedSweepOptions) {
    this.#o = options;
  }

  get isHub(): boolean {
    return this.#o.isHub ?? false;
  }

  /** Starts a sweep of all configured branches. The branches with most products in their last sweep are first. */
  begin(branches: readonly Branch[]): { largestFirst: Branch[]; soFar: SweepSoFar } {
    const { stores, clock } = this.#o;
    const { sizes, size, mark } = stores.read(({ catalog }) => ({
      sizes: catalog.sizes(),
      size: catalog.size(),
      mark: catalog.readMark(),
    }));
    const sizeOf = (branch: Branch) => sizes.get(branchKey(branch)) ?? 0;
    const startedAtMs = clock.nowMs();
    return {
      largestFirst: branches.toSorted((a, b) => sizeOf(b) - sizeOf(a)),
      soFar: {
        cover: new CrossBranchListing(branches),
        mark,
        startedAtMs,
        readUntilMs: startedAtMs,
        asked: new Set(),
        vanishing: { of: size, vanished: 0 },
      },
    };
  }

  /**
   * Ends the sweep of all configured branches. Branches that are no longer configured are deleted only now, so that a
   * branch whose id was changed keeps its products during the sweep.
   */
  end(branches: readonly Branch[]): Promise<void> {
    return this.#o.stores.write(({ catalog }) => catalog.keepOnly(branches));
  }

  /**
   * Sweeps a branch. Throws the errors of `CatalogSweep.run`, and `lease-lost` if another process got the lease while
   * this process was frozen.
   */
  async sweep(branch: Branch, request: SweepRequest = {}, soFar?: SweepSoFar): Promise<SweepReport> {
    const { leases, clock, stores, quarantine } = this.#o;
    request.onBranch?.(branch);
    const lease = new Lease({ leases, clock, name: LEASE, holdMs: LEASE_HOLD_MS });
    while (!(await lease.hold(request.signal))) {
      if (request.signal?.aborted) {
        throw new TillsyncError('aborted', 'Stopped while another process reads the catalogue.');
      }
      request.onBusy?.();
      await clock.sleep(LOOK_EVERY_MS, request.signal);
    }
    const write = async <T>(action: (catalog: CatalogStore) => T): Promise<T> => {
      if (!(await lease.hold())) {
        throw new TillsyncError(
          'lease-lost',
          'Another process has begun to read the catalogue; this reading was left.',
          { retryable: true },
        );
      }
      return await stores.write(({ catalog }) => action(catalog));
    };
    const target: SweepTarget = {
      page: (records, mark) => write((catalog) => catalog.applyPage(branch, records, mark)),
      product: (record, mark) => write((catalog) => catalog.applyRead(record, mark)),
      unreadable: quarantine,
      end: (sweep) => write((catalog) => catalog.completeSweep(sweep)),
    };
    try {
      const report = await new CatalogSweep(this.#o, branch, target, request, soFar).run();
      this.#noteDoubt();
      return report;
    } finally {
      await lease.release();
    }
  }

  /** Raises or ends the alarm about lists that lack most products. */
  #noteDoubt(): void {
    const { alarms, stores } = this.#o;
    const doubted = stores.read(({ catalog }) => catalog.doubted());
    const named = doubted.slice(0, NAMED_MAX).map(({ branch, missing, products, since }) => {
      const of = `${missing} of ${counted(products, 'product')}`;
      return `${branch.replace(/^ext:/, '')}: ${of} missing since ${since.slice(0, 16)}Z`;
    });
    const names = named.join('; ') + (doubted.length > NAMED_MAX ? '; …' : '');
    const text = `Products missing from the platform's list, or in it without SKUs, ids or stocks: ${names}. They are kept until the next scheduled reading lacks them too.`;
    alarms.note('catalog.shrunk', doubted.length > 0 ? text : null);
  }
}

const NAMED_MAX = 5;

export interface SweepAllOptions {
  sweep: Pick<LeasedSweep, 'sweep' | 'begin' | 'end'> & Partial<Pick<LeasedSweep, 'isHub'>>;
  branches: readonly Branch[];
  freshness: FreshnessBoard;
}

/**
 * Sweeps every configured branch once and reports the result. The largest branches are swept first, so that few lists
 * must be read completely. Throws the error that stopped the sweep.
 */
export async function sweepAll(
  { sweep, branches, freshness }: SweepAllOptions,
  request: SweepRequest,
): Promise<SweepReport[]> {
  const reports = new Map<Branch, SweepReport>();
  try {
    const { largestFirst, soFar } = sweep.begin(branches);
    const refused: { branch: Branch; error: TillsyncError }[] = [];
    for (const branch of largestFirst) {
      try {
        reports.set(branch, await sweep.sweep(branch, request, soFar));
      } catch (error) {
        // The platform may refuse one branch's list and answer the others. If it refuses the first `REFUSED_MAX` lists,
        // the sweep ends.
        if (branches.length < 2 || !hasCode(error, 'platform-refused')) throw error;
        refused.push({ branch, error: asTillsyncError(error) });
        if (reports.size === 0 && refused.length >= REFUSED_MAX) throw error;
      }
    }
    await sweep.end(branches);
    if (refused.length > 0) throw refusedLists(refused, sweep.isHub ?? false);
  } catch (error) {
    const { code, message, hint } = asTillsyncError(error);
    if (code !== 'aborted') {
      const text = [message, hint].filter(Boolean).join(' ');
      freshness.report('catalog.sweep', freshnessOfFailure(code), text, code);
    }
    throw error;
  }
  freshness.ok('catalog.sweep');
  return branches.flatMap((branch) => reports.get(branch) ?? []);
}

/** If the platform refuses the first lists, so many of them are enough to assume that it refuses all. */
const REFUSED_MAX = 3;

function refusedLists(
  refused: readonly { branch: Branch; error: TillsyncError }[],
  isHub: boolean,
): TillsyncError {
  const names = refused
    .slice(0, NAMED_MAX)
    .map(({ branch }) => [branch.externalId, branch.subsidiaryId].filter((id) => id !== null).join(' / '));
  const [first] = refused;
  return new TillsyncError(
    'platform-refused',
    `The platform does not list the products of ${names.join(', ')}: ${first?.error.message ?? ''} What was read of them before is kept, and the others are read.`,
    {
      cause: first?.error,
      hint: isHub
        ? 'Correct the ids in [[branches]]; a branch that is no more is closed: {tillsync} branch close NAME'
        : 'Correct the ids in [[branches]]; a branch that is no more goes out of it.',
    },
  );
}

export interface SweepNowRequest extends SweepRequest {
  /** Branch to sweep; if left out, every configured branch is swept. */
  branch?: Branch | undefined;
}

/** Services that a sweep needs. */
interface SweepNowServices {
  catalogSweep: SweepAllOptions['sweep'];
  branches: SweepAllOptions['branches'];
  mirror: { health: FreshnessBoard };
}

/** Sweeps the platform's catalogue into the mirror, with or without a running daemon. */
export async function sweepNow(
  { catalogSweep, branches, mirror }: SweepNowServices,
  request: SweepNowRequest,
): Promise<SweepReport[]> {
  const { health: freshness } = mirror;
  if (request.branch === undefined) {
    return await sweepAll({ sweep: catalogSweep, branches, freshness }, request);
  }
  // The sweep of one branch says nothing about the others, so the catalogue's freshness is not changed.
  return [await catalogSweep.sweep(request.branch, request)];
}
