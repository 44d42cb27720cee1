import type { ErrorCode } from '../core/errors.ts';
import type { LockHolder } from '../db/wal.ts';
import type { RestoredAck } from './change.ts';
import type { InboxBatch, InboxRow, InboxTrouble, InboxWaiting } from './inbox.ts';
import type { InboxTable } from './inbox-file.ts';

// What the process that opens the inbox is asked and answers, one JSON document a line each.

/** Which inbox, as the first argument of the process. */
export interface InboxPlace {
  path: string;
  group?: string | undefined;
}

/** Numbers of the first rows that are wanted. */
export type InboxFrom = Partial<Record<InboxTable, string>>;

export interface InboxAnswers {
  /** Makes the inbox usable where it is not, and gives the oldest rows from these numbers on. */
  look: { batch: InboxBatch; waiting: InboxWaiting; keptFiles: string[]; holders: LockHolder[] };
  remove: Record<string, never>;
  insertAcks: Record<string, never>;
  /** Rows from these numbers on, from a file that is left as it is. */
  copy: InboxBatch;
  /** Of a file that is left as it is. */
  health: InboxHealth;
}

export interface InboxHealth {
  bytes: number;
  version: number;
  /** What SQLite found wrong first; null: nothing. */
  damage: string | null;
  /** False for a file too large to be read through in a moment; `damage` then says nothing. */
  readThrough: boolean;
  waiting: InboxWaiting;
}

export type InboxRequest =
  | { do: 'look'; limit: number; from: InboxFrom }
  | { do: 'remove'; rows: readonly InboxRow[] }
  | { do: 'insertAcks'; acks: readonly RestoredAck[] }
  | { do: 'copy'; from: InboxFrom }
  | { do: 'health' };

/** What happened to the file meanwhile, and the answer or why there is none. */
export type InboxReply = { troubles: InboxTrouble[] } & (
  | { answer: InboxAnswers[keyof InboxAnswers] }
  | { error: { code: ErrorCode; message: string; hint: string | undefined } }
);
