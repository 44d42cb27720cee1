import { randomUUID } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
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
}

export function branchRow(db: Database.Database, branch: string): BranchRow | undefined {
  const sql = `SELECT last_n AS lastN, snapshot_n AS snapshotN, snapshot_at AS snapshotAt, line, up_to AS upTo, seq
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
    hello.seq > row.seq
  );
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

/** Up to this number the server was given the branch's feed. */
export function publishedTo(db: Database.Database, branch: string): number {
  const sql = `SELECT coalesce(
    (SELECT min(n) - 1 FROM feed INDEXED BY feed_unpublished WHERE published = 0 AND branch = @branch),
    (SELECT last_n FROM feed_branches WHERE branch = @branch), 0)`;
  return sqlOf(db).value<number>(sql, { branch }) ?? 0;
}

/** What a hello did cause; the work of it is the hub's. `all`: every branch gets a snapshot. */
export type Caused = 'nothing' | 'snapshot' | 'new life' | 'new life of all';

/**
 * Takes note of where a branch is, and writes it a snapshot where it cannot go on without one and `mayCause` one; else it
 * asks again. Gives what it did cause.
 */
export function takeHello(
  db: Database.Database,
  branch: string,
  hello: Hello,
  { mayCause, nowMs }: { mayCause: boolean; nowMs: number },
): Caused {
  const row = branchRow(db, branch);
  if (!row) return 'nothing';
  sqlOf(db).run('UPDATE feed_branches SET seq = max(seq, ?) WHERE branch = ?', hello.seq, branch);
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
  if (!isOtherEpoch && !hello.wantsSnapshot) return 'nothing';
  // One that was written for an earlier mirror of this branch is of no use to a new one.
  const madeMs =
    row.snapshotAt === null || row.line !== hello.line
      ? Number.NEGATIVE_INFINITY
      : Date.parse(row.snapshotAt);
  const isRecent = Math.abs(nowMs - madeMs) < SNAPSHOT_AGAIN_MS;
  if (isRecent && (isOtherEpoch || hello.mark < row.snapshotN)) return 'nothing';
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

function beginLifeOfAll(db: Database.Database): void {
  sqlOf(db).run('UPDATE hub SET epoch = ?, doubted_by = NULL, doubted_at = NULL', randomUUID());
  sqlOf(db).run('DELETE FROM feed');
  sqlOf(db).run('UPDATE feed_branches SET epoch = NULL, snapshot_at = NULL');
}
