import { chmodSync, existsSync, linkSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import type Database from 'better-sqlite3';
import * as z from 'zod';
import { TillsyncError } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { Audit, type AuditEntry, type AuditEvent } from '../db/audit.ts';
import { hasRole, mark, setMark } from '../db/marks.ts';
import { migrate } from '../db/migrate.ts';
import { MIRROR_MODE, MIRROR_SCHEMA } from '../db/mirror-connection.ts';
import { lookInto, openDatabase, storing, syncPath } from '../db/sqlite.ts';
import { takeOverTold } from '../hooks/prepared-orders.ts';
import { SEQ_JUMP } from '../orders/merging/order.ts';
import { continueFeedAfter, newestSeq } from '../orders/reading/mirror-file.ts';
import { inWordsOfPos, type OutboxChange } from '../outbox/intake/change.ts';
import type { Guard } from '../outbox/intake/guards.ts';
import { OutboxQueue } from '../outbox/sending/queue.ts';
import { noteBackup } from './backup-files.ts';

export const count = z.number().int().min(0);

/** An event of the order feed; two mirrors with the same event have the same history. */
export const feedMarkSchema = z.object({ seq: count, orderId: z.string(), observedAt: z.string() });
type FeedMark = z.infer<typeof feedMarkSchema>;

/** Facts about a copy of a mirror. */
export const mirrorFactsSchema = z.object({
  /** Names of the mirror's migrations, in order. */
  schema: z.array(z.string()),
  orders: count,
  events: count,
  products: count,
  /** Number of changes that had not reached the platform. */
  unsentChanges: count,
  /** The highest number that the order feed ever gave. */
  newestSeq: count,
  newestEvent: feedMarkSchema.nullable(),
});
type MirrorFacts = z.infer<typeof mirrorFactsSchema>;

const COUNTS = `
  SELECT (SELECT count(*) FROM _orders) AS orders, (SELECT count(*) FROM order_events) AS events,
    (SELECT count(*) FROM _products) AS products,
    (SELECT count(*) FROM _outbox WHERE state IN ('pending', 'sending')) AS unsentChanges,
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0) AS newestSeq`;

/** Checks a complete copy of a mirror and returns facts about it. Throws `storage-corrupt` if the copy is damaged. */
export function checkMirrorCopy(path: string): MirrorFacts {
  return lookInto(path, (db) => {
    refuseUnsound(db, path);
    return mirrorFacts(db);
  });
}

/** Throws `storage-corrupt` unless every page, row and index is sound. */
function refuseUnsound(db: Database.Database, name: string): void {
  const verdict = db.pragma('integrity_check(1)', { simple: true });
  if (verdict === 'ok') return;
  throw new TillsyncError('storage-corrupt', `${name} is damaged: ${String(verdict)}.`);
}

function mirrorFacts(db: Database.Database): MirrorFacts {
  const schema = db.prepare<[], string>('SELECT name FROM _schema_migrations ORDER BY number').pluck().all();
  const counts = db.prepare<[], Omit<MirrorFacts, 'schema' | 'newestEvent'>>(COUNTS).get();
  if (!counts) throw new TillsyncError('storage-corrupt', 'The mirror has no counts.');
  const newestEvent = db.prepare<[], FeedMark>(`${MARK} ORDER BY seq DESC LIMIT 1`).get() ?? null;
  return { schema, ...counts, newestEvent };
}

const MARK = 'SELECT seq, order_id AS orderId, observed_at AS observedAt FROM order_events';

/** Data that a mirror got since an earlier backup and that neither the backup nor the platform has. */
export const knownSinceSchema = z.object({
  /** The highest number that the order feed ever gave. */
  newestSeq: count,
  /** The highest number that the feed of settled changes ever gave. */
  newestSettled: count,
  /** Orders that the POS has acknowledged; `seq` is the newest booked event, null for an order not yet heard of. */
  acks: z.array(
    z.object({ orderId: z.string().min(1), seq: count.nullable(), without: z.string().nullable() }),
  ),
  /** Changes without an answer of the platform, oldest first. */
  unsent: z.array(z.object({ kind: z.enum(['stock', 'product']), document: z.string(), at: z.string() })),
  /** What hooks were told of the preparation of orders, and accepted. */
  prepared: z.array(
    z.object({
      hook: z.string(),
      orderId: z.string(),
      step: count,
      isPrepared: count,
      store: z.string().nullable(),
      digest: z.string(),
      seq: count,
    }),
  ),
  /** Operators' actions, oldest first. */
  audited: z.array(
    z.object({
      auditId: count,
      at: z.string(),
      who: z.string(),
      action: z.custom<AuditEntry['action']>((action) => typeof action === 'string'),
      subject: z.string().nullable(),
      detail: z.string().nullable(),
    }),
  ),
});
export type KnownSince = z.infer<typeof knownSinceSchema>;

/** Maximum number of changes without an answer in a differential backup: the whole inventory of a large shop. */
const UNSENT_MAX = 200_000;
// Of an order in two branches, the newest one: SQLite takes the other columns from the row with the maximum.
const ACKED = `SELECT orderId, seq, without FROM (
    SELECT order_id AS orderId, seq, without, max(acked_at) AS ackedAt FROM _order_acks WHERE acked_at >= ? GROUP BY order_id)
  ORDER BY ackedAt`;
const UNSENT = `SELECT kind, body, sku, named, counted_at AS countedAt, created_at AS at FROM _outbox
  WHERE state IN ('pending', 'sending') AND created_at >= ? ORDER BY version DESC LIMIT ?`;

// An event without an answer is sent again, so it does not count.
const PREPARED = `SELECT p.hook, order_id AS orderId, step, is_prepared AS isPrepared, store, digest, p.seq
  FROM _prepared_orders p JOIN _hooks h ON h.name = p.hook AND h.event = 'order.prepare'
  WHERE step > 0 AND p.seq <= h.seq AND p.seq > coalesce(
    (SELECT max(e.seq) FROM _preparation_events e WHERE e.hook = p.hook AND e.decided_at < ?), 0)
  ORDER BY p.hook, p.seq`;

type UnsentRow = Pick<OutboxChange, 'kind' | 'sku' | 'named' | 'countedAt'> & { body: string; at: string };

/** Returns a change in the form in which the POS handed it over, so that it can be handed over once more. */
function asHandedOver({ body, countedAt, at, ...change }: UnsentRow): KnownSince['unsent'][number] {
  const words = inWordsOfPos({ ...change, body: JSON.parse(body) });
  const dated = countedAt === null ? {} : { counted_at: countedAt };
  return { kind: change.kind, document: JSON.stringify({ ...words, ...dated }), at };
}

/**
 * Returns what a mirror got since this time (ISO 8601), as of one moment, and the newest event from before the time. If
 * there are too many changes without an answer, only the newest are returned.
 */
export function knownSince(
  db: Database.Database,
  { since, clock }: { since: string; clock: Clock },
): { known: KnownSince; mark: FeedMark | null } {
  return db.transaction(() => ({
    mark:
      db.prepare<[string], FeedMark>(`${MARK} WHERE observed_at < ? ORDER BY seq DESC LIMIT 1`).get(since) ??
      null,
    known: {
      newestSeq: KNOWN.newestSeq(db),
      newestSettled: KNOWN.newestSettled(db),
      acks: KNOWN.acks(db, since),
      unsent: KNOWN.unsent(db, since),
      prepared: KNOWN.prepared(db, since),
      audited: KNOWN.audited(db, since, clock),
    },
  }))();
}

/** Reads of each part that a backup has not. */
const KNOWN = {
  newestSeq,
  newestSettled: (db: Database.Database) => mark(db, 'outbox.settled') ?? 0,
  acks: (db: Database.Database, since: string) =>
    db.prepare<[string], KnownSince['acks'][number]>(ACKED).all(since),
  unsent: (db: Database.Database, since: string) =>
    db.prepare<[string, number], UnsentRow>(UNSENT).all(since, UNSENT_MAX).map(asHandedOver).reverse(),
  prepared: (db: Database.Database, since: string) =>
    db.prepare<[string], KnownSince['prepared'][number]>(PREPARED).all(since),
  audited: (db: Database.Database, since: string, clock: Clock) =>
    new Audit({ db, clock }).list({ since, limit: AUDIT_MAX }).reverse(),
};

/** Returns the parts of `knownSince` that can be read of a damaged mirror; null for each one that cannot. */
export function readableOf(
  db: Database.Database,
  { since, clock }: { since: string; clock: Clock },
): { [K in keyof KnownSince]: KnownSince[K] | null } {
  const tried = <T>(read: () => T): T | null => {
    try {
      return read();
    } catch {
      return null;
    }
  };
  return {
    newestSeq: tried(() => KNOWN.newestSeq(db)),
    newestSettled: tried(() => KNOWN.newestSettled(db)),
    acks: tried(() => KNOWN.acks(db, since)),
    unsent: tried(() => KNOWN.unsent(db, since)),
    prepared: tried(() => KNOWN.prepared(db, since)),
    audited: tried(() => KNOWN.audited(db, since, clock)),
  };
}

/** Returns whether a mirror has this event. If so, the backup that names the event was made of the same mirror. */
export function hasEvent(db: Database.Database, mark: FeedMark): boolean {
  const there = db.prepare<[number], FeedMark>(`${MARK} WHERE seq = ?`).get(mark.seq);
  return there?.orderId === mark.orderId && there.observedAt === mark.observedAt;
}

const AUDIT_MAX = 100_000;
const MESSAGE = 'From a restored backup: the platform may have a newer value, so a person decides.';

/**
 * Holds the unsent and unanswered changes of a restored mirror, merged to one per target as always in the queue,
 * because sending them would put older values over the platform's. Returns how many are held. Runs in the caller's
 * transaction.
 */
function holdUnsent(db: Database.Database, at: string): number {
  const queue = new OutboxQueue(db);
  queue.begin();
  const newestFirst = 'ORDER BY version DESC';
  for (const sent of queue.all(`WHERE state = 'sending' ${newestFirst}`)) queue.putBack(sent, MESSAGE, at);
  // A change that a guard held stays held by that guard, also after it is merged with another one.
  const guards = new Map<number, Guard | null>();
  for (const held of queue.all(`WHERE state = 'pending' AND held_guard IS NOT NULL ${newestFirst}`)) {
    guards.set(held.changeId, held.heldGuard);
    queue.release(held, MESSAGE, at);
  }
  const hold = db.prepare('UPDATE _outbox SET held_guard = ?, message = ? WHERE change_id = ?');
  const waiting = queue.all("WHERE state = 'pending' AND held_guard IS NULL");
  for (const { changeId } of waiting) hold.run(guards.get(changeId) ?? 'restored', MESSAGE, changeId);
  return waiting.length;
}

export interface RestoredMirror {
  /** Number of changes that wait for a person now. */
  held: number;
  /** The order feed continues after this number. */
  continuesAfterSeq: number;
}

interface PrepareOptions {
  continueAfterSeq: number;
  /** The highest number of a settled change that is known beside the backup; 0 if left out. */
  newestSettled?: number;
  /** What hooks accepted of preparations since the backup, oldest first; nothing if left out. */
  prepared?: KnownSince['prepared'];
  /** Operators' actions on the present mirror since the backup. */
  audited: readonly AuditEntry[];
  /** Audit record of the restore itself. */
  auditEvent: AuditEvent;
  clock: Clock;
}

// A branch sends changes without a final outcome to the hub again, so the hub's rows about them (`_handed_up`) are
// deleted. Entries of `feed` belong to the earlier epoch; sent in the new one, they would take orders backwards.
const DISTRUST_CATALOGUE = `
  UPDATE _products SET uncertain = 1;
  UPDATE _skus SET uncertain = 1;
  UPDATE _stocks SET uncertain = 1, show_uncertain = 1;
  UPDATE _branch_products SET digest = NULL;
  DELETE FROM _sweeps;
  DELETE FROM _stock_counts;
  -- A count that waits for its id to mean a stock again is as old as the others.
  DELETE FROM _id_counts;
  DELETE FROM _moved_ids;`;

const BEGIN_AGAIN = {
  hub: `
  UPDATE _hub SET epoch = lower(hex(randomblob(16))), doubted_by = NULL, doubted_at = NULL;
  UPDATE _feed_branches SET epoch = NULL, snapshot_at = NULL, stopped_seq = NULL;
  -- What was leased since the backup nobody knows.
  UPDATE _feed_branches SET leased_seq = max(seq, leased_seq) + ${SEQ_JUMP} WHERE max(seq, leased_seq) > 0;
  DELETE FROM _feed;
  DELETE FROM _handed_up WHERE change_id IN (SELECT change_id FROM _outbox WHERE state IN ('pending', 'sending'));`,
  branch: `
  INSERT INTO _up_acks (order_id) SELECT order_id FROM _order_acks WHERE EXISTS (SELECT 1 FROM _link)
    ON CONFLICT DO NOTHING;
  DELETE FROM _up_items;
  UPDATE _link SET line = lower(hex(randomblob(16))), last_u = 0;`,
};

/**
 * Migrates a copied mirror and prepares it, before anybody reads it. Numbers of events and settled changes jump ahead,
 * unsent changes are held, and catalogue values count as unconfirmed. Throws `storage-newer`, `storage-corrupt`.
 */
export function prepareRestoredMirror(
  path: string,
  { continueAfterSeq, newestSettled = 0, prepared = [], audited, auditEvent, clock }: PrepareOptions,
): RestoredMirror {
  const pragmas = { journal_mode: 'delete', recursive_triggers: 1 };
  const db = openDatabase({ path, mode: MIRROR_MODE, busyTimeoutMs: 100, pragmas });
  const name = 'The mirror in the backup';
  try {
    refuseUnsound(db, name);
    migrate(db, { ...MIRROR_SCHEMA, name });
    const prepare = db.transaction(() => {
      continueFeedAfter(db, continueAfterSeq);
      // More changes may have settled since, and readers may have seen their numbers.
      const settled = Math.max(mark(db, 'outbox.settled') ?? 0, newestSettled);
      setMark(db, 'outbox.settled', settled + SEQ_JUMP);
      db.exec(DISTRUST_CATALOGUE);
      for (const role of ['hub', 'branch'] as const) if (hasRole(db, role)) db.exec(BEGIN_AGAIN[role]);
      if (hasRole(db, 'hub')) db.prepare('UPDATE _hub SET restored_at = ?').run(isoUtc(clock.nowMs()));
      // Gives later differential backups a new name, so that those of the replaced mirror are not overwritten.
      noteBackup(db, clock.nowMs());
      for (const [hook, told] of Map.groupBy(prepared, (each) => each.hook)) takeOverTold(db, hook, told);
      const audit = new Audit({ db, clock });
      audit.takeOver(audited);
      const held = holdUnsent(db, isoUtc(clock.nowMs()));
      audit.note(auditEvent);
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
 * Replaces a database by another while the daemon is stopped, and keeps the old one under `kept`. A crash damages
 * neither of them. Readers see the old one until they reopen. Returns whether there was an old one. Throws `storage-…`.
 */
export function swapDatabase(fresh: string, path: string, kept: string): boolean {
  return storing(() => {
    const isThere = existsSync(path) || existsSync(`${path}-wal`);
    if (isThere && foldLog(path) && linked(path, kept)) {
      // The log is empty by now. The names of -wal and -shm must be free, because readers of the old mirror must not
      // share these files with readers of the new one.
      for (const suffix of ['-wal', '-shm']) rmSync(path + suffix, { force: true });
    } else if (isThere) {
      // The database is moved first, because a log alone is refused at a start and never mistaken for an
      // empty mirror.
      for (const suffix of ['', '-wal', '-shm']) {
        if (existsSync(path + suffix)) renameSync(path + suffix, kept + suffix);
      }
    }
    renameSync(fresh, path);
    syncPath(dirname(path));
    return isThere;
  });
}

/** Moves the complete write-ahead log into the database. Returns false if that is impossible. */
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
