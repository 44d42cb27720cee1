import type Database from 'better-sqlite3';
import type { OrderSource } from '../../domain/order/order.ts';

/** Which of what was received is meant; what is left out does not restrict. */
export interface ReceivedFilter {
  orderId?: string | undefined;
  /** ISO 8601 UTC; received at or after it. */
  since?: string | undefined;
  /** Received before it. */
  until?: string | undefined;
  source?: OrderSource | undefined;
}

/**
 * - `newest`: the order's payload as the mirror has it
 * - `earlier`: merged, and replaced or confirmed since
 * - `held`: a webhook that would take the order back, noted and not merged
 * - `quarantined`: could not be read
 */
export type ReceivedState = 'newest' | 'earlier' | 'held' | 'quarantined';

export interface ReceivedEntry {
  /** Names it for `get`: a letter for where it is kept, and a number. */
  id: string;
  state: ReceivedState;
  /** null: in quarantine nobody knows. */
  orderId: string | null;
  source: OrderSource;
  receivedAt: string;
  /** Status of the order at its event, or as a held webhook had it; null where it brought none. */
  status: string | null;
}

export interface ReceivedDetail extends ReceivedEntry {
  payload: string | Uint8Array;
}

const NEWEST_TIME = 'coalesce(o.payload_at, o.updated_at)';

const matches = (order: string, time: string, source: string) =>
  `(@orderId IS NULL OR ${order} = @orderId) AND (@since IS NULL OR ${time} >= @since)
   AND (@until IS NULL OR ${time} < @until) AND (@source IS NULL OR ${source} = @source)`;

const columns = (letter: string, number: string, state: ReceivedState) =>
  `'${letter}' || ${number} AS id, '${state}' AS state`;

const NEWEST = `SELECT ${columns('o', 'o.seq', 'newest')}, o.order_id AS orderId, o.payload_source AS source,
  ${NEWEST_TIME} AS receivedAt, o.status FROM orders o`;
const EARLIER = `SELECT ${columns('p', 'p.payload_id', 'earlier')}, p.order_id AS orderId, p.source,
  p.received_at AS receivedAt,
  (SELECT e.status FROM order_events e WHERE e.seq = p.seq AND p.applied = 1) AS status FROM order_payloads p`;
const HELD = `SELECT ${columns('h', 'h.held_id', 'held')}, h.order_id AS orderId, 'webhook' AS source,
  h.received_at AS receivedAt, h.status FROM held_notifications h`;
const QUARANTINED = `SELECT ${columns('q', 'q.quarantine_id', 'quarantined')}, NULL AS orderId, q.source,
  q.received_at AS receivedAt, NULL AS status FROM quarantine q`;
const OF_ORDERS = "q.source IN ('webhook', 'poll')";

const LIST_QUARANTINED = `${QUARANTINED} WHERE ${OF_ORDERS} AND ${matches('NULL', 'q.received_at', 'q.source')}`;
const LIST_ALL = `${NEWEST} WHERE ${matches('o.order_id', NEWEST_TIME, 'o.payload_source')}
  UNION ALL ${EARLIER} WHERE ${matches('p.order_id', 'p.received_at', 'p.source')}
  UNION ALL ${HELD} WHERE ${matches('h.order_id', 'h.received_at', "'webhook'")}
  UNION ALL ${LIST_QUARANTINED}`;

/** Where each kind of id is looked up; the payload is read for one row only. */
const BY_ID: Record<string, string> = {
  o: `${NEWEST.replace(' FROM', ', o.payload FROM')} WHERE o.seq = ?`,
  p: `${EARLIER.replace(' FROM order_payloads', ', p.payload FROM order_payloads')} WHERE p.payload_id = ?`,
  h: `${HELD.replace(' FROM', ', h.payload FROM')} WHERE h.held_id = ?`,
  q: `${QUARANTINED.replace(' FROM', ', q.payload FROM')} WHERE q.quarantine_id = ?`,
};

/** Newest first. Without an order it goes over all that is kept, so it is for people, not for loops. */
export function listReceived(
  db: Database.Database,
  filter: ReceivedFilter,
  options: { limit: number; quarantinedOnly: boolean },
): ReceivedEntry[] {
  const parts = options.quarantinedOnly ? LIST_QUARANTINED : LIST_ALL;
  return db
    .prepare<[object], ReceivedEntry>(`${parts} ORDER BY receivedAt DESC, id DESC LIMIT @limit`)
    .all({ ...bindings(filter), limit: options.limit });
}

/** undefined: nothing has this id, or no longer. */
export function getReceived(db: Database.Database, id: string): ReceivedDetail | undefined {
  const match = /^([ophq])(\d{1,15})$/.exec(id);
  const sql = BY_ID[match?.[1] ?? ''];
  return sql === undefined ? undefined : db.prepare<[number], ReceivedDetail>(sql).get(Number(match?.[2]));
}

/** Orders of which something that matches was received, by pages: those after the row `after`. */
export function ordersReceived(
  db: Database.Database,
  filter: ReceivedFilter,
  page: { after: number; limit: number },
): { row: number; orderId: string }[] {
  return db
    .prepare<[object], { row: number; orderId: string }>(
      `SELECT o.rowid AS row, o.order_id AS orderId FROM orders o
       WHERE o.rowid > @after AND (@orderId IS NULL OR o.order_id = @orderId)
         AND (${matches('o.order_id', NEWEST_TIME, 'o.payload_source')} OR EXISTS (
           SELECT 1 FROM order_payloads p
           WHERE p.order_id = o.order_id AND ${matches('p.order_id', 'p.received_at', 'p.source')}))
       ORDER BY o.rowid LIMIT @limit`,
    )
    .all({ ...bindings(filter), ...page });
}

/** Quarantined payloads of orders that match, the oldest first. */
export function quarantinedOrders(db: Database.Database, filter: ReceivedFilter): number[] {
  return db
    .prepare<[object], number>(
      `SELECT quarantine_id FROM quarantine q
       WHERE ${OF_ORDERS} AND ${matches('NULL', 'q.received_at', 'q.source')} ORDER BY quarantine_id`,
    )
    .pluck()
    .all(bindings(filter));
}

function bindings({ orderId = null, since = null, until = null, source = null }: Partial<Nullable>) {
  return { orderId, since, until, source };
}

type Nullable = { [Key in keyof ReceivedFilter]: ReceivedFilter[Key] | null };
