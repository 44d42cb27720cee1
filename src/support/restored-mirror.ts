import { chmodSync, existsSync, linkSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import type Database from 'better-sqlite3';
import * as z from 'zod';
import { TillsyncError } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { Audit, type AuditEntry, type Deed } from '../db/audit.ts';
import { migrate } from '../db/migrate.ts';
import { MIRROR_MODE } from '../db/mirror-connection.ts';
import { lookInto, openDatabase, storing, syncPath } from '../db/sqlite.ts';
import { continueFeedAfter } from '../orders/mirror-file.ts';
import { FEED_JUMP } from '../orders/order.ts';
import type { Guard } from '../outbox/guard-rails.ts';
import { OutboxQueue } from '../outbox/queue.ts';

export const count = z.number().int().min(0);

/** What a copy of a mirror holds. */
export const mirrorFactsSchema = z.object({
  /** Names of its schema steps, in their order. */
  schema: z.array(z.string()),
  orders: count,
  events: count,
  products: count,
  /** Changes that had not reached the platform. */
  unsentChanges: count,
  /** The highest number that the order feed ever gave. */
  newestSeq: count,
  /** An event of the order feed; two mirrors that have the same one are of the same history. */
  newestEvent: z.object({ seq: count, orderId: z.string(), observedAt: z.string() }).nullable(),
});
export type MirrorFacts = z.infer<typeof mirrorFactsSchema>;
type FeedMark = NonNullable<MirrorFacts['newestEvent']>;

const COUNTS = `
  SELECT (SELECT count(*) FROM orders) AS orders, (SELECT count(*) FROM order_events) AS events,
    (SELECT count(*) FROM products) AS products,
    (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')) AS unsentChanges,
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0) AS newestSeq`;

/** Reads a copy from end to end. Throws `storage-corrupt` when SQLite finds it unsound. */
export function checkMirrorCopy(path: string): MirrorFacts {
  return lookInto(path, (db) => {
    refuseUnsound(db, path);
    return mirrorFacts(db);
  });
}

/** Throws `storage-corrupt` unless every page, row and index is in order. */
function refuseUnsound(db: Database.Database, name: string): void {
  const verdict = db.pragma('integrity_check(1)', { simple: true });
  if (verdict === 'ok') return;
  throw new TillsyncError('storage-corrupt', `${name} is damaged: ${String(verdict)}.`);
}

function mirrorFacts(db: Database.Database): MirrorFacts {
  const schema = db.prepare<[], string>('SELECT name FROM schema_migrations ORDER BY number').pluck().all();
  const counts = db.prepare<[], Omit<MirrorFacts, 'schema' | 'newestEvent'>>(COUNTS).get();
  if (!counts) throw new TillsyncError('storage-corrupt', 'The mirror has no counts.');
  const newestEvent = db.prepare<[], FeedMark>(`${MARK} ORDER BY seq DESC LIMIT 1`).get() ?? null;
  return { schema, ...counts, newestEvent };
}

const MARK = 'SELECT seq, order_id AS orderId, observed_at AS observedAt FROM order_events';

/** What a mirror knows that a backup made earlier does not. */
interface KnownSince {
  newestSeq: number;
  /** Whether it is the mirror that `mark` was taken from. */
  isSameHistory: boolean;
  /** Orders that the POS has acknowledged since. */
  ackedOrderIds: string[];
}

/** How far the mirror came that a backup takes the place of; `since` in ISO 8601. Throws `storage-…`. */
export function knownSince(path: string, mark: FeedMark | null, since: string): KnownSince {
  return lookInto(path, (db) => {
    const there = mark && db.prepare<[number], FeedMark>(`${MARK} WHERE seq = ?`).get(mark.seq);
    const isSameHistory =
      mark !== null && there?.orderId === mark.orderId && there.observedAt === mark.observedAt;
    const acked = db
      .prepare<[string], string>('SELECT DISTINCT order_id FROM order_acks WHERE acked_at >= ?')
      .pluck()
      .all(since);
    return { newestSeq: mirrorFacts(db).newestSeq, isSameHistory, ackedOrderIds: isSameHistory ? acked : [] };
  });
}

/** What operators did with a mirror since a backup of it was made; empty where that cannot be read. */
export function auditedSince(path: string, since: string, clock: Clock): AuditEntry[] {
  try {
    return lookInto(path, (db) => new Audit({ db, clock }).list({ since, limit: AUDIT_MAX })).reverse();
  } catch {
    // It is not there, damaged, or of a version that noted nothing.
    return [];
  }
}

const AUDIT_MAX = 100_000;
const MESSAGE = 'From a restored backup: the platform may have a newer value, so a person decides.';

/**
 * Holds every change that a restored mirror had not sent, or not heard back of, one for each target as in the line:
 * sent by themselves they would put older values over what the platform has by now. Returns how many are held.
 * Within the caller's transaction.
 */
function holdUnsent(db: Database.Database, at: string): number {
  const queue = new OutboxQueue(db);
  queue.begin();
  const newestFirst = 'ORDER BY version DESC';
  for (const sent of queue.all(`WHERE state = 'sending' ${newestFirst}`)) queue.putBack(sent, MESSAGE, at);
  // A change that a guard rail held stays held by it, whatever it is joined with.
  const guards = new Map<number, Guard | null>();
  for (const held of queue.all(`WHERE state = 'pending' AND held_guard IS NOT NULL ${newestFirst}`)) {
    guards.set(held.changeId, held.heldGuard);
    queue.release(held, MESSAGE, at);
  }
  const hold = db.prepare('UPDATE outbox SET held_guard = ?, message = ? WHERE change_id = ?');
  const waiting = queue.all("WHERE state = 'pending' AND held_guard IS NULL");
  for (const { changeId } of waiting) hold.run(guards.get(changeId) ?? 'restored', MESSAGE, changeId);
  return waiting.length;
}

export interface RestoredMirror {
  /** Changes that wait for a person now. */
  held: number;
  /** Where the order feed goes on: its next event has a higher number. */
  continuesAfterSeq: number;
}

export interface PrepareOptions {
  continueAfterSeq: number;
  /** What operators did with the mirror that is there since the backup. */
  audited: readonly AuditEntry[];
  /** The restore itself. */
  deed: Deed;
  clock: Clock;
}

// A branch hands up again what has no final word, so what is held here of it concerns nobody. What the feed has is of an
// earlier life: said in the new one, it would take the orders of a branch back.
const DISTRUST_CATALOGUE = `
  UPDATE products SET uncertain = 1;
  UPDATE skus SET uncertain = 1;
  UPDATE stocks SET uncertain = 1, show_uncertain = 1;
  UPDATE branch_products SET digest = NULL;
  DELETE FROM sweeps;
  DELETE FROM stock_counts;
  UPDATE hub SET epoch = lower(hex(randomblob(16))), doubted_by = NULL, doubted_at = NULL;
  UPDATE feed_branches SET epoch = NULL, snapshot_at = NULL, stopped_seq = NULL;
  -- What was leased since the backup nobody knows.
  UPDATE feed_branches SET leased_seq = max(seq, leased_seq) + ${FEED_JUMP} WHERE max(seq, leased_seq) > 0;
  DELETE FROM feed;
  DELETE FROM handed_up WHERE change_id IN (SELECT change_id FROM outbox WHERE state IN ('pending', 'sending'));
  INSERT INTO up_acks (order_id) SELECT order_id FROM order_acks WHERE EXISTS (SELECT 1 FROM link)
    ON CONFLICT DO NOTHING;
  DELETE FROM up_items;
  UPDATE link SET line = lower(hex(randomblob(16))), last_u = 0;`;

/**
 * Makes a copy of a mirror fit to be used later than its moment, in its place, before anybody reads it: the schema
 * of today; no number of the order feed that may have been given out since; nothing that is sent by itself; and
 * no catalogue value that is trusted before the platform has said it again. Throws `storage-newer`,
 * `storage-corrupt`.
 */
export function prepareRestoredMirror(
  path: string,
  { continueAfterSeq, audited, deed, clock }: PrepareOptions,
): RestoredMirror {
  const pragmas = { journal_mode: 'delete', recursive_triggers: 1 };
  const db = openDatabase({ path, mode: MIRROR_MODE, busyTimeoutMs: 100, pragmas });
  const name = 'The mirror in the backup';
  try {
    refuseUnsound(db, name);
    migrate(db, { directory: new URL('../db/mirror/migrations/', import.meta.url), name });
    const prepare = db.transaction(() => {
      continueFeedAfter(db, continueAfterSeq);
      db.exec(DISTRUST_CATALOGUE);
      db.prepare('UPDATE hub SET restored_at = ?').run(isoUtc(clock.nowMs()));
      const audit = new Audit({ db, clock });
      audit.takeOver(audited);
      const held = holdUnsent(db, isoUtc(clock.nowMs()));
      audit.note(deed);
      return held;
    });
    const held = storing(() => prepare.immediate());
    const { newestSeq } = storing(() => mirrorFacts(db));
    if (newestSeq < continueAfterSeq) {
      throw new TillsyncError('internal', 'The order feed would give numbers a second time.');
    }
    return { held, continuesAfterSeq: newestSeq };
  } finally {
    db.close();
    chmodSync(path, MIRROR_MODE);
    syncPath(path);
  }
}

/**
 * Puts a database in the place of the mirror and keeps the one that was there under `kept`. Dying on the way leaves
 * the old one or the new one whole; readers that have the old one open keep it until they open it anew. Returns
 * whether there was one. For a stopped daemon. Throws `storage-…`.
 */
export function swapMirror(fresh: string, path: string, kept: string): boolean {
  return storing(() => {
    const isThere = existsSync(path) || existsSync(`${path}-wal`);
    if (isThere && foldLog(path) && linked(path, kept)) {
      // Empty by now. The names must be free: a reader of the new mirror may not share them with one of the old.
      for (const suffix of ['-wal', '-shm']) rmSync(path + suffix, { force: true });
    } else if (isThere) {
      // The database first: its log alone is refused at a start, never taken for an empty mirror.
      for (const suffix of ['', '-wal', '-shm']) {
        if (existsSync(path + suffix)) renameSync(path + suffix, kept + suffix);
      }
    }
    renameSync(fresh, path);
    syncPath(dirname(path));
    return isThere;
  });
}

/** Brings everything out of the log into the database. False where that cannot be done. */
function foldLog(path: string): boolean {
  try {
    const db = openDatabase({ path, mode: MIRROR_MODE, busyTimeoutMs: 0 });
    try {
      const [result] = db.pragma('wal_checkpoint(TRUNCATE)') as { busy: number }[];
      return result?.busy === 0;
    } finally {
      db.close();
    }
  } catch {
    return false;
  }
}

function linked(path: string, kept: string): boolean {
  try {
    linkSync(path, kept);
    return true;
  } catch {
    return false;
  }
}
