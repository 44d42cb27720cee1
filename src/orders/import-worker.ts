import { parentPort, workerData } from 'node:worker_threads';
import type Database from 'better-sqlite3';
import { asTillsyncError, type ErrorCode, hasCode, type TillsyncError } from '../core/errors.ts';
import { openSecondConnection, WriteGate } from '../db/mirror-connection.ts';
import { storing, walBytes } from '../db/sqlite.ts';
import { truncateWal } from '../db/wal.ts';
import { AnswerImport, importAborted, PollDigests, type PreparedRecord } from './answer-import.ts';
import { mirrorTables } from './mirror-file.ts';
import type { ImportReport } from './order.ts';
import { compileSpellings, type ExtraSpellings } from './spellings.ts';

/** What the import's worker thread is started with. */
export interface ImportTask {
  path: string;
  body: Uint8Array<ArrayBuffer>;
  spellings: ExtraSpellings;
  listPath: string;
  observedAtMs: number;
  asOfSeq: number;
  /** Memory of the WriteGate. */
  gate: SharedArrayBuffer;
}

export type ImportMessage =
  | { kind: 'progress'; done: number; total: number }
  | { kind: 'report'; report: ImportReport }
  | { kind: 'error'; code: ErrorCode; message: string; hint: string | undefined };

/** Records between two looks at the gate; few enough to stay in the processor's cache. */
const CHUNK_RECORDS = 16;
/** Most records in one transaction; it ends sooner when the main thread wants the lock. */
const TRANSACTION_RECORDS = 1024;
/** How large the log may grow before its content moves to the database; that takes no write lock. */
const CHECKPOINT_BYTES = 1024 * 1024;
const PROGRESS_RECORDS = 500;
const BUSY_PAUSE_MS = 10;
const BUSY_TRIES_MAX = 1_000;

/** Mirrors one large answer, on its own thread and connection. */
class ImportWork {
  readonly #task: ImportTask;
  readonly #gate: WriteGate;
  readonly #db: Database.Database;
  readonly #answer: AnswerImport;
  #told = 0;

  constructor(task: ImportTask, db: Database.Database) {
    this.#task = task;
    this.#gate = new WriteGate(task.gate);
    this.#db = db;
    this.#answer = new AnswerImport({
      ...task,
      tables: mirrorTables(db),
      digests: new PollDigests(task.spellings),
      spellings: compileSpellings(task.spellings),
    });
  }

  run(): void {
    const answer = this.#answer;
    const { report } = answer;
    if (!report.listFound) this.#write([{ kind: 'unreadable', unreadable: answer.wholeAnswer }]);
    // One read transaction for a chunk; longer ones would keep the log from being emptied.
    const prepare = this.#db.transaction(() => answer.prepare(CHUNK_RECORDS));
    while (!answer.finished) {
      if (this.#gate.aborted) throw importAborted();
      const prepared = this.#whenFree(() => prepare.deferred());
      if (prepared.length > 0) this.#write(prepared);
      if (walBytes(this.#task.path) > CHECKPOINT_BYTES) this.#checkpoint();
      this.#progress();
    }
    truncateWal(this.#db);
    post({ kind: 'report', report });
  }

  /** Begins with what was prepared and goes on as long as every chunk has something to write. */
  #write(prepared: readonly PreparedRecord[]): void {
    const answer = this.#answer;
    const transaction = this.#db.transaction(() => {
      const written = answer.write(prepared, false);
      const end = answer.done + TRANSACTION_RECORDS;
      while (!answer.finished && answer.done < end && !this.#gate.wanted && !this.#gate.aborted) {
        const next = answer.prepare(CHUNK_RECORDS);
        if (next.length === 0) break;
        written.push(...answer.write(next, true));
      }
      return written;
    });
    const written = this.#whenFree(() => {
      this.#gate.beginWork();
      try {
        return transaction.immediate();
      } finally {
        this.#gate.endWork();
      }
    });
    answer.count(written);
  }

  #progress(): void {
    const { done, report } = this.#answer;
    if (done < this.#told + PROGRESS_RECORDS && done < report.records) return;
    this.#told = done;
    post({ kind: 'progress', done, total: report.records });
  }

  /** Waits for other processes. Callbacks wait for them as well, but not for this thread's patience. */
  #whenFree<T>(action: () => T): T {
    for (let tries = 0; ; tries++) {
      try {
        return storing(action);
      } catch (error) {
        if (!hasCode(error, 'storage-busy') || tries >= BUSY_TRIES_MAX || this.#gate.aborted) throw error;
      }
      this.#gate.pause(BUSY_PAUSE_MS);
    }
  }

  /** What was committed during the first checkpoint is moved by the second, so that the log can start anew. */
  #checkpoint(): void {
    for (let i = 0; i < 2; i++) storing(() => this.#db.pragma('wal_checkpoint(PASSIVE)'));
  }
}

function post(message: ImportMessage): void {
  parentPort?.postMessage(message);
}

function start(task: ImportTask): void {
  let db: Database.Database | undefined;
  try {
    db = openSecondConnection(task.path);
    new ImportWork(task, db).run();
  } catch (error) {
    const { code, message, hint }: TillsyncError = asTillsyncError(error);
    post({ kind: 'error', code, message, hint });
  } finally {
    db?.close();
  }
}

start(workerData as ImportTask);
