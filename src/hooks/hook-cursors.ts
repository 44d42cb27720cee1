import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import { sqlOf, storing } from '../db/sqlite.ts';
import type { Mirror } from '../orders/mirror.ts';
import { newestSeq } from '../orders/mirror-file.ts';
import type { OrderEvent } from '../orders/order.ts';
import { orderById } from '../orders/order-queries.ts';
import { columnsAs } from '../orders/order-rows.ts';
import { forgetDeliveries, noteTries, type Try } from './deliveries.ts';
import { COUNTED_MAX, type HookEvent, type HookSettings, type HookStatus } from './hook.ts';

/** A hook's position in the order feed, as stored in the mirror. */
export interface HookCursor {
  seq: number;
  beganAt: string;
  newsFrom: string | null;
  lastOkAt: string | null;
  failures: number;
  lastFailureAt: string | null;
  lastFailure: string | null;
  nextTryAt: string | null;
  /** Number of times that a person moved the cursor back. `rewoundAt` is the last of these times. */
  rewinds: number;
  rewoundAt: string | null;
}

const PLACE = `SELECT ${columnsAs([
  ...['seq', 'beganAt', 'newsFrom', 'lastOkAt', 'failures', 'lastFailureAt', 'lastFailure', 'nextTryAt'],
  ...['rewinds', 'rewoundAt'],
])} FROM hooks WHERE name = ?`;

/** Returns a hook's cursor; undefined if the hook has not started. */
export function cursorOf(db: Database.Database, name: string): HookCursor | undefined {
  return sqlOf(db).row<HookCursor>(PLACE, name);
}

const EVENTS = `SELECT e.seq, e.order_id AS orderId, e.status, e.previous_status AS previousStatus, e.source,
    e.observed_at AS observedAt, o.created_at AS createdAt
  FROM (SELECT * FROM order_events WHERE seq > ? ORDER BY seq LIMIT +?) e
  LEFT JOIN orders o ON o.order_id = e.order_id ORDER BY e.seq`;

/** An event with the creation time of its order. */
export interface FoundEvent extends OrderEvent {
  createdAt: string | null;
}

/** Returns the next events after `seq`, including events that the hook's filter excludes. */
export function eventsFrom(db: Database.Database, seq: number, limit: number): FoundEvent[] {
  return sqlOf(db).rows<FoundEvent>(EVENTS, seq, limit);
}

const ISO_TIME = /^\d{4}-.*T.*Z$/;

/** Returns whether the hook gets the event. */
export function isWanted(
  { source, status, previousStatus, createdAt }: FoundEvent,
  { statuses }: Pick<HookSettings, 'statuses'>,
  newsFrom: string | null,
): boolean {
  if (statuses.length > 0 && (status === null || !statuses.includes(status))) return false;
  // A first or wider poll brings orders that are older than the hook, which the hook does not get.
  const isFirstHeardOf = source === 'poll' && previousStatus === null;
  const isOlder = newsFrom !== null && createdAt !== null && ISO_TIME.test(createdAt) && createdAt < newsFrom;
  return !(isFirstHeardOf && isOlder);
}

/** Returns the event in the form that is sent, with the order in its present state. */
export function hookEvent(db: Database.Database, { createdAt: _createdAt, ...event }: FoundEvent): HookEvent {
  return { ...event, order: orderById(db, event.orderId) ?? null };
}

const COUNT_AT_ONCE = 2_000;
/** Most events that are examined to count the waiting ones. */
const COUNT_EVENTS_MAX = 20_000;

/** Returns a hook's state. It reads all waiting events, so it must not be called for each event. */
export function statusOf(db: Database.Database, hook: HookSettings): HookStatus {
  const cursor = cursorOf(db, hook.name);
  const {
    seq = null,
    lastOkAt = null,
    failures = 0,
    lastFailureAt = null,
    lastFailure = null,
  } = cursor ?? {};
  let waiting = 0;
  let waitsSince: string | null = null;
  let isMore = false;
  for (const event of cursor ? eventsOneByOne(db, cursor.seq) : []) {
    isMore = event === 'more' || waiting === COUNTED_MAX;
    if (event === 'more' || isMore) break;
    if (!isWanted(event, hook, cursor?.newsFrom ?? null)) continue;
    waiting += 1;
    waitsSince ??= laterOf(event.observedAt, cursor?.rewoundAt ?? null);
  }
  return {
    name: hook.name,
    to: hook.url === '' ? (hook.command[0] ?? '') : new URL(hook.url).origin,
    seq,
    waiting,
    isMore,
    waitsSince,
    lastOkAt,
    failures,
    lastFailureAt,
    lastFailure,
    nextTryAt: cursor?.nextTryAt ?? null,
  };
}

