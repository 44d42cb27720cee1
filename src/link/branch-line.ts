import { randomUUID } from 'node:crypto';
import type Database from 'better-sqlite3';
import * as z from 'zod';
import { BRANCH_PRODUCTS } from '../catalog/branch-catalog.ts';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { SentOrder } from '../orders/branch-feed.ts';
import { PERSONAL_FIELDS } from '../orders/customer.ts';
import { forgetCustomer } from '../orders/forget.ts';
import { newestSeq } from '../orders/mirror-file.ts';
import type { OrderReading } from '../orders/order.ts';
import { mergeOrder } from '../orders/order-rows.ts';
import { quarantine } from '../orders/quarantine.ts';
import type { OrderSpellings } from '../orders/spellings.ts';
import { PRIORITY_OTHERS, PRIORITY_SOLD_OUT } from '../outbox/batch.ts';
import { type OutboxChange, readChange } from '../outbox/change.ts';
import { OutboxQueue } from '../outbox/queue.ts';
import type { Stores } from '../outbox/stores.ts';
import {
  type DownMessage,
  FORGOTTEN_MAX,
  type HelloAnswer,
  NUMBER_MAX,
  RESULT,
  type Result,
  SNAPSHOT,
  SNAPSHOT_END,
  UP_ITEMS_MAX,
  type UpItem,
} from './link.ts';
import { QUESTION_BYTES_MAX } from './question-gate.ts';

/** Position of a branch in the hub's feed, and its line. */
export interface BranchPlace {
  epoch: string | null;
  mark: number;
  line: string;
  lastU: number;
}

/**
 * A branch's side of the link in the mirror has its position in the hub's feed, and the items that are being
 * sent up. Each function works in the caller's transaction.
 */

/** Starts a line (the numbering of what goes up) if there is none, and then returns it. */
export function beginLink(db: Database.Database): string | undefined {
  const line = randomUUID();
  const begin = 'INSERT INTO link (one, line) VALUES (1, ?) ON CONFLICT DO NOTHING';
  return sqlOf(db).run(begin, line).changes === 0 ? undefined : line;
}

export function branchPlace(db: Database.Database): BranchPlace {
  const sql = 'SELECT epoch, mark, line, last_u AS lastU FROM link';
  return sqlOf(db).row<BranchPlace>(sql) ?? { epoch: null, mark: 0, line: '', lastU: 0 };
}

/** Returns the last epochs of the hub that this mirror followed before the present one. */
export function leftEpochs(db: Database.Database): string[] {
  return JSON.parse(sqlOf(db).value<string>('SELECT left_epochs FROM link') ?? '[]') as string[];
}

/**
 * Whether the hub's answer agrees with the items that this mirror sent up. If not, this mirror or the hub's is an older
 * copy.
 */
export function isAgreed(
  db: Database.Database,
  { upTo, isLineKnown }: HelloAnswer,
  isOwnLine: boolean,
): boolean {
  const { lastU } = branchPlace(db);
  const firstU = sqlOf(db).value<number | null>('SELECT min(u) FROM up_items') ?? lastU + 1;
  return (isLineKnown || isOwnLine) && upTo >= firstU - 1 && upTo <= lastU;
}

/**
 * Starts a new line and renumbers what is being sent. `isCopy`: this mirror may be an older copy, so it follows the
 * hub again from a snapshot. Returns the line.
 */
export function beginLine(db: Database.Database, isCopy: boolean): string {
  const items = sqlOf(db).rows<{ kind: string; changeId: number | null; body: string }>(
    'SELECT kind, change_id AS changeId, body FROM up_items ORDER BY u',
  );
  sqlOf(db).run('DELETE FROM up_items');
  for (const [i, { kind, changeId, body }] of items.entries()) {
    const again = 'INSERT INTO up_items (u, kind, change_id, body) VALUES (?, ?, ?, ?)';
    sqlOf(db).run(again, i + 1, kind, changeId, body);
  }
  const line = randomUUID();
  sqlOf(db).run('UPDATE link SET line = ?, last_u = ?', line, items.length);
  if (isCopy) sqlOf(db).run('UPDATE link SET epoch = NULL, mark = 0');
  return line;
}

