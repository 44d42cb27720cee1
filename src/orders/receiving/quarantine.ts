import { createHash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../../core/time.ts';
import { sqlOf } from '../../db/sqlite.ts';
import type { Unreadable } from '../merging/order.ts';

/**
 * Longest stored payload in bytes. A longer one is cut, with a note in the reason, so that one faulty answer does not
 * fill the disk.
 */
const PAYLOAD_BYTES_MAX = 32 * 1024 * 1024;
const TOTAL_BYTES_MAX = 128 * 1024 * 1024;
const ROWS_MAX = 10_000;

/** Deletes an entry from quarantine. Returns false if there was none. */
export function removeFromQuarantine(db: Database.Database, quarantineId: number): boolean {
  return sqlOf(db).run('DELETE FROM _quarantine WHERE quarantine_id = ?', quarantineId).changes > 0;
}

/** Returns the id of a quarantined entry with the same content, or undefined if there is none. */
export function quarantinedAs(db: Database.Database, { source, payload }: Unreadable): number | undefined {
  const digest = digestOf(source, payload);
  const sql = 'SELECT quarantine_id FROM _quarantine WHERE digest = ?';
  return sqlOf(db).value(sql, digest);
}

/**
 * Stores unreadable input once. Above the limits, the oldest entries are deleted, poll answers first, because a poll
 * brings them again.
 */
export function quarantine(db: Database.Database, unreadable: Unreadable): void {
  const { source, payload, receivedAtMs } = unreadable;
  const before = quarantinedAs(db, unreadable);
  if (before !== undefined) {
    const count = 'UPDATE _quarantine SET seen = seen + 1 WHERE quarantine_id = ?';
    if (source !== 'poll') sqlOf(db).run(count, before);
    return;
  }
  const bytes = Buffer.byteLength(payload);
  const isCut = bytes > PAYLOAD_BYTES_MAX;
  const reason = isCut
    ? `${unreadable.reason} Only the first of its ${bytes} bytes are kept.`
    : unreadable.reason;
  sqlOf(db).run(
    'INSERT INTO _quarantine (source, received_at, reason, digest, bytes, payload) VALUES (?, ?, ?, ?, ?, ?)',
    source,
    isoUtc(receivedAtMs),
    reason,
    digestOf(source, payload),
    Math.min(bytes, PAYLOAD_BYTES_MAX),
    isCut ? Buffer.from(payload).subarray(0, PAYLOAD_BYTES_MAX) : payload,
  );
  trimQuarantine(db);
}

function trimQuarantine(db: Database.Database): void {
  const totals = 'SELECT count(*) AS rows, coalesce(sum(bytes), 0) AS bytes FROM _quarantine';
  let { rows, bytes } = sqlOf(db).row<{ rows: number; bytes: number }>(totals) ?? {
    rows: 0,
    bytes: 0,
  };
  if (rows <= ROWS_MAX && bytes <= TOTAL_BYTES_MAX) return;
  const first = `SELECT quarantine_id AS id, bytes FROM _quarantine
    ORDER BY source <> 'poll', quarantine_id LIMIT 1000`;
  for (const entry of sqlOf(db).rows<{ id: number; bytes: number }>(first)) {
    if (rows <= ROWS_MAX * 0.9 && bytes <= TOTAL_BYTES_MAX * 0.9) return;
    sqlOf(db).run('DELETE FROM _quarantine WHERE quarantine_id = ?', entry.id);
    rows -= 1;
    bytes -= entry.bytes;
  }
}

function digestOf(source: string, payload: string | Uint8Array): string {
  return createHash('sha256').update(source).update('\0').update(payload).digest('hex');
}