/** Returns when the wait of an event began. An event to be sent again waits from when the cursor was moved back. */
export function laterOf(observedAt: string, rewoundAt: string | null): string {
  return rewoundAt !== null && rewoundAt > observedAt ? rewoundAt : observedAt;
}

/** Yields the events after `seq`, up to a limit, and then `more` if there are more. */
function* eventsOneByOne(db: Database.Database, seq: number): Generator<FoundEvent | 'more'> {
  let from = seq;
  for (let looked = 0; looked < COUNT_EVENTS_MAX; looked += COUNT_AT_ONCE) {
    const events = eventsFrom(db, from, COUNT_AT_ONCE);
    yield* events;
    if (events.length < COUNT_AT_ONCE) return;
    from = events.at(-1)?.seq ?? from;
  }
  yield 'more';
}

/** Data for the cursor of a hook that the mirror does not have yet. */
interface Beginning {
  name: string;
  /** State of the hook in an earlier mirror that was lost; undefined for a new hook. */
  begun: HookBegun | undefined;
  from: HookSettings['from'];
  /** Present time on the platform's clock, which orders' creation times use too. */
  at: string;
  /** Seq of the newest event at that time. */
  seq: number;
}

/** Creates a hook's cursor unless there is one, in the caller's transaction. */
function beginPlace(db: Database.Database, { name, begun, from, at, seq }: Beginning): HookCursor {
  const newsFrom = begun ? begun.newsFrom : from === 'now' ? at : null;
  const insert = 'INSERT INTO hooks (name, seq, began_at, news_from) VALUES (?, ?, ?, ?)';
  const newSeq = from === 'now' ? seq : 0;
  if (!cursorOf(db, name)) {
    sqlOf(db).run(insert, name, begun ? seqBefore(db, newsFrom) : newSeq, at, newsFrom);
  }
  return cursorOf(db, name) as HookCursor;
}

/**
 * Returns the seq of the newest event before `newsFrom`. A hook that started in an earlier mirror continues after it.
 */
function seqBefore(db: Database.Database, newsFrom: string | null): number {
  if (newsFrom === null) return 0;
  const sql = 'SELECT seq FROM order_events WHERE observed_at < ? ORDER BY seq DESC LIMIT 1';
  return sqlOf(db).value(sql, newsFrom) ?? 0;
}

/** Writes the cursors of hooks. Each call is one durable transaction. */
export class HookCursors {
  readonly #mirror: Pick<Mirror, 'read' | 'write'>;

  constructor(mirror: Pick<Mirror, 'read' | 'write'>) {
    this.#mirror = mirror;
  }

  /** Deletes the cursors of hooks that are no longer configured. */
  async keepOnly(names: readonly string[]): Promise<void> {
    const gone = this.#mirror.read((db) => goneHooks(db, names));
    if (gone.length === 0) return;
    await this.#mirror.write((db) => {
      forgetHooks(db, gone);
      forgetDeliveries(db, gone);
    });
  }

  begin(beginning: Beginning): Promise<HookCursor> {
    return this.#mirror.write((db) => beginPlace(db, beginning));
  }

  /**
   * Records that all events up to `seq` were delivered or skipped. `okAt` is the last delivery, or null. The cursor is
   * not changed if somebody moved it back meanwhile, which `rewinds` shows.
   */
  moved(
    name: string,
    { deliveries, ...moved }: { seq: number; okAt: string | null; rewinds: number; deliveries: Try[] },
  ): Promise<void> {
    const sql = `UPDATE hooks SET seq = max(seq, @seq), failures = 0, next_try_at = NULL,
      last_ok_at = coalesce(@okAt, last_ok_at) WHERE name = @name AND rewinds = @rewinds`;
    return this.#mirror.write((db) => {
      noteTries(db, name, deliveries);
      sqlOf(db).run(sql, { name, ...moved });
    });
  }

  newsFrom(name: string, at: string): Promise<void> {
    const sql = 'UPDATE hooks SET news_from = ? WHERE name = ?';
    return this.#mirror.write((db) => void sqlOf(db).run(sql, at, name));
  }

  failed(name: string, { seq, at, answer }: Try, nextTryAt: string): Promise<void> {
    const sql = `UPDATE hooks SET failures = failures + 1, last_failure_at = @at, last_failure = @answer,
      next_try_at = @nextTryAt WHERE name = @name`;
    return this.#mirror.write((db) => {
      noteTries(db, name, [{ seq, at, taken: false, answer }]);
      sqlOf(db).run(sql, { name, at, answer, nextTryAt });
    });
  }
}

/**
 * Skips waiting events up to `to`, or only the first if `to` is null, in the caller's transaction. Returns undefined
 * if the hook has not started. Throws `usage` if `to` is not ahead of the cursor.
 */
