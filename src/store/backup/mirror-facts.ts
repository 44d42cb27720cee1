import type Database from 'better-sqlite3';
import { TillsyncError } from '../../domain/errors.ts';
import { lookInto } from './copy-database.ts';

/** An event of the order feed; two mirrors that have the same one are of the same history. */
export interface FeedMark {
  seq: number;
  orderId: string;
  observedAt: string;
}

/** What a copy of a mirror holds. */
export interface MirrorFacts {
  /** Names of its schema steps, in their order. */
  schema: string[];
  orders: number;
  events: number;
  products: number;
  /** Changes that had not reached the platform. */
  unsentChanges: number;
  /** The highest number that the order feed ever gave. */
  newestSeq: number;
  newestEvent: FeedMark | null;
}

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
export function refuseUnsound(db: Database.Database, name: string): void {
  const verdict = db.pragma('integrity_check(1)', { simple: true });
  if (verdict === 'ok') return;
  throw new TillsyncError('storage-corrupt', `${name} is damaged: ${String(verdict)}.`);
}

export function mirrorFacts(db: Database.Database): MirrorFacts {
  const schema = db.prepare<[], string>('SELECT name FROM schema_migrations ORDER BY number').pluck().all();
  const counts = db.prepare<[], Omit<MirrorFacts, 'schema' | 'newestEvent'>>(COUNTS).get();
  if (!counts) throw new TillsyncError('storage-corrupt', 'The mirror has no counts.');
  const newestEvent = db.prepare<[], FeedMark>(`${MARK} ORDER BY seq DESC LIMIT 1`).get() ?? null;
  return { schema, ...counts, newestEvent };
}

const MARK = 'SELECT seq, order_id AS orderId, observed_at AS observedAt FROM order_events';

/** What a mirror knows that a backup made earlier does not. */
export interface KnownSince {
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
      .prepare<[string], string>('SELECT order_id FROM order_acks WHERE acked_at >= ?')
      .pluck()
      .all(since);
    return {
      newestSeq: mirrorFacts(db).newestSeq,
      isSameHistory,
      ackedOrderIds: isSameHistory ? acked : [],
    };
  });
}
