import { randomUUID } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { inWordsOfPos, type OutboxChange, readChange } from '../outbox/intake/change.ts';
import { PRIORITY_OTHERS, PRIORITY_SOLD_OUT } from '../outbox/sending/call-plan.ts';
import { OutboxQueue } from '../outbox/sending/queue.ts';
import type { Stores } from '../outbox/sending/repositories.ts';
import { type HelloAnswer, UP_ITEMS_MAX, type UpItem } from './link.ts';
import { QUESTION_BYTES_MAX } from './question-gate.ts';

/**
 * Gives a number to each item that a branch uploads to its hub, and stores the item until the hub has accepted it. Each
 * function works in the caller's transaction.
 */

/** Position of a branch in the hub's feed, and the numbering of what it uploads. */
export interface LinkCursor {
  epoch: string | null;
  mark: number;
  uplinkId: string;
  lastSeqUp: number;
}

/**
 * Starts an uplink (a numbering of uploaded items) if the mirror has none. Returns the id of a new uplink,
 * else undefined.
 */
export function beginLink(db: Database.Database): string | undefined {
  const uplinkId = randomUUID();
  const begin = 'INSERT INTO _link (one, line) VALUES (1, ?) ON CONFLICT DO NOTHING';
  return sqlOf(db).run(begin, uplinkId).changes === 0 ? undefined : uplinkId;
}

export function linkCursor(db: Database.Database): LinkCursor {
  const sql = 'SELECT epoch, mark, line AS uplinkId, last_u AS lastSeqUp FROM _link';
  return sqlOf(db).row<LinkCursor>(sql) ?? { epoch: null, mark: 0, uplinkId: '', lastSeqUp: 0 };
}

/**
 * Returns whether the hub's answer fits the items that this mirror uploaded. If not, this mirror or the hub's
 * mirror is an older copy.
 */
export function isAgreed(
  db: Database.Database,
  { upTo: ackedUpTo, isLineKnown }: HelloAnswer,
  isOwnUplink: boolean,
): boolean {
  const { lastSeqUp } = linkCursor(db);
  const firstSeqUp = sqlOf(db).value<number | null>('SELECT min(u) FROM _up_items') ?? lastSeqUp + 1;
  return (isLineKnown || isOwnUplink) && ackedUpTo >= firstSeqUp - 1 && ackedUpTo <= lastSeqUp;
}

/**
 * Starts a new uplink and renumbers the items being uploaded. `isCopy` means that this mirror may be an older
 * copy, so it also needs a snapshot. Returns the uplink's id.
 */
export function beginUplink(db: Database.Database, isCopy: boolean): string {
  const items = sqlOf(db).rows<{ kind: string; changeId: number | null; body: string }>(
    'SELECT kind, change_id AS changeId, body FROM _up_items ORDER BY u',
  );
  sqlOf(db).run('DELETE FROM _up_items');
  for (const [i, { kind, changeId, body }] of items.entries()) {
    const again = 'INSERT INTO _up_items (u, kind, change_id, body) VALUES (?, ?, ?, ?)';
    sqlOf(db).run(again, i + 1, kind, changeId, body);
  }
  const uplinkId = randomUUID();
  sqlOf(db).run('UPDATE _link SET line = ?, last_u = ?', uplinkId, items.length);
  if (isCopy) sqlOf(db).run('UPDATE _link SET epoch = NULL, mark = 0');
  return uplinkId;
}

/** Returns whether an item has a number already, but was not confirmed by the hub. */
export function isUnderWay(db: Database.Database): boolean {
  return sqlOf(db).row('SELECT 1 FROM _up_items') !== undefined;
}

/**
 * Requeues the items being uploaded, because the branch's queue at the hub is full. Starts a new uplink, so that a late
 * answer for the old uplink is ignored. Returns the id of the new uplink.
 */
