import { randomUUID } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { FEED_JUMP as SEQ_JUMP } from '../orders/order.ts';
import { beginSnapshot } from './feed-pages.ts';
import type { Hello, HelloAnswer } from './link.ts';

/*
 * How the hub takes a branch's hello: where the branch is, and whether it can go on from there. An epoch is a life of the
 * feed's numbers; a branch that follows another one needs a snapshot. Each function works within the caller's transaction.
 */

/** So long a snapshot may be on its way before another one is made. */
const SNAPSHOT_AGAIN_MS = 600_000;
/** Within this time the word of a second branch counts together with that of the first. */
const DOUBT_MS = 7 * 86_400_000;

export interface BranchRow {
  lastN: number;
  snapshotN: number;
  snapshotAt: string | null;
  line: string | null;
  upTo: number;
  seq: number;
  leasedSeq: number;
  stoppedSeq: number | null;
}

export function branchRow(db: Database.Database, branch: string): BranchRow | undefined {
  const sql = `SELECT last_n AS lastN, snapshot_n AS snapshotN, snapshot_at AS snapshotAt, line, up_to AS upTo, seq,
      leased_seq AS leasedSeq, stopped_seq AS stoppedSeq
    FROM feed_branches WHERE branch = ?`;
  return sqlOf(db).row<BranchRow>(sql, branch);
}

/** In which life the numbers of the branch's feed are. */
export function epochOf(db: Database.Database, branch: string): string | undefined {
  const sql = `SELECT coalesce((SELECT epoch FROM feed_branches WHERE branch = ?), epoch) FROM hub`;
  return sqlOf(db).value<string>(sql, branch);
}

/** Whether taking the hello in changes anything. */
export function isNews(db: Database.Database, branch: string, hello: Hello): boolean {
  const row = branchRow(db, branch);
  return (
    row === undefined ||
    row.line !== hello.line ||
    hello.epoch !== epochOf(db, branch) ||
    hello.wantsSnapshot ||
    hello.mark > row.lastN ||
    isPruned(db, branch, row, hello) ||
    isLeaseNews(row, hello)
  );
}

/** Whether what follows on what the branch has is not kept any more: nobody will give it again. */
function isPruned(db: Database.Database, branch: string, { lastN }: BranchRow, { mark }: Hello): boolean {
  const next = 'SELECT 1 FROM feed WHERE branch = ? AND n = ?';
  return mark < lastN && sqlOf(db).row(next, branch, mark + 1) === undefined;
}

/** Numbers that a branch may give before it asks again; its POS sees a gap of so many where it ended without a word. */
const LEASE = 1_000;
/** More than this above what the hub leased is no slip of a restored hub. */
const CLAIM_MAX = 2 ** 30;

/** Where the numbers of a branch's own feed go on, and up to which it may give them. */
export type Lease = Required<Pick<HelloAnswer, 'seqAfter' | 'leasedSeq'>>;

/** Whether no branch that is well could have given so high a number. */
export function isAbsurd(db: Database.Database, branch: string, { seq }: Hello): boolean {
  const row = branchRow(db, branch);
  const known = Math.max(row?.seq ?? 0, row?.leasedSeq ?? 0);
  return known > 0 && seq > known + CLAIM_MAX;
}

/** A start, an end, a copy of older files, or half of the lease is used up. */
function isLeaseNews(row: BranchRow, { isStart, isLast, seq }: Hello): boolean {
  return isStart || isLast || seq < row.seq || seq > row.leasedSeq - LEASE / 2;
}

/**
 * Leases numbers to a branch. One that starts goes on from where it ended only if it ended in an orderly way, by what the
 * hub wrote down: a copy of its files may claim whatever it likes. All others begin above what was ever leased.
 */
export function leaseNumbers(db: Database.Database, branch: string, hello: Hello): Lease {
  const row = branchRow(db, branch);
  if (!row || !isLeaseNews(row, hello)) return { seqAfter: 0, leasedSeq: row?.leasedSeq ?? 0 };
  const mayBeCopy = hello.isStart ? row.stoppedSeq !== hello.seq : hello.seq < row.seq;
  const seqAfter = mayBeCopy ? begunAfter(row, hello) : 0;
  const seq = Math.max(row.seq, hello.seq);
  // What waits for the branch comes without asking again in between.
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
  // It told its numbers every half minute before they were leased.
  return hello.seq < seq ? seq + SEQ_JUMP : 0;
}

