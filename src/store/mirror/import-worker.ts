import { parentPort, workerData } from 'node:worker_threads';
import type Database from 'better-sqlite3';
import { asTillsyncError, hasCode, type TillsyncError } from '../../domain/errors.ts';
import { compileSpellings } from '../../domain/spelling-tree.ts';
import { storing } from '../sqlite.ts';
import { AnswerImport, importAborted, type PreparedRecord } from './answer-import.ts';
import type { ImportMessage, ImportTask } from './import-message.ts';
import { mirrorTables } from './mirror-tables.ts';
import { openSecondConnection } from './open-connection.ts';
import { PollDigests } from './poll-digests.ts';
import { truncateWal, walBytes } from './wal-care.ts';
import { WriteGate } from './write-gate.ts';

/** Records between two looks at the gate; also the most in one transaction. */
const CHUNK_RECORDS = 256;
/** How large the log may grow before its content moves to the database; that takes no write lock. */
const CHECKPOINT_BYTES = 8 * 1024 * 1024;
const BUSY_PAUSE_MS = 10;
const BUSY_TRIES_MAX = 1_000;

/** Mirrors one large answer, on its own thread and connection. */
class ImportWork {
  readonly #task: ImportTask;
  readonly #gate: WriteGate;
  readonly #db: Database.Database;
  readonly #answer: AnswerImport;

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
      this.#write(this.#whenFree(() => prepare.deferred()));
      if (walBytes(this.#task.path) > CHECKPOINT_BYTES) this.#checkpoint();
      post({ kind: 'progress', done: answer.done, total: report.records });
    }
    truncateWal(this.#db);
    post({ kind: 'report', report });
  }

  #write(prepared: readonly PreparedRecord[]): void {
    const gate = this.#gate;
    const write = this.#db.transaction((from: number) =>
      this.#answer.write(prepared, from, () => gate.wanted),
    );
    for (let at = 0; at < prepared.length; ) {
      if (gate.aborted) throw importAborted();
      const outcomes = this.#whenFree(() => {
        gate.beginWork();
        try {
          return write.immediate(at);
        } finally {
          gate.endWork();
        }
      });
      this.#answer.count(prepared, at, outcomes);
      at += outcomes.length;
    }
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
