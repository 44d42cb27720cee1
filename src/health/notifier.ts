import { asTillsyncError, formatCommands, hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { backoffMs } from '../core/loop.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import type { AlarmReceiver, AlarmReport } from './alarm-receivers.ts';
import { FINDINGS } from './findings.ts';
import {
  type AlarmMemory,
  type AlarmRows,
  type AlarmRules,
  afterSending,
  NOTHING_SENT,
  type Notification,
  NotificationPolicy,
  type ReceiverName,
} from './notification-policy.ts';
import type { Assessment } from './verdict.ts';

/** Time between two checks above which the machine must have slept or the process been stopped. */
const AWAKE_GAP_MS = 60_000;
const MADE_GOOD_WITHIN_MS = 4 * 60_000;

/**
 * Reads the findings for alarm messages and heartbeats. If the mirror cannot be read, this fault is added to the last
 * known findings. Findings that arose while tillsync did not run are hidden until they had time to end.
 */
export class CurrentAssessment {
  readonly #look: () => Assessment;
  readonly #clock: Clock;
  #last: Assessment = { findings: [], hidden: new Set() };
  #failingSince: string | undefined;
  #awake: { sinceMonoMs: number; lookMonoMs: number; wallAheadMs: number } | undefined;

  /** `look` reads the findings. It may throw `storage-…`. */
  constructor(look: () => Assessment, clock: Clock) {
    this.#look = look;
    this.#clock = clock;
  }

  /** Returns the present findings. Throws only `storage-busy`, if they cannot be read at the moment. */
  read(): Assessment {
    const isSettled = this.#isSettled();
    try {
      this.#last = this.#look();
      this.#failingSince = undefined;
    } catch (error) {
      if (hasCode(error, 'storage-busy')) throw error;
      this.#last = this.#failing(`The mirror cannot be read: ${asTillsyncError(error).message}`);
    }
    if (isSettled) return this.#last;
    const { findings } = this.#last;
    const grown = findings.map(({ code }) => code).filter((code) => FINDINGS[code].growsOld);
    const hidden = new Set([...this.#last.hidden, ...grown]);
    return { findings: findings.filter(({ code }) => !hidden.has(code)), hidden };
  }

  #failing(detail: string): Assessment {
    this.#failingSince ??= isoUtc(this.#clock.nowMs());
    const { level, message, remedy } = FINDINGS['storage.failing'];
    const failing = {
      ...{ level, message, remedy: formatCommands(remedy) },
      detail,
      since: this.#failingSince,
    };
    const others = this.#last.findings.filter(({ code }) => code !== 'storage.failing');
    return {
      findings: [{ code: 'storage.failing', ...failing, count: null }, ...others],
      hidden: this.#last.hidden,
    };
  }

  /** Returns whether tillsync has run without a gap for so long that stale flows had time to recover. */
  #isSettled(): boolean {
    const clock = this.#clock;
    const nowMs = clock.monotonicMs();
    const wallAheadMs = clock.nowMs() - nowMs;
    const before = this.#awake;
    const isGap =
      before === undefined ||
      nowMs - before.lookMonoMs > AWAKE_GAP_MS ||
      Math.abs(wallAheadMs - before.wallAheadMs) > AWAKE_GAP_MS;
    this.#awake = { sinceMonoMs: isGap ? nowMs : before.sinceMonoMs, lookMonoMs: nowMs, wallAheadMs };
    return nowMs - this.#awake.sinceMonoMs >= MADE_GOOD_WITHIN_MS;
  }
}

export interface NotifierOptions {
  receiver: AlarmReceiver;
  rules: AlarmRules;
  rows: Pick<AlarmRows, 'memory' | 'remember'>;
  report: (notification: Notification) => AlarmReport;
  /** Returns the calendar day of a time in the shop's time zone. */
  dayOf: (nowMs: number) => string;
  onNotified: (receiver: ReceiverName, outcome: 'ok' | 'failed') => void;
  clock: Clock;
  log: Log;
}

const RETRY_FIRST_MS = 10_000;
const RETRY_LONGEST_MS = 600_000;
/** Maximum time that sending a message may still take after tillsync was asked to stop. */
const STOP_GRACE_MS = 3_000;

/** Number of failed tries after which a receiver counts as failing. They take one to two minutes. */
const UNTOLD_TRIES = 4;

/**
 * Hides `alarms.untold` from a receiver that is itself failing, because the receiver could get that finding only after
 * the fault is over.
 */
function withoutOwn({ findings, hidden }: Assessment): Assessment {
  return {
    findings: findings.filter(({ code }) => code !== 'alarms.untold'),
    hidden: new Set([...hidden, 'alarms.untold']),
  };
}

/** Notifies one receiver of alarms. If the disk refuses to store what was sent, this process remembers it. */
export class Notifier {
  readonly #o: NotifierOptions;
  readonly #policy: NotificationPolicy;
  #memory: AlarmMemory | undefined;
  #isSaved = true;
  #failures = 0;
  #lastFailure = '';
  #restUntilMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: NotifierOptions) {
    this.#o = options;
    this.#policy = new NotificationPolicy(options.rules);
  }

  /** Returns why a message still waits for this receiver after several tries; null if none waits. */
  trouble(): string | null {
    return this.#failures >= UNTOLD_TRIES ? this.#lastFailure : null;
  }

  /** Sends all messages that are due, one after the other, and calls `beat` before each. */
  async notify(all: Assessment, signal: AbortSignal, beat: () => void = () => {}): Promise<void> {
    const assessment = this.trouble() === null ? all : withoutOwn(all);
    const { clock, dayOf } = this.#o;
    let memory = this.#memory ?? this.#read();
    if (memory === undefined) return;
    this.#memory = memory;
    if (!this.#isSaved) this.#save(memory);
    this.#policy.observe(assessment, memory, { nowMs: clock.nowMs(), monotonicMs: clock.monotonicMs() });
    while (!signal.aborted && clock.monotonicMs() >= this.#restUntilMonoMs) {
      const nowMs = clock.nowMs();
      const at = { nowMs, monotonicMs: clock.monotonicMs(), day: dayOf(nowMs) };
      const notification = this.#policy.next(memory, at);
      if (!notification) {
        this.#failures = 0;
        return;
      }
      beat();
      if (!(await this.#tell(notification, signal))) return;
      memory = afterSending(memory, notification, at);
      this.#memory = memory;
      this.#save(memory);
    }
  }

  async #tell(notification: Notification, signal: AbortSignal): Promise<boolean> {
    const { receiver, report, clock, log, onNotified } = this.#o;
    const over = new AbortController();
    const cut = new AbortController();
    const onStop = () =>
      void clock.sleep(STOP_GRACE_MS, over.signal).then(() => {
        if (!over.signal.aborted) cut.abort();
      });
    signal.addEventListener('abort', onStop, { once: true });
    try {
      await receiver.tell(report(notification), cut.signal);
      this.#failures = 0;
      onNotified(receiver.name, 'ok');
      log.info(
        { alarm: notification.key, state: notification.state, receiver: receiver.name },
        'an alarm was told',
      );
      return true;
    } catch (error) {
      if (!hasCode(error, 'aborted')) this.#putOff(notification, error);
      return false;
    } finally {
      signal.removeEventListener('abort', onStop);
      over.abort();
    }
  }

  #putOff(notification: Notification, error: unknown): void {
    const { receiver, clock, log, onNotified } = this.#o;
    const retryInMs = backoffMs(this.#failures, RETRY_FIRST_MS, RETRY_LONGEST_MS);
    this.#failures += 1;
    this.#restUntilMonoMs = clock.monotonicMs() + retryInMs;
    onNotified(receiver.name, 'failed');
    const { message, hint } = asTillsyncError(error);
    this.#lastFailure = message;
    const fields = {
      alarm: notification.key,
      receiver: receiver.name,
      failures: this.#failures,
      retryInMs,
      hint,
    };
    log[this.#failures === 1 ? 'error' : 'debug'](fields, message);
  }

  /** Returns the stored memory; undefined while the database is busy, and an empty one if it is unreadable. */
  #read(): AlarmMemory | undefined {
    try {
      return this.#o.rows.memory(this.#o.receiver.name);
    } catch (error) {
      if (hasCode(error, 'storage-busy')) return undefined;
      this.#o.log.warn({ err: error }, 'what was told of alarms cannot be read; some may be told again');
      return NOTHING_SENT;
    }
  }

  #save(memory: AlarmMemory): void {
    const { receiver, rows, log } = this.#o;
    try {
      rows.remember(receiver.name, memory);
      this.#isSaved = true;
    } catch (error) {
      if (this.#isSaved && !hasCode(error, 'storage-busy')) {
        log.warn({ err: error }, 'what was told of alarms cannot be written yet');
      }
      this.#isSaved = false;
    }
  }
}