/** Whether a numbered item may not have arrived. */
export function isUnderWay(db: Database.Database): boolean {
  return sqlOf(db).row('SELECT 1 FROM up_items') !== undefined;
}

export interface Applied {
  orders: number;
  /** Whether the feed has a gap that only a snapshot can fill. */
  hasGap: boolean;
  /**
   * Whether the gap may still close, because the missing entries are of the same epoch and the server resends
   * lost messages.
   */
  mayClose: boolean;
  /** The rest was not applied, because the hub must lease more numbers first. */
  isLeaseSpent: boolean;
}

/** Stored earlier epochs; more than a hub begins while a server still has messages of them. */
const LEFT_MAX = 20;

const ORDER = z.object({
  source: z.enum(['webhook', 'poll']),
  observedAt: z.string(),
  raw: z.string(),
  reading: z.custom<OrderReading>((value) => isReading(value)),
  isWhole: z.literal(true).exactOptional(),
  isForgotten: z.literal(true).exactOptional(),
});

const FORGET = z.object({ orderId: z.string().min(1) });

/** Whether the value has the form of an order reading of the hub. */
function isReading(value: unknown): boolean {
  const { orderId, fields, items = [], incomplete = [] } = Object(value) as Partial<OrderReading>;
  const hasLists = Array.isArray(items) && Array.isArray(incomplete);
  return typeof orderId === 'string' && orderId !== '' && typeof fields === 'object' && hasLists;
}

/**
 * Applies entries from the hub. Entries that are here already are skipped. After a gap, or in another epoch, nothing
 * is applied until a snapshot begins.
 */
export function applyDown(
  stores: Stores,
  messages: readonly DownMessage[],
  spellings: OrderSpellings,
  { nowMs, leasedSeq }: { nowMs: number; leasedSeq: number },
): Applied {
  const { db } = stores;
  let { epoch, mark } = branchPlace(db);
  const { line } = branchPlace(db);
  const left = leftEpochs(db);
  const applied: Applied = { orders: 0, hasGap: false, mayClose: false, isLeaseSpent: false };
  for (const message of messages) {
    if (newestSeq(db) >= leasedSeq) {
      applied.isLeaseSpent = true;
      break;
    }
    if (!isNumber(message.n)) continue;
    // An entry of an earlier epoch that the server sends again.
    if (message.epoch !== epoch && left.includes(message.epoch)) continue;
    const isSnapshot =
      message.kind === 'snapshot-begin' &&
      (message.epoch === epoch ? message.n > mark : isForLine(message, line));
    if (isSnapshot) applied.hasGap = false;
    else if (message.epoch !== epoch || message.n > mark + 1) {
      applied.hasGap = true;
      applied.mayClose = message.epoch === epoch;
      continue;
    } else if (message.n <= mark) continue;
    if (applyOne(stores, message, spellings, nowMs)) applied.orders += 1;
    if (epoch !== null && epoch !== message.epoch) left.push(epoch);
    ({ epoch, n: mark } = message);
  }
  const sql = 'UPDATE link SET epoch = ?, mark = ?, left_epochs = ?';
  sqlOf(db).run(sql, epoch, mark, JSON.stringify(left.slice(-LEFT_MAX)));
  return applied;
}

function isNumber(n: number): boolean {
  return Number.isInteger(n) && n > 0 && n <= NUMBER_MAX;
}

/** A repeated earlier snapshot begins before this mirror's position. */
function isForLine({ body }: DownMessage, line: string): boolean {
  const snapshot = SNAPSHOT.safeParse(JSON.parse(body));
  return snapshot.success && (snapshot.data.line ?? line) === line;
}

/**
 * Applies one entry; returns whether it was an order. An entry that cannot be applied is quarantined, and later ones
 * are still applied.
 */
