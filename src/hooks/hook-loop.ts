import type Database from 'better-sqlite3';
import type { Alarms, FindingLevel } from '../core/alarm.ts';
import { hasCode, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { backoffMs, patientSignal, pieceMs, Waker } from '../core/loop.ts';
import { type Clock, isoUtc, type Random } from '../core/time.ts';
import type { Mirror } from '../orders/mirror.ts';
import { newestSeq } from '../orders/mirror-file.ts';
import { type HookSettings, LAGS_AFTER_MS, LAGS_BADLY_AFTER_MS } from './hook.ts';
import {
  eventsFrom,
  type FoundEvent,
  type HookPlace,
  HookPlaces,
  type HookRows,
  hookEvent,
  isWanted,
  placeOf,
} from './hook-places.ts';
import type { HookAnswer, HookReceiver } from './receivers.ts';

export interface HookLoopOptions {
  hooks: readonly HookSettings[];
  receiverOf: (hook: HookSettings) => HookReceiver;
  mirror: Pick<Mirror, 'read' | 'write'>;
  rows: HookRows;
  alarms: Alarms;
  /** Calls the listener when this process may have changed the feed; returns what ends that. */
  onChange: (listener: () => void) => () => void;
  /** Platform's wall clock minus ours; undefined: not known yet. */
  platformSkewMs: () => number | undefined;
  onTried: (hook: string, outcome: 'ok' | 'failed') => void;
  /** Answers what commands ask for; called often. */
  answerTest: (signal: AbortSignal) => Promise<void>;
  clock: Clock;
  random: Random;
  log: Log;
  beat: () => void;
  lookEveryMs?: number | undefined;
}

/** What other processes write nobody tells of. */
const LOOK_EVERY_MS = 2_000;
const WATCH_EVERY_MS = 1_000;
/** A receiver is near, and somebody may wait beside it for its paper to be filled. */
const RETRY_FIRST_MS = 2_000;
const RETRY_LONGEST_MS = 60_000;
/** Events that are looked at together; their orders are read one at a time. */
const PAGE = 100;
/** While much waits, a place is noted this often: after a crash so much comes a second time. */
const NOTE_EVERY_MS = 250;
/** Events that were passed over and of which no note is worth a write. */
const PASSED_MAX = 1_000;

/** Sends each hook its events until the signal; notes hooks that lag. One that fails delays no other. */
export async function hookLoop(options: HookLoopOptions, signal: AbortSignal): Promise<void> {
  const { hooks, rows, clock, alarms, beat, answerTest } = options;
  const names = hooks.map(({ name }) => name);
  const places = new HookPlaces(options.mirror);
  await places.keepOnly(names);
  await whenFree(clock, () => rows.keepOnly(names), undefined, signal);
  const queues = hooks.map((hook) => new HookQueue(options, hook, places));
  const ended = Promise.all(queues.map((queue) => queue.run(signal)));
  let testing: Promise<void> | undefined;
  while (!signal.aborted) {
    beat();
    const lagging = queues.flatMap((queue) => queue.lag() ?? []);
    const level = lagging.some((each) => each.level === 'red') ? 'red' : 'amber';
    alarms.note('hooks.lagging', lagging.map(({ message }) => message).join(' ') || null, level);
    if (hooks.length > 0) {
      testing ??= answerTest(signal).finally(() => {
        testing = undefined;
      });
    }
    await clock.sleep(hooks.length > 0 ? WATCH_EVERY_MS : pieceMs(clock), signal);
  }
  await Promise.all([ended, testing]);
}

/** What one hook still has to take, one event after the other. */
class HookQueue {
  readonly #o: HookLoopOptions;
  readonly #hook: HookSettings;
  readonly #receiver: HookReceiver;
  readonly #places: HookPlaces;
  readonly #waker: Waker;
  readonly #startMs: number;
  readonly #startMonoMs: number;
  /** The newest event when this process began. */
  #startSeq: number | undefined;
  /** All up to it is taken or passed over, as this process knows. */
  #seq = 0;
  #isBegunNoted = false;
  /** When the newest event was taken that is not noted yet; null: all is noted. */
  #unnotedOkAt: string | null = null;
  #noteDueMonoMs = 0;
  /** The event that is to be taken next, and since when it waits. */
  #current: { seq: number; sinceMs: number } | undefined;
  /** Failures in a row, and what the last one said. */
  #failures = 0;
  #lastFailure: string | undefined;

  constructor(options: HookLoopOptions, hook: HookSettings, places: HookPlaces) {
    this.#o = options;
    this.#hook = hook;
    this.#receiver = options.receiverOf(hook);
    this.#places = places;
    this.#waker = new Waker(options.clock);
    this.#startMs = options.clock.nowMs();
    this.#startMonoMs = options.clock.monotonicMs();
  }

  async run(signal: AbortSignal): Promise<void> {
    const unsubscribe = this.#o.onChange(() => this.#waker.wake());
    try {
      while (!signal.aborted) await this.#turn(signal);
      if (this.#unnotedOkAt !== null) await this.#note();
    } catch (error) {
      this.#tellOfStorage(error);
    } finally {
      unsubscribe();
      this.#receiver.close();
    }
  }

  /** What a person is told while it lags; undefined: it does not. */
  lag(): { level: FindingLevel; message: string } | undefined {
    if (!this.#current) return undefined;
    const { seq, sinceMs } = this.#current;
    const waitedMs = this.#o.clock.nowMs() - sinceMs;
    if (waitedMs < LAGS_AFTER_MS) return undefined;
    const level = waitedMs < LAGS_BADLY_AFTER_MS ? 'amber' : 'red';
    const last = this.#lastFailure;
    const why = last === undefined ? 'It takes events, and too slowly.' : `Last failure: "${last}".`;
    const message = `The hook ${this.#hook.name} has not taken event ${seq}, which waits since ${isoUtc(sinceMs)}. ${why}`;
    return { level, message };
  }

  async #turn(signal: AbortSignal): Promise<void> {
    const { clock, lookEveryMs = LOOK_EVERY_MS } = this.#o;
    try {
      if (!(await this.#takeAll(signal))) return;
      const dueMs = clock.nowMs() + lookEveryMs;
      await this.#waker.until(() => dueMs, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#tellOfStorage(error);
      await clock.sleep(LOOK_EVERY_MS, signal);
    }
  }

  /** Sends all that waits. False: it was stopped, or has rested after a failure. */
  async #takeAll(signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#o;
    const place = await this.#place(signal);
    if (!place) return true;
    this.#seq = Math.max(this.#seq, place.seq);
    this.#failures = place.failures;
    for (let isMore = true; isMore; ) {
      const events = await this.#read((db) => eventsFrom(db, this.#seq, PAGE), signal);
      for (const event of events) {
        if (signal.aborted) return false;
        if (isWanted(event, this.#hook, place.newsFrom) && !(await this.#isPassed(event, signal))) {
          const sinceMs = Math.max(
            Date.parse(event.observedAt) || 0,
            Date.parse(place.beganAt),
            this.#startMs,
          );
          this.#current = { seq: event.seq, sinceMs };
          if (!(await this.#send(event, signal))) return false;
        }
        this.#seq = event.seq;
        if (this.#unnotedOkAt !== null && clock.monotonicMs() >= this.#noteDueMonoMs) await this.#note();
      }
      isMore = events.length === PAGE;
    }
    this.#current = undefined;
    if (this.#unnotedOkAt !== null || this.#seq - place.seq >= PASSED_MAX) await this.#note();
    return true;
  }

  /** Whether somebody has passed it over since. */
  async #isPassed({ seq }: FoundEvent, signal: AbortSignal): Promise<boolean> {
    const place = await this.#read((db) => placeOf(db, this.#hook.name), signal);
    return place !== undefined && place.seq >= seq;
  }

  #read<T>(look: (db: Database.Database) => T, signal: AbortSignal): Promise<T> {
    const { clock, mirror } = this.#o;
    return whenFree(clock, () => mirror.read(look), undefined, signal);
  }

  /**
   * Its place; made where there is none, as in a mirror that was made anew. undefined: it cannot begin yet. Until the
   * platform has said what time it is, no time counts: after a power cut this machine's clock may be years behind.
   */
  async #place(signal: AbortSignal): Promise<HookPlace | undefined> {
    const { rows, clock, platformSkewMs } = this.#o;
    const { name, from } = this.#hook;
    this.#startSeq ??= await this.#read(newestSeq, signal);
    let place = await this.#read((db) => placeOf(db, name), signal);
    const skewMs = platformSkewMs();
    if (skewMs === undefined) return place;
    const nowMs = clock.nowMs() + skewMs;
    const now = isoUtc(nowMs);
    if (!place) {
      const begun = await whenFree(clock, () => rows.begun(name), undefined, signal);
      const at = isoUtc(nowMs - (clock.monotonicMs() - this.#startMonoMs));
      place = await this.#places.begin({ name, begun, from, at, seq: this.#startSeq });
      this.#seq = 0;
      this.#isBegunNoted = false;
    }
    const { newsFrom } = place;
    // Noted by a clock that was ahead: until then no order would be new.
    if (newsFrom !== null && newsFrom > now) {
      await this.#places.newsFrom(name, now);
      return { ...place, newsFrom: now };
    }
    if (!this.#isBegunNoted) {
      await whenFree(clock, () => rows.noteBegun(name, { newsFrom }), undefined, signal);
      this.#isBegunNoted = true;
    }
    return place;
  }

  /** Whether it was taken; a failure is noted and rested from. */
  async #send(event: FoundEvent, signal: AbortSignal): Promise<boolean> {
    const { clock, log, onTried } = this.#o;
    const { name } = this.#hook;
    const sent = await this.#read((db) => hookEvent(db, event), signal);
    const patience = patientSignal(signal, clock);
    // There is no turn to wait for.
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
      await this.#failed(event.seq, answer, signal);
      return false;
    }
    if (answer.text !== '' && this.#hook.url === '') {
      log.info(
        { hook: name, event: event.seq, said: answer.text },
        'a hook took an event and said something',
      );
    }
    if (this.#lastFailure !== undefined)
      log.info({ hook: name, event: event.seq }, 'a hook takes events again');
    this.#lastFailure = undefined;
    this.#failures = 0;
    if (this.#unnotedOkAt === null) this.#noteDueMonoMs = clock.monotonicMs() + NOTE_EVERY_MS;
    this.#unnotedOkAt = isoUtc(clock.nowMs());
    return true;
  }

  async #note(): Promise<void> {
    await this.#places.moved(this.#hook.name, this.#seq, this.#unnotedOkAt);
    this.#unnotedOkAt = null;
  }

  /** Notes it, and rests until the next try or until somebody skips the event. */
  async #failed(seq: number, { what, text, retryAfterMs }: HookAnswer, signal: AbortSignal): Promise<void> {
    const { clock, random, log, lookEveryMs = LOOK_EVERY_MS } = this.#o;
    const { name } = this.#hook;
    if (this.#unnotedOkAt !== null) await this.#note();
    const message = text === '' ? what : `${what}: ${text}`;
    const jitteredMs =
      backoffMs(this.#failures, RETRY_FIRST_MS, RETRY_LONGEST_MS) * (0.5 + random.next() / 2);
    const restMs = Math.max(jitteredMs, retryAfterMs ?? 0);
    this.#failures += 1;
    const retryInMs = Math.round(restMs);
    const fields = { hook: name, event: seq, why: message, failures: this.#failures, retryInMs };
    log[this.#lastFailure === undefined ? 'warn' : 'debug'](fields, 'a hook did not take an event');
    this.#lastFailure = message;
    const nowMs = clock.nowMs();
    const nextTryAt = isoUtc(nowMs + restMs);
    await this.#places.failed(name, { at: isoUtc(nowMs), what: message, nextTryAt });
    const endMs = clock.monotonicMs() + restMs;
    for (let leftMs = restMs; leftMs > 0 && !signal.aborted; leftMs = endMs - clock.monotonicMs()) {
      await clock.sleep(Math.min(leftMs, lookEveryMs), signal);
      const place = await this.#read((db) => placeOf(db, name), signal);
      if (!place || place.seq >= seq) return;
    }
  }

  /** A disk that fails is told by itself. */
  #tellOfStorage(error: unknown): void {
    this.#o.log.debug({ hook: this.#hook.name, err: error }, 'the place of a hook cannot be noted now');
  }
}