/** How far the branch's line was taken in, whether it is `line`, and the highest `seq` that the branch told. */
export function lineOf(
  db: Database.Database,
  branch: string,
  line: string,
): Pick<HelloAnswer, 'upTo' | 'isLineKnown' | 'seq'> {
  const row = branchRow(db, branch);
  const isLineKnown = row?.line === line;
  return { upTo: isLineKnown ? row.upTo : 0, isLineKnown, seq: row?.seq ?? 0 };
}

/** Where the snapshot begins on which a branch has to wait that is not so far yet; 0: none. */
export function snapshotAhead(db: Database.Database, branch: string, hello: Hello): number {
  const row = branchRow(db, branch);
  return row && hello.epoch === epochOf(db, branch) && hello.mark < row.snapshotN ? row.snapshotN : 0;
}

/** Up to this number the server was given the branch's feed. */
export function publishedTo(db: Database.Database, branch: string): number {
  const sql = `SELECT coalesce(
    (SELECT min(n) - 1 FROM feed INDEXED BY feed_unpublished WHERE published = 0 AND branch = @branch),
    (SELECT last_n FROM feed_branches WHERE branch = @branch), 0)`;
  return sqlOf(db).value<number>(sql, { branch }) ?? 0;
}

/** What a hello did cause; the work of it is the hub's. `all`: every branch gets a snapshot. */
export type Caused = 'nothing' | 'snapshot' | 'new life' | 'new life of all';

export interface HelloOptions {
  mayCause: boolean;
  /** The newest number that the branch was heard to have, in whatever life; 0: none. */
  heardMark: number;
  nowMs: number;
}

/** A snapshot that begins with the answer, so that the branch need not find out by what does not come. */
function startsBehindGap(
  db: Database.Database,
  branch: string,
  row: BranchRow,
  hello: Hello,
  heardMark: number,
): boolean {
  // What was taken on another copy of these files the server does not give again.
  const isOlderCopy = hello.isStart && hello.mark < heardMark && heardMark <= row.lastN;
  return isOlderCopy || isPruned(db, branch, row, hello);
}

/**
 * Takes note of where a branch is, and writes it a snapshot where it cannot go on without one and `mayCause` one; else it
 * asks again. Gives what it did cause.
 */
export function takeHello(
  db: Database.Database,
  branch: string,
  hello: Hello,
  { mayCause, heardMark, nowMs }: HelloOptions,
): Caused {
  const row = branchRow(db, branch);
  if (!row) return 'nothing';
  if (row.line !== hello.line) {
    // It begins one of its own then, and asks again.
    if (!hello.isOwnLine) return 'nothing';
    sqlOf(db).run('UPDATE feed_branches SET line = ?, up_to = 0 WHERE branch = ?', hello.line, branch);
    // Its numbers of changes may mean others than those that were handed up under them before.
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
  // One that was written for an earlier mirror of this branch is of no use to a new one.
  const madeMs =
    row.snapshotAt === null || row.line !== hello.line
      ? Number.NEGATIVE_INFINITY
      : Date.parse(row.snapshotAt);
  const isRecent = Math.abs(nowMs - madeMs) < SNAPSHOT_AGAIN_MS;
  // A copy that had it is not the one that asks.
  const isUnderWay = isOtherEpoch || (hello.mark < row.snapshotN && heardMark < row.snapshotN);
  if (isRecent && isUnderWay) return 'nothing';
  beginSnapshot(db, branch, hello.line, nowMs);
  return 'snapshot';
}

/** Whether another branch, too, heard more than this database ever said: then it is an older copy, for all of them. */
function isSecondWord(db: Database.Database, branch: string, nowMs: number): boolean {
  const sql = 'SELECT 1 FROM hub WHERE doubted_by <> ? AND doubted_at >= ?';
  return sqlOf(db).row(sql, branch, isoUtc(nowMs - DOUBT_MS)) !== undefined;
}

/**
 * One branch's word gives that branch a new life of its feed, and costs no other anything: its key may be stolen. What was
 * written before must not go down as of this life: the branch would take an earlier snapshot for its own.
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

/** For so long after a restore, branches say which customers were forgotten since the backup. */
const REPLAYED_MS = 90 * 86_400_000;

/** Which of these orders lose their customer here too: those of the branch, at a hub that was restored not long ago. */
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