function applyOne(stores: Stores, message: DownMessage, spellings: OrderSpellings, nowMs: number): boolean {
  const { db } = stores;
  const apply = db.transaction(() => {
    if (message.kind === 'order') {
      const sent: SentOrder = ORDER.parse(JSON.parse(message.body));
      const { source, reading, raw, observedAt, isWhole, isForgotten } = sent;
      const newer = 'SELECT 1 FROM orders WHERE order_id = ? AND updated_at > ?';
      // A restored hub may send an older state of an order than it sent before the restore.
      if (isWhole && sqlOf(db).row(newer, reading.orderId, observedAt) !== undefined) return false;
      // The customer is removed in the same step, because the removal would otherwise become an event of its own.
      if (isForgotten) forgetCustomer(db, reading.orderId, spellings, isoUtc(nowMs));
      mergeOrder(db, { source, reading, raw, observedAtMs: Date.parse(observedAt) }, spellings, null);
      if (!isForgotten) noteForgotten(db, reading);
    } else if (message.kind === 'forget') {
      const { orderId } = FORGET.parse(JSON.parse(message.body));
      sqlOf(db).run('DELETE FROM forgotten_up WHERE order_id = ?', orderId);
      forgetCustomer(db, orderId, spellings, isoUtc(nowMs));
    } else if (message.kind === 'catalog') {
      stores.catalog.takeDown(BRANCH_PRODUCTS.parse(JSON.parse(message.body)));
    } else if (message.kind === 'snapshot-end') {
      handUpAgain(stores, SNAPSHOT_END.parse(JSON.parse(message.body)).underWay, nowMs);
    } else if (message.kind === 'result') {
      applyResult(stores, RESULT.parse(JSON.parse(message.body)), nowMs);
    }
    return message.kind === 'order';
  });
  try {
    return apply();
  } catch (error) {
    // A disk error is not the message's fault.
    const { code = '' } = error as { code?: string };
    if (code.startsWith('SQLITE_') && !/^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG)/.test(code)) throw error;
    const reason = `Entry ${message.n} of the hub (${message.kind}) could not be applied.`;
    const source = message.kind === 'catalog' ? 'catalog' : 'webhook';
    quarantine(db, { source, receivedAtMs: nowMs, reason, payload: message.body });
    return false;
  }
}

/**
 * Notes an order whose customer was removed here but is known to the hub. The hub was restored from an older
 * backup and must remove the customer again.
 */
function noteForgotten(db: Database.Database, { orderId, fields }: OrderReading): void {
  if (PERSONAL_FIELDS.every((field) => fields[field] == null)) return;
  const note = `INSERT INTO forgotten_up (order_id) SELECT order_id FROM orders
    WHERE order_id = ? AND forgotten_at IS NOT NULL ON CONFLICT DO NOTHING`;
  sqlOf(db).run(note, orderId);
}

/** Returns some of the orders whose removed customers must be reported to the hub. */
export function forgottenUp(db: Database.Database): string[] {
  return sqlOf(db).values<string>('SELECT order_id FROM forgotten_up LIMIT ?', FORGOTTEN_MAX);
}

export function noteForgottenUp(db: Database.Database, orderIds: readonly string[]): void {
  for (const orderId of orderIds) sqlOf(db).run('DELETE FROM forgotten_up WHERE order_id = ?', orderId);
}

function applyResult(
  { db, reservations }: Pick<Stores, 'db' | 'reservations'>,
  { change, state, message, refusedAck }: Result,
  nowMs: number,
): void {
  if (refusedAck !== undefined) {
    reservations.noteRefused([{ orderId: refusedAck, state: 'rejected', message: message ?? '' }]);
    sqlOf(db).run('DELETE FROM order_acks WHERE order_id = ? AND seq IS NULL', refusedAck);
    return;
  }
  const at = isoUtc(nowMs);
  if (state === 'held') {
    const told = `Held at the hub, for a person there: ${message ?? ''}`;
    sqlOf(db).run("UPDATE outbox SET message = ? WHERE change_id = ? AND state = 'sending'", told, change);
    return;
  }
  const newer = `SELECT min(n.change_id) FROM outbox n JOIN outbox o ON o.change_id = @change
    WHERE n.kind = o.kind AND n.target = o.target AND n.change_id > @change`;
  const settled = sqlOf(db).run(
    `UPDATE outbox SET state = @state, message = @message, settled_at = @at,
       superseded_by = CASE WHEN @state = 'superseded' THEN (${newer}) END
     WHERE change_id = @change AND state <> 'pending'`,
    { change, state, message, at },
  );
  if (settled.changes === 0) return;
  const queue = new OutboxQueue(db);
  const row = queue.get(change);
  if (row && state !== 'superseded') queue.supersedeRejected(row, at);
}

