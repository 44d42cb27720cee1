import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { TillsyncError } from '../../core/errors.ts';
import { compileSpellings, type ExtraSpellings } from '../merging/field-aliases.ts';
import type { StatusWords } from '../merging/field-values.ts';
import type { ImportOptions, ImportReport } from '../merging/order.ts';
import type { MirrorFile } from '../reading/mirror-file.ts';
import { AnswerImport, importAborted, pollDigests } from './answer-import.ts';
import type { ImportMessage, ImportTask, VacuumTask } from './import-worker.ts';
import { quarantine } from './quarantine.ts';

/** Size up to which answers are read on the main thread, because starting a thread takes longer. */
const INLINE_BYTES_MAX = 1024 * 1024;
const INLINE_CHUNK_RECORDS = 20;
/**
 * Size of the young generation of the worker's heap. It holds the records of a chunk; with V8's default size, an import
 * takes a sixth longer.
 */
const YOUNG_GENERATION_MB = 128;
/**
 * Number of pages in the write-ahead log at which SQLite makes an automatic checkpoint while an import runs. It is so
 * high that the worker makes the checkpoints, and never the commit of a callback.
 */
const CHECKPOINT_PAGES_IMPORT = 16_000;

interface OrderImportOptions {
  file: MirrorFile;
  spellings: ExtraSpellings;
  statuses: StatusWords;
  timezone?: string | undefined;
  listPath: string;
}

/**
 * Imports answers of GET /order/all into the mirror, one after the other. Other writers can write between two of an
 * import's short transactions, so callbacks do not wait for its end.
 */
export class OrderImport {
  readonly #options: OrderImportOptions;
  readonly #digestOf: (record: Uint8Array) => string;
  #queue: Promise<unknown> = Promise.resolve();
  #stopping = false;

  constructor(options: OrderImportOptions) {
    this.#options = options;
    this.#digestOf = pollDigests(options.spellings, options.timezone, options.statuses);
  }

  /** See `Mirror.importAnswer`. */
  importAnswer(body: Uint8Array, options: ImportOptions): Promise<ImportReport> {
    const turn = this.#queue.then(() => {
      if (this.#stopping || options.signal?.aborted) throw importAborted();
      return body.byteLength <= INLINE_BYTES_MAX
        ? this.#inline(body, options)
        : this.#inWorker(body, options);
    });
    this.#queue = turn.catch(() => {});
    return turn;
  }

  /**
   * Rewrites the mirror's file on a worker thread while no import runs. Returns false if a reader blocks the
   * truncation of the write-ahead log, which then still has old pages.
   */
  vacuum(): Promise<boolean> {
    const turn = this.#queue.then(async () => {
      if (this.#stopping) throw importAborted();
      const { path, gate } = this.#options.file;
      try {
        const result = await runWorker({ path, gate: gate.memory }, undefined);
        return (result as { isClean: boolean }).isClean;
      } finally {
        gate.reset();
      }
    });
    this.#queue = turn.catch(() => {});
    return turn;
  }

  /** Stops the running import between two transactions. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#options.file.gate.abort();
    await this.#queue;
  }

  async #inline(body: Uint8Array, options: ImportOptions): Promise<ImportReport> {
    const { file, listPath, spellings, statuses, timezone } = this.#options;
    const { observedAtMs, asOfSeq, asOfHeldId, isOld, watched, signal, onProgress } = options;
    const answer = new AnswerImport({
      body,
      listPath,
      observedAtMs,
      asOfSeq,
      asOfHeldId,
      isOld,
      watched,
      digestOf: this.#digestOf,
      spellings: compileSpellings(spellings, timezone, statuses),
    });
    const { report } = answer;
    if (!report.listFound) await file.write((db) => quarantine(db, answer.wholeAnswer));
    while (!answer.finished) {
      if (signal?.aborted || this.#stopping) throw importAborted();
      const prepared = file.readTogether((db) => answer.prepare(db, INLINE_CHUNK_RECORDS));
      if (prepared.length > 0) {
        answer.count(await file.write((db) => answer.write(db, prepared, { samePrepared: false }), signal));
      }
      onProgress?.(answer.done, report.records);
      await setImmediate();
    }
    return report;
  }

  async #inWorker(body: Uint8Array, options: ImportOptions): Promise<ImportReport> {
    const { file, listPath, spellings, statuses, timezone } = this.#options;
    const { observedAtMs, asOfSeq, asOfHeldId, isOld, watched, signal, onProgress } = options;
    const { path, gate } = file;
    const task: ImportTask = {
      path,
      spellings,
      statuses,
      timezone,
      listPath,
      observedAtMs,
      asOfSeq,
      asOfHeldId,
      isOld,
      watched,
      body: ownedBytes(body),
      gate: gate.memory,
    };
    const checkpointPages = file.read((db) => {
      const before = db.pragma('wal_autocheckpoint', { simple: true });
      db.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES_IMPORT}`);
      return Number(before);
    });
    const abort = () => gate.abort();
    signal?.addEventListener('abort', abort);
    try {
      const result = await runWorker(task, onProgress);
      return (result as { report: ImportReport }).report;
    } finally {
      signal?.removeEventListener('abort', abort);
      gate.reset();
      try {
        if (!file.closed) file.read((db) => db.pragma(`wal_autocheckpoint = ${checkpointPages}`));
      } catch {
        // A reopened connection has the normal setting already.
      }
      file.noteFeed();
    }
  }
}

function runWorker(
  task: ImportTask | VacuumTask,
  onProgress: ImportOptions['onProgress'],
): Promise<ImportMessage> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./import-worker.ts', import.meta.url), {
      workerData: task,
      ...('body' in task && { transferList: [task.body.buffer] }),
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
    });
    let result: ImportMessage | undefined;
    worker.on('message', (message: ImportMessage) => {
      if (message.kind === 'progress') onProgress?.(message.done, message.total);
      else result = message;
    });
    worker.on('error', (cause) => {
      const message = 'The import thread failed; what it mirrored so far is kept.';
      reject(new TillsyncError('internal', message, { cause }));
    });
    worker.on('exit', () => {
      if (result === undefined)
        reject(new TillsyncError('internal', 'The import thread ended without a word.'));
      else if (result.kind === 'error') {
        const details = result.hint === undefined ? {} : { hint: result.hint };
        reject(new TillsyncError(result.code, result.message, details));
      } else resolve(result);
    });
  });
}

/**
 * Returns the bytes in a buffer of their own, which can be transferred without a copy. Bytes in shared memory are
 * copied.
 */
function ownedBytes(body: Uint8Array): Uint8Array<ArrayBuffer> {
  const { buffer } = body;
  const whole = buffer instanceof ArrayBuffer && body.byteLength === buffer.byteLength;
  return whole ? new Uint8Array(buffer) : new Uint8Array(body);
}
