import type { ErrorCode } from '../core/errors.ts';
import type { LockHolder } from '../db/wal.ts';
import type { RestoredAck } from './change.ts';
import type { InboxBatch, InboxRow, InboxTrouble, InboxWaiting } from './inbox.ts';
import type { InboxTable } from './inbox-file.ts';

// Requests and answers of the process that opens the inbox, one JSON document per line.

/** The inbox's location, as the process's first argument. */
export interface InboxLocation {
  path: string;
  group?: string | undefined;
}

/** Ids of the first wanted rows. */
export type InboxFrom = Partial<Record<InboxTable, string>>;

export interface InboxAnswers {
  /** Prepares the inbox if needed, and returns the oldest rows from these ids on. */
  look: { batch: InboxBatch; waiting: InboxWaiting; keptFiles: string[]; holders: LockHolder[] };
  remove: Record<string, never>;
  insertAcks: Record<string, never>;
  /** Rows from these ids on; the file is not changed. */
  copy: InboxBatch;
  /** State of the file, which is not changed. */
  health: InboxHealth;
}

export interface InboxHealth {
  bytes: number;
  version: number;
  /** First damage that SQLite found; null if none. */
  damage: string | null;
  /** False for a file too large to check quickly; `damage` then says nothing. */
  readThrough: boolean;
  waiting: InboxWaiting;
}

export type InboxRequest =
  | { do: 'look'; limit: number; from: InboxFrom }
  | { do: 'remove'; rows: readonly InboxRow[] }
  | { do: 'insertAcks'; acks: readonly RestoredAck[] }
  | { do: 'copy'; from: InboxFrom }
  | { do: 'health' };

/** Troubles with the file in the meantime, and the answer or the error. */
export type InboxReply = { troubles: InboxTrouble[] } & (
  | { answer: InboxAnswers[keyof InboxAnswers] }
  | { error: { code: ErrorCode; message: string; hint: string | undefined } }
);
