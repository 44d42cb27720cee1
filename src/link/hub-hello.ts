import { randomUUID } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { SEQ_JUMP } from '../orders/merging/order.ts';
import { newestSeq } from '../orders/reading/mirror-file.ts';
import { beginSnapshot } from './feed-pages.ts';
import type { Hello, HelloAnswer } from './link.ts';

/**
 * Handles a branch's hello: records the branch's uplink, leases event numbers and decides whether the branch needs a
 * snapshot or a new epoch. Each function works in the caller's transaction.
 */

/** Time after which a snapshot that a branch still lacks is made again. */
const SNAPSHOT_AGAIN_MS = 600_000;
/**
 * If two branches report within this time that they have entries which the hub's database never sent, that database is
 * an older copy.
 */
const DOUBT_MS = 7 * 86_400_000;

export interface BranchRow {
  lastN: number;
  snapshotN: number;
  snapshotAt: string | null;
  uplinkId: string | null;
  ackedUpTo: number;
  seq: number;
  leasedSeq: number;
  stoppedSeq: number | null;
}

export function branchRow(db: Database.Database, branch: string): BranchRow | undefined {
  const sql = `SELECT last_n AS lastN, snapshot_n AS snapshotN, snapshot_at AS snapshotAt, line AS uplinkId,
      up_to AS ackedUpTo, seq,
      leased_seq AS leasedSeq, stopped_seq AS stoppedSeq
    FROM _feed_branches WHERE branch = ?`;
  return sqlOf(db).row<BranchRow>(sql, branch);
}

/** Returns the epoch of a branch's feed. */
export function epochOf(db: Database.Database, branch: string): string | undefined {
  const sql = `SELECT coalesce((SELECT epoch FROM _feed_branches WHERE branch = ?), epoch) FROM _hub`;
  return sqlOf(db).value<string>(sql, branch);
}

/** Returns whether the hello must be handled in a write transaction, because it may change what the hub stores. */
export function isNews(db: Database.Database, branch: string, hello: Hello): boolean {
  const row = branchRow(db, branch);
  return (
    row === undefined ||
    row.uplinkId !== hello.line ||
    hello.epoch !== epochOf(db, branch) ||
    hello.wantsSnapshot ||
    hello.mark > row.lastN ||
    isPruned(db, branch, row, hello) ||
    isLeaseNews(row, hello)
  );
}

/** Returns whether the entries after the branch's position were deleted, so that they cannot be resent. */
function isPruned(db: Database.Database, branch: string, { lastN }: BranchRow, { mark }: Hello): boolean {
  const next = 'SELECT 1 FROM _feed WHERE branch = ? AND n = ?';
  return mark < lastN && sqlOf(db).row(next, branch, mark + 1) === undefined;
}

/**
 * Event numbers leased to a branch at once. After a crash of the branch, its POS may see a gap of this size.
 */
const LEASE = 1_000;
/** Distance above the lease from which a reported number is impossible, even if the hub was restored. */
const CLAIM_MAX = 2 ** 30;

/** The number after which a branch's events continue, and the highest number that the branch may use. */
export type Lease = Pick<HelloAnswer, 'seqAfter' | 'leasedSeq'>;

/** Returns whether the reported `seq` is higher than any healthy branch can have. */
export function isAbsurd(db: Database.Database, branch: string, { seq }: Hello): boolean {
  const row = branchRow(db, branch);
  const known = Math.max(row?.seq ?? 0, row?.leasedSeq ?? 0);
  return known > 0 && seq > known + CLAIM_MAX;
}

/**
 * Returns whether the hello needs a decision about the lease: a start or stop, a copy of older files, or a half-used
 * lease.
 */
function isLeaseNews(row: BranchRow, { isStart, isLast, seq }: Hello): boolean {
  return isStart || isLast || seq < row.seq || seq > row.leasedSeq - LEASE / 2;
}

/**
 * Leases event numbers to a branch. A starting branch continues at its last number only if the hub recorded
 * its orderly stop. Otherwise its files may be an older copy, so its numbers start above every number leased
 * before.
 */
