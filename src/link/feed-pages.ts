import type Database from 'better-sqlite3';
import {
  newestRev,
  nextChanges,
  nextRange,
  type ProductsNamed,
  productsFor,
} from '../catalog/branch-catalog.ts';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { addToFeed, type KnownAck, noteSent, type SentOrder } from '../orders/merging/branch-feed.ts';
import { IS_OPEN, type OrderFields, type OrderReading } from '../orders/merging/order.ts';
import { orderById } from '../orders/reading/order-queries.ts';
import type { DownMessage, Hello, Result } from './link.ts';

/**
 * Sends snapshots and catalogue changes to branches, page by page, when nothing else waits. The feed stores
 * only which content a page has; the content is read when the page is sent. Each function works in the
 * caller's transaction.
 */

/** Stages of a snapshot. Rows that a POS needs first are sent first. */
const STAGES = ['open', 'results', 'catalog', 'ended'] as const;
type Stage = (typeof STAGES)[number];

/** Maximum number of orders that are examined for one page, and of results on one page. */
const LOOKED_AT = 500;
/** Maximum number of branches that get a catalogue page in one transaction; small, so that orders wait only shortly. */
const CHANGED_AT_ONCE = 4;
/**
 * Maximum number of catalogue pages in a branch's feed that the branch has not read yet. Together they have up to 2,000
 * products and about 800 kB on the server.
 */
const PAGES_AHEAD = 40;

/**
 * Starts a snapshot, which has everything a branch needs to continue without earlier entries. `uplinkId` is
 * the uplink of the mirror that asked.
 */
export function beginSnapshot(db: Database.Database, branch: string, uplinkId: string, nowMs: number): void {
  const at = isoUtc(nowMs);
  addToFeed(db, branch, 'snapshot-begin', { line: uplinkId }, { at });
  // The snapshot ends at the newest event, because each later event sends its whole order anyway.
  sqlOf(db).run(
    `UPDATE _feed_branches SET snapshot_n = last_n, snapshot_at = @at, snapshot_stage = 'open', snapshot_after = 0,
       snapshot_seq = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0), catalog_rev = @rev
     WHERE branch = @branch`,
    { at, branch, rev: newestRev(db) },
  );
}

interface Snapshot {
  branch: string;
  stage: Stage;
  seq: number;
  after: number | string;
}

/** Returns whether the branch has fewer than `PAGES_AHEAD` unread catalogue pages. */
export type HasRoom = (branch: string) => boolean;

/** Adds the next page to the feeds. Returns false if there is no page to add. */
export function addPage(db: Database.Database, hasRoom: HasRoom, nowMs: number): boolean {
  const at = isoUtc(nowMs);
  // All branches get their open orders before any branch gets ended orders.
  const snapshot = sqlOf(db).row<Snapshot>(
    `SELECT branch, snapshot_stage AS stage, snapshot_seq AS seq, snapshot_after AS after FROM _feed_branches
     WHERE snapshot_stage IS NOT NULL
     ORDER BY instr('${STAGES.join(' ')}', snapshot_stage), branch LIMIT 1`,
  );
  if (!snapshot) return addChanges(db, hasRoom, at);
  const { branch, stage } = snapshot;
  const after = { open: addOrders, ended: addOrders, results: addResults, catalog: addRange }[stage](
    db,
    snapshot,
    at,
  );
  const next = after === null ? STAGES[STAGES.indexOf(stage) + 1] : stage;
  if (next === undefined) addToFeed(db, branch, 'snapshot-end', { underWay: underWay(db, branch) }, { at });
  const begin = { open: 0, results: 0, catalog: '', ended: snapshot.seq + 1 };
  sqlOf(db).run(
    'UPDATE _feed_branches SET snapshot_stage = ?, snapshot_after = ? WHERE branch = ?',
    ...[next ?? null, after ?? (next ? begin[next] : null), branch],
  );
  return true;
}

/** Returns the ids of the branch's changes that the hub will send without a person's decision. */
function underWay(db: Database.Database, branch: string): number[] {
  return sqlOf(db).values<number>(
    `SELECT u.branch_change_id FROM _handed_up u JOIN _outbox o USING (change_id)
     WHERE u.branch = ? AND o.state IN ('pending', 'sending') AND o.held_guard IS NULL`,
    branch,
  );
}

/** Returns whether there is a page to add to any feed. */
export function hasPage(db: Database.Database, hasRoom: HasRoom): boolean {
  const underWay = `SELECT 1 FROM _feed_branches
    WHERE snapshot_stage IS NOT NULL`;
  return sqlOf(db).row(underWay) !== undefined || changedBranches(db, hasRoom).length > 0;
}

