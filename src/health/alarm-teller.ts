import type { Alarms } from '../core/alarm.ts';
import { asTillsyncError, hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { backoffMs } from '../core/loop.ts';
import { type Clock, formatDuration, isoUtc } from '../core/time.ts';
import {
  AlarmJudge,
  type AlarmMemory,
  type AlarmNews,
  type AlarmRows,
  type AlarmRules,
  type AlarmUp,
  afterTelling,
  NOTHING_TOLD,
  type ReceiverName,
} from './alarm-news.ts';
import type { AlarmReceiver, AlarmReport } from './alarm-receivers.ts';
import { type DiskSpace, diskVerdict } from './disk-space.ts';

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

export interface AlarmTellerOptions {
  receiver: AlarmReceiver;
  rules: AlarmRules;
  rows: Pick<AlarmRows, 'memory' | 'remember'>;
  report: (news: AlarmNews) => AlarmReport;
  /** Calendar day of the shop. */
  dayOf: (nowMs: number) => string;
  onTold: (receiver: ReceiverName, outcome: 'ok' | 'failed') => void;
  clock: Clock;
  log: Log;
}

const RETRY_FIRST_MS = 10_000;
const RETRY_LONGEST_MS = 600_000;
/** What is being told when tillsync stops may still end. */
const STOP_GRACE_MS = 3_000;

/** Tells one receiver of alarms. Where the disk refuses to keep what was told, this process remembers it. */
export class AlarmTeller {
  readonly #o: AlarmTellerOptions;
  readonly #judge: AlarmJudge;
  #memory: AlarmMemory | undefined;
  #isSaved = true;
  #failures = 0;
  #restUntilMonoMs = Number.NEGATIVE_INFINITY;
  #telling: Promise<void> | undefined;

  constructor(options: AlarmTellerOptions) {
    this.#o = options;
    this.#judge = new AlarmJudge(options.rules);
  }

  /** Tells everything that is to be told now, one after the other, unless it is still at what it was to tell before. */
  look(up: readonly AlarmUp[], signal: AbortSignal): void {
    this.#telling ??= this.#look(up, signal).finally(() => {
      this.#telling = undefined;
    });
  }

  /** Resolves once nothing is being told. */
  async ended(): Promise<void> {
    await this.#telling;
  }

  async #look(up: readonly AlarmUp[], signal: AbortSignal): Promise<void> {
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
      if (!news || !(await this.#tell(news, signal))) return;
      memory = afterTelling(memory, news, at);
      this.#memory = memory;
      this.#save(memory);
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
      onTold(receiver.name, 'ok');
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
    const retryInMs = backoffMs(this.#failures, RETRY_FIRST_MS, RETRY_LONGEST_MS);
    this.#failures += 1;
    this.#restUntilMonoMs = clock.monotonicMs() + retryInMs;
    onTold(receiver.name, 'failed');
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

/** What no flow notices by itself: room on the disk, the clock, tokens that never came, orders of another company. */
export interface AlarmFacts {
  alarms: Alarms;
  /** Of the storage directory; null where the system does not tell. */
  disk: () => DiskSpace | null;
  /** Whether no tokens were ever handed in. May throw `storage-…`. */
  hasNoTokens: () => boolean;
  /** Platform's wall clock minus ours; undefined: not known. */
  clockSkewMs: () => number | undefined;
  /** Of which companies the orders are; undefined: none says. May throw `storage-…`. */
  orderCompanies: () => { oldest: string; newest: string } | undefined;
}

/** Raises and lowers their alarms. Throws what the facts throw. */
export function lookAtFacts(facts: AlarmFacts): void {
  lookAtDisk(facts);
  lookAtClock(facts);
  lookAtTokens(facts);
  lookAtCompany(facts);
}

/** A disk counts as well again only with a tenth more room than the mark, so that it does not flap around it. */
const ROOM_TO_HEAL = 0.9;

/** From here on a clock is not right, and from there on it is wrong: orders are looked for on other days. */
const CLOCK_OFF_MS = 5 * 60_000;
const CLOCK_WRONG_MS = 12 * 3_600_000;

function lookAtDisk({ alarms, disk }: AlarmFacts): void {
  const space = disk();
  if (space === null) return;
  const { code, message } = diskVerdict(space);
  const nearly = diskVerdict({ ...space, freeBytes: space.freeBytes * ROOM_TO_HEAL }).code;
  if (code !== null) alarms.raise(code, message);
  if (nearly !== 'storage.full') alarms.lower('storage.full');
  // Nearly full is not over when the disk is full.
  if (nearly === null) alarms.lower('storage.low');
}

function lookAtClock({ alarms, clockSkewMs }: AlarmFacts): void {
  const skewMs = clockSkewMs();
  if (skewMs === undefined) return;
  const offMs = Math.abs(skewMs);
  const code = offMs > CLOCK_WRONG_MS ? 'clock.wrong' : offMs > CLOCK_OFF_MS ? 'clock.off' : null;
  // In whole minutes, so that the words stay the same from one look to the next.
  const off = formatDuration(Math.round(offMs / 60_000) * 60_000);
  if (code) alarms.raise(code, `It is ${off} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's clock.`);
  for (const other of ['clock.wrong', 'clock.off'] as const) if (other !== code) alarms.lower(other);
}

function lookAtCompany({ alarms, orderCompanies }: AlarmFacts): void {
  const companies = orderCompanies();
  if (companies === undefined || companies.oldest === companies.newest) alarms.lower('auth.other-company');
  else {
    const { oldest, newest } = companies;
    alarms.raise(
      'auth.other-company',
      `The orders were of company ${oldest}, and the newest is of ${newest}.`,
    );
  }
}

function lookAtTokens({ alarms, hasNoTokens }: AlarmFacts): void {
  if (hasNoTokens()) {
    alarms.raise('auth.none', 'No tokens were handed over yet. Hand them over with: {tillsync} auth set');
  } else {
    alarms.lower('auth.none');
  }
}
