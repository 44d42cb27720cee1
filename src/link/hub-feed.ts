import { randomUUID } from 'node:crypto';
import type Database from 'better-sqlite3';
import { branchKey } from '../catalog/catalog-store.ts';
import type { Branch } from '../catalog/product.ts';
import { subsidiaryOf } from '../catalog/unmapped.ts';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { addToFeed } from '../orders/merging/branch-feed.ts';
import { type ChangeSource, readChange, type SubmittedChange } from '../outbox/intake/change.ts';
import type { GuardSettings } from '../outbox/intake/guards.ts';
import type { Acceptance } from '../outbox/intake/intake.ts';
import type { HoldBackSetting } from '../outbox/ledger/hold-back.ts';
import type { Stores } from '../outbox/sending/repositories.ts';
import { beginRoutes, pruneRoutes } from './assign.ts';
import type { FeedEntry } from './feed-pages.ts';
import { branchRow } from './hub-hello.ts';
import type { InvitedBranch, NamedBranch } from './hub-state.ts';
import { ENTRIES_KEPT_MS, type Result, type UpItem } from './link.ts';

/** A configured branch that has its own tillsync. */
export interface FeedBranch extends Branch, NamedBranch {
  mayPrice: boolean;
  /** Whether faults of the branch count in the hub's own health; true if left out. */
  isWatched?: boolean;
}

const DAY_MS = 86_400_000;
const PRUNED_AT_ONCE = 5_000;
/** Longest accepted order id, in characters. */
const ORDER_ID_MAX = 200;
/**
 * Time for which an acknowledgement waits for its order. No poll reads further back, so an order that did not
 * arrive in this time never arrives.
 */
const ACKS_WAIT_MS = 60 * DAY_MS;

/**
 * The hub's tables of the link: entries for the branches, and how far each branch's uploads were accepted.
 * Each function works in the caller's transaction.
 */

/**
 * Updates the branches from the configuration. No branch is deleted, because a feed number must never be used
 * twice.
 */
export function beginHub(db: Database.Database, branches: readonly FeedBranch[], nowMs: number): void {
  sqlOf(db).run('INSERT INTO _hub (one, epoch) VALUES (1, ?) ON CONFLICT DO NOTHING', randomUUID());
  for (const { branch, mayPrice } of branches) {
    sqlOf(db).run(
      `INSERT INTO _feed_branches (branch, may_price) VALUES (?, ?)
       ON CONFLICT (branch) DO UPDATE SET may_price = excluded.may_price`,
      ...[branch, Number(mayPrice)],
    );
  }
  // The index serves the routes and snapshots of a hub; no other installation needs it.
  sqlOf(db).run('CREATE INDEX IF NOT EXISTS orders_by_store ON _orders (store_external_id, seq)');
  nameInCatalog(db, branches);
  beginRoutes(db, branches, isoUtc(nowMs));
}

interface NameInCatalog {
  branch: string;
  key: string | null;
  subsidiaryId: string | null;
}

/**
 * Returns branches whose name in the catalogue has changed. The name is null for a branch that is no longer
 * configured.
 */
function newNames(db: Database.Database, branches: readonly FeedBranch[]): NameInCatalog[] {
  const sql = 'SELECT branch, catalog_key AS key, subsidiary_id AS subsidiaryId FROM _feed_branches';
  return sqlOf(db)
    .rows<NameInCatalog>(sql)
    .flatMap((before) => {
      const found = branches.find(({ branch }) => branch === before.branch);
      const key = found ? branchKey(found) : null;
      const subsidiaryId = found ? subsidiaryOf(db, found, branches) : null;
      const isSame = key === before.key && subsidiaryId === before.subsidiaryId;
      return isSame ? [] : { branch: before.branch, key, subsidiaryId };
    });
}

export function areNamesNew(db: Database.Database, branches: readonly FeedBranch[]): boolean {
  return newNames(db, branches).length > 0;
}

/** Records each branch's name in the catalogue. A branch with a new name gets every product again. */
export function nameInCatalog(db: Database.Database, branches: readonly FeedBranch[]): void {
  for (const { branch, key, subsidiaryId } of newNames(db, branches)) {
    const name = 'UPDATE _feed_branches SET catalog_key = ?, subsidiary_id = ? WHERE branch = ?';
    sqlOf(db).run(name, key, subsidiaryId, branch);
    const all = `INSERT INTO _catalog_news (branch, product_id)
      SELECT branch, product_id FROM _feed_branches, _products WHERE branch = ? AND catalog_key IS NOT NULL
        AND line IS NOT NULL`;
    sqlOf(db).run(all, branch);
  }
}

