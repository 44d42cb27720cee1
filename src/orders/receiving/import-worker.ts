import { parentPort, workerData } from 'node:worker_threads';
import type Database from 'better-sqlite3';
import { asTillsyncError, type ErrorCode, hasCode } from '../../core/errors.ts';
import { openSecondConnection } from '../../db/mirror-connection.ts';
import { storing, walBytes } from '../../db/sqlite.ts';
import { truncateWal } from '../../db/wal.ts';
import { compileSpellings, type ExtraSpellings } from '../merging/field-aliases.ts';
import type { StatusWords } from '../merging/field-values.ts';
import type { ImportReport } from '../merging/order.ts';
import { LinePlaces } from '../merging/placed-lines.ts';
import { WriteGate } from '../reading/mirror-file.ts';
import { AnswerImport, importAborted, type PreparedRecord, pollDigests } from './answer-import.ts';

/** Task for the import's worker thread: one answer of GET /order/all to mirror. */
export interface ImportTask {
  path: string;
  body: Uint8Array<ArrayBuffer>;
  spellings: ExtraSpellings;
  statuses: StatusWords;
  timezone: string | undefined;
  listPath: string;
  observedAtMs: number;
  asOfSeq: number;
  asOfHeldId: number;
  isOld: boolean | undefined;
  watched: readonly string[] | undefined;
  /** Shared memory of the `WriteGate`. */
  gate: SharedArrayBuffer;
}

/** Task for the worker thread: rewrite the mirror's file so that deleted content disappears. */
export type VacuumTask = Pick<ImportTask, 'path' | 'gate'>;

export type ImportMessage =
  /** `isClean` is true if the write-ahead log holds no old page any more. */
  | { kind: 'vacuumed'; isClean: boolean }
  | { kind: 'progress'; done: number; total: number }
  | { kind: 'report'; report: ImportReport }
  | { kind: 'error'; code: ErrorCode; message: string; hint: string | undefined };

/** Number of records between two checks of the gate. They are few enough to stay in the processor's cache. */
const CHUNK_RECORDS = 16;
/** Maximum number of records in one transaction. A transaction ends sooner if the main thread wants the lock. */
const TRANSACTION_RECORDS = 1024;
/** Size of the write-ahead log at which it is emptied. */
const CHECKPOINT_BYTES = 1024 * 1024;
const PROGRESS_RECORDS = 500;
const BUSY_PAUSE_MS = 10;
const BUSY_TRIES_MAX = 1_000;

/**
 * Runs an action, and retries it while another process holds the lock. Callbacks may wait for that process too, but not
 * for this thread's pauses between two tries.
 */
function whenFree<T>(gate: WriteGate, action: () => T): T {
  for (let tries = 0; ; tries++) {
    try {
      return storing(action);
    } catch (error) {
      if (!hasCode(error, 'storage-busy') || tries >= BUSY_TRIES_MAX || gate.aborted) throw error;
    }
    gate.pause(BUSY_PAUSE_MS);
  }
}

/** Runs an action while the main thread's writers wait at the gate. */
function atWork<T>(gate: WriteGate, action: () => T): T {
  gate.beginWork();
  try {
    return action();
  } finally {
    gate.endWork();
  }
}

/** Mirrors one large answer on this thread, with a connection of its own. */
function importAnswer(task: ImportTask, db: Database.Database): ImportReport {
  const gate = new WriteGate(task.gate);
  const answer = new AnswerImport({
    ...task,
    digestOf: pollDigests(task.spellings, task.timezone, task.statuses),
    spellings: compileSpellings(task.spellings, task.timezone, task.statuses),
  });
  const { report } = answer;

  /**
   * Writes the prepared records in one transaction, and prepares and writes further chunks in the same transaction
   * while these bring changes.
   */
  const write = (prepared: readonly PreparedRecord[]): void => {
    const transaction = db.transaction(() => {
      const places = new LinePlaces(db);
      const written = answer.write(db, prepared, { samePrepared: false, places });
      const end = answer.done + TRANSACTION_RECORDS;
      while (!answer.finished && answer.done < end && !gate.wanted && !gate.aborted) {
        const next = answer.prepare(db, CHUNK_RECORDS);
        if (next.length === 0) break;
        written.push(...answer.write(db, next, { samePrepared: true, places }));
      }
      return written;
    });
    answer.count(whenFree(gate, () => atWork(gate, () => transaction.immediate())));
  };

  if (!report.listFound) write([{ kind: 'unreadable', unreadable: answer.wholeAnswer }]);
  // Each chunk has its own read transaction, because a longer one would keep the write-ahead log from being emptied.
  const prepare = db.transaction(() => answer.prepare(db, CHUNK_RECORDS));
  let told = 0;
  while (!answer.finished) {
    if (gate.aborted) throw importAborted();
    const prepared = whenFree(gate, () => prepare.deferred());
    if (prepared.length > 0) write(prepared);
    if (walBytes(task.path) > CHECKPOINT_BYTES) {
      // Copies most pages while others write. The rest is then short, and the main thread waits for it without being
      // held; where callbacks come all the time, the log would grow until the main thread has to empty it.
      storing(() => db.pragma('wal_checkpoint(PASSIVE)'));
      whenFree(gate, () => atWork(gate, () => truncateWal(db)));
    }
    if (answer.finished || answer.done >= told + PROGRESS_RECORDS) {
      told = answer.done;
      post({ kind: 'progress', done: answer.done, total: report.records });
    }
  }
  truncateWal(db);
  return report;
}

function post(message: ImportMessage): void {
  parentPort?.postMessage(message);
}

/** Number of attempts to truncate the log, and the pause between two of them. */
const TRUNCATIONS = 20;
const TRUNCATE_AGAIN_MS = 50;

function vacuum({ gate: memory }: VacuumTask, db: Database.Database): boolean {
  const gate = new WriteGate(memory);
  whenFree(gate, () => atWork(gate, () => db.exec('VACUUM')));
  // The log still has old pages until it is truncated. A short read or write of another process can prevent the
  // truncation, so the worker tries it for a second.
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (let left = TRUNCATIONS; left > 0; left--) {
    if (whenFree(gate, () => atWork(gate, () => truncateWal(db)))) return true;
    Atomics.wait(pause, 0, 0, TRUNCATE_AGAIN_MS);
  }
  return false;
}

const task = workerData as ImportTask | VacuumTask;
let db: Database.Database | undefined;
try {
  db = openSecondConnection(task.path);
  if ('body' in task) post({ kind: 'report', report: importAnswer(task, db) });
  else post({ kind: 'vacuumed', isClean: vacuum(task, db) });
} catch (error) {
  const { code, message, hint } = asTillsyncError(error);
  post({ kind: 'error', code, message, hint });
} finally {
  db?.close();
}
