import { CALLBACKS_SILENT, type FreshnessBoard, SILENT_IN_A_ROW } from '../../core/alarm.ts';
import { asTillsyncError, counted, TillsyncError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { gracefulSignal, LOCKED_OUT_LOOK_MS, retryDelayMs, Waker } from '../../core/loop.ts';
import { type Clock, formatDuration, type Random, type Schedule } from '../../core/time.ts';
import { type OrderPoll, type PollReport, unreadListsText } from './order-poll.ts';
import type { PollWindow } from './poll-window.ts';

const ANNOUNCED_MAX = 5_000;

interface WebhookWatchOptions {
  enabled: boolean;
  freshness: FreshnessBoard;
  log: Log;
}

/**
 * Reports when polls bring new orders that no callback announced. An order counts only if no callback at all arrives
 * before the next poll ends.
 */
export class WebhookMonitor {
  readonly #options: WebhookWatchOptions;
  readonly #announced = new Set<string>();
  #pending: string[] = [];
  #silentInARow = 0;
  #primed = false;

  constructor(options: WebhookWatchOptions) {
    this.#options = options;
  }

  /** Records that an authenticated notification of this order arrived, whatever the merge decided. */
  announced(orderId: string): void {
    this.#announced.add(orderId);
    if (this.#announced.size > ANNOUNCED_MAX) {
      const [oldest] = this.#announced;
      if (oldest !== undefined) this.#announced.delete(oldest);
    }
    // The pending orders are older than this callback, so their missing callbacks do not show that callbacks fail now.
    this.#pending = [];
    if (this.#silentInARow === 0) return;
    this.#options.freshness.ok('orders.webhook');
    this.#silentInARow = 0;
  }

  /**
   * Records the orders that a complete poll created. Orders of the first poll after a start do not count, because they
   * may have been announced while the daemon was down.
   */
  polled(createdIds: readonly string[]): void {
    if (!this.#options.enabled) return;
    const unannounced = this.#pending.filter((id) => !this.#announced.has(id));
    this.#pending = this.#primed ? createdIds.filter((id) => !this.#announced.has(id)) : [];
    this.#primed = true;
    if (unannounced.length === 0) return;
    this.#silentInARow += unannounced.length;
    const message =
      `The last ${counted(this.#silentInARow, 'new order')} came only by polling; no callback announced ${this.#silentInARow === 1 ? 'it' : 'them'}. ` +
      'Check that the webhook is active ({tillsync} webhook show) and that its address reaches this machine ({tillsync} webhook test).';
    this.#options.log.warn({ orderIds: unannounced.slice(0, 10), count: unannounced.length }, message);
    const failure = this.#silentInARow >= SILENT_IN_A_ROW ? CALLBACKS_SILENT : undefined;
    this.#options.freshness.report('orders.webhook', 'degraded', message, failure);
  }
}

/** Delay of a scheduled poll, so that a poll that a person waits for is sent first; see `OrderPoll`. */
const GIVE_WAY_MS = 500;
/**
 * Number of orders in the look-back above which (as in a large chain) most polls ask only for the running day. The
 * whole look-back is then polled every `LOOKBACK_EVERY_MS`.
 */
const MANY_RECORDS = 5_000;
const LOOKBACK_EVERY_MS = 600_000;
/** Shortest time between two polls for days of old open orders. Each of them takes the place of a regular poll. */
const OLD_EVERY_MS = 600_000;

/** Returns the windows, or none if the mirror is unavailable; the poll that follows reports that. */
function readable(windows: () => PollWindow[]): PollWindow[] {
  try {
    return windows();
  } catch (error) {
    if (error instanceof TillsyncError) return [];
    throw error;
  }
}

interface OrderLoopOptions {
  poll: Pick<OrderPoll, 'poll' | 'oldWindows'>;
  schedule: Schedule;
  watch: Pick<WebhookMonitor, 'polled'>;
  /**
   * Returns the codes that are newly found missing after a complete poll, each only once. If there are any, the next
   * poll is a wide one.
   */
  newGaps: (report: PollReport) => number[];
  /** Judges the callbacks that wait, because polls may not have decided about them. May throw `storage-…`. */
  judgeHeld: () => Promise<void>;
  /** Returns false while no call can succeed until a person brings new tokens. */
  mayCall: () => boolean;
  clock: Clock;
  random: Random;
  log: Log;
  /** Interval of polls that reach back to the oldest open order. */
  wideEveryMs: number;
  /** Reports to the watchdog that the loop runs. */
  beat: () => void;
}

/**
 * Polls orders at start, at each due time of the schedule, and sooner if an order may be missing. A failed poll is
 * repeated after the pause of the retry policy. Only the signal ends the loop.
 */
export class OrderLoop {
  readonly #options: OrderLoopOptions;
  readonly #waker: Waker;
  #failures = 0;
  #wideDueMs = Number.NEGATIVE_INFINITY;
  #lookbackDueMs = Number.NEGATIVE_INFINITY;
  #oldDueMs = Number.NEGATIVE_INFINITY;
  /** First date of the window of old days that was requested last. */
  #oldStart = '';
  /**
   * Number of calls of `wake`. A call during a poll counts for the next poll, because the request may have been sent
   * before.
   */
  #wakes = 0;
  /** Value of `#wakes` when the last successful poll for new orders began. */
  #wakesServed = -1;
  /** True if the last poll of the look-back brought many records. */
  #isMany = false;
  #toldLists: string | null = null;
  #dueMs = 0;

  constructor(options: OrderLoopOptions) {
    this.#options = options;
    this.#waker = new Waker(options.clock);
  }

  /**
   * Polls as soon as the rate budget allows, because an order may be missing. `wide`: the missing order may be an old
   * one.
   */
  wake(wide = false): void {
    this.#lookbackDueMs = Number.NEGATIVE_INFINITY;
    if (wide) this.#wideDueMs = Number.NEGATIVE_INFINITY;
    this.#wakes += 1;
    this.#waker.wake();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, beat } = this.#options;
    while (!signal.aborted) {
      beat();
      if (this.#lockedOut()) this.#dueMs = clock.nowMs() + LOCKED_OUT_LOOK_MS;
      else await this.#once(signal);
      if (!signal.aborted) await this.#judgeHeld();
      await this.#waker.until(() => this.#due(), signal, beat);
    }
  }

  /**
   * Returns whether no poll is possible until a person brings new tokens. It is false until a poll has failed, because
   * that poll reports the refusal.
   */
  #lockedOut(): boolean {
    return this.#failures > 0 && !this.#options.mayCall();
  }

  /**
   * Returns when the next poll is due. It is computed again each time, because a clock that was ahead may have been
   * set back.
   */
  #due(): number {
    const { clock, schedule } = this.#options;
    this.#dueMs = Math.min(this.#dueMs, schedule.nextAfter(clock.nowMs()));
    return this.#dueMs;
  }

  /**
   * Returns the next window of old days to request, each in turn and at most once in `wideEveryMs`. Returns undefined if
   * none is due, or if a poll for new orders comes first.
   */
  #oldWindow(): PollWindow | undefined {
    const { poll, clock, wideEveryMs } = this.#options;
    const nowMs = clock.monotonicMs();
    const isCalm = this.#failures === 0 && this.#wakes === this.#wakesServed;
    if (!isCalm || nowMs < this.#oldDueMs || nowMs >= this.#wideDueMs) return undefined;
    const windows = readable(() => poll.oldWindows());
    const everyMs = windows.length === 0 ? 0 : wideEveryMs / windows.length;
    this.#oldDueMs = nowMs + Math.max(OLD_EVERY_MS, everyMs);
    const window = windows.find(({ startDate }) => startDate > this.#oldStart) ?? windows[0];
    this.#oldStart = window?.startDate ?? '';
    return window;
  }

  async #once(signal: AbortSignal): Promise<void> {
    const { poll, schedule, clock, random, log, watch, wideEveryMs, beat } = this.#options;
    const window = this.#oldWindow();
    const isOld = window !== undefined;
    const wide = !isOld && clock.monotonicMs() >= this.#wideDueMs;
    const runningDay = !isOld && !wide && this.#isMany && clock.monotonicMs() < this.#lookbackDueMs;
    const wakes = this.#wakes;
    const patient = gracefulSignal(signal, clock);
    try {
      const report = await poll.poll({
        signal: patient.signal,
        onSend: patient.onSend,
        ...(window && { window, isOld }),
        wide,
        runningDay,
        giveWayMs: GIVE_WAY_MS,
        onWait: (wait) => {
          beat();
          log.debug({ ...wait }, `next order poll allowed in ${formatDuration(wait.waitMs)}`);
        },
        onProgress: beat,
      });
      this.#failures = 0;
      if (isOld) {
        watch.polled([]);
        this.#dueMs = schedule.nextAfter(clock.nowMs());
        this.#logReport(report);
        return;
      }
      const isWoken = this.#wakes !== wakes;
      this.#wakesServed = wakes;
      if (wide && !isWoken) this.#wideDueMs = clock.monotonicMs() + wideEveryMs;
      if (!runningDay && !isWoken) this.#lookbackDueMs = clock.monotonicMs() + LOOKBACK_EVERY_MS;
      // A wide poll may reach back for weeks, so its size does not show how many orders come now.
      if (!runningDay && !wide) this.#isMany = report.records > MANY_RECORDS;
      watch.polled(report.createdIds);
      this.#dueMs = schedule.nextAfter(clock.nowMs());
      this.#lookAgain(report, wide);
      this.#logReport(report);
    } catch (error) {
      if (signal.aborted) return;
      this.#failures += 1;
      // The answer may be too large to ever arrive, so this window is tried again later, and polls of smaller windows
      // go on.
      const againMs = clock.monotonicMs() + LOOKBACK_EVERY_MS;
      if (wide) this.#wideDueMs = againMs;
      else if (!runningDay && !isOld) this.#lookbackDueMs = againMs;
      const delayMs = retryDelayMs(this.#failures, error, random);
      this.#dueMs = Math.min(schedule.nextAfter(clock.nowMs()), clock.nowMs() + delayMs);
      this.#logFailure(error);
    } finally {
      patient.end();
    }
  }

  async #judgeHeld(): Promise<void> {
    const { judgeHeld, log } = this.#options;
    try {
      await judgeHeld();
    } catch (error) {
      log.debug({ err: error }, 'callbacks that wait cannot be judged again now');
    }
  }

  #lookAgain(report: PollReport, wide: boolean): void {
    const gaps = this.#options.newGaps(report);
    if (gaps.length === 0) return;
    this.#options.log.info(
      { codes: gaps.slice(0, 20), count: gaps.length },
      'order numbers are missing from the mirror; looking again',
    );
    if (!wide) this.#wideDueMs = Number.NEGATIVE_INFINITY;
  }

  #logReport(report: PollReport): void {
    const { createdIds: _, ...figures } = report;
    const lists = unreadListsText(report.unreadLists);
    if (lists !== null && lists !== this.#toldLists)
      this.#options.log.warn({ lists: report.unreadLists }, lists);
    this.#toldLists = lists;
    const news = report.created + report.changed + report.unreadable;
    const level = news > 0 ? 'info' : 'debug';
    this.#options.log[level](figures, 'orders polled');
  }

  #logFailure(error: unknown): void {
    const { log } = this.#options;
    const known = asTillsyncError(error);
    const fields = { code: known.code, failures: this.#failures, hint: known.hint };
    if (known.code === 'auth-required') {
      // The token keeper has already logged tokens that the platform refused. Missing tokens are logged only here.
      if (this.#failures === 1)
        log[known.httpStatus === undefined ? 'error' : 'debug'](fields, known.message);
    } else if (known.code === 'internal') {
      log.error({ ...fields, err: error }, `order poll failed: ${known.message}`);
    } else {
      log.warn(fields, `order poll failed: ${known.message}`);
    }
  }
}