/** Maximum number of outcomes that are sent to branches in one transaction. */
const SETTLED_AT_ONCE = 500;
/** SQL for whether nothing is known of a branch's change any more, or its count alone. */
const IS_FORGOTTEN = `NOT EXISTS (SELECT 1 FROM _outbox o
  WHERE o.change_id = _handed_up.change_id AND o.state <> 'counted')`;

/** Returns whether outcomes of branches' changes wait to be sent. */
export function hasSettled(db: Database.Database): boolean {
  return sqlOf(db).row('SELECT 1 FROM _handed_up WHERE settled = 1') !== undefined;
}

/**
 * Adds outcomes of branches' changes to the feeds, and marks them as sent in the same transaction, so that no outcome
 * is lost.
 */
export function sendSettled(db: Database.Database, nowMs: number): void {
  const sql = `SELECT u.change_id AS changeId, u.branch, u.branch_change_id AS change, o.state, o.message
    FROM _handed_up u JOIN outbox o USING (change_id) WHERE u.settled = 1
    ORDER BY u.change_id LIMIT ${SETTLED_AT_ONCE}`;
  sqlOf(db).run(`DELETE FROM _handed_up WHERE settled = 1 AND ${IS_FORGOTTEN}`);
  const at = isoUtc(nowMs);
  for (const { changeId, branch, ...result } of sqlOf(db).rows<Result & { changeId: number; branch: string }>(
    sql,
  )) {
    // If a person queued the rejected change again, it has no final outcome any more, so nothing is sent.
    const isOver = ['done', 'rejected', 'superseded'].includes(result.state);
    if (isOver) addToFeed(db, branch, 'result', result, { at });
    sqlOf(db).run('UPDATE _handed_up SET settled = 0 WHERE change_id = ?', changeId);
  }
}

const ENTRY = `SELECT feed_id AS feedId, branch, coalesce((SELECT epoch FROM _feed_branches b WHERE b.branch = _feed.branch), (SELECT epoch FROM _hub)) AS epoch,
  n, kind, order_id AS orderId, body`;

/**
 * Returns the oldest entries to publish; those of one branch keep their order. If all are of one branch, up to half are
 * replaced by entries of others.
 */
export function unpublished(db: Database.Database, limit: number): FeedEntry[] {
  const waiting = (other: string, most: number) =>
    sqlOf(db).rows<FeedEntry>(
      `${ENTRY} FROM _feed WHERE published = 0 AND branch <> ? ORDER BY feed_id LIMIT ?`,
      ...[other, most],
    );
  const first = waiting('', limit);
  const [{ branch } = { branch: '' }] = first;
  if (first.length < limit || first.some((each) => each.branch !== branch)) return first;
  const others = waiting(branch, Math.floor(limit / 2));
  return [...first.slice(0, limit - others.length), ...others];
}

/** Marks entries as published. They are found by number, because a new epoch's rows may reuse row ids. */
export function notePublished(
  db: Database.Database,
  entries: readonly Pick<FeedEntry, 'branch' | 'n'>[],
): void {
  const published = 'UPDATE _feed SET published = 1 WHERE branch = ? AND n = ?';
  for (const { branch, n } of entries) sqlOf(db).run(published, branch, n);
}

/**
 * Records the id of the server's stream, and returns whether it changed. If so, entries are published again, because
 * the server may have lost them, but not those that a branch reported to have: new orders would wait behind them.
 */
export function noteStream(
  db: Database.Database,
  stream: string,
  branches: readonly InvitedBranch[],
  nowMs: number,
): boolean {
  if (sqlOf(db).value<string | null>('SELECT stream FROM _hub') === stream) return false;
  sqlOf(db).run('UPDATE _hub SET stream = ?', stream);
  const marks = new Map(branches.map(({ branch, report }) => [branch, report?.mark]));
  const again =
    'UPDATE _feed SET published = 0 WHERE branch = ? AND n > ? AND published = 1 AND written_at >= ?';
  for (const branch of sqlOf(db).values<string>('SELECT branch FROM _feed_branches')) {
    sqlOf(db).run(again, branch, marks.get(branch) ?? 0, isoUtc(nowMs - ENTRIES_KEPT_MS));
  }
  return true;
}

/**
 * Deletes published entries older than the retention, and routes and acknowledgements that are no longer needed.
 * Returns true if more entries remain to be deleted.
 */
