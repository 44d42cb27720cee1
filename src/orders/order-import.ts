import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { AnswerImport, importAborted, PollDigests, type SeenAnswer } from './answer-import.ts';
import type { ImportMessage, ImportTask } from './import-worker.ts';
import type { MirrorFile, MirrorTables } from './mirror-file.ts';
import type {
  ImportOptions,
  ImportReport,
  IntakeEntry,
  IntakeOutcome,
  OrderImporter,
  OrderKeeper,
} from './order.ts';
import { compileSpellings, type ExtraSpellings, type OrderSpellings } from './spellings.ts';

/** `freshness` may lag this much behind a burst of webhooks, so that each of them need not rewrite it. */
const FRESHNESS_EVERY_MS = 1_000;

export interface OrderIntakeOptions {
  file: MirrorFile;
  digests: PollDigests;
}

/** Keeps what webhooks and repairs bring: one durable transaction for each call. */
export class OrderIntake implements OrderKeeper {
  readonly #options: OrderIntakeOptions;
  #freshMs = Number.NEGATIVE_INFINITY;

  constructor(options: OrderIntakeOptions) {
    this.#options = options;
  }

  async keep(entries: readonly IntakeEntry[]): Promise<IntakeOutcome[]> {
    if (entries.length === 0) return [];
    const { file } = this.#options;
    const nowMs = file.clock.monotonicMs();
    const isWebhook = entries.some(
      (entry) => entry.kind === 'order' && entry.observation.source === 'webhook',
    );
    const refresh = isWebhook && nowMs - this.#freshMs >= FRESHNESS_EVERY_MS;
    const outcomes = await file.write((tables) => {
      if (refresh) webhookCame(tables, isoUtc(file.clock.nowMs()));
      return entries.map((entry) => this.#keepOne(tables, entry));
    });
    if (refresh) this.#freshMs = nowMs;
    return outcomes;
  }

  #keepOne({ merge, quarantine }: MirrorTables, entry: IntakeEntry): IntakeOutcome {
    if (entry.kind === 'unreadable') {
      quarantine.add(entry.unreadable);
      return 'quarantined';
    }
    const { observation } = entry;
    const digest = observation.source === 'poll' ? this.#options.digests.of(observation.raw) : null;
    return merge.apply(observation, digest);
  }
}

function webhookCame({ board }: MirrorTables, now: string): void {
  board.setFreshness({ subject: 'orders.webhook', lastOkAt: now, lastTryAt: now, state: 'ok', message: '' });
}

/** Answers up to this size are read on the main thread: a thread of their own costs more than they do. */
const INLINE_BYTES_MAX = 1024 * 1024;
const INLINE_CHUNK_RECORDS = 20;
/** Room for the records of a chunk to die young; with V8's own size the import takes a sixth more time. */
const YOUNG_GENERATION_MB = 128;
/** So much log that during an import the worker moves it to the database, never a callback's commit. */
const CHECKPOINT_PAGES_IMPORT = 16_000;

export interface OrderImportOptions {
  file: MirrorFile;
  spellings: ExtraSpellings;
  listPath: string;
  /** The import worker's program, where it is not the file beside this one. */
  workerUrl?: URL | undefined;
}

/** Mirrors whole answers, one at a time, so that callbacks never wait behind more than a few records. */
export class OrderImport implements OrderImporter {
  readonly #options: OrderImportOptions;
  readonly #spellings: OrderSpellings;
  readonly #digests: PollDigests;
  /** The last answer that was read on this thread; never more than such an answer may be long. */
  #before: SeenAnswer | undefined;
  #queue: Promise<unknown> = Promise.resolve();
  #stopping = false;

  constructor(options: OrderImportOptions) {
    this.#options = options;
    this.#spellings = compileSpellings(options.spellings);
    this.#digests = new PollDigests(options.spellings);
  }

  /** Takes a large `body` over: its memory is handed to another thread, and the array is empty afterwards. */
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

  /** Ends the import under way between two transactions. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#options.file.gate.abort();
    await this.#queue;
  }

  async #inline(body: Uint8Array, options: ImportOptions): Promise<ImportReport> {
    const { file, listPath } = this.#options;
    const { observedAtMs, asOfSeq, signal, onProgress } = options;
    const shared = {
      body,
      listPath,
      observedAtMs,
      asOfSeq,
      digests: this.#digests,
      spellings: this.#spellings,
      before: this.#before,
    };
    const answer = file.read((tables) => new AnswerImport({ ...shared, tables }));
    const { report } = answer;
    if (!report.listFound) await file.write(({ quarantine }) => quarantine.add(answer.wholeAnswer));
    while (!answer.finished) {
      if (signal?.aborted || this.#stopping) throw importAborted();
      const prepared = file.readTogether(() => answer.prepare(INLINE_CHUNK_RECORDS));
      if (prepared.length > 0) {
        answer.count(await file.write(() => answer.write(prepared, false), signal));
      }
      onProgress?.(answer.done, report.records);
      await setImmediate();
    }
    this.#before = answer.seen;
    return report;
  }

  async #inWorker(body: Uint8Array, options: ImportOptions): Promise<ImportReport> {
    const { file, listPath, spellings, workerUrl } = this.#options;
    const { observedAtMs, asOfSeq, signal, onProgress } = options;
    const owned = ownedBytes(body);
    const task: ImportTask = {
      path: file.path,
      body: owned,
      spellings,
      listPath,
      observedAtMs,
      asOfSeq,
      gate: file.gate.memory,
    };
    const checkpointPages = file.read(({ db }) => {
      const before = db.pragma('wal_autocheckpoint', { simple: true });
      db.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES_IMPORT}`);
      return Number(before);
    });
    const abort = () => file.gate.abort();
    signal?.addEventListener('abort', abort);
    try {
      return await runWorker(workerUrl ?? new URL('./import-worker.ts', import.meta.url), task, onProgress);
    } finally {
      signal?.removeEventListener('abort', abort);
      file.gate.reset();
      if (!file.closed) restoreCheckpoints(file, checkpointPages);
      file.noteFeed();
    }
  }
}

function restoreCheckpoints(file: MirrorFile, pages: number): void {
  try {
    file.read(({ db }) => db.pragma(`wal_autocheckpoint = ${pages}`));
  } catch {
    // A connection that is opened anew has it right.
  }
}

function runWorker(
  url: URL,
  task: ImportTask,
  onProgress: ImportOptions['onProgress'],
): Promise<ImportReport> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(url, {
      workerData: task,
      transferList: [task.body.buffer],
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
    });
    let result: ImportMessage | undefined;
    worker.on('message', (message: ImportMessage) => {
      if (message.kind === 'progress') onProgress?.(message.done, message.total);
      else result = message;
    });
    worker.on('error', (cause) => {
      reject(
        new TillsyncError('internal', 'The import thread failed; what it mirrored so far is kept.', {
          cause,
        }),
      );
    });
    worker.on('exit', () => {
      if (result?.kind === 'report') resolve(result.report);
      else if (result?.kind === 'error') {
        const details = result.hint === undefined ? {} : { hint: result.hint };
        reject(new TillsyncError(result.code, result.message, details));
      } else reject(new TillsyncError('internal', 'The import thread ended without a word.'));
    });
  });
}

/** The bytes in memory of their own, which can be handed over without a copy; shared memory is copied. */
function ownedBytes(body: Uint8Array): Uint8Array<ArrayBuffer> {
  const { buffer } = body;
  const whole = buffer instanceof ArrayBuffer && body.byteLength === buffer.byteLength;
  return whole ? new Uint8Array(buffer) : new Uint8Array(body);
}
