import type Database from 'better-sqlite3';
import type { Alarms, FindingLevel } from '../core/alarm.ts';
import { hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { backoffMs, chunkMs, gracefulSignal, Waker, whenFree } from '../core/loop.ts';
import { type Clock, isoUtc, type Random } from '../core/time.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { DELIVERIES_KEPT, type Try } from './deliveries.ts';
import {
  type CursorKey,
  type HookMessage,
  type HookSettings,
  LAGS_AFTER_MS,
  LAGS_BADLY_AFTER_MS,
} from './hook.ts';
import {
  cursorOf,
  eventsFrom,
  type FoundEvent,
  feedsOf,
  type HookCursor,
  HookCursors,
  hookMessage,
  isWanted,
  laterOf,
  newestOf,
} from './hook-cursors.ts';
import type { HookRows } from './hook-rows.ts';
import {
  newestPreparation,
  type PreparationContext,
  Preparations,
  takeOverTold,
  toldBetween,
} from './prepared-orders.ts';
import type { HookAnswer, HookReceiver } from './receivers.ts';

export interface HookLoopOptions {
  hooks: readonly HookSettings[];
  receiverOf: (hook: HookSettings) => HookReceiver;
  mirror: Pick<Mirror, 'read' | 'write'>;
  /** Time zone of the shop, and its branches. */
  place: Omit<PreparationContext, 'nowMs'>;
  rows: HookRows;
  alarms: Alarms;
  /** Calls the listener when this process may have changed the feed. Returns a function that removes the listener. */
  onChange: (listener: () => void) => () => void;
  /** Returns the platform's clock minus this machine's; undefined if not known yet. */
  platformSkewMs: () => number | undefined;
  onTried: (hook: string, outcome: 'ok' | 'failed') => void;
  clock: Clock;
  random: Random;
  log: Log;
  beat: () => void;
  lookEveryMs?: number | undefined;
}

/** Interval at which the feed is read, because changes by other processes send no notification. */
const LOOK_EVERY_MS = 2_000;
const WATCH_EVERY_MS = 1_000;
const LOOK_FOR_ALARM_MS = 60_000;
/** Pauses between tries. They are short, because the receiver is near and somebody may be repairing the printer. */
const RETRY_FIRST_MS = 2_000;
const RETRY_LONGEST_MS = 60_000;
/** Number of events read at once. Their orders are read one by one. */
const PAGE = 100;
/**
 * Interval at which the cursor is saved while many events wait. After a crash, events of this interval are sent twice.
 */
const NOTE_EVERY_MS = 250;
/**
 * Number of events without a delivery, such as those that the filter excludes, after which the cursor is saved. After a
 * failure the cursor is saved at once, which resets the count of failures.
 */
const PASSED_MAX = 1_000;
/**
 * Time after a start for which a scheduled order waits until this machine's clock was compared with the platform's.
 */
const CLOCK_AWAITED_MS = 60_000;
/** Time for which state.db remembers what was told of an order: as long as a poll may bring an order again. */
const TOLD_KEPT_MS = 366 * 24 * 3_600_000;

/**
 * Sends each hook its events until the signal, and raises an alarm for hooks that lag. A failing hook does not delay
 * others.
 */
export async function hookLoop(options: HookLoopOptions, signal: AbortSignal): Promise<void> {
  const { hooks, rows, clock, alarms, beat } = options;
  const keys = hooks.flatMap((hook) => feedsOf(hook).map((event) => ({ name: hook.name, event })));
  const cursors = new HookCursors(options.mirror);
  await cursors.keepOnly(keys);
  await whenFree(clock, () => rows.keepOnly(keys), undefined, signal);
  const targets = hooks.map((hook) => ({ hook, receiver: oneByOne(options.receiverOf(hook)) }));
  const queues = targets.flatMap(({ hook, receiver }) =>
    feedsOf(hook).map((event) => new HookQueue(options, hook, event, receiver, cursors)),
  );
  const ended = Promise.all(queues.map((queue) => queue.run(signal)));
  let wasLagging = false;
  let lookDueMs = 0;
  while (!signal.aborted) {
    beat();
    const lagging = queues.flatMap((queue) => queue.lag() ?? []);
    const level = lagging.some((each) => each.level === 'red') ? 'red' : 'amber';
    const isLagging = lagging.length > 0;
    // An earlier process or a restored mirror may have left an alarm that is over, so the alarm is also noted while no
    // hook lags. That happens once a minute only, because it reads the alarms, which is slow here.
    if (isLagging || wasLagging || clock.monotonicMs() >= lookDueMs) {
      alarms.note('hooks.lagging', lagging.map(({ message }) => message).join(' ') || null, level);
      lookDueMs = clock.monotonicMs() + LOOK_FOR_ALARM_MS;
    }
    wasLagging = isLagging;
    await clock.sleep(hooks.length > 0 ? WATCH_EVERY_MS : chunkMs(clock), signal);
  }
  await ended;
  for (const { receiver } of targets) receiver.close();
}

/** Wraps a receiver so that it gets one event at a time, even if several feeds have events for it. */
function oneByOne(receiver: HookReceiver): HookReceiver {
  let before: Promise<unknown> = Promise.resolve();
  return {
    send(event, signal) {
      const sent = before.then(() => receiver.send(event, signal));
      before = sent.catch(() => {});
      return sent;
    },
    close: () => receiver.close(),
  };
}

/** Delivers the events of one feed to one hook, one after the other. */
class HookQueue {
  readonly #o: HookLoopOptions;
  readonly #hook: HookSettings;
  readonly #key: CursorKey;
  readonly #receiver: HookReceiver;
  readonly #cursors: HookCursors;
  readonly #waker: Waker;
  readonly #startMs: number;
  readonly #startMonoMs: number;
  /** Seq of the newest event at the start of this process. */
  #startSeq: number | undefined;
  /** Seq up to which all events were delivered or skipped, perhaps not saved yet. */
  #seq = 0;
  /** Seq that the saved cursor had when it was last read. */
  #notedSeq = 0;
  /** How often the cursor had been moved back when `#seq` was read; undefined before the first read. */
  #rewinds: number | undefined;
  /** The newest deliveries that are not saved yet, at most `DELIVERIES_KEPT`. */
  #unnoted: Try[] = [];
  #isBegunNoted = false;
  /** When the newest unsaved event was delivered; null if all are saved. */
  #unnotedOkAt: string | null = null;
  #noteDueMonoMs = 0;
  /** The next event to send, and the time since which it waits. */
  #current: { seq: number; sinceMs: number } | undefined;
  /** Number of failures in a row, and the message of the last one. */
  #failures = 0;
  #lastFailure: string | undefined;
  /** Decides the events of preparations; undefined in other feeds. */
  readonly #preparations: Preparations | undefined;
  /** The highest number of a preparation in state.db; undefined before the first look. */
  #memorySeq: number | undefined;

  constructor(
    options: HookLoopOptions,
    hook: HookSettings,
    event: CursorKey['event'],
    receiver: HookReceiver,
    cursors: HookCursors,
  ) {
    this.#o = options;
    this.#hook = hook;
    this.#key = { name: hook.name, event };
    this.#receiver = receiver;
    this.#cursors = cursors;
    this.#preparations = event === 'order.prepare' ? new Preparations(options.mirror, hook) : undefined;
    this.#waker = new Waker(options.clock);
    this.#startMs = options.clock.nowMs();
    this.#startMonoMs = options.clock.monotonicMs();
  }

  async run(signal: AbortSignal): Promise<void> {
    const unsubscribe = this.#o.onChange(() => this.#waker.wake());
    try {
      while (!signal.aborted) await this.#turn(signal);
      // Events that the filter excluded are saved as passed, because the hook may have another filter at the next start.
      if (this.#unnotedOkAt !== null || this.#seq > this.#notedSeq) await this.#note();
      await this.#preparations?.note();
    } catch (error) {
      this.#tellOfStorage(error);
    } finally {
      unsubscribe();
    }
  }

  /** Returns level and message if the hook lags; otherwise undefined. */
  lag(): { level: FindingLevel; message: string } | undefined {
    if (!this.#current) return undefined;
    const { seq, sinceMs } = this.#current;
    const waitedMs = this.#o.clock.nowMs() - sinceMs;
    if (waitedMs < LAGS_AFTER_MS) return undefined;
    const level = waitedMs < LAGS_BADLY_AFTER_MS ? 'amber' : 'red';
    const last = this.#lastFailure;
    const why = last === undefined ? 'It takes events, and too slowly.' : `Last failure: "${last}".`;
    const { name, event } = this.#key;
    const waits =
      event === 'change.rejected'
        ? `The hook ${name} has not taken rejected change ${seq}, which waits since ${isoUtc(sinceMs)}.`
        : `The hook ${name} has not taken event ${seq}, which waits since ${isoUtc(sinceMs)}.`;
    const message = `${waits} ${why}`;
    return { level, message };
  }

  async #turn(signal: AbortSignal): Promise<void> {
    const { clock, lookEveryMs = LOOK_EVERY_MS } = this.#o;
    try {
      if (!(await this.#takeAll(signal))) return;
      await this.#waker.rest(lookEveryMs, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#tellOfStorage(error);
      await clock.sleep(LOOK_EVERY_MS, signal);
    }
  }

  /**
   * Sends all waiting events. Returns false if it was stopped, paused after a failure, or the cursor was moved back.
   */
  async #takeAll(signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#o;
    const cursor = await this.#cursor(signal);
    if (!cursor) return true;
    const wasRewound = cursor.rewinds !== this.#rewinds;
    this.#seq = wasRewound ? cursor.seq : Math.max(this.#seq, cursor.seq);
    this.#notedSeq = cursor.seq;
    this.#rewinds = cursor.rewinds;
    this.#failures = cursor.failures;
    for (let isMore = true; isMore; ) {
      const look = () => this.#read((db) => eventsFrom(db, this.#key, this.#seq, PAGE), signal);
      let events = await look();
      if (events.length === 0 && (await this.#decideNext(cursor))) events = await look();
      for (const event of events) {
        if (signal.aborted) return false;
        if (isWanted(event, this.#hook, cursor.newsFrom)) {
          const now = await this.#read((db) => cursorOf(db, this.#key), signal);
          if (now !== undefined && now.rewinds !== this.#rewinds) {
            if (this.#unnotedOkAt !== null) await this.#note();
            return false;
          }
          const isPassed = now !== undefined && now.seq >= event.seq;
          if (!isPassed) {
            const waitsSince = laterOf(event.observedAt, cursor.rewoundAt);
            const sinceMs = Math.max(Date.parse(waitsSince) || 0, Date.parse(cursor.beganAt), this.#startMs);
            this.#current = { seq: event.seq, sinceMs };
            if (!(await this.#send(event, signal))) return false;
          }
        }
        this.#seq = event.seq;
        if (this.#unnotedOkAt !== null && clock.monotonicMs() >= this.#noteDueMonoMs) await this.#note();
      }
      isMore = events.length === PAGE || (this.#preparations !== undefined && events.length > 0);
    }
    this.#current = undefined;
    const isPast = this.#seq - cursor.seq >= PASSED_MAX || (this.#seq > cursor.seq && cursor.failures > 0);
    if (this.#unnotedOkAt !== null || isPast) await this.#note();
    return true;
  }

  /** Decides and stores the next event of a preparation. Returns false if there is none, and in other feeds. */
  async #decideNext(cursor: HookCursor): Promise<boolean> {
    const { clock, place } = this.#o;
    if (this.#preparations === undefined) return false;
    const context = { ...place, nowMs: this.#trustedNowMs() };
    return this.#preparations.decideNext(cursor, context, isoUtc(clock.nowMs()));
  }

  /** Returns the present time by the platform's clock; undefined while this machine's clock may be years off. */
  #trustedNowMs(): number | undefined {
    const { clock, platformSkewMs } = this.#o;
    const skewMs = platformSkewMs();
    if (skewMs !== undefined) return clock.nowMs() + skewMs;
    const isAwaited = clock.monotonicMs() - this.#startMonoMs < CLOCK_AWAITED_MS;
    return isAwaited ? undefined : clock.nowMs();
  }

  #read<T>(look: (db: Database.Database) => T, signal: AbortSignal): Promise<T> {
    const { clock, mirror } = this.#o;
    return whenFree(clock, () => mirror.read(look), undefined, signal);
  }

  /**
   * Returns the cursor. A missing one is created only once the platform's clock is known, and is undefined until then,
   * because this machine's clock may be years behind after a power cut.
   */
  async #cursor(signal: AbortSignal): Promise<HookCursor | undefined> {
    const { rows, clock, platformSkewMs } = this.#o;
    const { from } = this.#hook;
    const key = this.#key;
    const began = this.#preparations ? { ...key, event: 'order' as const } : key;
    this.#startSeq ??= await this.#read((db) => newestOf(db, began), signal);
    let cursor = await this.#read((db) => cursorOf(db, key), signal);
    // Only orders have times of the platform's clock.
    const skewMs = key.event === 'change.rejected' ? 0 : platformSkewMs();
    if (cursor && (await this.#takeOver(signal)))
      cursor = await this.#read((db) => cursorOf(db, key), signal);
    if (skewMs === undefined) return cursor;
    const nowMs = clock.nowMs() + skewMs;
    const now = isoUtc(nowMs);
    if (!cursor) {
      const begun = await whenFree(clock, () => rows.begun(key), undefined, signal);
      const at = isoUtc(nowMs - (clock.monotonicMs() - this.#startMonoMs));
      const beginning = { ...key, begun, from, at, seq: this.#startSeq };
      const context = { ...this.#o.place, nowMs };
      const preparing = this.#preparations && { hook: this.#hook, context };
      cursor = await this.#cursors.begin(beginning, preparing);
      if (await this.#takeOver(signal))
        cursor = (await this.#read((db) => cursorOf(db, key), signal)) ?? cursor;
      this.#seq = 0;
      this.#isBegunNoted = false;
    }
    const { newsFrom } = cursor;
    // A clock that was ahead recorded `newsFrom`. Uncorrected, new orders would long seem to be older than the hook.
    if (newsFrom !== null && newsFrom > now) {
      await this.#cursors.newsFrom(key, now);
      return { ...cursor, newsFrom: now };
    }
    if (!this.#isBegunNoted) {
      await whenFree(clock, () => rows.noteBegun(key, { newsFrom }), undefined, signal);
      this.#isBegunNoted = true;
    }
    return cursor;
  }

  /**
   * Takes over from state.db what this hook was told of preparations, if the mirror is new or an older copy. Returns
   * whether the cursor may have changed.
   */
  async #takeOver(signal: AbortSignal): Promise<boolean> {
    if (this.#preparations === undefined || this.#memorySeq !== undefined) return false;
    const { rows, clock, mirror } = this.#o;
    const { name } = this.#key;
    const newest = await whenFree(clock, () => rows.newestTold(name), undefined, signal);
    const isBehind = (await this.#read((db) => newestPreparation(db, name), signal)) < newest;
    if (isBehind) {
      const memory = await whenFree(clock, () => rows.told(name), undefined, signal);
      await mirror.write((db) => takeOverTold(db, name, memory));
    }
    this.#memorySeq = newest;
    return isBehind;
  }

  /**
   * Sends one event. Returns true if it was delivered, or is a change that is not rejected any more. After a failure,
   * records the failure and pauses.
   */
  async #send(event: FoundEvent, signal: AbortSignal): Promise<boolean> {
    const { clock, log, onTried } = this.#o;
    const { name } = this.#hook;
    const sent = await this.#read((db) => hookMessage(db, event, this.#o.place.timezone), signal);
    if (!sent) return true;
    const patience = gracefulSignal(signal, clock);
    // A call to a hook does not wait for a rate limit, so it is sent at once and gets time to end when tillsync stops.
    patience.onSend();
    let answer: HookAnswer;
    try {
      answer = await this.#receiver.send(sent, patience.signal);
    } catch (error) {
      if (hasCode(error, 'aborted')) return false;
      throw error;
    } finally {
      patience.end();
    }
    onTried(name, answer.ok ? 'ok' : 'failed');
    if (!answer.ok) {
      await this.#failed(sent, answer, signal);
      return false;
    }
    if (answer.text !== '' && this.#hook.url === '') {
      const fields = { hook: name, kind: this.#key.event, event: event.seq, said: answer.text };
      log.info(fields, 'a hook took an event and said something');
    }
    if (this.#lastFailure !== undefined) {
      const fields = { hook: name, kind: this.#key.event, event: event.seq };
      log.info(fields, 'a hook takes events again');
    }
    this.#lastFailure = undefined;
    this.#failures = 0;
    // Paper cannot tell a repetition, so the cursor of preparations is saved after each event.
    const noteInMs = this.#preparations ? 0 : NOTE_EVERY_MS;
    if (this.#unnotedOkAt === null) this.#noteDueMonoMs = clock.monotonicMs() + noteInMs;
    this.#unnotedOkAt = isoUtc(clock.nowMs());
    this.#unnoted.push({ ...tryOf(sent), at: this.#unnotedOkAt, taken: true, answer: answer.what });
    if (this.#unnoted.length > DELIVERIES_KEPT) this.#unnoted.shift();
    return true;
  }

  async #note(): Promise<void> {
    const moved = {
      seq: this.#seq,
      okAt: this.#unnotedOkAt,
      rewinds: this.#rewinds ?? 0,
      deliveries: this.#unnoted,
    };
    await this.#cursors.moved(this.#key, moved);
    if (this.#memorySeq !== undefined) await this.#noteTold(this.#memorySeq, moved.seq);
    this.#notedSeq = moved.seq;
    this.#unnotedOkAt = null;
    this.#unnoted = [];
  }

  /** Records in state.db what was told of preparations with numbers above `after` and up to `seq`. */
  async #noteTold(after: number, seq: number): Promise<void> {
    const { rows, clock, mirror } = this.#o;
    const { name } = this.#key;
    const told = mirror.read((db) => toldBetween(db, name, after, seq));
    if (told.length === 0) return;
    const nowMs = clock.nowMs();
    await whenFree(clock, () => rows.noteTold(name, told, { nowMs, before: nowMs - TOLD_KEPT_MS }));
    this.#memorySeq = Math.max(after, seq);
  }

  /** Records a failure, and pauses until the next try or until somebody skips the event. */
  async #failed(
    sent: HookMessage,
    { what, text, retryAfterMs }: HookAnswer,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, random, log, lookEveryMs = LOOK_EVERY_MS } = this.#o;
    const { seq } = sent;
    const { name, event: kind } = this.#key;
    if (this.#unnotedOkAt !== null) await this.#note();
    const message = text === '' ? what : `${what}: ${text}`;
    const jitteredMs =
      backoffMs(this.#failures, RETRY_FIRST_MS, RETRY_LONGEST_MS) * (0.5 + random.next() / 2);
    const restMs = Math.max(jitteredMs, retryAfterMs ?? 0);
    this.#failures += 1;
    const retryInMs = Math.round(restMs);
    const fields = { hook: name, kind, event: seq, why: message, failures: this.#failures, retryInMs };
    log[this.#lastFailure === undefined ? 'warn' : 'debug'](fields, 'a hook did not take an event');
    this.#lastFailure = message;
    const nowMs = clock.nowMs();
    const nextTryAt = isoUtc(nowMs + restMs);
    const failed = { ...tryOf(sent), at: isoUtc(nowMs), taken: false, answer: message };
    await this.#cursors.failed(this.#key, failed, nextTryAt);
    const endMs = clock.monotonicMs() + restMs;
    for (let leftMs = restMs; leftMs > 0 && !signal.aborted; leftMs = endMs - clock.monotonicMs()) {
      await clock.sleep(Math.min(leftMs, lookEveryMs), signal);
      const cursor = await this.#read((db) => cursorOf(db, this.#key), signal);
      if (!cursor || cursor.seq >= seq || cursor.rewinds !== this.#rewinds) return;
    }
  }

  /** Logs that the cursor could not be saved. A failing disk has an alarm of its own. */
  #tellOfStorage(error: unknown): void {
    this.#o.log.debug({ hook: this.#hook.name, err: error }, 'the cursor of a hook cannot be noted now');
  }
}

function tryOf(sent: HookMessage): Pick<Try, 'seq' | 'changeId'> {
  return { seq: sent.seq, changeId: 'change' in sent ? sent.change.changeId : null };
}
