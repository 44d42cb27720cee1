import { hostname } from 'node:os';
import type { Alarms } from '../core/alarm.ts';
import { asTillsyncError, asTyped, hasCode, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { backoffMs } from '../core/loop.ts';
import { type Clock, formatDuration, isoUtc } from '../core/time.ts';
import {
  type AlarmJudge,
  type AlarmMemory,
  type AlarmMemoryStore,
  type AlarmNews,
  type AlarmUp,
  afterTelling,
  type Moment,
  NOTHING_TOLD,
} from './alarm-news.ts';
import { type DiskSpace, diskVerdict } from './disk-space.ts';
import { FINDING_SENTENCES, type FindingLevel } from './finding.ts';

/** One message as a program receives it. Names stay; more may come. */
export interface AlarmReport {
  state: AlarmNews['state'] | 'test';
  /** The code that the status page and `tillsync doctor` use; `alarms.daily-max`, `alarms.test`. */
  key: string;
  level: FindingLevel;
  /** What is wrong, one sentence. */
  message: string;
  /** The words of the part that noticed it. */
  detail: string | null;
  /** What to do about it; null once it is over. */
  remedy: string | null;
  /** ISO 8601 UTC. */
  since: string | null;
  at: string;
  /** `alarms.name`, or the name of the machine. */
  shop: string;
  host: string;
  /** Of tillsync. */
  version: string;
  /** All of it as one text, as chat services take it. */
  text: string;
}

export interface ReportContext {
  shop: string;
  dailyMax: number;
  version: string;
  nowMs: number;
}

export function alarmReport(news: AlarmNews, context: ReportContext): AlarmReport {
  const { state, key, level, detail, since } = news;
  const words =
    key === 'alarms.daily-max'
      ? {
          message: `Alarms were told ${context.dailyMax} times today; what is still wrong tomorrow is told then.`,
          remedy: 'See how things stand with: {tillsync} status',
        }
      : FINDING_SENTENCES[key];
  const message = words.message.replace(': {count}', '');
  const remedy = state === 'healed' ? null : asTyped(words.remedy);
  return complete({ state, key, level, message, detail, remedy, since }, context);
}

/** What `tillsync alarms test` sends. */
export function testReport(context: ReportContext): AlarmReport {
  const message = 'This is a test: alarms of tillsync arrive here.';
  return complete(
    { state: 'test', key: 'alarms.test', level: 'amber', message, detail: null, remedy: null, since: null },
    context,
  );
}

type Told = Omit<AlarmReport, 'at' | 'shop' | 'host' | 'version' | 'text'>;

function complete(told: Told, { shop, version, nowMs }: ReportContext): AlarmReport {
  const host = hostname();
  const at = isoUtc(nowMs);
  return { ...told, at, shop, host, version, text: textOf(told, shop) };
}

const MARKS: Record<AlarmReport['state'], (level: FindingLevel) => string> = {
  raised: (level) => (level === 'red' ? 'RED' : 'AMBER'),
  reminder: (level) => (level === 'red' ? 'STILL RED' : 'STILL AMBER'),
  healed: () => 'OVER',
  muted: () => 'NO MORE TODAY',
  test: () => 'TEST',
};

function textOf({ state, key, level, message, detail, remedy, since }: Told, shop: string): string {
  const place = since === null ? key : `${key}, since ${since}`;
  // Words that name a command say what to do themselves.
  const more = (detail?.includes('tillsync ') ? [detail] : [detail, remedy]).filter(Boolean).join(' ');
  const what = state === 'healed' ? `It is over: ${message}` : message;
  return `[${MARKS[state](level)}] ${shop}: ${what}${more === '' ? '' : ` ${more}`} (${place})`;
}

/** Who is told of alarms. */
export interface AlarmReceiver {
  name: 'command' | 'url';
  /** For people; never the address itself, which may hold a secret. */
  description: string;
  /** Tells once, within the configured time. Throws a TillsyncError when it did not arrive. */
  tell(report: AlarmReport, signal: AbortSignal): Promise<void>;
}

export interface AlarmsUpOptions {
  /** May throw `storage-…`. */
  stored: () => readonly AlarmUp[];
  clock: Clock;
}

/**
 * The alarms that are up, as the mirror has them. Where it can no longer be read, that is an alarm itself, beside
 * those that were up before: none of them is over for that.
 */
export class AlarmsUp {
  readonly #options: AlarmsUpOptions;
  #last: readonly AlarmUp[] = [];
  #failingSince: string | undefined;

  constructor(options: AlarmsUpOptions) {
    this.#options = options;
  }

  /** Throws `storage-busy` alone, and then says nothing of any alarm. */
  read(): readonly AlarmUp[] {
    const { stored, clock } = this.#options;
    try {
      this.#last = stored();
      this.#failingSince = undefined;
      return this.#last;
    } catch (error) {
      if (hasCode(error, 'storage-busy')) throw error;
      this.#failingSince ??= isoUtc(clock.nowMs());
      const others = this.#last.filter(({ key }) => key !== 'storage.failing');
      const message = `The mirror cannot be read: ${asTillsyncError(error).message}`;
      return [...others, { key: 'storage.failing', message, raisedAt: this.#failingSince }];
    }
  }
}

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
    const restMs = backoffMs(this.#failures, RETRY_FIRST_MS, RETRY_LONGEST_MS);
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

export interface StandingWatchOptions {
  alarms: Alarms;
  /** Of the storage directory; null where the system does not tell. */
  disk: () => DiskSpace | null;
  /** Whether no tokens were ever handed in. May throw `storage-…`. */
  hasNoTokens: () => boolean;
  /** Platform's wall clock minus ours; undefined: not known. */
  clockSkewMs: () => number | undefined;
  /** Of which companies the orders are; undefined: none says. May throw `storage-…`. */
  orderCompanies: () => { oldest: string; newest: string } | undefined;
  /** How often it looks; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  clock: Clock;
  log: Log;
  beat: () => void;
}

const LOOK_EVERY_MS = 15_000;
/** A disk counts as well again only with a tenth more room than the mark, so that it does not flap around it. */
const ROOM_TO_HEAL = 0.9;

/** From here on a clock is not right, and from there on it is wrong: orders are looked for on other days. */
const CLOCK_OFF_MS = 5 * 60_000;
const CLOCK_WRONG_MS = 12 * 3_600_000;

/** Raises and lowers the alarms that no flow notices by itself: room on the disk, the clock, tokens that never came. */
export async function standingWatch(options: StandingWatchOptions, signal: AbortSignal): Promise<void> {
  const { lookEveryMs = LOOK_EVERY_MS, clock, log, beat } = options;
  while (!signal.aborted) {
    beat();
    lookAtDisk(options);
    lookAtClock(options);
    try {
      lookAtTokens(options);
      lookAtCompany(options);
    } catch (error) {
      log.debug({ err: error }, 'the tokens cannot be looked at now');
    }
    await clock.sleep(lookEveryMs, signal);
  }
}

function lookAtDisk({ alarms, disk }: StandingWatchOptions): void {
  const space = disk();
  if (space === null) return;
  const { code, message } = diskVerdict(space);
  const nearly = diskVerdict({ ...space, freeBytes: space.freeBytes * ROOM_TO_HEAL }).code;
  if (code !== null) alarms.raise(code, message);
  if (nearly !== 'storage.full') alarms.lower('storage.full');
  // Nearly full is not over when the disk is full.
  if (nearly === null) alarms.lower('storage.low');
}

function lookAtClock({ alarms, clockSkewMs }: StandingWatchOptions): void {
  const skewMs = clockSkewMs();
  if (skewMs === undefined) return;
  const offMs = Math.abs(skewMs);
  const code = offMs > CLOCK_WRONG_MS ? 'clock.wrong' : offMs > CLOCK_OFF_MS ? 'clock.off' : null;
  // In whole minutes, so that the words stay the same from one look to the next.
  const off = formatDuration(Math.round(offMs / 60_000) * 60_000);
  if (code) alarms.raise(code, `It is ${off} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's clock.`);
  for (const other of ['clock.wrong', 'clock.off'] as const) if (other !== code) alarms.lower(other);
}

function lookAtCompany({ alarms, orderCompanies }: StandingWatchOptions): void {
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

function lookAtTokens({ alarms, hasNoTokens }: StandingWatchOptions): void {
  if (hasNoTokens()) {
    alarms.raise('auth.none', 'No tokens were handed over yet. Hand them over with: {tillsync} auth set');
  } else {
    alarms.lower('auth.none');
  }
}