export function skipWaiting(
  db: Database.Database,
  hook: HookSettings,
  to: number | null,
): { seq: number; skipped: number } | undefined {
  const cursor = cursorOf(db, hook.name);
  if (!cursor) return undefined;
  const newest = newestSeq(db);
  if (to !== null && (to < cursor.seq || to > newest)) {
    throw new TillsyncError(
      'usage',
      `--to ${to}: ${hook.name} is at ${cursor.seq}, the newest event is ${newest}.`,
      {
        hint: `To send again what was taken: {tillsync} hooks send ${hook.name} --from SEQ`,
      },
    );
  }
  let seq = cursor.seq;
  let count = 0;
  for (let isMore = true; isMore; ) {
    const events = eventsFrom(db, seq, COUNT_AT_ONCE).filter((event) => event.seq <= (to ?? newest));
    isMore = events.length === COUNT_AT_ONCE;
    for (const event of events) {
      seq = event.seq;
      if (!isWanted(event, hook, cursor.newsFrom)) continue;
      count += 1;
      if (to === null) isMore = false;
      if (to === null) break;
    }
  }
  const until = to ?? seq;
  const sql = 'UPDATE hooks SET seq = ?, failures = 0, next_try_at = NULL WHERE name = ?';
  sqlOf(db).run(sql, until, hook.name);
  return { seq: until, skipped: count };
}

/** Events that moving the cursor back would send again. */
export interface Resending {
  /** Seq of the cursor: all events up to it were delivered or skipped. */
  seq: number;
  /** Number of events that would be sent again, and the seq of the first; null if there is none. */
  events: number;
  first: number | null;
}

/**
 * Returns which events would be sent again from seq `from` on; undefined if the hook has not started. Throws `usage`
 * if `from` is not behind the cursor.
 */
export function resendingFrom(
  db: Database.Database,
  hook: HookSettings,
  from: number,
): Resending | undefined {
  const cursor = cursorOf(db, hook.name);
  if (!cursor) return undefined;
  const { seq, newsFrom } = cursor;
  if (from > seq) {
    throw new TillsyncError(
      'usage',
      `--from ${from}: ${hook.name} is at ${seq}, so that event was not sent yet.`,
      {
        hint: `It comes by itself. See what it was sent: {tillsync} hooks deliveries ${hook.name}`,
      },
    );
  }
  let [events, at] = [0, from - 1];
  let first: number | null = null;
  for (let isMore = true; isMore; ) {
    const found = eventsFrom(db, at, COUNT_AT_ONCE);
    for (const event of found) {
      if (event.seq > seq || !isWanted(event, hook, newsFrom)) continue;
      events += 1;
      first ??= event.seq;
    }
    at = found.at(-1)?.seq ?? seq;
    isMore = found.length === COUNT_AT_ONCE && at < seq;
  }
  return { seq, events, first };
}

/**
 * Moves the cursor back before event `from`, in the caller's transaction. The hook's loop then sends the events again.
 */
export function rewind(
  db: Database.Database,
  hook: HookSettings,
  { from, at }: { from: number; at: string },
) {
  const sql = `UPDATE hooks SET seq = @seq, failures = 0, next_try_at = NULL, rewinds = rewinds + 1, rewound_at = @at
    WHERE name = @name`;
  sqlOf(db).run(sql, { seq: from - 1, at, name: hook.name });
}

/** State of a started hook in state.db. */
export interface HookBegun {
  newsFrom: string | null;
}

/** Stores which hooks have started, in state.db, because the mirror may be lost. Methods throw `storage-…`. */
export class HookRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  begun(name: string): HookBegun | undefined {
    const sql = 'SELECT news_from AS newsFrom FROM hooks WHERE name = ?';
    return storing(() => sqlOf(this.#db).row<HookBegun>(sql, name));
  }

  /** Records that a hook has started, durable on return. Does not change an existing record. */
  noteBegun(name: string, { newsFrom }: HookBegun): void {
    const sql = 'INSERT OR IGNORE INTO hooks (name, news_from) VALUES (?, ?)';
    storing(() => sqlOf(this.#db).run(sql, name, newsFrom));
  }

  keepOnly(names: readonly string[]): void {
    storing(() => forgetHooks(this.#db, goneHooks(this.#db, names)));
  }
}

/**
 * Returns the stored hooks that are no longer configured. It serves both files, because mirror and state.db have a
 * table `hooks`.
 */
function goneHooks(db: Database.Database, names: readonly string[]): string[] {
  return sqlOf(db)
    .values<string>('SELECT name FROM hooks')
    .filter((name) => !names.includes(name));
}

function forgetHooks(db: Database.Database, gone: readonly string[]): void {
  for (const name of gone) sqlOf(db).run('DELETE FROM hooks WHERE name = ?', name);
}