export function requeue(db: Database.Database, nowMs: number): string {
  const queue = new OutboxQueue(db);
  queue.begin();
  const back = queue.all('WHERE change_id IN (SELECT change_id FROM _up_items) ORDER BY version DESC');
  const why = 'Many changes of this branch wait at the hub; it is handed up later.';
  for (const change of back) queue.putBack(change, why, isoUtc(nowMs));
  sqlOf(db).run(
    `INSERT INTO _up_acks (order_id) SELECT json_extract(body, '$.value') FROM _up_items WHERE kind = 'ack'
     ON CONFLICT DO NOTHING`,
  );
  sqlOf(db).run('DELETE FROM _up_items');
  return beginUplink(db, false);
}

/** Body of an item, stored until the hub has accepted the item. */
type UpBody = Pick<UpItem, 'reference' | 'value' | 'isTyped' | 'asOf' | 'without' | 'countedAt' | 'handedAt'>;

/**
 * Returns the items to upload: those that already have a number, if any; otherwise waiting changes, sold-out ones
 * first, and acknowledgements if room is left. `onlySoldOut`: the hub accepts only sold-out changes for now.
 */
export function nextBatch(stores: Stores, onlySoldOut = false): UpItem[] {
  const { db } = stores;
  const sql = 'SELECT u, kind, change_id AS changeId, body FROM _up_items ORDER BY u';
  const underWay = () =>
    sqlOf(db)
      .rows<{ u: number; kind: UpItem['kind']; changeId: number | null; body: string }>(sql)
      .map(({ body, ...item }) => ({
        ...item,
        ...(JSON.parse(body) as UpBody),
      }));
  const before = underWay();
  if (before.length > 0) return before;
  let { lastSeqUp } = linkCursor(db);
  const put = (kind: UpItem['kind'], changeId: number | null, body: UpBody) => {
    lastSeqUp += 1;
    const add = 'INSERT INTO _up_items (u, kind, change_id, body) VALUES (?, ?, ?, ?)';
    sqlOf(db).run(add, lastSeqUp, kind, changeId, JSON.stringify(body));
  };
  const priority = onlySoldOut ? PRIORITY_SOLD_OUT : PRIORITY_OTHERS;
  placeInCatalog(stores, waitingChanges(db, priority));
  const waiting = waitingChanges(db, priority);
  let length = 0;
  let isFull = false;
  const coveredTo = coveredTimes(db, waiting);
  for (const change of waiting) {
    const { changeId, kind, reference, asOfSeq, countedAt, handedAt } = change;
    const body = inWordsOfPos(change);
    const bodyLength = JSON.stringify(body).length;
    length += bodyLength;
    isFull = length > QUESTION_BYTES_MAX / 4 && length > bodyLength;
    if (isFull) break;
    const asOf = kind === 'stock' ? coveredTo.get(asOfSeq) : undefined;
    const dated = kind !== 'stock' ? {} : countedAt === null ? { handedAt } : { countedAt };
    put(kind, changeId, { reference, value: body, ...(asOf !== undefined && { asOf }), ...dated });
    const leave = "UPDATE _outbox SET state = 'sending', attempts = attempts + 1 WHERE change_id = ?";
    sqlOf(db).run(leave, changeId);
  }
  const room = onlySoldOut || isFull ? 0 : UP_ITEMS_MAX - waiting.length;
  const acks = sqlOf(db).rows<{
    orderId: string;
    isTyped: number;
    asOf: string | null;
    without: string | null;
  }>(
    // Of an order that moved, the newest acknowledgement: SQLite takes the columns of a from the row with the maximum.
    `SELECT u.order_id AS orderId, a.without, max(a.acked_at), coalesce(a.source = 'cli', 0) AS isTyped, (
       SELECT CASE WHEN o.seq <= a.seq THEN o.updated_at ELSE (SELECT max(e.observed_at) FROM order_events e
         WHERE e.order_id = o.order_id AND e.seq <= a.seq) END
       FROM _orders o WHERE o.order_id = u.order_id AND a.seq IS NOT NULL) AS asOf
     FROM _up_acks u LEFT JOIN _order_acks a USING (order_id) GROUP BY u.order_id ORDER BY u.order_id LIMIT ?`,
    room,
  );
  for (const { orderId, isTyped, asOf, without } of acks) {
    const how = {
      ...(isTyped === 1 && { isTyped: true }),
      ...(asOf !== null && { asOf }),
      ...(without !== null && { without: JSON.parse(without) as number[] }),
    };
    put('ack', null, { reference: null, value: orderId, ...how });
    sqlOf(db).run('DELETE FROM _up_acks WHERE order_id = ?', orderId);
  }
  if (waiting.length + acks.length > 0) sqlOf(db).run('UPDATE _link SET last_u = ?', lastSeqUp);
  return underWay();
}