/**
 * After a snapshot, sends unsettled changes and acknowledgements again, because the hub may never have received them.
 */
function handUpAgain({ db, intake, reservations }: Stores, underWay: readonly number[], nowMs: number): void {
  const queue = new OutboxQueue(db);
  queue.begin();
  const isAtHub = new Set(underWay);
  const under =
    "WHERE state = 'sending' AND change_id NOT IN (SELECT change_id FROM up_items WHERE change_id NOT NULL)";
  for (const sent of queue.all(`${under} ORDER BY version DESC`)) {
    if (isAtHub.has(sent.changeId)) continue;
    const { changeId, target: key, conflictKey } = sent;
    // The catalogue may have arrived since the submission, and newer values may wait under the product's own id.
    const reading = readChange(sent.kind, sent.body);
    const found = 'change' in reading ? intake.resolve(reading) : undefined;
    let rest = queue.restOf(sent, { key, conflictKey });
    if ('body' in rest && found && 'target' in found) {
      rest = queue.restOf({ ...sent, body: rest.body }, found.target);
    }
    if ('overruledBy' in rest) {
      const message = `Replaced by change ${rest.overruledBy}.`;
      applyResult({ db, reservations }, { change: changeId, state: 'superseded', message }, nowMs);
    } else {
      const message = 'The hub did not say what became of it; it is handed up again.';
      queue.putBack({ ...sent, body: rest.body }, message, isoUtc(nowMs));
    }
  }
  sqlOf(db).run(
    `INSERT INTO up_acks (order_id) SELECT order_id FROM order_acks
     WHERE order_id NOT IN (SELECT json_extract(body, '$.value') FROM up_items WHERE kind = 'ack')
     ON CONFLICT DO NOTHING`,
  );
}

/**
 * Requeues the changes being sent, because the hub refused them for a full queue. They are sent later on a new line,
 * after newer values of theirs were merged in. Returns that line; a late answer for the old line is ignored.
 */
export function takeBack(db: Database.Database, nowMs: number): string {
  const queue = new OutboxQueue(db);
  queue.begin();
  const back = queue.all('WHERE change_id IN (SELECT change_id FROM up_items) ORDER BY version DESC');
  const why = 'Many changes of this branch wait at the hub; it is handed up later.';
  for (const change of back) queue.putBack(change, why, isoUtc(nowMs));
  sqlOf(db).run(
    `INSERT INTO up_acks (order_id) SELECT json_extract(body, '$.value') FROM up_items WHERE kind = 'ack'
     ON CONFLICT DO NOTHING`,
  );
  sqlOf(db).run('DELETE FROM up_items');
  return beginLine(db, false);
}

/** Body of an item as it is stored until the hub has accepted the item. */
type UpBody = Pick<UpItem, 'reference' | 'value' | 'isTyped' | 'asOf'>;

/**
 * Returns what to send up now: items being sent already, else the oldest changes, and acknowledgements once no change
 * waits. A numbered change is on its way, so newer values get their own number. `onlySoldOut`: the hub accepts
 * nothing else for now.
 */
