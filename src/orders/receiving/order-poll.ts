import { type Alarms, type FreshnessBoard, freshnessOfFailure } from '../../core/alarm.ts';
import { asTillsyncError, counted, failureCode, hasCode, TillsyncError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { whenFree } from '../../core/loop.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { Lease, type Leases } from '../../db/lease.ts';
import type { PlatformClient } from '../../platform/client.ts';
import type { CallOptions, Wait } from '../../platform/platform.ts';
import { unlistedText } from '../merging/listed-orders.ts';
import type { ImportReport, UnreadList } from '../merging/order.ts';
import type { Mirror } from '../reading/mirror.ts';
import type { PollAlarm, PollReach } from './poll-store.ts';
import { covers, oldWindows, type PollWindow, pollWindow } from './poll-window.ts';

const LEASE = 'orders.poll';
const LEASE_HOLD_MS = 600_000;
const LEASE_LOOK_MS = 500;
/** Interval of checks during a long wait, because a person may have removed the reason for the wait. */
const LOOK_AGAIN_MS = 60_000;
const STORE_PATIENCE_MS = 10_000;
const PAGES_MAX = 1_000;
/** Largest difference between two correct clocks. */
const FUTURE_MS = 300_000;

interface OrderPollSettings {
  timezone: string;
  lookbackDays: number;
  /** Maximum number of days that a wide poll, or a poll after a long outage, reaches back. */
  wideDays: number;
  /** Query parameter of the page number. If empty, further pages are not requested. */
  pageParameter: string;
}

interface OrderPollOptions {
  platform: Pick<PlatformClient, 'orderAll'>;
  mirror: Pick<Mirror, 'importAnswer'> & {
    health: FreshnessBoard & Alarms;
    orders: Pick<Mirror['orders'], 'newestSeq' | 'newestHeldId' | 'oldestOpenMs' | 'openDays'>;
    listed: Pick<Mirror['listed'], 'watched' | 'settle'>;
    polls: Pick<Mirror['polls'], 'lastAskedMs' | 'raisedReach' | 'note'>;
  };
  leases: Leases;
  /** Returns the platform's clock minus this machine's, by the last answer; undefined before the first answer. */
  platformSkewMs: () => number | undefined;
  /** Returns how long any process must wait before GET /order/all; undefined if no wait is needed. */
  nextWait: () => Wait | undefined;
  clock: Clock;
  log: Log;
  settings: OrderPollSettings;
}

interface PollRequest extends CallOptions {
  /** Dates to request instead of the computed ones. */
  window?: PollWindow;
  /**
   * True to reach back to the oldest open order (or one that a held callback may reopen), not only over the look-back.
   */
  wide?: boolean;
  /** True if `window` is one of `oldWindows`. */
  isOld?: boolean;
  /** True to request only the dates of orders after the last poll. */
  runningDay?: boolean;
  /** Delay after a poll becomes allowed, so that a poll that a person waits for is sent first. */
  giveWayMs?: number;
  onProgress?: (done: number, total: number) => void;
}

export interface PollReport extends Omit<ImportReport, 'listFound'> {
  window: PollWindow;
  pages: number;
}

const MORE_PAGES =
  'The answer of GET /order/all speaks of further pages, and no parameter is configured to ask for them; orders may be missing. Set platform.quirks.page_parameter.';

/**
 * Time for which answers may be unreadable before an alarm. An error page of a proxy or a maintenance page is usually
 * gone by then.
 */
const GARBLED_FOR_MS = 6 * 60_000;

const NO_WATCH: { watched: string[]; left: string[]; asOfSeq: number; at: string } = {
  watched: [],
  left: [],
  asOfSeq: 0,
  at: '',
};

/**
 * Runs one complete poll: request, mirror, report. The daemon's loop and `sync orders` use it, never at the same time.
 */
export class OrderPoll {
  readonly #options: OrderPollOptions;
  #garbledSinceMonoMs: number | undefined;
  /** The orders that the present poll must have, and those of them that none of its pages had so far. */
  #watch = NO_WATCH;

  constructor(options: OrderPollOptions) {
    this.#options = options;
  }

  /**
   * Runs a poll. Throws the errors of `Platform.orderAll`, `storage-…`, and `platform-garbled` if the answer has no
   * list of orders.
   */
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

  /** Returns the windows for the days of open orders that a wide poll does not reach, oldest first. */
  oldWindows(): PollWindow[] {
    const { clock, mirror } = this.#options;
    const nowMs = clock.nowMs();
    return oldWindows(mirror.orders.openDays(), this.#window(nowMs, [0]).startDate, nowMs);
  }

  /**
   * Requests and mirrors one window. `isWrongWindow` is true if the answer's Date shows that the dates were chosen by
   * a wrong clock.
   */
  async #once(
    request: PollRequest,
    isAgain: boolean,
  ): Promise<{ report: PollReport; isWrongWindow: boolean }> {
    const { clock, mirror, platformSkewMs } = this.#options;
    const lease = await this.#turn(request);
    try {
      const nowMs = clock.nowMs();
      // The oldest open order is read before the request, because the answer may end it.
      const reachesMs = [mirror.polls.lastAskedMs(), request.wide ? mirror.orders.oldestOpenMs() : null];
      const wanted = () => request.window ?? this.#window(nowMs, reachesMs, request.runningDay);
      const report = await this.#pages(request, wanted(), lease);
      await this.#settleListed(report);
      const isWrongWindow = !isAgain && !covers(report.window, wanted());
      // A poll of dates that a person named says nothing about whether regular polls work.
      if (!isWrongWindow && request.window === undefined) {
        const reach = request.wide ? 2 : request.runningDay ? 0 : 1;
        // Without an old open order a wide poll asks for the days of a regular one, which may then end its alarms.
        const isRegular = request.wide && covers(this.#window(nowMs, reachesMs.slice(0, 1)), report.window);
        const raised = await whenFree(clock, () => this.#settle(report, reach, isRegular ? 1 : reach));
        await mirror.polls.note(nowMs + (platformSkewMs() ?? 0), request.wide === true, raised);
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
   * Waits first for the rate budget and then for the lease, so that no process holds the lease for minutes before it
   * may poll.
   */
  async #turn({ signal, onWait, giveWayMs = 0 }: PollRequest): Promise<Lease> {
    const { leases, clock, nextWait } = this.#options;
    const lease = new Lease({ leases, clock, name: LEASE, holdMs: LEASE_HOLD_MS });
    let gaveWay = giveWayMs === 0;
    for (;;) {
      if (signal?.aborted) throw new TillsyncError('aborted', 'Stopped before the orders were polled.');
      const wait = await whenFree(clock, nextWait, STORE_PATIENCE_MS, signal);
      // A block is not waited for here. If this endpoint itself is blocked, the call fails at once and reports the
      // block; otherwise the call waits.
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

  /** Records which orders the answer lacks. Its pages are whole if each of them was read, and nothing in them left. */
  async #settleListed(report: PollReport): Promise<void> {
    const { mirror, settings } = this.#options;
    const isCut = report.morePages && settings.pageParameter === '';
    const mayLack = report.unreadLists.some(({ mayBeOrders }) => mayBeOrders);
    const isWhole = report.records > 0 && report.unreadable === 0 && !isCut && !mayLack;
    const { watched, asOfSeq, at } = this.#watch;
    const unlisted = await mirror.listed.settle(report.window, watched, report, { asOfSeq, at, isWhole });
    mirror.health.note('orders.unlisted', unlistedText(unlisted) || null);
  }

  async #pages(request: PollRequest, window: PollWindow, lease: Lease): Promise<PollReport> {
    const { settings } = this.#options;
    let total: PollReport | undefined;
    this.#watch = NO_WATCH;
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
    let asOfSeq = mirror.orders.newestSeq();
    let asOfHeldId = mirror.orders.newestHeldId();
    let observedAtMs = clock.nowMs();
    const { signal, onWait, onProgress } = request;
    const answer = await platform.orderAll(
      { ...window, extra },
      {
        ...(signal && { signal }),
        ...(onWait && { onWait }),
        onSend: () => {
          asOfSeq = mirror.orders.newestSeq();
          asOfHeldId = mirror.orders.newestHeldId();
          observedAtMs = clock.nowMs();
          if (this.#watch === NO_WATCH || extra[this.#options.settings.pageParameter] === undefined) {
            const watched = mirror.listed.watched(window);
            this.#watch = { watched, left: watched, asOfSeq, at: isoUtc(observedAtMs) };
          }
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
      asOfHeldId,
      isOld: request.isOld,
      watched: this.#watch.left,
      ...(signal && { signal }),
      ...(onProgress && { onProgress }),
    });
    this.#watch = { ...this.#watch, left: report.unlisted };
    if (!report.listFound) {
      throw new TillsyncError(
        'platform-garbled',
        'The answer of GET /order/all holds no list of orders that tillsync can find. It was kept whole in the quarantine and nothing was mirrored from it.',
        {
          hint: 'Look at it with `{tillsync} quarantine list`, and name its list in the config as platform.quirks.list_path.',
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
      // A time in the future was recorded by a wrong clock, so the real time is unknown.
      .map((ms) => (ms > platformNowMs + FUTURE_MS ? 0 : ms));
    return pollWindow({
      nowMs,
      platformNowMs,
      timezone: settings.timezone,
      // A window of the running day alone begins at the last poll; before the first poll, `lookbackDays` says where.
      lookbackDays: runningDay && reaches.length > 0 ? null : settings.lookbackDays,
      reachBackToMs: reaches.length > 0 ? Math.min(...reaches) : null,
      lookbackDaysMax: Math.max(settings.wideDays, settings.lookbackDays),
    });
  }

  /**
   * Raises and ends alarms by a complete poll of this reach. A poll of at least the reach `found` may end what this one
   * finds. Returns the new reaches of alarms.
   */
  #settle(report: PollReport, reach: PollReach, found: PollReach): Map<PollAlarm, PollReach> {
    const { mirror, settings } = this.#options;
    this.#garbledSinceMonoMs = undefined;
    const { health, polls } = mirror;
    const raised = new Map<PollAlarm, PollReach>();
    // A poll of few days does not end what a poll of more days found.
    const decides = (key: PollAlarm, isFound: boolean): boolean => {
      const before = polls.raisedReach(key);
      if (!isFound && reach < before) return false;
      const now = isFound ? found : 0;
      if (now !== before) raised.set(key, now);
      return true;
    };
    const unreadable =
      report.unreadable === 0
        ? ''
        : `${counted(report.unreadable, 'record')} of GET /order/all could not be read as an order; see: {tillsync} quarantine list`;
    if (decides('orders.unreadable', unreadable !== '')) health.note('orders.unreadable', unreadable || null);
    health.ok('orders.poll', unreadable);

    const isCut = report.morePages && settings.pageParameter === '';
    if (decides('orders.more-pages', isCut)) health.note('orders.more-pages', isCut ? MORE_PAGES : null);
    if (isCut) health.report('orders.poll', 'degraded', MORE_PAGES);

    const lists = unreadListsText(report.unreadLists.filter(({ mayBeOrders }) => mayBeOrders));
    if (decides('orders.lists', lists !== null)) health.note('orders.lists', lists || null);
    if (lists !== null && !isCut) health.report('orders.poll', 'degraded', lists);
    return raised;
  }

  #fail(error: unknown): void {
    const { mirror, clock } = this.#options;
    const { health } = mirror;
    const known = asTillsyncError(error);
    if (known.code === 'aborted') return;
    const message = [known.message, known.hint].filter(Boolean).join(' ');
    if (known.code === 'platform-garbled') {
      const nowMs = clock.monotonicMs();
      this.#garbledSinceMonoMs ??= nowMs;
      if (nowMs - this.#garbledSinceMonoMs >= GARBLED_FOR_MS) health.note('orders.unreadable', message);
    }
    // `CallbackHealth` ends this alarm after a complete poll, unless callbacks could not be stored since the poll
    // before.
    if (hasCode(known, 'storage-full', 'storage-readonly', 'storage-corrupt', 'storage-failed'))
      health.note('storage.failing', `Polls keep nothing: ${message}`);
    health.report('orders.poll', freshnessOfFailure(known.code), message, failureCode(known));
  }
}

const UNREAD_NAMED_MAX = 5;

/** Returns which lists of an answer are not read, such as `payments (3 records)`; null if there are none. */
export function unreadListsText(lists: readonly UnreadList[]): string | null {
  if (lists.length === 0) return null;
  const named = lists
    .slice(0, UNREAD_NAMED_MAX)
    .map(
      ({ path, records }) =>
        `${path} (${records === null ? 'nested too deeply' : counted(records, 'record')})`,
    );
  const rest = lists.length > UNREAD_NAMED_MAX ? ', …' : '';
  return `The answer of GET /order/all has lists that are not read as orders: ${named.join(', ')}${rest}.`;
}

const COUNTS = [
  ...([
    'pages',
    'records',
    'repeated',
    'created',
    'changed',
    'confirmed',
    'superseded',
    'unreadable',
  ] as const),
];

function sum(a: PollReport, b: PollReport, window: PollWindow): PollReport {
  const total = { ...b, window, createdIds: [...a.createdIds, ...b.createdIds].slice(0, 1_000) };
  for (const name of COUNTS) total[name] += a[name];
  const known = new Set(b.unreadLists.map(({ path }) => path));
  total.unreadLists = [...b.unreadLists, ...a.unreadLists.filter(({ path }) => !known.has(path))];
  total.mayBeCut = a.mayBeCut || b.mayBeCut;
  if (a.codes && b.codes) {
    total.codes = { min: Math.min(a.codes.min, b.codes.min), max: Math.max(a.codes.max, b.codes.max) };
  } else total.codes = a.codes ?? b.codes;
  return total;
}

/** Longest run of missing codes that counts as missing orders; a longer run is a change of numbering. */
const RUN_MAX = 200;
const MISSING_MAX = 10_000;
const REMEMBERED_MAX = 20_000;

/**
 * Finds missing codes. `code` is sequential for the company (document, "Order notification"), so a gap may be a missed
 * order. Each gap is reported once, because an order that another poll does not bring is not visible at the platform.
 */
export class GapMonitor {
  readonly #codesBetween: (min: number, max: number) => Iterable<number>;
  readonly #lookedFor = new Set<number>();

  /** `codesBetween` returns every order code in the mirror from `min` to `max`, perhaps more than once. */
  constructor({ codesBetween }: { codesBetween: (min: number, max: number) => Iterable<number> }) {
    this.#codesBetween = codesBetween;
  }

  /**
   * Returns codes that are newly found missing in the range of a complete poll, highest first. `codes` is null if no
   * record has a code.
   */
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
