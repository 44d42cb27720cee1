import { createHash } from 'node:crypto';
import type Database from 'better-sqlite3';
import type { Unreadable } from '../../domain/order/order.ts';
import { isoUtc } from '../../domain/time/clock.ts';

export interface QuarantineEntry {
  quarantineId: number;
  source: Unreadable['source'];
  receivedAt: string;
  reason: string;
  /** How often it came; polls see the same again and again and do not count. */
  seen: number;
  bytes: number;
}

export interface QuarantineDetail extends QuarantineEntry {
  payload: string | Uint8Array;
}

/** Larger payloads are cut, the reason says so: one answer of a platform gone mad must not fill the disk. */
const PAYLOAD_BYTES_MAX = 32 * 1024 * 1024;
const TOTAL_BYTES_MAX = 128 * 1024 * 1024;
const ROWS_MAX = 10_000;

const COLUMNS = 'quarantine_id AS quarantineId, source, received_at AS receivedAt, reason, seen, bytes';

/** Statements on `quarantine`: what nobody could read, once each, the oldest dropped when there is too much. */
export class QuarantineRows {
  readonly #seen: Database.Statement<[string], { id: number }>;
  readonly #count: Database.Statement<[number]>;
  readonly #insert: Database.Statement;
  readonly #totals: Database.Statement<[], { rows: number; bytes: number }>;
  readonly #oldest: Database.Statement<[], { id: number; bytes: number }>;
  readonly #remove: Database.Statement<[number]>;
  readonly #list: Database.Statement<[number], QuarantineEntry>;
  readonly #get: Database.Statement<[number], QuarantineDetail>;

  constructor(db: Database.Database) {
    this.#seen = db.prepare<[string], { id: number }>(
      'SELECT quarantine_id AS id FROM quarantine WHERE digest = ?',
    );
    this.#count = db.prepare<[number]>('UPDATE quarantine SET seen = seen + 1 WHERE quarantine_id = ?');
    this.#insert = db.prepare(
      'INSERT INTO quarantine (source, received_at, reason, digest, bytes, payload) VALUES (?, ?, ?, ?, ?, ?)',
    );
    this.#totals = db.prepare('SELECT count(*) AS rows, coalesce(sum(bytes), 0) AS bytes FROM quarantine');
    this.#oldest = db.prepare(
      'SELECT quarantine_id AS id, bytes FROM quarantine ORDER BY quarantine_id LIMIT 1000',
    );
    this.#remove = db.prepare('DELETE FROM quarantine WHERE quarantine_id = ?');
    this.#list = db.prepare(`SELECT ${COLUMNS} FROM quarantine ORDER BY quarantine_id DESC LIMIT ?`);
    this.#get = db.prepare(`SELECT ${COLUMNS}, payload FROM quarantine WHERE quarantine_id = ?`);
  }

  /** Whether exactly this is in quarantine already. */
  has(unreadable: Unreadable): boolean {
    return this.#seen.get(digestOf(unreadable)) !== undefined;
  }

  add(unreadable: Unreadable): void {
    const digest = digestOf(unreadable);
    const before = this.#seen.get(digest);
    if (before) {
      if (unreadable.source !== 'poll') this.#count.run(before.id);
      return;
    }
    const bytes = Buffer.byteLength(unreadable.payload);
    const cut = bytes > PAYLOAD_BYTES_MAX;
    const payload = cut ? Buffer.from(unreadable.payload).subarray(0, PAYLOAD_BYTES_MAX) : unreadable.payload;
    const reason = cut
      ? `${unreadable.reason} Only the first of its ${bytes} bytes are kept.`
      : unreadable.reason;
    const kept = Math.min(bytes, PAYLOAD_BYTES_MAX);
    this.#insert.run(unreadable.source, isoUtc(unreadable.receivedAtMs), reason, digest, kept, payload);
    this.#trim();
  }

  #trim(): void {
    let { rows, bytes } = this.#totals.get() ?? { rows: 0, bytes: 0 };
    if (rows <= ROWS_MAX && bytes <= TOTAL_BYTES_MAX) return;
    for (const oldest of this.#oldest.all()) {
      if (rows <= ROWS_MAX * 0.9 && bytes <= TOTAL_BYTES_MAX * 0.9) return;
      this.#remove.run(oldest.id);
      rows -= 1;
      bytes -= oldest.bytes;
    }
  }

  /** Whether there was something to remove. */
  remove(quarantineId: number): boolean {
    return this.#remove.run(quarantineId).changes > 0;
  }

  /** Newest first. */
  list(limit: number): QuarantineEntry[] {
    return this.#list.all(limit);
  }

  get(quarantineId: number): QuarantineDetail | undefined {
    return this.#get.get(quarantineId);
  }
}

function digestOf({ source, payload }: Unreadable): string {
  return createHash('sha256').update(source).update('\0').update(payload).digest('hex');
}
