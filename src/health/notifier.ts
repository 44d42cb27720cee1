import type { AlarmUp } from '../core/alarm.ts';
import { asTillsyncError, hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { backoffMs } from '../core/loop.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import {
  AlarmJudge,
  type AlarmMemory,
  type AlarmNews,
  type AlarmRows,
  type AlarmRules,
  afterTelling,
  NOTHING_TOLD,
  type ReceiverName,
} from './alarm-news.ts';
import type { AlarmReceiver, AlarmReport } from './alarm-receivers.ts';

/**
 * The alarms that are up, as the mirror has them. Where it can no longer be read, that is an alarm itself, beside
 * those that were up before: none of them is over for that.
 */
export class AlarmsUp {
  readonly #stored: () => readonly AlarmUp[];
  readonly #clock: Clock;
  #last: readonly AlarmUp[] = [];
  #failingSince: string | undefined;

  /** `stored` may throw `storage-…`. */
  constructor(stored: () => readonly AlarmUp[], clock: Clock) {
    this.#stored = stored;
    this.#clock = clock;
  }

  /** Throws `storage-busy` alone, and then says nothing of any alarm. */
  read(): readonly AlarmUp[] {
    try {
      this.#last = this.#stored();
      this.#failingSince = undefined;
      return this.#last;
    } catch (error) {
      if (hasCode(error, 'storage-busy')) throw error;
      this.#failingSince ??= isoUtc(this.#clock.nowMs());
      const others = this.#last.filter(({ key }) => key !== 'storage.failing');
      const message = `The mirror cannot be read: ${asTillsyncError(error).message}`;
      return [...others, { key: 'storage.failing', message, raisedAt: this.#failingSince }];
    }
  }
}

export interface NotifierOptions {
  receiver: AlarmReceiver;
  rules: AlarmRules;
  rows: Pick<AlarmRows, 'memory' | 'remember'>;
  report: (news: AlarmNews) => AlarmReport;
  /** Calendar day of the shop. */
  dayOf: (nowMs: number) => string;
  onNotified: (receiver: ReceiverName, outcome: 'ok' | 'failed') => void;
  clock: Clock;
  log: Log;
}

const RETRY_FIRST_MS = 10_000;
const RETRY_LONGEST_MS = 600_000;
/** What is being told when tillsync stops may still end. */
const STOP_GRACE_MS = 3_000;

/** Tells one receiver of alarms. Where the disk refuses to keep what was told, this process remembers it. */
export class Notifier {
  readonly #o: NotifierOptions;
  readonly #judge: AlarmJudge;
  #memory: AlarmMemory | undefined;
  #isSaved = true;
  #failures = 0;
  #restUntilMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: NotifierOptions) {
    this.#o = options;
    this.#judge = new AlarmJudge(options.rules);
  }

  /** Tells everything that is to be told now, one after the other; `beat` with each. */
  async look(up: readonly AlarmUp[], signal: AbortSignal, beat: () => void = () => {}): Promise<void> {
    const { clock, dayOf } = this.#o;
    let memory = this.#memory ?? this.#read();
    if (memory === undefined) return;
    this.#memory = memory;
    if (!this.#isSaved) this.#save(memory);
    this.#judge.look(up, memory, clock.monotonicMs());
    while (!signal.aborted && clock.monotonicMs() >= this.#restUntilMonoMs) {
      const nowMs = clock.nowMs();
      const at = { nowMs, monotonicMs: clock.monotonicMs(), day: dayOf(nowMs) };
      const news = this.#judge.next(memory, at);
      if (!news) return;
      beat();
      if (!(await this.#tell(news, signal))) return;
      memory = afterTelling(memory, news, at);
      this.#memory = memory;
      this.#save(memory);
    }
  }

  async #tell(news: AlarmNews, signal: AbortSignal): Promise<boolean> {
    const { receiver, report, clock, log, onNotified } = this.#o;
    const over = new AbortController();
    const cut = new AbortController();
    const onStop = () =>
      void clock.sleep(STOP_GRACE_MS, over.signal).then(() => {
        if (!over.signal.aborted) cut.abort();
      });
    signal.addEventListener('abort', onStop, { once: true });
    try {
      await receiver.tell(report(news), cut.signal);
      this.#failures = 0;
      onNotified(receiver.name, 'ok');
      log.info({ alarm: news.key, state: news.state, receiver: receiver.name }, 'an alarm was told');
      return true;
    } catch (error) {
      if (!hasCode(error, 'aborted')) this.#putOff(news, error);
      return false;
    } finally {
      signal.removeEventListener('abort', onStop);
      over.abort();
    }
  }

  #putOff(news: AlarmNews, error: unknown): void {
    const { receiver, clock, log, onNotified } = this.#o;
    const retryInMs = backoffMs(this.#failures, RETRY_FIRST_MS, RETRY_LONGEST_MS);
    this.#failures += 1;
    this.#restUntilMonoMs = clock.monotonicMs() + retryInMs;
    onNotified(receiver.name, 'failed');
    const { message, hint } = asTillsyncError(error);
    const fields = { alarm: news.key, receiver: receiver.name, failures: this.#failures, retryInMs, hint };
    log[this.#failures === 1 ? 'error' : 'debug'](fields, message);
  }

  /** undefined: not now. */
  #read(): AlarmMemory | undefined {
    try {
      return this.#o.rows.memory(this.#o.receiver.name);
    } catch (error) {
      if (hasCode(error, 'storage-busy')) return undefined;
      this.#o.log.warn({ err: error }, 'what was told of alarms cannot be read; some may be told again');
      return NOTHING_TOLD;
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
