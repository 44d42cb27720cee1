import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import { type FeedName, feedOf } from '../core/values.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { OrderEvent } from '../orders/merging/order.ts';
import { columnsAs } from '../orders/merging/order-rows.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { newestSeq } from '../orders/reading/mirror-file.ts';
import { orderById } from '../orders/reading/order-queries.ts';
import type { OutboxEntry } from '../outbox/intake/change.ts';
import { OutboxQueries } from '../outbox/sending/outbox-queries.ts';
import { DELIVERIES_KEPT, forgetDeliveries, noteTries, type Try } from './deliveries.ts';
import {
  COUNTED_MAX,
  type CursorKey,
  type HookEvent,
  type HookMessage,
  type HookSettings,
  type HookStatus,
  type RejectedChangeEvent,
} from './hook.ts';
import type { HookBegun } from './hook-rows.ts';
import {
  type FoundPreparation,
  keepPreparationsOf,
  newestPreparation,
  type PreparationContext,
  passOverPresent,
  preparationMessage,
  preparationsFrom,
  trimPreparations,
  waitingPreparations,
} from './prepared-orders.ts';

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
  /** Of preparations: events of the order feed up to this one were looked at; null in other feeds. */
  orderSeq: number | null;
}

const PLACE = `SELECT ${columnsAs([
  ...['seq', 'beganAt', 'newsFrom', 'lastOkAt', 'failures', 'lastFailureAt', 'lastFailure', 'nextTryAt'],
  ...['rewinds', 'rewoundAt', 'orderSeq'],
])} FROM _hooks WHERE name = ? AND event = ?`;

/** Returns a hook's cursor; undefined if the hook has not started to get these events. */
export function cursorOf(db: Database.Database, { name, event }: CursorKey): HookCursor | undefined {
  return sqlOf(db).row<HookCursor>(PLACE, name, event);
}

const EVENTS = `SELECT e.seq, e.order_id AS orderId, e.status, e.previous_status AS previousStatus, e.source,
    e.observed_at AS observedAt, o.created_at AS createdAt
  FROM (SELECT * FROM order_events WHERE seq > ? ORDER BY seq LIMIT +?) e
  LEFT JOIN _orders o ON o.order_id = e.order_id ORDER BY e.seq`;

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

export type FoundEvent = FoundOrderEvent | FoundPreparation | FoundChange;

/** Returns the next events of a feed after `seq`, including events that the hook's filter excludes. */
export function eventsFrom(
  db: Database.Database,
  { name, event }: CursorKey,
  seq: number,
  limit: number,
): FoundEvent[] {
  if (event === 'order.prepare') return preparationsFrom(db, name, seq, limit);
  if (event === 'order') return sqlOf(db).rows<FoundOrderEvent>(EVENTS, seq, limit);
  return new OutboxQueries(db).settledAfter(seq, { limit }).map((change) => ({
    seq: change.settledSeq ?? 0,
    observedAt: change.settledAt ?? change.createdAt,
    change,
  }));
}

/** Returns the highest seq that was ever used in a feed. */
export function newestOf(db: Database.Database, { name, event }: CursorKey): number {
  if (event === 'order.prepare') return newestPreparation(db, name);
  return event === 'order' ? newestSeq(db) : new OutboxQueries(db).newestSettled();
}

const ISO_TIME = /^\d{4}-.*T.*Z$/;

/** Returns whether the hook gets the event. */
export function isWanted(
  event: FoundEvent,
  { events, statuses }: Pick<HookSettings, 'events' | 'statuses'>,
  newsFrom: string | null,
): boolean {
  if ('preparation' in event) return events.includes(event.preparation.event);
  if ('change' in event) return event.change.state === 'rejected';
  const { source, status, previousStatus, createdAt } = event;
  if (statuses.length > 0 && (status === null || !statuses.includes(status))) return false;
  // A first poll, or a poll of a wider window, also returns orders older than the hook. The hook does not get those.
  const isFirstHeardOf = source === 'poll' && previousStatus === null;
  const isOlder = newsFrom !== null && createdAt !== null && ISO_TIME.test(createdAt) && createdAt < newsFrom;
  return !(isFirstHeardOf && isOlder);
}

