import { statSync } from 'node:fs';
import { asTillsyncError, type ErrorCode, TillsyncError } from '../../core/errors.ts';
import { type LockHolder, lockHolders, namesOf } from '../../db/file-locks.ts';
import { storing } from '../../db/sqlite.ts';
import type { RestoredAck } from './change.ts';
import {
  Inbox,
  type InboxBatch,
  type InboxRow,
  InboxRows,
  type InboxTrouble,
  type InboxWaiting,
} from './inbox.ts';
import { damageOf, type InboxTable, openInboxForReading, requireSchema } from './inbox-file.ts';

// Requests to the process that opens the inbox, and its answers. Each is one line of JSON.

/** Location of the inbox, which is the first argument of its process. */
export interface InboxLocation {
  path: string;
  group?: string | undefined;
}

/** The id of the first wanted row of each table; a table without an id is read from its beginning. */
export type InboxFrom = Partial<Record<InboxTable, string>>;

export interface InboxAnswers {
  /** Creates the inbox if it is missing. Returns the oldest rows, starting at the ids in `from`. */
  look: { batch: InboxBatch; waiting: InboxWaiting; keptFiles: string[]; holders: LockHolder[] };
  remove: Record<string, never>;
  insertAcks: Record<string, never>;
  /** Returns the rows, starting at the ids in `from`, without changing the file. */
  copy: InboxBatch;
  /** Returns the state of the file, without changing the file. */
  health: InboxHealth;
}

export interface InboxHealth {
  bytes: number;
  version: number;
  /** First damage that SQLite found; null if none. */
  damage: string | null;
  /** Whether the file was checked; false if it is too large, and `damage` is then null. */
  readThrough: boolean;
  waiting: InboxWaiting;
}

export type InboxRequest =
  | { do: 'look'; limit: number; from: InboxFrom }
  | { do: 'remove'; rows: readonly InboxRow[] }
  | { do: 'insertAcks'; acks: readonly RestoredAck[] }
  | { do: 'copy'; from: InboxFrom }
  | { do: 'health' };

/** An answer or an error, and the faults of the file that were found meanwhile. */
export type InboxReply = { troubles: InboxTrouble[] } & (
  | { answer: InboxAnswers[keyof InboxAnswers] }
  | { error: { code: ErrorCode; message: string; hint: string | undefined } }
);

const COPIED_AT_ONCE = 1_000;
/** Ranges of bytes that SQLite locks in a database file and in the index of a write-ahead log. */
const LOCKED = { first: 0x40000000, last: 0x40000000 + 512 };
const LOCKED_INDEX = { first: 120, last: 127 };
const wallClock = { nowMs: () => Date.now() };

/** Opens the inbox and answers requests. It runs in inbox-child.ts, and in some tests without a separate process. */
export class InboxAnswerer {
  readonly #path: string;
  readonly #inbox: Inbox;
  #troubles: InboxTrouble[] = [];

  constructor(place: InboxLocation) {
    this.#path = place.path;
    this.#inbox = new Inbox({
      ...place,
      clock: wallClock,
      onTrouble: (trouble) => this.#troubles.push(trouble),
    });
  }

  reply(request: InboxRequest): InboxReply {
    this.#troubles = [];
    try {
      const given = this.#answer(request);
      return { troubles: this.#troubles, answer: given };
    } catch (error) {
      const { code, message, hint } = this.#plainly(error);
      return { troubles: this.#troubles, error: { code, message, hint } };
    }
  }

  close(): void {
    this.#inbox.close();
  }

  #answer(request: InboxRequest): InboxAnswers[keyof InboxAnswers] {
    const inbox = this.#inbox;
    switch (request.do) {
      case 'look': {
        const batch = inbox.read(request.limit, request.from);
        // If reading does not begin at the first row, skipped rows wait in the inbox even if the batch is empty.
        const isWhole = Object.keys(request.from).length === 0;
        const none = isWhole && batch.changes.length + batch.acks.length + batch.alive.length === 0;
        const waiting = none ? { rows: 0, oldest: null } : inbox.waiting();
        // While rows wait, their removal fails if a POS holds a lock. So locks are searched only if the inbox is empty.
        const found = none ? this.#holders() : [];
        const isHeld = found.length > 0 && inbox.locksMatter();
        return { batch, waiting, keptFiles: inbox.keptFiles(), holders: isHeld ? found : [] };
      }
      case 'remove':
        inbox.remove(request.rows);
        return {};
      case 'insertAcks':
        inbox.insertAcks(request.acks);
        return {};
      case 'copy':
        return this.#reading((rows) => rows.read(COPIED_AT_ONCE, request.from));
      case 'health':
        return this.#reading((rows, db) => ({
          bytes: statSync(this.#path).size,
          version: Number(db.pragma('user_version', { simple: true })),
          ...damageOf(db, this.#path),
          waiting: rows.waiting(),
        }));
    }
  }

  #reading<T>(look: (rows: InboxRows, db: ReturnType<typeof openInboxForReading>) => T): T {
    const db = openInboxForReading(this.#path);
    try {
      return storing(() => look(new InboxRows(db, 0, () => requireSchema(db, this.#path)), db));
    } finally {
      db.close();
    }
  }

  /** Returns the error with a message for the person who maintains the POS. */
  #plainly(error: unknown): TillsyncError {
    const known = asTillsyncError(error);
    if (known.code === 'storage-busy') {
      const held = this.#holders();
      const who = namesOf(held);
      return new TillsyncError(
        'storage-busy',
        `The inbox ${this.#path} is locked by ${who || 'a program that could not be named'}.`,
        {
          hint: `Close or restart ${held.length > 0 ? 'it' : 'the program that holds the file open'}: it keeps a transaction open.`,
        },
      );
    }
    const { cause } = known;
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
    if (code === 'SQLITE_NOMEM' || code === 'SQLITE_TOOBIG') {
      return new TillsyncError(
        'storage-failed',
        `The inbox ${this.#path} holds a row that is too large to be read or removed (${code}).`,
        {
          hint: 'Have whoever looks after the POS delete it.',
        },
      );
    }
    return known;
  }

  #holders(): LockHolder[] {
    const inodeOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.ino ?? 0;
    return lockHolders([
      { inode: inodeOf(this.#path), ...LOCKED },
      { inode: inodeOf(`${this.#path}-shm`), ...LOCKED_INDEX },
    ]);
  }
}
