import type Database from 'better-sqlite3';
import * as z from 'zod';
import { BRANCH_PRODUCTS } from '../catalog/branch-catalog.ts';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { forgetCustomer } from '../orders/merging/anonymize.ts';
import type { KnownAck, SentOrder } from '../orders/merging/branch-feed.ts';
import { PERSONAL_FIELDS } from '../orders/merging/customer.ts';
import type { OrderSpellings } from '../orders/merging/field-aliases.ts';
import type { OrderReading } from '../orders/merging/order.ts';
import { mergeOrder } from '../orders/merging/order-rows.ts';
import { newestSeq } from '../orders/reading/mirror-file.ts';
import { quarantine } from '../orders/receiving/quarantine.ts';
import { readChange } from '../outbox/intake/change.ts';
import { OutboxQueue } from '../outbox/sending/queue.ts';
import type { Stores } from '../outbox/sending/repositories.ts';
import { linkCursor } from './branch-upload.ts';
import {
  type DownMessage,
  FORGOTTEN_MAX,
  NUMBER_MAX,
  RESULT,
  type Result,
  SNAPSHOT,
  SNAPSHOT_END,
} from './link.ts';

/** Applies the hub's entries to the mirror of a branch. Each function works in the caller's transaction. */

/** Returns the hub's epochs that this mirror followed before the present epoch. */
export function leftEpochs(db: Database.Database): string[] {
  return JSON.parse(sqlOf(db).value<string>('SELECT left_epochs FROM _link') ?? '[]') as string[];
}

export interface Applied {
  orders: number;
  /** True if an entry was not applied because entries before it are missing, or because it is of another epoch. */
  hasGap: boolean;
  /**
   * True if the missing entries may still arrive, because the epoch is the same and the server resends lost messages.
   * Otherwise only a snapshot can fill the gap.
   */
  mayClose: boolean;
  /**
   * True if some messages were not applied because the lease of event numbers is used up; the hub must lease
   * more first.
   */
  isLeaseSpent: boolean;
}

/** Maximum number of earlier epochs that are stored. A server never holds messages of more epochs than this. */
const LEFT_MAX = 20;

const ORDER = z.object({
  source: z.enum(['webhook', 'poll']),
  observedAt: z.string(),
  raw: z.string(),
  reading: z.custom<OrderReading>((value) => isReading(value)),
  isWhole: z.literal(true).exactOptional(),
  isForgotten: z.literal(true).exactOptional(),
  isAway: z.literal(true).exactOptional(),
  acked: z
    .object({
      at: z.string(),
      source: z.string(),
      without: z.string().nullable(),
      isEdited: z.literal(true).exactOptional(),
    })
    .exactOptional(),
});

const FORGET = z.object({ orderId: z.string().min(1) });

/** Returns whether the value has the shape of an order in the hub's messages. */
function isReading(value: unknown): boolean {
  const { orderId, fields, items = [], incomplete = [] } = Object(value) as Partial<OrderReading>;
  const hasLists = Array.isArray(items) && Array.isArray(incomplete);
  return typeof orderId === 'string' && orderId !== '' && typeof fields === 'object' && hasLists;
}

/**
 * Applies the hub's entries and skips entries that were applied before. An entry after a gap is not applied until the
 * missing entries or a snapshot arrive, and an entry of another epoch not until a snapshot begins that epoch.
 */