export function pruneFeed(db: Database.Database, nowMs: number): boolean {
  pruneRoutes(db);
  sqlOf(db).run(`DELETE FROM _handed_up WHERE ${IS_FORGOTTEN}`);
  sqlOf(db).run('DELETE FROM _waiting_acks WHERE acked_at < ?', isoUtc(nowMs - ACKS_WAIT_MS));
  const sql = `DELETE FROM _feed WHERE feed_id IN
    (SELECT feed_id FROM _feed WHERE published = 1 AND written_at < ? ORDER BY feed_id LIMIT ${PRUNED_AT_ONCE})`;
  return sqlOf(db).run(sql, isoUtc(nowMs - ENTRIES_KEPT_MS)).changes === PRUNED_AT_ONCE;
}

export interface IngestOptions {
  from: FeedBranch;
  uplinkId: string;
  items: readonly UpItem[];
  guards: GuardSettings;
  holdBack: HoldBackSetting;
  /** ISO 8601 UTC. */
  at: string;
}

/**
 * Accepts each item of a branch once: first changes, then acknowledgements, because a count may already include those
 * orders. `comeBackMs`: the queue is full after `upTo`. Returns undefined if items are missing or of another uplink.
 */
export function ingestChanges(
  stores: Stores,
  options: IngestOptions,
): { upTo: number; comeBackMs?: number } | undefined {
  const { from, uplinkId, guards, holdBack, at } = options;
  const { branch } = from;
  const { db, intake } = stores;
  const row = branchRow(db, branch);
  if (!row || row.uplinkId !== uplinkId) return undefined;
  const items = options.items.filter(({ u: seqUp }) => seqUp > row.ackedUpTo);
  if (items.some(({ u: seqUp }, i) => seqUp !== row.ackedUpTo + 1 + i)) return undefined;
  stores.reservations.begin(holdBack);
  const { newestSeq } = stores.reservations;
  const how = { coveredSeq: coveredSeqs(db, branch), newestSeq, at };
  const read = items.map((up) => ({ up, item: up.kind === 'ack' ? null : changeOf(db, up, from, how) }));
  const changes = read.flatMap(({ item }) => (item && !('refused' in item) ? [item] : []));
  const turn = { branch: from.subsidiaryId ?? branch };
  const accepted = intake.accept(changes, { source: 'branch', guards, whenFull: 'stop', ...turn });
  const left = changes[accepted.length];
  const end = read.findIndex(({ item }) => left !== undefined && item === left);
  const ingested = end < 0 ? read : read.slice(0, end);
  const results = accepted.values();
  const acks: (Pick<HeardAck, 'orderId' | 'source' | 'asOf'> & { without: string | null })[] = [];
  for (const { up, item } of ingested) {
    const { changeId: change } = up;
    if (item === null) {
      if (typeof up.value === 'string' && up.value.length <= ORDER_ID_MAX) {
        acks.push({
          orderId: up.value,
          source: up.isTyped ? 'cli' : 'branch',
          asOf: up.asOf ?? null,
          without: up.without ? JSON.stringify(up.without) : null,
        });
      }
    } else if (change === null) continue;
    else if ('refused' in item) {
      const result: Result = { change, state: 'rejected', message: item.refused };
      addToFeed(db, branch, 'result', result, { at });
    } else {
      const { changeId, state, message } = results.next().value as Acceptance;
      noteHandedUp(db, branch, changeId, change, at);
      if (state !== 'pending') addToFeed(db, branch, 'result', { change, state, message }, { at });
    }
  }
  for (const { orderId, source, asOf, without } of acks) {
    const wait = `INSERT INTO _waiting_acks (order_id, branch, acked_at, source, as_of, without) VALUES (?, ?, ?, ?, ?, ?)
      ON CONFLICT DO UPDATE SET acked_at = excluded.acked_at, source = excluded.source, as_of = excluded.as_of,
        without = excluded.without`;
    sqlOf(db).run(wait, orderId.trim(), branch, at, source, asOf, without);
  }
  if (acks.length > 0) bookWaiting(stores);
  const ackedUpTo = ingested.at(-1)?.up.u ?? row.ackedUpTo;
  sqlOf(db).run('UPDATE _feed_branches SET up_to = ? WHERE branch = ?', ackedUpTo, branch);
  const comeBackMs = left && intake.fullLine(turn.branch).retryAfterMs;
  return { upTo: ackedUpTo, ...(comeBackMs !== undefined && { comeBackMs }) };
}

