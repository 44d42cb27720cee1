import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import type { EventName } from '../core/values.ts';
import { sqlOf, storing } from '../db/sqlite.ts';
import type { Mirror } from '../orders/mirror.ts';
import { newestSeq } from '../orders/mirror-file.ts';
import type { OrderEvent } from '../orders/order.ts';
import { orderById } from '../orders/order-queries.ts';
import { columnsAs } from '../orders/order-rows.ts';
import type { OutboxEntry } from '../outbox/change.ts';
import { OutboxQueries } from '../outbox/outbox-queries.ts';
import { forgetDeliveries, noteTries, type Try } from './deliveries.ts';
import {
  COUNTED_MAX,
  type CursorKey,
  type HookEvent,
  type HookMessage,
  type HookSettings,
  type HookStatus,
  type RejectedChangeEvent,
} from './hook.ts';

/** A hook's position in one feed of events, as stored in the mirror. */
export interface HookCursor {
  seq: number;
  beganAt: string;
  newsFrom: string | null;
  lastOkAt: string | null;
  failures: number;
  lastFailureAt: string | null;
  lastFailure: string | null;
  nextTryAt: string | null;
  /** How often a person moved the cursor back. `rewoundAt` is when that last happened. */
  rewinds: number;
  rewoundAt: string | null;
}

const PLACE = `SELECT ${columnsAs([
  ...['seq', 'beganAt', 'newsFrom', 'lastOkAt', 'failures', 'lastFailureAt', 'lastFailure', 'nextTryAt'],
  ...['rewinds', 'rewoundAt'],
])} FROM hooks WHERE name = ? AND event = ?`;

/** Returns a hook's cursor; undefined if the hook has not started to get these events. */
export function cursorOf(db: Database.Database, { name, event }: CursorKey): HookCursor | undefined {
  return sqlOf(db).row<HookCursor>(PLACE, name, event);
}

const EVENTS = `SELECT e.seq, e.order_id AS orderId, e.status, e.previous_status AS previousStatus, e.source,
    e.observed_at AS observedAt, o.created_at AS createdAt
  FROM (SELECT * FROM order_events WHERE seq > ? ORDER BY seq LIMIT +?) e
  LEFT JOIN orders o ON o.order_id = e.order_id ORDER BY e.seq`;

/** An event of an order, with the creation time of the order. */
interface FoundOrderEvent extends OrderEvent {
  createdAt: string | null;
}

/** A change that has settled. `seq` is its `settledSeq`. */
interface FoundChange {
  seq: number;
  observedAt: string;
  change: OutboxEntry;
}

export type FoundEvent = FoundOrderEvent | FoundChange;

/** Returns the next events of a feed after `seq`, including events that the hook's filter excludes. */
export function eventsFrom(
  db: Database.Database,
  event: EventName,
  seq: number,
  limit: number,
): FoundEvent[] {
  if (event === 'order') return sqlOf(db).rows<FoundOrderEvent>(EVENTS, seq, limit);
  return new OutboxQueries(db).settledAfter(seq, { limit }).map((change) => ({
    seq: change.settledSeq ?? 0,
    observedAt: change.settledAt ?? change.createdAt,
    change,
  }));
}

/** Returns the highest seq that was ever used in a feed. */
export function newestOf(db: Database.Database, event: EventName): number {
  return event === 'order' ? newestSeq(db) : new OutboxQueries(db).newestSettled();
}

const ISO_TIME = /^\d{4}-.*T.*Z$/;

/** Returns whether the hook gets the event. */
export function isWanted(
  event: FoundEvent,
  { statuses }: Pick<HookSettings, 'statuses'>,
  newsFrom: string | null,
): boolean {
  if ('change' in event) return event.change.state === 'rejected';
  const { source, status, previousStatus, createdAt } = event;
  if (statuses.length > 0 && (status === null || !statuses.includes(status))) return false;
  // A first poll, or a poll of a wider window, also returns orders older than the hook. The hook does not get those.
  const isFirstHeardOf = source === 'poll' && previousStatus === null;
  const isOlder = newsFrom !== null && createdAt !== null && ISO_TIME.test(createdAt) && createdAt < newsFrom;
  return !(isFirstHeardOf && isOlder);
}

/** Returns the event in the form that is sent; undefined for a change that is not rejected any more. */
export function hookMessage(db: Database.Database, found: FoundEvent): HookMessage | undefined {
  return 'change' in found ? rejectionOf(db, found) : orderEventOf(db, found);
}

/** Returns the event with the order in its present state. */
function orderEventOf(
  db: Database.Database,
  { createdAt: _createdAt, ...event }: FoundOrderEvent,
): HookEvent {
  return { ...event, order: orderById(db, event.orderId) ?? null };
}

