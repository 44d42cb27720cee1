import { type Alarms, type FreshnessBoard, freshnessOfFailure } from '../core/alarm.ts';
import { asTillsyncError, hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { retryDelayMs, Waker } from '../core/loop.ts';
import type { Clock, Random, Schedule } from '../core/time.ts';
import type { Leases } from '../db/lease.ts';
import type { CallOptions, Platform, ProductPage, ProductRecord, Unlisted } from '../platform/platform.ts';
import type { Branch } from './product.ts';

const TRIES_MAX = 3;
/** Products missing from a consistent sweep that are asked for one by one; more must be missing twice. */
const ASK_MAX = 20;
const PAGES_MAX = 100_000;
/** The platform's own page size (document, "Default page size"), when it refuses a larger one. */
const DEFAULT_LIMIT = 20;

/** Taken before the platform is asked; what a newer push or order said is not undone by its answer. */
export interface ReadMark {
  push: number;
  orderSeq: number;
}

/** Where a sweep goes. Each write is one short durable transaction. */
export interface CatalogKeeper {
  readMark(): ReadMark;
  applyPage(branch: Branch, records: readonly ProductRecord[], mark: ReadMark): Promise<{ written: number }>;
  applyRead(record: ProductRecord, mark: ReadMark): Promise<boolean>;
  /** Products mirrored for the branch that are not in `seen`, with one sku each to ask for them. */
  unlisted(branch: Branch, seen: ReadonlySet<string>): Unlisted[];
  /** Ends a whole and consistent sweep; the number of products marked as vanished. */
  completeSweep(sweep: {
    branch: Branch;
    mark: ReadMark;
    startedAtMs: number;
    pages: number;
    seen: ReadonlySet<string>;
  }): Promise<number>;
  /** Keeps an entry that could not be read as a product. */
  quarantine(text: string): Promise<void>;
}

export interface CatalogSweepOptions {
  platform: Pick<Platform, 'productList' | 'productGet'>;
  keeper: CatalogKeeper;
  clock: Clock;
  log: Log;
  pageSize: number;
}

export interface SweepRequest extends CallOptions {
  onProgress?: (done: number, total: number | null) => void;
}

export interface SweepReport {
  branch: Branch;
  products: number;
  pages: number;
  written: number;
  vanished: number;
  unreadable: number;
  /** Sweeps that had to be begun again because the list shifted meanwhile. */
  restarts: number;
}

interface Pass {
  mark: ReadMark;
  startedAtMs: number;
  pages: number;
  written: number;
  unreadable: number;
  seen: Set<string>;
  isConsistent: boolean;
}

/**
 * Mirrors every product of a branch over GET /product/list, oldest first so that new products join at the end.
 * A list that shifts while it is read shows in its totals or in a product met twice: it is then read again, and
 * nothing is taken for vanished from it.
 */
export class CatalogSweep {
  readonly #options: CatalogSweepOptions;

  constructor(options: CatalogSweepOptions) {
    this.#options = options;
  }

  /** Errors: those of Platform.productList; `platform-garbled` when the list never held still. */
  async sweep(branch: Branch, request: SweepRequest = {}): Promise<SweepReport> {
    const { keeper } = this.#options;
    let before: ReadonlySet<string> | undefined;
    let written = 0;
    for (let restarts = 0; restarts < TRIES_MAX; restarts++) {
      const pass = await this.#pass(branch, request);
      written += pass.written;
      if (!pass.isConsistent) continue;
      const missing = keeper.unlisted(branch, pass.seen);
      const twiceMissing = before && missing.every(({ productId }) => before?.has(productId));
      if (missing.length > ASK_MAX && !twiceMissing) {
        before = new Set(missing.map(({ productId }) => productId));
        continue;
      }
      if (missing.length <= ASK_MAX) await this.#askFor(missing, pass, request);
      const { pages, unreadable, seen, mark, startedAtMs } = pass;
      const vanished = await keeper.completeSweep({ branch, mark, startedAtMs, pages, seen });
      return { branch, products: seen.size, pages, written, vanished, unreadable, restarts };
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

  async #pass(branch: Branch, request: SweepRequest): Promise<Pass> {
    const { keeper, clock } = this.#options;
    const pass: Pass = {
      mark: keeper.readMark(),
      startedAtMs: clock.nowMs(),
      pages: 0,
      written: 0,
      unreadable: 0,
      seen: new Set(),
      isConsistent: true,
    };
    let limit = this.#options.pageSize;
    let total: number | null = null;
    for (let page = 1; page <= PAGES_MAX; page++) {
      const { answer, mark, used } = await this.#page(branch, page, limit, request);
      limit = used;
      pass.pages += 1;
      if (page === 1) total = answer.totalDocs;
      if (answer.totalDocs !== total) pass.isConsistent = false;
      const before = pass.seen.size + pass.unreadable;
      await this.#keepPage(branch, answer, mark, pass);
      request.onProgress?.(pass.seen.size, total);
      const hasNews = pass.seen.size + pass.unreadable > before;
      if (!hasNews || isLast(answer, page)) break;
    }
    if (total !== null && pass.seen.size + pass.unreadable !== total) pass.isConsistent = false;
    return pass;
  }

  async #page(branch: Branch, page: number, limit: number, request: SweepRequest) {
    const { keeper, platform } = this.#options;
    let mark = keeper.readMark();
    const ask = (size: number) =>
      platform.productList(
        { ...address(branch), page, limit: size, order: 'asc', orderBy: 'CreatedDate' },
        {
          ...callOptions(request),
          onSend: () => {
            mark = keeper.readMark();
          },
        },
      );
    try {
      return { answer: await ask(limit), mark, used: limit };
    } catch (error) {
      if (page > 1 || limit <= DEFAULT_LIMIT || !hasCode(error, 'platform-refused')) throw error;
      return { answer: await ask(DEFAULT_LIMIT), mark, used: DEFAULT_LIMIT };
    }
  }

  async #keepPage(branch: Branch, answer: ProductPage, mark: ReadMark, pass: Pass): Promise<void> {
    const { keeper } = this.#options;
    for (const { id } of answer.docs) {
      if (pass.seen.has(id)) pass.isConsistent = false;
      pass.seen.add(id);
    }
    pass.written += (await keeper.applyPage(branch, answer.docs, mark)).written;
    for (const text of answer.unreadable) {
      // A product that was read in part is among the docs too.
      if (!answer.docs.some(({ raw }) => raw === text)) pass.unreadable += 1;
      await keeper.quarantine(text);
    }
  }

  /** A deletion and a creation at once shift the list without changing its total; asking tells the two apart. */
  async #askFor(missing: readonly Unlisted[], pass: Pass, request: SweepRequest): Promise<void> {
    const { keeper, platform } = this.#options;
    for (const { productId, sku } of missing) {
      if (sku === null) continue;
      let mark = keeper.readMark();
      const record = await platform.productGet(
        { sku },
        {
          ...callOptions(request),
          onSend: () => {
            mark = keeper.readMark();
          },
        },
      );
      if (record?.id !== productId) continue;
      pass.seen.add(productId);
      await keeper.applyRead(record, mark);
    }
  }
}