/** Returns the event in the form that is sent; undefined for a change that is not rejected any more. */
export function hookMessage(
  db: Database.Database,
  found: FoundEvent,
  timezone: string,
): HookMessage | undefined {
  if ('preparation' in found) return preparationMessage(db, found, timezone);
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

/** Returns the feeds from which a hook gets events. */
export function feedsOf({ events }: Pick<HookSettings, 'events'>): FeedName[] {
  return [...new Set(events.map(feedOf))];
}

/** Returns the states of hooks, one for each feed from which a hook gets events. */
export function statusesOf(
  db: Database.Database,
  hooks: readonly HookSettings[],
  context: PreparationContext,
): HookStatus[] {
  return hooks.flatMap((hook) => feedsOf(hook).map((event) => statusOf(db, hook, event, context)));
}

/** Returns a hook's state in one feed. It reads all waiting events, so it must not be called for each event. */
export function statusOf(
  db: Database.Database,
  hook: HookSettings,
  event: FeedName,
  context?: PreparationContext,
): HookStatus {
  const key = { name: hook.name, event };
  const cursor = cursorOf(db, key);
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
  for (const found of cursor ? eventsOneByOne(db, key, cursor.seq) : []) {
    isMore = found === 'more' || waiting === COUNTED_MAX;
    if (found === 'more' || isMore) break;
    if (!isWanted(found, hook, cursor?.newsFrom ?? null)) continue;
    waiting += 1;
    waitsSince ??= laterOf(found.observedAt, cursor?.rewoundAt ?? null);
  }
  if (cursor && event === 'order.prepare' && context) {
    const { orderSeq, newsFrom } = cursor;
    waiting += waitingPreparations(db, hook, { orderSeq: orderSeq ?? 0, newsFrom }, context).length;
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
function* eventsOneByOne(db: Database.Database, key: CursorKey, seq: number): Generator<FoundEvent | 'more'> {
  let from = seq;
  for (let looked = 0; looked < COUNT_EVENTS_MAX; looked += COUNT_AT_ONCE) {
    const events = eventsFrom(db, key, from, COUNT_AT_ONCE);
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
  /** Seq of the newest event when this process started; of preparations, that of the order feed. */
  seq: number;
}

/** Creates a hook's cursor unless there is one, in the caller's transaction. */
function beginPlace(
  db: Database.Database,
  { name, event, begun, from, at, seq }: Beginning,
  preparing: { hook: HookSettings; context: PreparationContext } | undefined,
): HookCursor {
  const newsFrom = begun ? begun.newsFrom : from === 'now' && event !== 'change.rejected' ? at : null;
  const insert =
    'INSERT INTO _hooks (name, event, seq, began_at, news_from, order_seq) VALUES (?, ?, ?, ?, ?, ?)';
  const newSeq = from === 'now' ? seq : 0;
  if (!cursorOf(db, { name, event })) {
    const after = begun ? seqBefore(db, newsFrom) : newSeq;
    const [own, orders] = preparing ? [newestPreparation(db, name), after] : [after, null];
    sqlOf(db).run(insert, name, event, own, at, newsFrom, orders);
    if (preparing && from === 'now' && !begun) {
      passOverPresent(db, preparing.hook, preparing.context, after);
    }
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

/** Number of a hook's newest events of preparations that can be sent again. */
const PREPARATIONS_KEPT = 2 * DELIVERIES_KEPT;

/** Writes the cursors of hooks. Each call is one durable transaction. */
export class HookCursors {
  readonly #mirror: Pick<Mirror, 'read' | 'write'>;

  constructor(mirror: Pick<Mirror, 'read' | 'write'>) {
    this.#mirror = mirror;
  }

  /** Deletes the cursors that are not in `keys`, with their deliveries, because they are no longer configured. */
  async keepOnly(keys: readonly CursorKey[]): Promise<void> {
    const stored = this.#mirror.read((db) => sqlOf(db).rows<CursorKey>('SELECT name, event FROM _hooks'));
    const gone = stored.filter(
      ({ name, event }) => !keys.some((key) => key.name === name && key.event === event),
    );
    if (gone.length === 0) return;
    await this.#mirror.write((db) => {
      const sql = 'DELETE FROM _hooks WHERE name = ? AND event = ?';
      for (const { name, event } of gone) sqlOf(db).run(sql, name, event);
      forgetDeliveries(db, gone);
      const preparing = keys.filter(({ event }) => event === 'order.prepare');
      keepPreparationsOf(
        db,
        preparing.map(({ name }) => name),
      );
    });
  }

  /** Creates a cursor unless there is one. `preparing` is given for the feed of preparations. */
  begin(
    beginning: Beginning,
    preparing?: { hook: HookSettings; context: PreparationContext },
  ): Promise<HookCursor> {
    return this.#mirror.write((db) => beginPlace(db, beginning, preparing));
  }

  /**
   * Records that all events up to `seq` were delivered or skipped. `okAt` is the time of the last delivery, or null. If
   * somebody moved the cursor back meanwhile, `rewinds` is outdated and the cursor is not changed.
   */
  moved(
    key: CursorKey,
    { deliveries, ...moved }: { seq: number; okAt: string | null; rewinds: number; deliveries: Try[] },
  ): Promise<void> {
    const sql = `UPDATE _hooks SET seq = max(seq, @seq), failures = 0, next_try_at = NULL,
      last_ok_at = coalesce(@okAt, last_ok_at) WHERE name = @name AND event = @event AND rewinds = @rewinds`;
    return this.#mirror.write((db) => {
      noteTries(db, key, deliveries);
      sqlOf(db).run(sql, { ...key, ...moved });
      if (key.event === 'order.prepare') trimPreparations(db, key.name, moved.seq, PREPARATIONS_KEPT);
    });
  }

  newsFrom({ name, event }: CursorKey, at: string): Promise<void> {
    const sql = 'UPDATE _hooks SET news_from = ? WHERE name = ? AND event = ?';
    return this.#mirror.write((db) => void sqlOf(db).run(sql, at, name, event));
  }

  failed(key: CursorKey, failure: Try, nextTryAt: string): Promise<void> {
    const { at, answer } = failure;
    const sql = `UPDATE _hooks SET failures = failures + 1, last_failure_at = @at, last_failure = @answer,
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
  event: FeedName,
  to: number | null,
): { seq: number; skipped: number } | undefined {
  const key = { name: hook.name, event };
  const cursor = cursorOf(db, key);
  if (!cursor) return undefined;
  const newest = newestOf(db, key);
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
    const events = eventsFrom(db, key, seq, COUNT_AT_ONCE).filter((each) => each.seq <= (to ?? newest));
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
  const sql = 'UPDATE _hooks SET seq = ?, failures = 0, next_try_at = NULL WHERE name = ? AND event = ?';
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
  event: FeedName,
  from: number,
): Resending | undefined {
  const key = { name: hook.name, event };
  const cursor = cursorOf(db, key);
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
    const found = eventsFrom(db, key, at, COUNT_AT_ONCE);
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
  const sql = `UPDATE _hooks SET seq = @seq, failures = 0, next_try_at = NULL, rewinds = rewinds + 1, rewound_at = @at
    WHERE name = @name AND event = @event`;
  sqlOf(db).run(sql, { seq: from - 1, at, name, event });
}