/**
 * Returns the rejected change in its present state; undefined if it is not rejected any more, because a person decided
 * on it or a newer value superseded it.
 */
function rejectionOf(db: Database.Database, found: FoundChange): RejectedChangeEvent | undefined {
  const change = new OutboxQueries(db).get(found.change.changeId);
  const isStill = change?.state === 'rejected' && change.settledSeq === found.seq;
  return isStill ? { event: 'change.rejected', seq: found.seq, change } : undefined;
}

const COUNT_AT_ONCE = 2_000;
/** Maximum number of events that are examined to count the waiting ones. */
const COUNT_EVENTS_MAX = 20_000;

/** Returns the states of hooks, one for each kind of event that a hook gets. */
export function statusesOf(db: Database.Database, hooks: readonly HookSettings[]): HookStatus[] {
  return hooks.flatMap((hook) => hook.events.map((event) => statusOf(db, hook, event)));
}

/** Returns a hook's state in one feed. It reads all waiting events, so it must not be called for each event. */
export function statusOf(db: Database.Database, hook: HookSettings, event: EventName): HookStatus {
  const cursor = cursorOf(db, { name: hook.name, event });
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
  for (const found of cursor ? eventsOneByOne(db, event, cursor.seq) : []) {
    isMore = found === 'more' || waiting === COUNTED_MAX;
    if (found === 'more' || isMore) break;
    if (!isWanted(found, hook, cursor?.newsFrom ?? null)) continue;
    waiting += 1;
    waitsSince ??= laterOf(found.observedAt, cursor?.rewoundAt ?? null);
  }
  return {
    name: hook.name,
    event,
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

/** Returns since when an event waits: since it was observed, or since the cursor was moved back if that was later. */
export function laterOf(observedAt: string, rewoundAt: string | null): string {
  return rewoundAt !== null && rewoundAt > observedAt ? rewoundAt : observedAt;
}

/** Yields the events after `seq`, up to a limit, and then `more` if there are more. */
function* eventsOneByOne(
  db: Database.Database,
  event: EventName,
  seq: number,
): Generator<FoundEvent | 'more'> {
  let from = seq;
  for (let looked = 0; looked < COUNT_EVENTS_MAX; looked += COUNT_AT_ONCE) {
    const events = eventsFrom(db, event, from, COUNT_AT_ONCE);
    yield* events;
    if (events.length < COUNT_AT_ONCE) return;
    from = events.at(-1)?.seq ?? from;
  }
  yield 'more';
}

/** Data for a new cursor, of a hook that has no cursor in the mirror yet. */
interface Beginning extends CursorKey {
  /** The hook's record in state.db, if it began with an earlier mirror that was lost; undefined for a new hook. */
  begun: HookBegun | undefined;
  from: HookSettings['from'];
  /** When this process started; for orders on the platform's clock, because their creation times use that clock. */
  at: string;
  /** Seq of the newest event when this process started. */
  seq: number;
}

/** Creates a hook's cursor unless there is one, in the caller's transaction. */
function beginPlace(db: Database.Database, { name, event, begun, from, at, seq }: Beginning): HookCursor {
  const newsFrom = begun ? begun.newsFrom : from === 'now' && event === 'order' ? at : null;
  const insert = 'INSERT INTO hooks (name, event, seq, began_at, news_from) VALUES (?, ?, ?, ?, ?)';
  const newSeq = from === 'now' ? seq : 0;
  if (!cursorOf(db, { name, event })) {
    sqlOf(db).run(insert, name, event, begun ? seqBefore(db, newsFrom) : newSeq, at, newsFrom);
  }
  return cursorOf(db, { name, event }) as HookCursor;
}

/**
 * Returns the seq after which a hook of an earlier mirror continues: that of the newest event before `newsFrom`. If
 * `newsFrom` is null, as for rejected changes, returns 0, so that the hook gets all events of the new mirror.
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

  /** Deletes the cursors that are not in `keys`, with their deliveries, because they are no longer configured. */
  async keepOnly(keys: readonly CursorKey[]): Promise<void> {
    const stored = this.#mirror.read((db) => sqlOf(db).rows<CursorKey>('SELECT name, event FROM hooks'));
    const gone = stored.filter(
      ({ name, event }) => !keys.some((key) => key.name === name && key.event === event),
    );
    if (gone.length === 0) return;
    await this.#mirror.write((db) => {
      const sql = 'DELETE FROM hooks WHERE name = ? AND event = ?';
      for (const { name, event } of gone) sqlOf(db).run(sql, name, event);
      forgetDeliveries(db, gone);
    });
  }

  begin(beginning: Beginning): Promise<HookCursor> {
    return this.#mirror.write((db) => beginPlace(db, beginning));
  }

  /**
   * Records that all events up to `seq` were delivered or skipped. `okAt` is the time of the last delivery, or null. If
   * somebody moved the cursor back meanwhile, `rewinds` is outdated and the cursor is not changed.
   */
  moved(
    key: CursorKey,
    { deliveries, ...moved }: { seq: number; okAt: string | null; rewinds: number; deliveries: Try[] },
  ): Promise<void> {
    const sql = `UPDATE hooks SET seq = max(seq, @seq), failures = 0, next_try_at = NULL,
      last_ok_at = coalesce(@okAt, last_ok_at) WHERE name = @name AND event = @event AND rewinds = @rewinds`;
    return this.#mirror.write((db) => {
      noteTries(db, key, deliveries);
      sqlOf(db).run(sql, { ...key, ...moved });
    });
  }

  newsFrom({ name, event }: CursorKey, at: string): Promise<void> {
    const sql = 'UPDATE hooks SET news_from = ? WHERE name = ? AND event = ?';
    return this.#mirror.write((db) => void sqlOf(db).run(sql, at, name, event));
  }

  failed(key: CursorKey, failure: Try, nextTryAt: string): Promise<void> {
    const { at, answer } = failure;
    const sql = `UPDATE hooks SET failures = failures + 1, last_failure_at = @at, last_failure = @answer,
      next_try_at = @nextTryAt WHERE name = @name AND event = @event`;
    return this.#mirror.write((db) => {
      noteTries(db, key, [failure]);
      sqlOf(db).run(sql, { ...key, at, answer, nextTryAt });
    });
  }
}