function address(branch: Branch): { subsidiaryId: string } | { externalId: string } {
  return branch.subsidiaryId === null
    ? { externalId: branch.externalId ?? '' }
    : { subsidiaryId: branch.subsidiaryId };
}

function callOptions({ signal, onWait }: SweepRequest): CallOptions {
  return { ...(signal && { signal }), ...(onWait && { onWait }) };
}

/**
 * Whether the answer says that no page follows. One that says nothing of it may be shorter than was asked for all
 * the same: then the first page without anything new is the last.
 */
function isLast(answer: ProductPage, page: number): boolean {
  if (answer.hasNextPage !== null) return !answer.hasNextPage;
  if (answer.totalPages !== null) return page >= answer.totalPages;
  return answer.limit !== null && answer.docs.length + answer.unreadable.length < answer.limit;
}

const LEASE = 'catalog.sweep';
const LEASE_HOLD_MS = 600_000;
const LOOK_EVERY_MS = 500;

export interface LeasedSweepOptions extends CatalogSweepOptions {
  leases: Leases;
}

export interface LeasedSweepRequest extends SweepRequest {
  /** Told when another process is sweeping, so that this one waits until it has ended. */
  onBusy?: () => void;
}

/**
 * The sweep of a branch, of which one process does one at a time: an older reading of the list that ended last
 * would take products for vanished that a newer one has just seen.
 */
export class LeasedSweep {
  readonly #options: LeasedSweepOptions;

  constructor(options: LeasedSweepOptions) {
    this.#options = options;
  }

  /** Errors: those of CatalogSweep.sweep; `lease-lost` when another process took over a sweep that stood still. */
  async sweep(branch: Branch, request: LeasedSweepRequest = {}): Promise<SweepReport> {
    const { leases, clock } = this.#options;
    const fence = await this.#lease(request);
    const sweep = new CatalogSweep({ ...this.#options, keeper: this.#fenced(fence) });
    try {
      return await sweep.sweep(branch, request);
    } finally {
      await whenFree(clock, () => leases.release(LEASE, fence)).catch(() => {});
    }
  }

  async #lease({ signal, onBusy }: LeasedSweepRequest): Promise<number> {
    const { leases, clock } = this.#options;
    for (;;) {
      const fence = await whenFree(clock, () => leases.acquire(LEASE, LEASE_HOLD_MS), undefined, signal);
      if (fence !== undefined) return fence;
      if (signal?.aborted) {
        throw new TillsyncError('aborted', 'Stopped while another process reads the catalogue.');
      }
      onBusy?.();
      await clock.sleep(LOOK_EVERY_MS, signal);
    }
  }

  /** Writes nothing more once another process has the lease. */
  #fenced(fence: number): CatalogKeeper {
    const { keeper, leases, clock } = this.#options;
    const hold = async () => {
      if (await whenFree(clock, () => leases.renew(LEASE, fence, LEASE_HOLD_MS))) return;
      throw new TillsyncError(
        'lease-lost',
        'Another process has begun to read the catalogue; this reading was left.',
        { retryable: true },
      );
    };
    return {
      readMark: () => keeper.readMark(),
      unlisted: (branch, seen) => keeper.unlisted(branch, seen),
      quarantine: (text) => keeper.quarantine(text),
      async applyPage(branch, records, mark) {
        await hold();
        return await keeper.applyPage(branch, records, mark);
      },
      async applyRead(record, mark) {
        await hold();
        return await keeper.applyRead(record, mark);
      },
      async completeSweep(sweep) {
        await hold();
        return await keeper.completeSweep(sweep);
      },
    };
  }
}

