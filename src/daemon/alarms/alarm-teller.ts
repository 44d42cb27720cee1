import { whenFree } from '../../domain/busy.ts';
import { asTillsyncError, hasCode } from '../../domain/errors.ts';
import {
  type AlarmJudge,
  type AlarmMemory,
  type AlarmMemoryStore,
  type AlarmNews,
  type AlarmUp,
  afterTelling,
  type Moment,
  NOTHING_TOLD,
} from '../../domain/health/alarm-news.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { AlarmReceiver } from './alarm-receiver.ts';
import type { AlarmReport } from './alarm-report.ts';

export interface AlarmTellerOptions {
  receiver: AlarmReceiver;
  judge: AlarmJudge;
  /** Alarms that are up, those raised by other processes included. May throw `storage-…`. */
  alarmsUp: () => readonly AlarmUp[];
  memory: AlarmMemoryStore;
  report: (news: AlarmNews) => AlarmReport;
  /** Calendar day of the shop. */
  dayOf: (nowMs: number) => string;
  onTold?: (receiver: string, outcome: 'ok' | 'failed') => void;
  clock: Clock;
  log: Log;
  beat: () => void;
  lookEveryMs: number;
}

const RETRY_FIRST_MS = 10_000;
const RETRY_LONGEST_MS = 600_000;
/** What is being told when tillsync stops may still end. */
const STOP_GRACE_MS = 3_000;

/** Tells one receiver of alarms. Where the disk refuses to keep what was told, this process remembers it. */
export class AlarmTeller {
  readonly #o: AlarmTellerOptions;
  #memory: AlarmMemory = NOTHING_TOLD;
  #isSaved = true;
  #failures = 0;
  #restUntilMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: AlarmTellerOptions) {
    this.#o = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { receiver, memory, clock, log, beat, lookEveryMs } = this.#o;
    try {
      this.#memory = await whenFree(clock, () => memory.read(receiver.name), undefined, signal);
    } catch (error) {
      if (signal.aborted) return;
      log.warn({ err: error }, 'what was told of alarms cannot be read; some may be told again');
    }
    while (!signal.aborted) {
      beat();
      if (!this.#isSaved) this.#save();
      await this.#look(signal);
      await clock.sleep(lookEveryMs, signal);
    }
  }

  /** Tells everything that is to be told now, one after the other. */
  async #look(signal: AbortSignal): Promise<void> {
    const { judge, alarmsUp, clock, dayOf, log } = this.#o;
    let up: readonly AlarmUp[];
    try {
      up = alarmsUp();
    } catch (error) {
      log.debug({ err: error }, 'the alarms cannot be read now');
      return;
    }
    judge.look(up, this.#memory, clock.monotonicMs());
    while (!signal.aborted && clock.monotonicMs() >= this.#restUntilMonoMs) {
      const nowMs = clock.nowMs();
      const at: Moment = { nowMs, monotonicMs: clock.monotonicMs(), day: dayOf(nowMs) };
      const news = judge.next(this.#memory, at);
      if (!news || !(await this.#tell(news, signal))) return;
      this.#memory = afterTelling(this.#memory, news, at);
      this.#save();
    }
  }

  async #tell(news: AlarmNews, signal: AbortSignal): Promise<boolean> {
    const { receiver, report, clock, log, onTold } = this.#o;
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
      onTold?.(receiver.name, 'ok');
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
    const { receiver, clock, log, onTold } = this.#o;
    const restMs = Math.min(RETRY_FIRST_MS * 2 ** this.#failures, RETRY_LONGEST_MS);
    this.#failures += 1;
    this.#restUntilMonoMs = clock.monotonicMs() + restMs;
    onTold?.(receiver.name, 'failed');
    const { message, hint } = asTillsyncError(error);
    const fields = {
      alarm: news.key,
      receiver: receiver.name,
      failures: this.#failures,
      retryInMs: restMs,
      hint,
    };
    log[this.#failures === 1 ? 'error' : 'debug'](fields, message);
  }

  #save(): void {
    const { receiver, memory, log } = this.#o;
    try {
      memory.write(receiver.name, this.#memory);
      this.#isSaved = true;
    } catch (error) {
      if (this.#isSaved && !hasCode(error, 'storage-busy')) {
        log.warn({ err: error }, 'what was told of alarms cannot be written yet');
      }
      this.#isSaved = false;
    }
  }
}
