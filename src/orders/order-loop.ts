import type { Alarms, FreshnessBoard } from '../core/alarm.ts';
import { asTillsyncError, counted } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { LOCKED_OUT_LOOK_MS, patientSignal, retryDelayMs, Waker } from '../core/loop.ts';
import { type Clock, formatDuration, type Random, type Schedule } from '../core/time.ts';
import type { OrderPoll, PollReport } from './order-poll.ts';

const ANNOUNCED_MAX = 5_000;
const SILENT_IN_A_ROW = 3;

export interface WebhookWatchOptions {
  enabled: boolean;
  freshness: FreshnessBoard;
  alarms: Alarms;
  log: Log;
}

/**
 * Notices when polls bring new orders that no webhook announced. An order that a poll creates has until the
 * end of the next poll to be announced too, since its notification may be on its way.
 */
export class WebhookWatch {
  readonly #options: WebhookWatchOptions;
  readonly #announced = new Set<string>();
  #pending: string[] = [];
  #silentInARow = 0;
  #primed = false;
  /** Whether any came since the start; the first one also ends an alarm that an earlier run raised. */
  #heard = false;

  constructor(options: WebhookWatchOptions) {
    this.#options = options;
  }

  /** An authenticated notification of this order arrived, whatever the merge made of it. */
  announced(orderId: string): void {
    this.#announced.add(orderId);
    if (this.#announced.size > ANNOUNCED_MAX) {
      const [oldest] = this.#announced;
      if (oldest !== undefined) this.#announced.delete(oldest);
    }
    if (this.#heard && this.#silentInARow === 0) return;
    this.#options.alarms.note('webhook.silent', null);
    if (this.#silentInARow > 0) {
      this.#options.freshness.ok('orders.webhook');
      // Those of the silence that is over; their notifications were lost with the others.
      this.#pending = [];
    }
    this.#heard = true;
    this.#silentInARow = 0;
  }

  /** A complete poll created these orders. The first after a start may bring what was missed while it was down. */
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
    this.#options.freshness.report('orders.webhook', 'degraded', message);
    if (this.#silentInARow >= SILENT_IN_A_ROW) this.#options.alarms.note('webhook.silent', message);
  }
}

/** Enough for a poll that a person waits for to go first; see OrderPoll. */
const GIVE_WAY_MS = 500;
/**
 * Where the look-back has more orders than this, as in a chain, most polls ask for the running day alone, and for the
 * look-back so often.
 */
const MANY_RECORDS = 5_000;
const LOOKBACK_EVERY_MS = 600_000;

export interface OrderLoopOptions {
  poll: Pick<OrderPoll, 'poll'>;
  schedule: Schedule;
  watch: Pick<WebhookWatch, 'polled'>;
  /** Codes that a complete poll leaves unexplained, each named once; a reason to look again, wider. */
  newGaps: (report: PollReport) => number[];
  /** False while only a person can bring new tokens: nothing is asked of the platform then. */
  mayCall: () => boolean;
  clock: Clock;
  random: Random;
  log: Log;
  /** How often a poll reaches back to the oldest open order. */
  wideEveryMs: number;
  /** Sign of life, for the watchdog. */
  beat: () => void;
}

/**
 * Keeps the orders polled: at start, at each due moment of the schedule, sooner when something hints that an
 * order is missing. A failed poll is tried again after the retry policy's rest. Nothing ends it but its signal.
 */
export class OrderLoop {
  readonly #options: OrderLoopOptions;
  readonly #waker: Waker;
  #failures = 0;
  #wideDueMs = Number.NEGATIVE_INFINITY;
  #lookbackDueMs = Number.NEGATIVE_INFINITY;
  /** Whether the last poll of the look-back alone brought many. */
  #isMany = false;
  #dueMs = 0;

  constructor(options: OrderLoopOptions) {
    this.#options = options;
    this.#waker = new Waker(options.clock);
  }

  /** A hint that something is missing: polls as soon as the rate budget allows; `wide`: perhaps of an older order. */
  wake(wide = false): void {
    this.#lookbackDueMs = Number.NEGATIVE_INFINITY;
    if (wide) this.#wideDueMs = Number.NEGATIVE_INFINITY;
    this.#waker.wake();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, beat } = this.#options;
    while (!signal.aborted) {
      beat();
      if (this.#lockedOut()) this.#dueMs = clock.nowMs() + LOCKED_OUT_LOOK_MS;
      else await this.#once(signal);
      await this.#waker.until(() => this.#due(), signal, beat);
    }
  }

  /** The first refusal is reported by a poll; from then on only the tokens are looked at. */
  #lockedOut(): boolean {
    return this.#failures > 0 && !this.#options.mayCall();
  }

  /** Never later than the schedule says by now: a wall clock that was ahead may have been set right. */
  #due(): number {
    const { clock, schedule } = this.#options;
    this.#dueMs = Math.min(this.#dueMs, schedule.nextAfter(clock.nowMs()));
    return this.#dueMs;
  }

  async #once(signal: AbortSignal): Promise<void> {
    const { poll, schedule, clock, random, log, watch, wideEveryMs, beat } = this.#options;
    const wide = clock.monotonicMs() >= this.#wideDueMs;
    const runningDay = !wide && this.#isMany && clock.monotonicMs() < this.#lookbackDueMs;
    const patient = patientSignal(signal, clock);
    try {
      const report = await poll.poll({
        signal: patient.signal,
        onSend: patient.onSend,
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
      if (wide) this.#wideDueMs = clock.monotonicMs() + wideEveryMs;
      if (!runningDay) this.#lookbackDueMs = clock.monotonicMs() + LOOKBACK_EVERY_MS;
      // A wide one says nothing of it: it may reach back for weeks.
      if (!runningDay && !wide) this.#isMany = report.records > MANY_RECORDS;
      watch.polled(report.createdIds);
      this.#dueMs = schedule.nextAfter(clock.nowMs());
      this.#lookAgain(report, wide);
      this.#logReport(report);
    } catch (error) {
      if (signal.aborted) return;
      this.#failures += 1;
      // It may be too large to ever succeed; polls that ask for less go on meanwhile.
      const againMs = clock.monotonicMs() + LOOKBACK_EVERY_MS;
      if (wide) this.#wideDueMs = againMs;
      else if (!runningDay) this.#lookbackDueMs = againMs;
      const delayMs = retryDelayMs(this.#failures, error, random);
      this.#dueMs = Math.min(schedule.nextAfter(clock.nowMs()), clock.nowMs() + delayMs);
      this.#logFailure(error);
    } finally {
      patient.end();
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
    const news = report.created + report.changed + report.unreadable;
    const level = news > 0 ? 'info' : 'debug';
    this.#options.log[level](figures, 'orders polled');
  }

  #logFailure(error: unknown): void {
    const { log } = this.#options;
    const known = asTillsyncError(error);
    const fields = { code: known.code, failures: this.#failures, hint: known.hint };
    if (known.code === 'auth-required') {
      // Tokens that the platform refused were told by their keeper; that none were handed in, by nobody yet.
      if (this.#failures === 1)
        log[known.httpStatus === undefined ? 'error' : 'debug'](fields, known.message);
    } else if (known.code === 'internal') {
      log.error({ ...fields, err: error }, `order poll failed: ${known.message}`);
    } else {
      log.warn(fields, `order poll failed: ${known.message}`);
    }
  }
}