const LOCKED_OUT_LOOK_MS = 5_000;

export interface SweepAllOptions {
  sweep: Pick<LeasedSweep, 'sweep'>;
  branches: readonly Branch[];
  freshness: FreshnessBoard;
  alarms: Alarms;
}

export interface SweepLoopOptions extends SweepAllOptions {
  schedule: Schedule;
  /** When the last whole reading of all branches began; undefined: one was never read, and the first is due at once. */
  sweptMs: () => number | undefined;
  /** False while only a person can bring new tokens. */
  mayCall: () => boolean;
  wish: SweepWish;
  clock: Clock;
  random: Random;
  log: Log;
  beat: () => void;
}

/** Somebody's wish for a sweep before its time. It is fulfilled by the next one that begins. */
export class SweepWish {
  readonly waker: Waker;
  #isOpen = false;

  constructor(clock: Clock) {
    this.waker = new Waker(clock);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  make(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.waker.wake();
  }

  fulfil(): void {
    this.#isOpen = false;
  }
}

/** Sweeps every configured branch once and reports how it fared. Throws what stopped it. */
export async function sweepAll(
  options: SweepAllOptions,
  request: LeasedSweepRequest,
): Promise<SweepReport[]> {
  const { sweep, branches, freshness, alarms } = options;
  const reports: SweepReport[] = [];
  try {
    for (const branch of branches) reports.push(await sweep.sweep(branch, request));
  } catch (error) {
    const { code, message, hint } = asTillsyncError(error);
    if (code !== 'aborted') {
      const text = [message, hint].filter(Boolean).join(' ');
      const state = freshnessOfFailure(code);
      freshness.report('catalog.sweep', state, text);
      alarms.raise('catalog.incomplete', `The catalogue in the mirror is not complete: ${text}`);
    }
    throw error;
  }
  freshness.ok('catalog.sweep');
  alarms.lower('catalog.incomplete');
  return reports;
}

/**
 * What was due while nobody ran, or was not finished, is made up for: a machine that is off each night would never
 * read the catalogue again.
 */
function firstDueMs({ branches, schedule, sweptMs, clock }: SweepLoopOptions): number {
  const nowMs = clock.nowMs();
  if (branches.length === 0) return schedule.nextAfter(nowMs);
  const lastMs = sweptMs();
  return lastMs === undefined ? nowMs : schedule.nextAfter(Math.min(lastMs, nowMs));
}

/** Keeps the catalogue swept: at once while a branch was never swept or one was missed, then by the schedule. */
export async function sweepLoop(options: SweepLoopOptions, signal: AbortSignal): Promise<void> {
  const { branches, schedule, mayCall, wish, clock, random, log, freshness, beat } = options;
  if (branches.length === 0) {
    freshness.report('catalog.sweep', 'off', 'No branches are configured, so no catalogue is mirrored.');
  }
  let dueMs = firstDueMs(options);
  let failures = 0;
  while (!signal.aborted) {
    await wish.waker.until(() => dueMs, signal, beat);
    if (signal.aborted) return;
    // After a failure the rest is kept, whoever wishes what.
    if (clock.nowMs() < dueMs && !(wish.isOpen && failures === 0)) continue;
    wish.fulfil();
    if (branches.length === 0) dueMs = schedule.nextAfter(clock.nowMs());
    else if (!mayCall()) dueMs = clock.nowMs() + LOCKED_OUT_LOOK_MS;
    else {
      try {
        const reports = await sweepAll(options, {
          signal,
          onWait: beat,
          onBusy: beat,
          onProgress: beat,
        });
        log.info({ branches: reports }, 'catalogue swept');
        failures = 0;
        dueMs = schedule.nextAfter(clock.nowMs());
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        log.warn({ err: error, failures }, 'the catalogue was not swept whole');
        dueMs = clock.nowMs() + retryDelayMs(failures, error, random);
      }
    }
  }
}