/**
 * Returns a function that finds the newest event that a branch's count covers, by the count's `asOf`. The function
 * returns undefined if the count covers all events, or if the times cannot tell.
 */
function coveredSeqs(db: Database.Database, branch: string): (asOf: string) => number | undefined {
  const newest = `SELECT max((SELECT o.updated_at FROM _orders o
      WHERE o.store_external_id = s.store_id ORDER BY o.seq DESC LIMIT 1)) FROM _feed_stores s WHERE s.branch = ?`;
  const newestAt = sqlOf(db).value<string | null>(newest, branch) ?? '';
  // After a restore, the hub observes orders again that the branch had before, so an `asOf` from before the restore
  // cannot tell.
  const restoredAt = sqlOf(db).value<string | null>('SELECT restored_at FROM _hub') ?? '';
  const found = new Map<string, number | undefined>();
  return (asOf) => {
    if (asOf >= newestAt || asOf < restoredAt) return undefined;
    // Undefined if the mirror has no event up to `asOf`: it is newer than that, so its times cannot tell.
    const covered = 'SELECT seq FROM order_events WHERE observed_at <= ? ORDER BY seq DESC LIMIT 1';
    if (!found.has(asOf)) found.set(asOf, sqlOf(db).value<number>(covered, asOf));
    return found.get(asOf);
  };
}

/**
 * Selects waiting acknowledgements whose order is known and assigned. If the order moved to another branch,
 * the acknowledgement of the first branch still waits, because the order may move back.
 */
const HEARD = `FROM _waiting_acks w JOIN _orders o USING (order_id) LEFT JOIN _unassigned_orders u USING (order_id)
  LEFT JOIN _feed_stores s ON s.store_id = o.store_external_id
  WHERE coalesce(u.branch, s.branch) IS w.branch OR (coalesce(u.branch, s.branch) NOT NULL
    AND NOT EXISTS (SELECT 1 FROM _sent_orders t WHERE t.order_id = w.order_id AND t.branch = w.branch))`;

interface HeardAck {
  orderId: string;
  branch: string;
  owner: string;
  /** Store that the order names. */
  store: string | null;
  source: ChangeSource;
  asOf: string | null;
  /** JSON array of the lines that the POS left out; null: none. */
  without: string | null;
  subsidiaryId: string | null;
}

/**
 * Books branches' acknowledgements of orders that have arrived. Refuses the acknowledgement of another branch's order;
 * the acknowledgement of an unassigned order still waits.
 */
export function bookWaiting({
  db,
  reservations,
  clock,
}: Pick<Stores, 'db' | 'reservations' | 'clock'>): void {
  const heard = sqlOf(db).rows<HeardAck>(
    `SELECT w.order_id AS orderId, w.branch, w.source, w.as_of AS asOf, w.without, coalesce(u.branch, s.branch) AS owner,
       o.store_external_id AS store,
       (SELECT b.subsidiary_id FROM _feed_branches b WHERE b.branch = w.branch) AS subsidiaryId ${HEARD}`,
  );
  for (const { orderId, branch, owner, store, source, asOf, without, subsidiaryId } of heard) {
    if (branch !== owner) {
      const message = `Order ${orderId} is of another branch.`;
      const refused: Result = { change: 0, state: 'rejected', message, refusedAck: orderId };
      addToFeed(db, branch, 'result', refused, { at: isoUtc(clock.nowMs()) });
      continue;
    }
    // The branch numbers events itself, so `seq` cannot be compared; the time of the newest event can.
    const isBehind =
      asOf !== null &&
      sqlOf(db).row('SELECT 1 FROM _orders WHERE order_id = ? AND updated_at > ?', orderId, asOf);
    const seq = isBehind
      ? sqlOf(db).value<number | null>(
          `SELECT max(seq) FROM order_events WHERE order_id = @orderId AND observed_at <= @asOf
             AND seq >= (SELECT first_seq FROM _ledger_orders WHERE order_id = @orderId)`,
          { orderId, asOf },
        )
      : undefined;
    // The store is not always the branch's id: the branch may be renamed, or a person may have assigned the order.
    const lines = without === null ? undefined : (JSON.parse(without) as number[]);
    const [answer] = reservations.acknowledge([{ orderId, seq: seq ?? undefined, without: lines }], source, {
      branch: { name: store ?? '', subsidiaryId },
    });
    if (answer?.state !== 'rejected') continue;
    const message = answer.message ?? '';
    const refused: Result = { change: 0, state: 'rejected', message, refusedAck: orderId };
    addToFeed(db, branch, 'result', refused, { at: isoUtc(clock.nowMs()) });
  }
  for (const { orderId, branch } of heard) {
    sqlOf(db).run('DELETE FROM _waiting_acks WHERE order_id = ? AND branch = ?', orderId, branch);
  }
}

