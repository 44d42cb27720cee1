import { freshnessOfFailure } from '../core/alarm.ts';
import { asTillsyncError, counted, failureCode, hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import { Lease, type Leases } from '../db/lease.ts';
import type { PlatformClient } from '../platform/client.ts';
import type { CallOptions, Wait } from '../platform/platform.ts';
import type { Mirror } from './mirror.ts';
import type { ImportReport } from './order.ts';
import { covers, type PollWindow, pollWindow } from './poll-window.ts';

const LEASE = 'orders.poll';
const LEASE_HOLD_MS = 600_000;
const LEASE_LOOK_MS = 500;
/** A long wait is looked at again this often: a person may have acted. */
const LOOK_AGAIN_MS = 60_000;
const STORE_PATIENCE_MS = 10_000;
const PAGES_MAX = 1_000;
/** How far two right clocks may differ. */
const FUTURE_MS = 300_000;

export interface OrderPollSettings {
  timezone: string;
  lookbackDays: number;
  /** How far back a wide poll, and one after a long outage, may reach. */
  wideDays: number;
  /** Query parameter that asks for a further page; empty: the platform is not asked for pages. */
  pageParameter: string;
}

export interface OrderPollOptions {
  platform: Pick<PlatformClient, 'orderAll'>;
  mirror: Pick<
    Mirror,
    | 'newestSeq'
    | 'lastPollAskedMs'
    | 'oldestOpenOrderMs'
    | 'notePoll'
    | 'importAnswer'
    | 'freshnessBoard'
    | 'alarms'
  >;
  leases: Leases;
  /** Platform's wall clock minus ours, by its last answer; undefined: none came yet. */
  platformSkewMs: () => number | undefined;
  /** What holds GET /order/all back now, for all processes; undefined: nothing. */
  nextWait: () => Wait | undefined;
  clock: Clock;
  log: Log;
  settings: OrderPollSettings;
}

export interface PollRequest extends CallOptions {
  /** Given dates instead of the computed ones. */
  window?: PollWindow;
  /** Reach back to the oldest open order, or one that a callback took back, not only to the look-back. */
  wide?: boolean;
  /** Ask for no more dates than what was ordered since the last poll can have; the look-back has to be polled seldom. */
  runningDay?: boolean;
  /** Rests this long once a poll is allowed, so that one that a person waits for goes first. */
  giveWayMs?: number;
  onProgress?: (done: number, total: number) => void;
}

export interface PollReport extends Omit<ImportReport, 'listFound'> {
  window: PollWindow;
  pages: number;
}

const MORE_PAGES =
  'The answer of GET /order/all speaks of further pages, and no parameter is configured to ask for them; orders may be missing. Set orders.page_parameter.';

/** A page of a proxy, or one that says that the platform is being worked on, goes within minutes. */
const GARBLED_FOR_MS = 6 * 60_000;

/** One complete poll: ask, mirror, report. The daemon's loop and `sync orders` run the same one, never both at once. */
export class OrderPoll {
  readonly #options: OrderPollOptions;
  #garbledSinceMonoMs: number | undefined;

  constructor(options: OrderPollOptions) {
    this.#options = options;
  }

  /** Errors: those of Platform.orderAll, `storage-…`, `platform-garbled` when no list of orders was found. */
  async poll(request: PollRequest = {}): Promise<PollReport> {
    const first = await this.#once(request, false);
    if (!first.isWrongWindow) return first.report;
    this.#options.log.info(
      { window: first.report.window },
      "this machine's clock is not the platform's; asking again for the dates that were left out",
    );
    const { report } = await this.#once(request, true);
    return sum(first.report, report, report.window);
  }

  /** `isWrongWindow`: its answer told of a clock by which other dates should have been asked for. */
  async #once(
    request: PollRequest,
    isAgain: boolean,
  ): Promise<{ report: PollReport; isWrongWindow: boolean }> {
    const { clock, mirror, platformSkewMs } = this.#options;
    const lease = await this.#turn(request);
    try {
      const nowMs = clock.nowMs();
      // Read once: the answer itself changes which order is the oldest.
      const reachesMs = [mirror.lastPollAskedMs(), request.wide ? mirror.oldestOpenOrderMs() : null];
      const wanted = () => request.window ?? this.#window(nowMs, reachesMs, request.runningDay);
      const report = await this.#pages(request, wanted(), lease);
      const isWrongWindow = !isAgain && !covers(report.window, wanted());
      // Days that a person named say nothing of how today fares.
      if (!isWrongWindow && request.window === undefined) {
        await whenFree(clock, () => this.#settle(report));
        await mirror.notePoll(nowMs + (platformSkewMs() ?? 0));
      }
      return { report, isWrongWindow };
    } catch (error) {
      await whenFree(clock, () => this.#fail(error)).catch(() => {});
      throw error;
    } finally {
      await lease.release();
    }
  }

  /**
   * Waits for the rate budget first and for the lease then: whoever has the lease polls, and nobody holds it for
   * minutes before it may.
   */
  async #turn({ signal, onWait, giveWayMs = 0 }: PollRequest): Promise<Lease> {
    const { leases, clock, nextWait } = this.#options;
    const lease = new Lease({ leases, clock, name: LEASE, holdMs: LEASE_HOLD_MS });
    let gaveWay = giveWayMs === 0;
    for (;;) {
      if (signal?.aborted) throw new TillsyncError('aborted', 'Stopped before the orders were polled.');
      const wait = await whenFree(clock, nextWait, STORE_PATIENCE_MS, signal);
      // A block may be of this endpoint alone, which the call itself tells at once.
      if (wait && wait.reason !== 'blocked') {
        onWait?.(wait);
        await clock.sleep(Math.min(wait.waitMs, LOOK_AGAIN_MS), signal);
        continue;
      }
      if (!gaveWay) {
        gaveWay = true;
        await clock.sleep(giveWayMs, signal);
        continue;
      }
      if (await lease.hold(signal)) return lease;
      onWait?.(wait ?? { endpoint: 'order.all', reason: 'in-flight', waitMs: LEASE_HOLD_MS });
      await clock.sleep(LEASE_LOOK_MS, signal);
    }
  }

  async #pages(request: PollRequest, window: PollWindow, lease: Lease): Promise<PollReport> {
    const { settings } = this.#options;
    let total: PollReport | undefined;
    for (let page = 1; page <= PAGES_MAX; page++) {
      const extra = page === 1 ? {} : { [settings.pageParameter]: String(page) };
      const report = await this.#page(window, extra, request, lease);
      const paged = { ...report, window, pages: 1 };
      total = total ? sum(total, paged, window) : paged;
      const last = !report.morePages || settings.pageParameter === '' || report.records === 0;
      if (last) return total;
    }
    return total as PollReport;
  }

  async #page(
    window: PollWindow,
    extra: Record<string, string>,
    request: PollRequest,
    lease: Lease,
  ): Promise<ImportReport> {
    const { platform, mirror, clock } = this.#options;
    let asOfSeq = mirror.newestSeq();
    let observedAtMs = clock.nowMs();
    const { signal, onWait, onProgress } = request;
    const answer = await platform.orderAll(
      { ...window, extra },
      {
        ...(signal && { signal }),
        ...(onWait && { onWait }),
        onSend: () => {
          asOfSeq = mirror.newestSeq();
          observedAtMs = clock.nowMs();
          request.onSend?.();
        },
      },
    );
    if (!(await lease.hold())) {
      const message = 'Another process has polled meanwhile; this answer was left unused.';
      throw new TillsyncError('lease-lost', message, { retryable: true });
    }
    const report = await mirror.importAnswer(answer.body, {
      observedAtMs,
      asOfSeq,
      ...(signal && { signal }),
      ...(onProgress && { onProgress }),
    });
    if (!report.listFound) {
      throw new TillsyncError(
        'platform-garbled',
        'The answer of GET /order/all holds no list of orders that tillsync can find. It was kept whole in the quarantine and nothing was mirrored from it.',
        {
          hint: 'Look at it with `{tillsync} quarantine list`, and name its list in the config as orders.list_path.',
        },
      );
    }
    return report;
  }

  #window(nowMs: number, reachesMs: readonly (number | null)[], runningDay = false): PollWindow {
    const { platformSkewMs, settings } = this.#options;
    const platformNowMs = nowMs + (platformSkewMs() ?? 0);
    const reaches = reachesMs
      .filter((ms) => ms !== null)
      // A moment to come was noted by a wrong clock, so nobody knows when it was.
      .map((ms) => (ms > platformNowMs + FUTURE_MS ? 0 : ms));
    return pollWindow({
      nowMs,
      platformNowMs,
      timezone: settings.timezone,
      // Without a poll before this one nobody knows since when.
      lookbackDays: runningDay && reaches.length > 0 ? null : settings.lookbackDays,
      reachBackToMs: reaches.length > 0 ? Math.min(...reaches) : null,
      lookbackDaysMax: Math.max(settings.wideDays, settings.lookbackDays),
    });
  }

  #settle(report: PollReport): void {
    const { mirror, settings } = this.#options;
    this.#garbledSinceMonoMs = undefined;
    const { freshnessBoard: freshness, alarms } = mirror;
    const unreadable =
      report.unreadable === 0
        ? ''
        : `${counted(report.unreadable, 'record')} of GET /order/all could not be read as an order; see: {tillsync} quarantine list`;
    alarms.note('orders.unreadable', unreadable || null);
    freshness.ok('orders.poll', unreadable);

    const isCut = report.morePages && settings.pageParameter === '';
    alarms.note('orders.more-pages', isCut ? MORE_PAGES : null);
    if (isCut) freshness.report('orders.poll', 'degraded', MORE_PAGES);
  }

  #fail(error: unknown): void {
    const { mirror, clock } = this.#options;
    const { alarms, freshnessBoard } = mirror;
    const known = asTillsyncError(error);
    if (known.code === 'aborted') return;
    const message = [known.message, known.hint].filter(Boolean).join(' ');
    if (known.code === 'platform-garbled') {
      const nowMs = clock.monotonicMs();
      this.#garbledSinceMonoMs ??= nowMs;
      if (nowMs - this.#garbledSinceMonoMs >= GARBLED_FOR_MS) alarms.note('orders.unreadable', message);
    }
    // Whoever settles callbacks after a complete poll ends it.
    if (hasCode(known, 'storage-full', 'storage-readonly', 'storage-corrupt', 'storage-failed'))
      alarms.note('storage.failing', `Polls keep nothing: ${message}`);
    freshnessBoard.report('orders.poll', freshnessOfFailure(known.code), message, failureCode(known));
  }
}