/** Returns waiting changes in the order of upload. */
function waitingChanges(db: Database.Database, priority: number): OutboxChange[] {
  const which = `WHERE state = 'pending' AND held_guard IS NULL AND priority <= ?
    ORDER BY priority, queue_seq LIMIT ${UP_ITEMS_MAX}`;
  return new OutboxQueue(db).all(which, priority);
}

const NOTHING_READ = { seq: 0, latest: '' };
/**
 * For each mirror, the latest observation time of the events up to `seq`. An upload reads only the events after them.
 */
const timesRead = new WeakMap<Database.Database, typeof NOTHING_READ>();

/**
 * Returns, by `asOfSeq`, the latest observation time of the events that a count covers; the hub cannot compare the
 * branch's event numbers. The newest event may have an earlier time, because a snapshot ends with old orders.
 */
function coveredTimes(db: Database.Database, waiting: readonly OutboxChange[]): Map<number, string> {
  const times = new Map<number, string>();
  const counts = waiting.filter(({ kind }) => kind === 'stock');
  const seqs = [...new Set(counts.map(({ asOfSeq }) => asOfSeq))].sort((a, b) => a - b);
  const read = timesRead.get(db) ?? NOTHING_READ;
  let { seq: after, latest } = read.seq <= (seqs[0] ?? 0) ? read : NOTHING_READ;
  for (const seq of seqs) {
    const sql = 'SELECT max(observed_at) FROM order_events WHERE seq > ? AND seq <= ?';
    const time = sqlOf(db).value<string | null>(sql, after, seq) ?? '';
    if (time > latest) latest = time;
    if (latest !== '') times.set(seq, latest);
    after = seq;
  }
  if (after > read.seq) timesRead.set(db, { seq: after, latest });
  return times;
}

/**
 * Merges a change that was submitted before the catalogue arrived into a newer change of the same product. Otherwise a
 * newer sold-out change would be sent first, and the older change would then overwrite it.
 */
function placeInCatalog({ intake, admin }: Stores, waiting: readonly OutboxChange[]): void {
  for (const { changeId, kind, body, basis } of waiting) {
    if (basis === 'mirror') continue;
    const reading = readChange(kind, body);
    const found = 'change' in reading ? intake.resolve(reading) : undefined;
    // A change that cannot be resolved is uploaded unchanged, and the hub then reports the reason.
    if (found?.state === 'resolved') admin.retarget({ changeId }, found);
  }
}

/** Deletes the items up to this number, because the hub has accepted them. */
export function markAcked(db: Database.Database, ackedUpTo: number): void {
  sqlOf(db).run('DELETE FROM _up_items WHERE u <= ?', ackedUpTo);
}

/**
 * Returns how many changes and acknowledgements the hub does not have yet, and when the oldest waiting change was
 * submitted.
 */
export function waitingUp(db: Database.Database): { waiting: number; oldestWaitingAt: string | null } {
  const sql = `SELECT
    (SELECT count(*) FROM _outbox WHERE state = 'pending' AND held_guard IS NULL) +
      (SELECT count(*) FROM _up_acks) + (SELECT count(*) FROM _up_items) AS waiting,
    (SELECT min(created_at) FROM _outbox WHERE state = 'pending' AND held_guard IS NULL) AS oldestWaitingAt`;
  const none = { waiting: 0, oldestWaitingAt: null };
  return sqlOf(db).row<{ waiting: number; oldestWaitingAt: string | null }>(sql) ?? none;
}