export function leaseNumbers(db: Database.Database, branch: string, hello: Hello): Lease {
  const row = branchRow(db, branch);
  if (!row || !isLeaseNews(row, hello)) return { seqAfter: 0, leasedSeq: row?.leasedSeq ?? 0 };
  const mayBeCopy = hello.isStart ? row.stoppedSeq !== hello.seq : hello.seq < row.seq;
  const copySeq = mayBeCopy && row.leasedSeq > 0 ? Math.max(row.leasedSeq, hello.seq) : 0;
  const seqAfter = isNew(row, hello) ? aboveAllStores(db) : copySeq;
  const seq = Math.max(row.seq, hello.seq);
  // The lease covers all entries that wait for the branch, so that the branch need not ask again for them.
  const behind = Math.max(0, row.lastN - hello.mark);
  const leasedSeq = Math.max(row.leasedSeq, Math.max(seq, seqAfter) + LEASE + behind);
  sqlOf(db).run(
    'UPDATE _feed_branches SET seq = @seq, leased_seq = @leasedSeq, stopped_seq = @stoppedSeq WHERE branch = @branch',
    { branch, seq, leasedSeq, stoppedSeq: hello.isLast ? hello.seq : null },
  );
  return { seqAfter, leasedSeq };
}

/** Returns whether no mirror of the branch ever used a number. */
function isNew({ seq, leasedSeq }: BranchRow, hello: Hello): boolean {
  return leasedSeq === 0 && seq === 0 && hello.seq === 0;
}

/**
 * Returns a number far above those of the hub's own mirror, which the POS of the first store read before it was a
 * branch, and may read on for a while.
 */
function aboveAllStores(db: Database.Database): number {
  const newest = newestSeq(db);
  return newest === 0 ? 0 : newest + SEQ_JUMP;
}

/**
 * Returns the number up to which the uplink's items were accepted, and whether the uplink is the branch's newest.
 */
export function uplinkState(
  db: Database.Database,
  branch: string,
  uplinkId: string,
): Pick<HelloAnswer, 'upTo' | 'isLineKnown'> {
  const row = branchRow(db, branch);
  const isLineKnown = row?.uplinkId === uplinkId;
  return { upTo: isLineKnown ? row.ackedUpTo : 0, isLineKnown };
}

/** Returns the feed number at which the branch's coming snapshot begins; 0 if no snapshot is coming. */
export function snapshotAhead(db: Database.Database, branch: string, hello: Hello): number {
  const row = branchRow(db, branch);
  return row && hello.epoch === epochOf(db, branch) && hello.mark < row.snapshotN ? row.snapshotN : 0;
}

/**
 * Returns the feed number up to which the branch's feed was published to the server. Reads only the entries after
 * `mark`, because the branch already has all entries up to `mark`.
 */
export function publishedTo(db: Database.Database, branch: string, mark: number): number {
  const sql = `SELECT coalesce(
    (SELECT n - 1 FROM _feed WHERE branch = @branch AND n > @mark AND published = 0 ORDER BY n LIMIT 1),
    (SELECT last_n FROM _feed_branches WHERE branch = @branch), 0)`;
  return sqlOf(db).value<number>(sql, { branch, mark }) ?? 0;
}

/**
 * Allows another snapshot for the branch at once, because another machine may have received the last
 * snapshot.
 */
export function forgetSnapshot(db: Database.Database, branch: string): void {
  sqlOf(db).run('UPDATE _feed_branches SET snapshot_at = NULL WHERE branch = ?', branch);
}

/**
 * What a hello caused. `new life`: a new epoch for the branch. `new life of all`: a new epoch for all
 * branches.
 */
export type Caused = 'nothing' | 'snapshot' | 'new life' | 'new life of all';

export interface HelloOptions {
  mayCause: boolean;
  /** Feed number in the branch's last report, perhaps of an earlier epoch; 0 if there is none. */
  heardMark: number;
  nowMs: number;
}

/** Returns whether the branch needs a snapshot because the server cannot deliver the next entries. */
function startsBehindGap(
  db: Database.Database,
  branch: string,
  row: BranchRow,
  hello: Hello,
  heardMark: number,
): boolean {
  // The server does not resend entries that another machine with the same files received.
  const isOlderCopy = hello.isStart && hello.mark < heardMark && heardMark <= row.lastN;
  return isOlderCopy || isPruned(db, branch, row, hello);
}

/**
 * Records a new uplink of a branch. If `mayCause` is true, also starts a snapshot if the branch cannot continue without
 * one, in a new epoch if the branch reports entries that the hub never sent. Returns what the hello caused.
 */