export function nextUp(stores: Stores, onlySoldOut = false): UpItem[] {
  const { db } = stores;
  const sql = 'SELECT u, kind, change_id AS changeId, body FROM up_items ORDER BY u';
  const underWay = () =>
    sqlOf(db)
      .rows<{ u: number; kind: UpItem['kind']; changeId: number | null; body: string }>(sql)
      .map(({ body, ...item }) => ({
        ...item,
        ...(JSON.parse(body) as UpBody),
      }));
  const before = underWay();
  if (before.length > 0) return before;
  let { lastU } = branchPlace(db);
  const put = (kind: UpItem['kind'], changeId: number | null, body: UpBody) => {
    lastU += 1;
    const add = 'INSERT INTO up_items (u, kind, change_id, body) VALUES (?, ?, ?, ?)';
    sqlOf(db).run(add, lastU, kind, changeId, JSON.stringify(body));
  };
  const priority = onlySoldOut ? PRIORITY_SOLD_OUT : PRIORITY_OTHERS;
  placeInCatalog(stores, waitingChanges(db, priority));
  const waiting = waitingChanges(db, priority);
  let length = 0;
  let isFull = false;
  for (const { changeId, kind, body, reference } of waiting) {
    const bodyLength = JSON.stringify(body).length;
    length += bodyLength;
    isFull = length > QUESTION_BYTES_MAX / 4 && length > bodyLength;
    if (isFull) break;
    put(kind, changeId, { reference, value: body });
    const leave = "UPDATE outbox SET state = 'sending', attempts = attempts + 1 WHERE change_id = ?";
    sqlOf(db).run(leave, changeId);
  }
  const room = onlySoldOut || isFull ? 0 : UP_ITEMS_MAX - waiting.length;
  const acks = sqlOf(db).rows<{ orderId: string; isTyped: number; asOf: string | null }>(
    `SELECT u.order_id AS orderId, coalesce(min(a.source = 'cli'), 0) AS isTyped, (
       SELECT CASE WHEN o.seq <= a.seq THEN o.updated_at ELSE (SELECT max(e.observed_at) FROM order_events e
         WHERE e.order_id = o.order_id AND e.seq <= a.seq) END
       FROM orders o WHERE o.order_id = u.order_id AND a.seq IS NOT NULL) AS asOf
     FROM up_acks u LEFT JOIN order_acks a USING (order_id) GROUP BY u.order_id ORDER BY u.order_id LIMIT ?`,
    room,
  );
  for (const { orderId, isTyped, asOf } of acks) {
    const how = { ...(isTyped === 1 && { isTyped: true }), ...(asOf !== null && { asOf }) };
    put('ack', null, { reference: null, value: orderId, ...how });
    sqlOf(db).run('DELETE FROM up_acks WHERE order_id = ?', orderId);
  }
  if (waiting.length + acks.length > 0) sqlOf(db).run('UPDATE link SET last_u = ?', lastU);
  return underWay();
}

/** Returns waiting changes in the order in which they are sent up. */
function waitingChanges(db: Database.Database, priority: number): OutboxChange[] {
  const which = `WHERE state = 'pending' AND held_guard IS NULL AND priority <= ?
    ORDER BY priority, queue_seq LIMIT ${UP_ITEMS_MAX}`;
  return new OutboxQueue(db).all(which, priority);
}

/**
 * Merges values submitted before the catalogue came with newer values of the same product. As two changes, a
 * newer sold-out one would be sent first, and the older one would overwrite it.
 */
function placeInCatalog({ intake, decisions }: Stores, waiting: readonly OutboxChange[]): void {
  for (const { changeId, kind, body, basis } of waiting) {
    if (basis === 'mirror') continue;
    const reading = readChange(kind, body);
    const found = 'change' in reading ? intake.resolve(reading) : undefined;
    // If the change cannot be resolved, the hub reports the reason.
    if (found?.state === 'resolved') decisions.retarget({ changeId }, found);
  }
}

/** Records that the hub has everything up to this number. */
export function noteUp(db: Database.Database, upTo: number): void {
  sqlOf(db).run('DELETE FROM up_items WHERE u <= ?', upTo);
}

/** Counts changes and acknowledgements that the hub does not have yet, with the time of the oldest change. */
export function waitingUp(db: Database.Database): { waiting: number; oldestWaitingAt: string | null } {
  const sql = `SELECT
    (SELECT count(*) FROM outbox WHERE state = 'pending' AND held_guard IS NULL) +
      (SELECT count(*) FROM up_acks) + (SELECT count(*) FROM up_items) AS waiting,
    (SELECT min(created_at) FROM outbox WHERE state = 'pending' AND held_guard IS NULL) AS oldestWaitingAt`;
  const none = { waiting: 0, oldestWaitingAt: null };
  return sqlOf(db).row<{ waiting: number; oldestWaitingAt: string | null }>(sql) ?? none;
}