/** Returns whether an acknowledgement waits whose order has arrived. */
export function hasWaitingAcks(db: Database.Database): boolean {
  return sqlOf(db).row(`SELECT 1 ${HEARD}`) !== undefined;
}

/**
 * Records which hub change carries a branch's change. If the hub change carried another change before, the branch of
 * that change is notified that it was superseded.
 */
function noteHandedUp(
  db: Database.Database,
  branch: string,
  changeId: number,
  branchChangeId: number,
  at: string,
): void {
  const before = sqlOf(db).row<{ branch: string; change: number }>(
    'SELECT branch, branch_change_id AS change FROM _handed_up WHERE change_id = ?',
    changeId,
  );
  if (before && (before.branch !== branch || before.change !== branchChangeId)) {
    const message = 'A newer value took its place at the hub.';
    const result: Result = { change: before.change, state: 'superseded', message };
    addToFeed(db, before.branch, 'result', result, { at });
  }
  sqlOf(db).run(
    `INSERT INTO _handed_up (change_id, branch, branch_change_id) VALUES (?, ?, ?)
     ON CONFLICT (change_id) DO UPDATE SET branch = excluded.branch, branch_change_id = excluded.branch_change_id,
       settled = 0`,
    ...[changeId, branch, branchChangeId],
  );
}

/**
 * Returns the change, or the reason why the branch may not make it. A branch may change its own stocks, and the
 * company's values only with `may_price`.
 */
function changeOf(
  db: Database.Database,
  up: UpItem,
  branch: FeedBranch,
  how: { coveredSeq: (asOf: string) => number | undefined; newestSeq: number; at: string },
): SubmittedChange | { refused: string } {
  const reference = `${branch.name}: ${up.reference ?? up.changeId}`;
  if (up.kind === 'product' && !branch.mayPrice) {
    return {
      refused: `Branch ${branch.name} may not change prices, names or visibility: they hold for the whole company. At the hub, may_price = true of its [[branches]] allows it.`,
    };
  }
  const reading = readChange(up.kind === 'product' ? 'product' : 'stock', up.value);
  if ('fault' in reading) return { refused: reading.fault.message };
  if (reading.kind === 'product') return { ...reading, reference };
  const { subsidiaryId, subsidiaryExternalId, ...change } = reading.change;
  // Earlier ids of the branch are accepted too, because its machine may still use them.
  const isOwn = (id: string | undefined) =>
    id === undefined ||
    [branch.branch, branch.subsidiaryId, branch.externalId].includes(id) ||
    sqlOf(db).row('SELECT 1 FROM _feed_stores WHERE store_id = ? AND branch = ?', id, branch.branch);
  const named = [subsidiaryExternalId, subsidiaryId].find((id) => !isOwn(id));
  if (named !== undefined) {
    return { refused: `Branch ${branch.name} may change only its own stock, not that of ${named}.` };
  }
  const place = {
    ...(branch.subsidiaryId !== null && { subsidiaryId: branch.subsidiaryId }),
    ...(branch.externalId !== null && { subsidiaryExternalId: branch.externalId }),
  };
  const asOfSeq = up.asOf === undefined ? undefined : how.coveredSeq(up.asOf);
  const stock = { ...change, ...place };
  if (up.countedAt !== undefined) {
    const dated = { countedAt: up.countedAt, ...(asOfSeq !== undefined && { asOfSeq }) };
    return { kind: 'stock', change: stock, reference, ...dated };
  }
  // What the count covers is known by `asOf`, and not by the clock of the branch, which may be wrong.
  const handed = { handedAt: handedTime(up.handedAt, how.at), asOfSeq: asOfSeq ?? how.newestSeq };
  return { kind: 'stock', change: stock, reference, ...handed };
}

/** Returns when the branch was handed a count, at most the time of arrival `at`; null if the branch did not say so. */
function handedTime(said: string | undefined, at: string): string | null {
  const saidMs = Date.parse(said ?? '');
  return Number.isNaN(saidMs) ? null : isoUtc(Math.min(saidMs, Date.parse(at)));
}