export function handleHello(
  db: Database.Database,
  branch: string,
  hello: Hello,
  { mayCause, heardMark, nowMs }: HelloOptions,
): Caused {
  const row = branchRow(db, branch);
  if (!row) return 'nothing';
  if (row.uplinkId !== hello.line) {
    // The branch will start an uplink of its own and ask again.
    if (!hello.isOwnLine) return 'nothing';
    sqlOf(db).run('UPDATE _feed_branches SET line = ?, up_to = 0 WHERE branch = ?', hello.line, branch);
    // In a new mirror, the numbers of changes start again and mean other changes than before.
    if (hello.epoch === null) sqlOf(db).run('DELETE FROM _handed_up WHERE branch = ?', branch);
  }
  if (!mayCause) return 'nothing';
  const epoch = epochOf(db, branch);
  const heardMore = hello.epoch === epoch ? hello.mark > row.lastN : hello.left.includes(epoch ?? '');
  if (heardMore) {
    const isOfAll = isSecondWord(db, branch, nowMs);
    if (isOfAll) beginLifeOfAll(db);
    else beginLife(db, branch, nowMs);
    beginSnapshot(db, branch, hello.line, nowMs);
    return isOfAll ? 'new life of all' : 'new life';
  }
  const isOtherEpoch = hello.epoch !== epoch;
  const hasGap = !isOtherEpoch && startsBehindGap(db, branch, row, hello, heardMark);
  if (!isOtherEpoch && !hello.wantsSnapshot && !hasGap) return 'nothing';
  // A snapshot for an earlier mirror of this branch is useless for a new mirror.
  const madeMs =
    row.snapshotAt === null || row.uplinkId !== hello.line
      ? Number.NEGATIVE_INFINITY
      : Date.parse(row.snapshotAt);
  const isRecent = Math.abs(nowMs - madeMs) < SNAPSHOT_AGAIN_MS;
  // If the branch's last report says that it had the snapshot but this hello says that it has not, the mirror that had
  // it was lost. So this mirror needs another snapshot.
  const isUnderWay = isOtherEpoch || (hello.mark < row.snapshotN && heardMark < row.snapshotN);
  if (isRecent && isUnderWay) return 'nothing';
  beginSnapshot(db, branch, hello.line, nowMs);
  return 'snapshot';
}

/**
 * Returns whether another branch also had entries that this database never sent, which proves that the
 * database is an older copy.
 */
function isSecondWord(db: Database.Database, branch: string, nowMs: number): boolean {
  const sql = 'SELECT 1 FROM _hub WHERE doubted_by <> ? AND doubted_at >= ?';
  return sqlOf(db).row(sql, branch, isoUtc(nowMs - DOUBT_MS)) !== undefined;
}

/**
 * Starts a new epoch for one branch only, because the branch's key may be stolen and its report false. Deletes earlier
 * entries, because they would be sent with the new epoch, and the branch would apply an earlier snapshot among them.
 */
function beginLife(db: Database.Database, branch: string, nowMs: number): void {
  sqlOf(db).run('UPDATE _hub SET doubted_by = ?, doubted_at = ?', branch, isoUtc(nowMs));
  sqlOf(db).run('DELETE FROM _feed WHERE branch = ?', branch);
  sqlOf(db).run(
    'UPDATE _feed_branches SET epoch = ?, snapshot_at = NULL WHERE branch = ?',
    randomUUID(),
    branch,
  );
}

/** Time after a restore in which a branch's report of a removed customer makes the hub remove that customer again. */
const REPLAYED_MS = 90 * 86_400_000;

/**
 * Returns the orders whose customer a restored backup brought back, so that the hub must remove the customer again.
 * Orders that were never sent to the branch are left out.
 */
export function forgottenAgain(
  db: Database.Database,
  branch: string,
  orderIds: readonly string[],
  nowMs: number,
): string[] {
  const sql = `SELECT o.order_id FROM json_each(?) j JOIN _orders o ON o.order_id = j.value, _hub
    WHERE o.forgotten_at IS NULL AND _hub.restored_at >= ?
      AND EXISTS (SELECT 1 FROM _sent_orders s WHERE s.order_id = o.order_id AND s.branch = ?)`;
  return sqlOf(db).values<string>(sql, JSON.stringify(orderIds), isoUtc(nowMs - REPLAYED_MS), branch);
}

function beginLifeOfAll(db: Database.Database): void {
  sqlOf(db).run('UPDATE _hub SET epoch = ?, doubted_by = NULL, doubted_at = NULL', randomUUID());
  sqlOf(db).run('DELETE FROM _feed');
  sqlOf(db).run('UPDATE _feed_branches SET epoch = NULL, snapshot_at = NULL');
}