/** Adds one page of orders to a snapshot: in stage `open` open orders, oldest first; later the others, newest first. */
function addOrders(
  db: Database.Database,
  { branch, stage, seq, after }: Snapshot,
  at: string,
): number | null {
  const isOpen = stage === 'open';
  const part = `SELECT order_id AS orderId, seq, ${IS_OPEN} AS open, forgotten_at NOT NULL AS forgotten FROM _orders
    WHERE store_external_id = @store
      AND NOT EXISTS (SELECT 1 FROM _unassigned_orders u WHERE u.order_id = _orders.order_id AND u.branch <> @branch)
      AND ${isOpen ? 'seq > @after AND seq <= @seq ORDER BY seq' : 'seq < @after AND seq <= @seq ORDER BY seq DESC'}
    LIMIT ${LOOKED_AT}`;
  const stores = sqlOf(db).values<string>('SELECT store_id FROM _feed_stores WHERE branch = ?', branch);
  const found = stores.flatMap((store) =>
    sqlOf(db).rows<{ orderId: string; seq: number; open: number; forgotten: number }>(part, {
      store,
      branch,
      after,
      seq,
    }),
  );
  // The query by store does not find these orders: a person assigned them to this branch, or they were sent to this
  // branch before they moved to another one.
  const others = sqlOf(db).rows<(typeof found)[number]>(
    `SELECT order_id AS orderId, seq, ${IS_OPEN} AS open, forgotten_at NOT NULL AS forgotten FROM _orders
     WHERE order_id IN (SELECT order_id FROM _unassigned_orders WHERE branch = @branch
         UNION SELECT order_id FROM _sent_orders WHERE branch = @branch AND moved = 1)
       AND ${isOpen ? 'seq > @after' : 'seq < @after'} AND seq <= @seq`,
    { branch, after, seq },
  );
  const page = [...found, ...others]
    .sort((a, b) => (isOpen ? a.seq - b.seq : b.seq - a.seq))
    .slice(0, LOOKED_AT);
  for (const { orderId, open, forgotten } of page) {
    if ((open === 1) !== isOpen) continue;
    sendWhole(db, branch, orderId, at);
    // An earlier entry may have given the branch the customer's data.
    if (forgotten === 1) addToFeed(db, branch, 'forget', { orderId }, { at, orderId });
  }
  return page.at(-1)?.seq ?? null;
}

function addResults(db: Database.Database, { branch, after }: Snapshot, at: string): number | null {
  const ended = `SELECT u.change_id AS changeId, u.branch_change_id AS change, o.state, o.message
    FROM _handed_up u JOIN outbox o USING (change_id)
    WHERE u.branch = ? AND u.change_id > ? ORDER BY u.change_id LIMIT ${LOOKED_AT}`;
  const page = sqlOf(db).rows<Result & { changeId: number }>(ended, branch, after);
  for (const { changeId: _, ...result } of page) {
    const isOver = ['done', 'rejected', 'superseded'].includes(result.state);
    if (isOver) addToFeed(db, branch, 'result', result, { at });
  }
  return page.at(-1)?.changeId ?? null;
}

function addRange(db: Database.Database, { branch, after }: Snapshot, at: string): string | null {
  const range = nextRange(db, String(after));
  addToFeed(db, branch, 'catalog', range, { at });
  return range.to;
}

interface Changed {
  branch: string;
  rev: number;
}

const HAS_NEWS = `(EXISTS (SELECT 1 FROM _catalog_news c WHERE c.branch = '' AND c.rev > b.catalog_rev)
  OR EXISTS (SELECT 1 FROM _catalog_news c WHERE c.branch = b.branch AND c.rev > b.catalog_rev))`;

/** Returns branches that have not received the newest catalogue changes yet, the one that is furthest behind first. */
function changedBranches(db: Database.Database, hasRoom: HasRoom): Changed[] {
  const changed = sqlOf(db).rows<Changed>(
    `SELECT branch, catalog_rev AS rev FROM _feed_branches b
     WHERE line IS NOT NULL AND catalog_key IS NOT NULL AND ${HAS_NEWS}
     ORDER BY catalog_rev, branch`,
  );
  return changed.filter(({ branch }) => hasRoom(branch)).slice(0, CHANGED_AT_ONCE);
}

/**
 * Limits the unread catalogue pages of a branch, so that pages do not push orders out of the server's
 * storage. Later changes wait in `_catalog_news`, each product once.
 */
export class CatalogRoom {
  /** For each branch that may get no further page, the feed number that it had read at the last check. */
  readonly #full = new Map<string, number>();