/**
 * Skips waiting events up to `to`, or only the first if `to` is null, in the caller's transaction. Returns undefined if
 * the hook has not started. Throws `usage` if `to` is behind the cursor or beyond the newest event.
 */
export function skipWaiting(
  db: Database.Database,
  hook: HookSettings,
  event: EventName,
  to: number | null,
): { seq: number; skipped: number } | undefined {
  const cursor = cursorOf(db, { name: hook.name, event });
  if (!cursor) return undefined;
  const newest = newestOf(db, event);
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
    const events = eventsFrom(db, event, seq, COUNT_AT_ONCE).filter((each) => each.seq <= (to ?? newest));
    isMore = events.length === COUNT_AT_ONCE;
    for (const each of events) {
      seq = each.seq;
      if (!isWanted(each, hook, cursor.newsFrom)) continue;
      count += 1;
      if (to === null) isMore = false;
      if (to === null) break;
    }
  }
  const until = to ?? seq;
  const sql = 'UPDATE hooks SET seq = ?, failures = 0, next_try_at = NULL WHERE name = ? AND event = ?';
  sqlOf(db).run(sql, until, hook.name, event);
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
 * Returns which events would be sent again from seq `from` on; undefined if the hook has not started. Throws `usage` if
 * `from` is beyond the cursor.
 */
export function resendingFrom(
  db: Database.Database,
  hook: HookSettings,
  event: EventName,
  from: number,
): Resending | undefined {
  const cursor = cursorOf(db, { name: hook.name, event });
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
    const found = eventsFrom(db, event, at, COUNT_AT_ONCE);
    for (const each of found) {
      if (each.seq > seq || !isWanted(each, hook, newsFrom)) continue;
      events += 1;
      first ??= each.seq;
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
  { name, event }: CursorKey,
  { from, at }: { from: number; at: string },
) {
  const sql = `UPDATE hooks SET seq = @seq, failures = 0, next_try_at = NULL, rewinds = rewinds + 1, rewound_at = @at
    WHERE name = @name AND event = @event`;
  sqlOf(db).run(sql, { seq: from - 1, at, name, event });
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

  begun(key: CursorKey): HookBegun | undefined {
    const sql = 'SELECT news_from AS newsFrom FROM hooks WHERE name = ?';
    return storing(() => sqlOf(this.#db).row<HookBegun>(sql, rowName(key)));
  }

  /** Records that a hook has started, durable on return. Does not change an existing record. */
  noteBegun(key: CursorKey, { newsFrom }: HookBegun): void {
    const sql = 'INSERT OR IGNORE INTO hooks (name, news_from) VALUES (?, ?)';
    storing(() => sqlOf(this.#db).run(sql, rowName(key), newsFrom));
  }

  keepOnly(keys: readonly CursorKey[]): void {
    const sql = 'DELETE FROM hooks WHERE name NOT IN (SELECT value FROM json_each(?))';
    storing(() => sqlOf(this.#db).run(sql, JSON.stringify(keys.map(rowName))));
  }
}

/**
 * Returns the name of a row: `printer` for orders, `printer change.rejected` for rejected changes. No hook name has a
 * blank.
 */
function rowName({ name, event }: CursorKey): string {
  return event === 'order' ? name : `${name} ${event}`;
}
