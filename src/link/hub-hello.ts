import { randomUUID } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { SEQ_JUMP } from '../orders/order.ts';
import { beginSnapshot } from './feed-pages.ts';
import type { Hello, HelloAnswer } from './link.ts';

/**
 * Handles a branch's hello: records its position and decides whether it can continue there. A branch that follows
 * another epoch needs a snapshot. Each function works in the caller's transaction.
 */

/** Time that a snapshot may be on its way before another one is made. */
const SNAPSHOT_AGAIN_MS = 600_000;
/** Time within which two branches' doubts about the database count together. */
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
    FROM feed_branches WHERE branch = ?`;
  return sqlOf(db).row<BranchRow>(sql, branch);
}

/** Returns the epoch of a branch's feed. */
export function epochOf(db: Database.Database, branch: string): string | undefined {
  const sql = `SELECT coalesce((SELECT epoch FROM feed_branches WHERE branch = ?), epoch) FROM hub`;
  return sqlOf(db).value<string>(sql, branch);
}

/** Whether the hello changes a stored fact about the branch. */
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

/** Whether the entries after the branch's position were deleted, so that nobody can resend them. */
function isPruned(db: Database.Database, branch: string, { lastN }: BranchRow, { mark }: Hello): boolean {
  const next = 'SELECT 1 FROM feed WHERE branch = ? AND n = ?';
  return mark < lastN && sqlOf(db).row(next, branch, mark + 1) === undefined;
}

/** Numbers leased at once. After a crash of the branch, its POS sees a gap of up to this size. */
const LEASE = 1_000;
/** A number that exceeds the lease by more than this cannot come from a restored hub. */
const CLAIM_MAX = 2 ** 30;

/** The number after which a branch's events continue, and the highest that it may give. */
export type Lease = Required<Pick<HelloAnswer, 'seqAfter' | 'leasedSeq'>>;

/** Whether the reported `seq` is too high for any healthy branch. */
export function isAbsurd(db: Database.Database, branch: string, { seq }: Hello): boolean {
  const row = branchRow(db, branch);
  const known = Math.max(row?.seq ?? 0, row?.leasedSeq ?? 0);
  return known > 0 && seq > known + CLAIM_MAX;
}

/** A start, a stop, a copy of older files, or a half-used lease. */
function isLeaseNews(row: BranchRow, { isStart, isLast, seq }: Hello): boolean {
  return isStart || isLast || seq < row.seq || seq > row.leasedSeq - LEASE / 2;
}

/**
 * Leases numbers to a branch. A starting branch continues at its last number only if the hub recorded an orderly
 * stop, because a copy of its files may claim anything. All others begin above every leased number.
 */
export function leaseNumbers(db: Database.Database, branch: string, hello: Hello): Lease {
  const row = branchRow(db, branch);
  if (!row || !isLeaseNews(row, hello)) return { seqAfter: 0, leasedSeq: row?.leasedSeq ?? 0 };
  const mayBeCopy = hello.isStart ? row.stoppedSeq !== hello.seq : hello.seq < row.seq;
  const seqAfter = mayBeCopy ? begunAfter(row, hello) : 0;
  const seq = Math.max(row.seq, hello.seq);
  // Everything that waits for the branch fits into the lease, without another request.
  const behind = Math.max(0, row.lastN - hello.mark);
  const leasedSeq = Math.max(row.leasedSeq, Math.max(seq, seqAfter) + LEASE + behind);
  sqlOf(db).run(
    'UPDATE feed_branches SET seq = @seq, leased_seq = @leasedSeq, stopped_seq = @stoppedSeq WHERE branch = @branch',
    { branch, seq, leasedSeq, stoppedSeq: hello.isLast ? hello.seq : null },
  );
  return { seqAfter, leasedSeq };
}

function begunAfter({ seq, leasedSeq }: BranchRow, hello: Hello): number {
  if (leasedSeq > 0) return Math.max(leasedSeq, hello.seq);
  // A branch of an older version leases no numbers and reports its seq every half minute.
  return hello.seq < seq ? seq + SEQ_JUMP : 0;
}

/** Returns how far the uplink was ingested, whether it is the branch's newest, and the highest reported `seq`. */
export function uplinkState(
  db: Database.Database,
  branch: string,
  uplinkId: string,
): Pick<HelloAnswer, 'upTo' | 'isLineKnown' | 'seq'> {
  const row = branchRow(db, branch);
  const isLineKnown = row?.uplinkId === uplinkId;
  return { upTo: isLineKnown ? row.ackedUpTo : 0, isLineKnown, seq: row?.seq ?? 0 };
}

/** Returns the start of a snapshot that a branch must wait for; 0 if none. */
export function snapshotAhead(db: Database.Database, branch: string, hello: Hello): number {
  const row = branchRow(db, branch);
  return row && hello.epoch === epochOf(db, branch) && hello.mark < row.snapshotN ? row.snapshotN : 0;
}

/** Returns the number up to which the branch's feed was published to the server. */
export function publishedTo(db: Database.Database, branch: string): number {
  const sql = `SELECT coalesce(
    (SELECT min(n) - 1 FROM feed INDEXED BY feed_unpublished WHERE published = 0 AND branch = @branch),
    (SELECT last_n FROM feed_branches WHERE branch = @branch), 0)`;
  return sqlOf(db).value<number>(sql, { branch }) ?? 0;
}

/** Lets the branch get another snapshot at once, because another machine may have received the last one. */
export function forgetSnapshot(db: Database.Database, branch: string): void {
  sqlOf(db).run('UPDATE feed_branches SET snapshot_at = NULL WHERE branch = ?', branch);
}

/** Work for the hub that a hello caused. `all` means that every branch gets a snapshot. */
export type Caused = 'nothing' | 'snapshot' | 'new life' | 'new life of all';

export interface HelloOptions {
  mayCause: boolean;
  /** The newest number that the branch ever reported, in any epoch; 0 if none. */
  heardMark: number;
  nowMs: number;
}

/** The snapshot begins with the answer, so that the branch need not discover the gap. */
function startsBehindGap(
  db: Database.Database,
  branch: string,
  row: BranchRow,
  hello: Hello,
  heardMark: number,
): boolean {
  // The server does not resend entries that another copy of these files received.
  const isOlderCopy = hello.isStart && hello.mark < heardMark && heardMark <= row.lastN;
  return isOlderCopy || isPruned(db, branch, row, hello);
}

/**
 * Records a branch's position, and writes a snapshot if it cannot continue without one and `mayCause` allows it;
 * otherwise it asks again. Returns what the hello caused.
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
    // The branch then starts its own uplink and asks again.
    if (!hello.isOwnLine) return 'nothing';
    sqlOf(db).run('UPDATE feed_branches SET line = ?, up_to = 0 WHERE branch = ?', hello.line, branch);
    // The branch's change numbers may now mean other changes than those submitted under them before.
    if (hello.epoch === null) sqlOf(db).run('DELETE FROM handed_up WHERE branch = ?', branch);
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
  // A snapshot for an earlier mirror of this branch is of no use to a new one.
  const madeMs =
    row.snapshotAt === null || row.uplinkId !== hello.line
      ? Number.NEGATIVE_INFINITY
      : Date.parse(row.snapshotAt);
  const isRecent = Math.abs(nowMs - madeMs) < SNAPSHOT_AGAIN_MS;
  // If the branch once reported having the snapshot, a mirror that it has lost got it, so this one needs another.
  const isUnderWay = isOtherEpoch || (hello.mark < row.snapshotN && heardMark < row.snapshotN);
  if (isRecent && isUnderWay) return 'nothing';
  beginSnapshot(db, branch, hello.line, nowMs);
  return 'snapshot';
}

/**
 * Whether a second branch also has entries that this database never sent, so that the database is an older copy for all
 * branches.
 */
function isSecondWord(db: Database.Database, branch: string, nowMs: number): boolean {
  const sql = 'SELECT 1 FROM hub WHERE doubted_by <> ? AND doubted_at >= ?';
  return sqlOf(db).row(sql, branch, isoUtc(nowMs - DOUBT_MS)) !== undefined;
}

/**
 * Starts a new epoch for one branch, on its word alone, without cost to the others, because its key may be stolen.
 * Earlier entries are deleted, because in the new epoch the branch would accept an earlier snapshot among them as its
 * own.
 */
function beginLife(db: Database.Database, branch: string, nowMs: number): void {
  sqlOf(db).run('UPDATE hub SET doubted_by = ?, doubted_at = ?', branch, isoUtc(nowMs));
  sqlOf(db).run('DELETE FROM feed WHERE branch = ?', branch);
  sqlOf(db).run(
    'UPDATE feed_branches SET epoch = ?, snapshot_at = NULL WHERE branch = ?',
    randomUUID(),
    branch,
  );
}

/** Time after a restore within which branches report customers that were removed since the backup. */
const REPLAYED_MS = 90 * 86_400_000;

/**
 * Returns the orders, among those of the branch, whose customer the hub must remove again, because a restored
 * backup still had it.
 */
export function forgottenAgain(
  db: Database.Database,
  branch: string,
  orderIds: readonly string[],
  nowMs: number,
): string[] {
  const sql = `SELECT o.order_id FROM json_each(?) j JOIN orders o ON o.order_id = j.value, hub
    WHERE o.forgotten_at IS NULL AND hub.restored_at >= ?
      AND EXISTS (SELECT 1 FROM sent_orders s WHERE s.order_id = o.order_id AND s.branch = ?)`;
  return sqlOf(db).values<string>(sql, JSON.stringify(orderIds), isoUtc(nowMs - REPLAYED_MS), branch);
}

function beginLifeOfAll(db: Database.Database): void {
  sqlOf(db).run('UPDATE hub SET epoch = ?, doubted_by = NULL, doubted_at = NULL', randomUUID());
  sqlOf(db).run('DELETE FROM feed');
  sqlOf(db).run('UPDATE feed_branches SET epoch = NULL, snapshot_at = NULL');
}