  /**
   * Returns whether the branch may get another page. `mark` is the newest feed number in the branch's mirror.
   */
  has(db: Database.Database, branch: string, mark: number): boolean {
    if (this.#full.get(branch) === mark) return false;
    const sql = "SELECT count(*) FROM _feed WHERE branch = ? AND n > ? AND kind = 'catalog'";
    const isFull = (sqlOf(db).value<number>(sql, branch, mark) ?? 0) >= PAGES_AHEAD;
    if (isFull) this.#full.set(branch, mark);
    else this.#full.delete(branch);
    return !isFull;
  }
}

/**
 * Returns whether a branch has the present catalogue. Returns false if the hub does not know which stocks are
 * the branch's.
 */
export function hasCatalog(
  db: Database.Database,
  branch: string,
  { epoch, mark }: Pick<Hello, 'epoch' | 'mark'>,
): boolean {
  const sql = `SELECT 1 FROM _hub, _feed_branches b WHERE b.branch = ? AND coalesce(b.epoch, _hub.epoch) = ? AND b.last_n = ?
    AND b.subsidiary_id IS NOT NULL AND b.snapshot_stage IS NULL AND NOT ${HAS_NEWS}`;
  return sqlOf(db).row(sql, branch, epoch, mark) !== undefined;
}

function addChanges(db: Database.Database, hasRoom: HasRoom, at: string): boolean {
  const changed = changedBranches(db, hasRoom);
  for (const { branch, rev } of changed) {
    const named = nextChanges(db, branch, rev);
    if (!named) continue;
    addToFeed(db, branch, 'catalog', named, { at });
    sqlOf(db).run('UPDATE _feed_branches SET catalog_rev = ? WHERE branch = ?', named.toRev, branch);
  }
  return changed.length > 0;
}

/**
 * Adds an order to a branch's feed, to be sent in its state at the time of sending. The branch merges this state as
 * final, like the answer of a poll; earlier events are not sent.
 */
export function sendWhole(db: Database.Database, branch: string, orderId: string, at: string): void {
  noteSent(db, branch, orderId);
  addToFeed(db, branch, 'order', null, { at, orderId });
}

export interface FeedEntry extends DownMessage {
  feedId: number;
  orderId: string | null;
}

/** Returns the entry with its content filled in. */
export function composed(db: Database.Database, { feedId, orderId, ...entry }: FeedEntry): DownMessage {
  if (entry.kind === 'catalog') return { ...entry, body: JSON.stringify(productsOf(db, entry)) };
  if (entry.kind !== 'order' || entry.body !== '') return entry;
  const order = orderId === null ? undefined : wholeOrder(db, entry.branch, orderId, feedId);
  // If the order was deleted, or a later entry sends it, this entry is empty, because feed numbers must have no gaps.
  return order ? { ...entry, body: JSON.stringify(order) } : { ...entry, kind: 'overtaken', body: '{}' };
}

function productsOf(db: Database.Database, { branch, body }: DownMessage) {
  const sql = 'SELECT subsidiary_id AS subsidiaryId, catalog_key AS key FROM _feed_branches WHERE branch = ?';
  const row = sqlOf(db).row<{ subsidiaryId: string | null; key: string | null }>(sql, branch);
  const { subsidiaryId = null, key } = row ?? {};
  return productsFor(db, { branch, subsidiaryId, key: key ?? '' }, JSON.parse(body) as ProductsNamed);
}

/** Returns the complete order; undefined if it was deleted, or if a later entry of the branch's feed sends it. */
function wholeOrder(
  db: Database.Database,
  branch: string,
  orderId: string,
  feedId: number,
): SentOrder | undefined {
  const later = "SELECT 1 FROM _feed WHERE order_id = ? AND branch = ? AND kind = 'order' AND feed_id > ?";
  if (sqlOf(db).row(later, orderId, branch, feedId) !== undefined) return undefined;
  const order = orderById(db, orderId);
  const sql = `SELECT payload AS raw, forgotten_at NOT NULL AS isForgotten, EXISTS (SELECT 1 FROM _sent_orders s
      WHERE s.order_id = _orders.order_id AND s.branch = ? AND s.moved = 1) AS isAway
    FROM _orders WHERE order_id = ?`;
  const row = sqlOf(db).row<{ raw: string; isForgotten: number; isAway: number }>(sql, branch, orderId);
  if (order === undefined || row === undefined) return undefined;
  const { raw, isForgotten, isAway } = row;
  const { orderId: _id, seq: _seq, updatedAt: observedAt, items, ...fields } = order;
  const reading: OrderReading = { orderId, fields: fields as OrderFields, items };
  return {
    source: 'poll',
    observedAt,
    reading,
    raw,
    isWhole: true,
    ...(isForgotten && { isForgotten: true }),
    ...(isAway && { isAway: true }),
    ...(!isAway && knownAck(db, orderId)),
  };
}

/** Returns the acknowledgement of the order by the POS of its store; nothing if there is none. */
function knownAck(db: Database.Database, orderId: string): Pick<SentOrder, 'acked'> {
  const sql = `SELECT a.acked_at AS at, a.source, a.without, a.edited_seq NOT NULL AND EXISTS (
      SELECT 1 FROM orders_unbooked u WHERE u.order_id = a.order_id) AS isEdited
    FROM _order_acks a JOIN _orders o USING (order_id)
    WHERE a.order_id = ? AND a.branch IN ('', coalesce(o.store_external_id, '')) ORDER BY a.branch DESC`;
  const row = sqlOf(db).row<Omit<KnownAck, 'isEdited'> & { isEdited: number }>(sql, orderId);
  if (!row) return {};
  const { isEdited, ...ack } = row;
  return { acked: { ...ack, ...(isEdited === 1 && { isEdited: true }) } };
}