const COUNTS = ['pages', 'records', 'created', 'changed', 'confirmed', 'superseded', 'unreadable'] as const;

function sum(a: PollReport, b: PollReport, window: PollWindow): PollReport {
  const total = { ...b, window, createdIds: [...a.createdIds, ...b.createdIds].slice(0, 1_000) };
  for (const name of COUNTS) total[name] += a[name];
  if (a.codes && b.codes) {
    total.codes = { min: Math.min(a.codes.min, b.codes.min), max: Math.max(a.codes.max, b.codes.max) };
  } else total.codes = a.codes ?? b.codes;
  return total;
}

/** Longest run of missing codes still taken for missing orders; longer ones are another numbering. */
const RUN_MAX = 200;
const MISSING_MAX = 10_000;
const REMEMBERED_MAX = 20_000;

/**
 * `code` is sequential for the company (document, "Order notification"), so one that is missing between two known ones
 * hints at an order that was missed. Each is named once, as a reason to look again: a code that stays missing after
 * that was given to something the platform does not show.
 */
export class GapWatch {
  readonly #codesBetween: (min: number, max: number) => Iterable<number>;
  readonly #lookedFor = new Set<number>();

  /** `codesBetween`: every order code that the mirror has between the two, both included, perhaps repeated. */
  constructor({ codesBetween }: { codesBetween: (min: number, max: number) => Iterable<number> }) {
    this.#codesBetween = codesBetween;
  }

  /** Codes newly found missing in the range of a complete poll, the newest first; null: its records carry no codes. */
  newGaps(codes: { min: number; max: number } | null): number[] {
    if (!codes) return [];
    const found = new Set([...this.#codesBetween(codes.min, codes.max)].filter(Number.isSafeInteger));
    const known = [...found].sort((a, b) => b - a);
    const missing: number[] = [];
    for (const [i, below] of known.entries()) {
      const above = known[i - 1] ?? below;
      if (above - below - 1 > RUN_MAX) continue;
      for (let code = above - 1; code > below && missing.length < MISSING_MAX; code--) {
        if (!this.#lookedFor.has(code)) missing.push(code);
      }
    }
    for (const code of missing) this.#lookedFor.add(code);
    for (const code of this.#lookedFor) {
      if (this.#lookedFor.size <= REMEMBERED_MAX) break;
      this.#lookedFor.delete(code);
    }
    return missing;
  }
}