export function applyMessages(
  stores: Stores,
  messages: readonly DownMessage[],
  spellings: OrderSpellings,
  { nowMs, leasedSeq }: { nowMs: number; leasedSeq: number },
): Applied {
  const { db } = stores;
  let { epoch, mark } = linkCursor(db);
  const { uplinkId } = linkCursor(db);
  const left = leftEpochs(db);
  const applied: Applied = { orders: 0, hasGap: false, mayClose: false, isLeaseSpent: false };
  for (const message of messages) {
    if (newestSeq(db) >= leasedSeq) {
      applied.isLeaseSpent = true;
      break;
    }
    if (!isNumber(message.n)) continue;
    // The server sent an entry of an earlier epoch again.
    if (message.epoch !== epoch && left.includes(message.epoch)) continue;
    const isSnapshot =
      message.kind === 'snapshot-begin' &&
      (message.epoch === epoch ? message.n > mark : isForUplink(message, uplinkId));
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
  const sql = 'UPDATE _link SET epoch = ?, mark = ?, left_epochs = ?';
  sqlOf(db).run(sql, epoch, mark, JSON.stringify(left.slice(-LEFT_MAX)));
  return applied;
}

function isNumber(n: number): boolean {
  return Number.isInteger(n) && n > 0 && n <= NUMBER_MAX;
}

/**
 * Returns whether the snapshot is for this mirror. A snapshot for another uplink was requested by an earlier
 * mirror.
 */
function isForUplink({ body }: DownMessage, uplinkId: string): boolean {
  const snapshot = SNAPSHOT.safeParse(JSON.parse(body));
  return snapshot.success && snapshot.data.line === uplinkId;
}

/**
 * Applies one entry and returns whether it was an order. An entry that cannot be applied is put into
 * quarantine, so that later entries are still applied.
 */
function applyOne(stores: Stores, message: DownMessage, spellings: OrderSpellings, nowMs: number): boolean {
  const { db } = stores;
  const apply = db.transaction(() => {
    if (message.kind === 'order') {
      const sent: SentOrder = ORDER.parse(JSON.parse(message.body));
      const { source, reading, raw, observedAt, isWhole, isForgotten, isAway, acked } = sent;
      const newer = 'SELECT 1 FROM _orders WHERE order_id = ? AND updated_at > ?';
      // A hub restored from a backup may send an older state of an order than the state sent before.
      if (isWhole && sqlOf(db).row(newer, reading.orderId, observedAt) !== undefined) return false;
      // The customer is removed before the merge, because a removal after it would become an event of its
      // own.
      if (isForgotten) forgetCustomer(db, reading.orderId, spellings, isoUtc(nowMs));
      const observedAtMs = Date.parse(observedAt);
      mergeOrder(db, { source, reading, raw, observedAtMs, isWhole: true }, spellings, null);
      noteAway(db, reading.orderId, isAway === true);
      if (acked) noteAcked(db, reading.orderId, acked);
      if (!isForgotten) noteForgotten(db, reading);
    } else if (message.kind === 'forget') {
      const { orderId } = FORGET.parse(JSON.parse(message.body));
      sqlOf(db).run('DELETE FROM _forgotten_up WHERE order_id = ?', orderId);
      forgetCustomer(db, orderId, spellings, isoUtc(nowMs));
    } else if (message.kind === 'catalog') {
      stores.catalog.applyProducts(BRANCH_PRODUCTS.parse(JSON.parse(message.body)));
    } else if (message.kind === 'snapshot-end') {
      requeueUnsettled(stores, SNAPSHOT_END.parse(JSON.parse(message.body)).underWay, nowMs);
    } else if (message.kind === 'result') {
      applyResult(stores, RESULT.parse(JSON.parse(message.body)), nowMs);
    }
    return message.kind === 'order';
  });
  try {
    return apply();
  } catch (error) {
    // A disk error is rethrown, because the entry is not the cause and can be applied later.
    const { code = '' } = error as { code?: string };
    if (code.startsWith('SQLITE_') && !/^SQLITE_(CONSTRAINT|MISMATCH|TOOBIG)/.test(code)) throw error;
    const reason = `Entry ${message.n} of the hub (${message.kind}) could not be applied.`;
    const source = message.kind === 'catalog' ? 'catalog' : 'webhook';
    quarantine(db, { source, receivedAtMs: nowMs, reason, payload: message.body });
    return false;
  }
}

/** Records whether the hub says that the order does not belong to this branch any more. */
function noteAway(db: Database.Database, orderId: string, isAway: boolean): void {
  const sql = isAway
    ? 'INSERT OR IGNORE INTO _orders_away (order_id) VALUES (?)'
    : 'DELETE FROM _orders_away WHERE order_id = ?';
  sqlOf(db).run(sql, orderId);
}

/**
 * Records an acknowledgement that the hub has and this mirror lacks, as of the order's newest event. It does not go up
 * again. As of the event before, if an edit since has to be acknowledged: the order is then to be booked again.
 */
function noteAcked(
  db: Database.Database,
  orderId: string,
  { at, source, without, isEdited }: KnownAck,
): void {
  const note = `INSERT INTO _order_acks (order_id, branch, acked_at, source, seq, without, edited_seq)
    SELECT order_id, coalesce(store_external_id, ''), @at, @source, seq - @edited, @without,
      CASE WHEN @edited THEN seq END FROM _orders
    WHERE order_id = @orderId AND NOT EXISTS (SELECT 1 FROM _order_acks a WHERE a.order_id = @orderId)`;
  const facts = { orderId, at, source, without, edited: Number(isEdited === true) };
  if (sqlOf(db).run(note, facts).changes > 0)
    sqlOf(db).run('DELETE FROM _up_acks WHERE order_id = ?', orderId);
}

/**
 * Records an order whose customer was removed here while the hub still sends the customer's data. The hub was
 * restored from an older backup and must remove the customer again.
 */
function noteForgotten(db: Database.Database, { orderId, fields }: OrderReading): void {
  if (PERSONAL_FIELDS.every((field) => fields[field] == null)) return;
  const note = `INSERT INTO _forgotten_up (order_id) SELECT order_id FROM _orders
    WHERE order_id = ? AND forgotten_at IS NOT NULL ON CONFLICT DO NOTHING`;
  sqlOf(db).run(note, orderId);
}

/** Returns up to `FORGOTTEN_MAX` orders whose removed customers must be reported to the hub. */
export function forgottenToReport(db: Database.Database): string[] {
  return sqlOf(db).values<string>('SELECT order_id FROM _forgotten_up LIMIT ?', FORGOTTEN_MAX);
}

export function markForgottenReported(db: Database.Database, orderIds: readonly string[]): void {
  for (const orderId of orderIds) sqlOf(db).run('DELETE FROM _forgotten_up WHERE order_id = ?', orderId);
}

function applyResult(
  { db, reservations }: Pick<Stores, 'db' | 'reservations'>,
  { change, state, message, refusedAck }: Result,
  nowMs: number,
): void {
  if (refusedAck !== undefined) {
    reservations.noteRefused([{ orderId: refusedAck, state: 'rejected', message: message ?? '' }]);
    sqlOf(db).run('DELETE FROM _order_acks WHERE order_id = ? AND seq IS NULL', refusedAck);
    return;
  }
  const at = isoUtc(nowMs);
  if (state === 'held') {
    const told = `Held at the hub, for a person there: ${message ?? ''}`;
    sqlOf(db).run("UPDATE _outbox SET message = ? WHERE change_id = ? AND state = 'sending'", told, change);
    return;
  }
  const newer = `SELECT min(n.change_id) FROM _outbox n JOIN _outbox o ON o.change_id = @change
    WHERE n.kind = o.kind AND n.target = o.target AND n.change_id > @change`;
  const settled = sqlOf(db).run(
    `UPDATE _outbox SET state = @state, message = @message, settled_at = @at,
       superseded_by = CASE WHEN @state = 'superseded' THEN (${newer}) END
     WHERE change_id = @change AND state NOT IN ('pending', 'counted')`,
    { change, state, message, at },
  );
  if (settled.changes === 0) return;
  const queue = new OutboxQueue(db);
  const row = queue.get(change);
  if (row && state !== 'superseded') queue.supersedeRejected(row, at);
}

/**
 * Queues changes and acknowledgements without an outcome again after a snapshot, because the hub may never
 * have received them.
 */
function requeueUnsettled(
  { db, intake, reservations }: Stores,
  underWay: readonly number[],
  nowMs: number,
): void {
  const queue = new OutboxQueue(db);
  queue.begin();
  const isAtHub = new Set(underWay);
  const under =
    "WHERE state = 'sending' AND change_id NOT IN (SELECT change_id FROM _up_items WHERE change_id NOT NULL)";
  for (const sent of queue.all(`${under} ORDER BY version DESC`)) {
    if (isAtHub.has(sent.changeId)) continue;
    const { changeId, target: key, conflictKey } = sent;
    // If the catalogue arrived after the submission, newer values may be queued under the product's own id, so the
    // change is compared with those too.
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
    // An acknowledgement as of before all events of its order came from the hub, and says nothing of the edit since.
    `INSERT INTO _up_acks (order_id) SELECT order_id FROM _order_acks a
     WHERE order_id NOT IN (SELECT json_extract(body, '$.value') FROM _up_items WHERE kind = 'ack')
       AND (edited_seq IS NULL OR EXISTS (
         SELECT 1 FROM order_events e WHERE e.order_id = a.order_id AND e.seq <= a.seq))
     ON CONFLICT DO NOTHING`,
  );
}
