import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { hasCode, TillsyncError } from '../../core/errors.ts';
import type { Clock } from '../../core/time.ts';
import type { InboxTrouble } from './inbox.ts';
import type { InboxAnswers, InboxLocation, InboxReply, InboxRequest } from './inbox-protocol.ts';

const CHILD = new URL('./inbox-child.ts', import.meta.url);
/** Heap limit in MiB, enough for a megabyte of rows and a short program. SQLite's memory is outside the heap. */
const HEAP_MIB = 64;
/**
 * Limit of writable memory (RLIMIT_DATA). V8 reserves some 550 MiB that it does not use, so about 300 are left. A
 * limit of address space (RLIMIT_AS) does not work with Node.
 */
const DATA_KIB = 880 * 1024;
/** Limit of the process's CPU time in seconds (RLIMIT_CPU). A new process replaces one that used it up. */
const PROCESSOR_SECONDS = 900;
/** Maximum length of an answer in bytes. Usual answers have a few megabytes at most. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
/** Longest time without an answer. It is longer than a slow disk needs to delete the largest row. */
const SILENT_MAX_MS = 20_000;
/** Time for a last read before the process is killed, since its answer may have arrived while tillsync was frozen. */
const LAST_LOOK_MS = 500;
const RETRY_AFTER_MS = 300;
/** Time that running requests get when the daemon stops. */
const STOP_MS = 1_000;
const STDERR_BYTES_MAX = 4_000;
const HINT = 'Have whoever looks after the POS check inbox.db, what lies beside it, and the disk.';

/**
 * Returns a shell script that starts the inbox's process with limits that it cannot lift, and has it killed when this
 * process dies. Without setpriv (util-linux), it exits only when its input ends.
 */
function limited(): string {
  const { getuid, geteuid, getgid, getegid } = process;
  // If root acts as the owner of the files, the process becomes that owner permanently.
  const isActing = getuid?.() !== geteuid?.() || getgid?.() !== getegid?.();
  const user = isActing ? `--reuid ${geteuid?.()} --regid ${getegid?.()} --keep-groups` : '';
  return [
    `ulimit -t ${PROCESSOR_SECONDS}; ulimit -d ${DATA_KIB}; echo 1000 > /proc/self/oom_score_adj`,
    // setpriv needs a system call that the service may be forbidden to use. systemd then ends the processes that the
    // service leaves.
    `setpriv ${user} --pdeathsig KILL true 2> /dev/null && exec setpriv ${user} --pdeathsig KILL -- "$@"`,
    'exec "$@"',
  ].join('\n');
}

/** Environment variables that are withheld from the process, because it reads a file that others write. */
const SECRET = /^(TILLSYNC_|CREDENTIALS_DIRECTORY$|NOTIFY_SOCKET$|LISTEN_|WATCHDOG_|NODE_OPTIONS$)/;

export interface InboxProcessOptions extends InboxLocation {
  onTrouble?: (trouble: InboxTrouble) => void;
  /** Aborts the running request with `aborted`. */
  signal?: AbortSignal | undefined;
}

/** Interface of the inbox for all other code. The inbox runs in a separate process, except in some tests. */
export type InboxAsker = Pick<InboxProcess, 'ask' | 'close'>;

interface PendingRequest {
  resolve(reply: InboxReply): void;
  reject(error: TillsyncError | ProcessEnded): void;
}

/**
 * Starts the process that opens the inbox (inbox-child.ts) when it is needed; the process runs until it fails. Its
 * memory is limited and it is killed if it does not answer, so a POS's file can stop nothing else. It has no
 * namespaces, because the service may not create any.
 */
export class InboxProcess {
  readonly #options: InboxProcessOptions;
  #child: ChildProcess | undefined;
  #ended: Promise<void> = Promise.resolve();
  #waiting: PendingRequest | undefined;
  #queue: Promise<unknown> = Promise.resolve();
  #closed = false;
  readonly #abort = () => {
    const child = this.#child;
    const timer = setTimeout(() => child?.kill('SIGKILL'), STOP_MS);
    child?.once('exit', () => clearTimeout(timer));
    if (!child) clearTimeout(timer);
  };

  constructor(options: InboxProcessOptions) {
    this.#options = options;
    options.signal?.addEventListener('abort', this.#abort, { once: true });
  }

  /**
   * Sends a request, which must be harmless if repeated. Throws `storage-…` (`storage-failed` also if the process did
   * not answer or ended twice) or `aborted`.
   */
  ask<T extends InboxRequest['do']>(request: Extract<InboxRequest, { do: T }>): Promise<InboxAnswers[T]> {
    const turn = this.#queue.then(() => this.#ask(request));
    this.#queue = turn.catch(() => {});
    return turn as Promise<InboxAnswers[T]>;
  }

  /** Ends the process. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#options.signal?.removeEventListener('abort', this.#abort);
    this.#child?.kill('SIGKILL');
    await this.#ended;
  }

  async #ask(request: InboxRequest): Promise<unknown> {
    let reply: InboxReply;
    try {
      reply = await this.#once(request);
    } catch (error) {
      if (!(error instanceof ProcessEnded) || this.#isStopping) throw this.#plainly(error);
      // The process may have died because the file was truncated during a read. A new process reads the present file.
      await sleep(RETRY_AFTER_MS);
      try {
        reply = await this.#once(request);
      } catch (again) {
        throw this.#plainly(again);
      }
    }
    for (const trouble of reply.troubles) this.#options.onTrouble?.(trouble);
    if ('answer' in reply) return reply.answer;
    const { code, message, hint } = reply.error;
    throw new TillsyncError(code, message, hint === undefined ? {} : { hint });
  }

  get #isStopping(): boolean {
    return this.#closed || this.#options.signal?.aborted === true;
  }

  async #once(request: InboxRequest): Promise<InboxReply> {
    if (!this.#child) await this.#lastOneGone();
    // During a stop, a running request may still end, but no new process is started.
    if (this.#closed || (this.#isStopping && !this.#child)) throw new ProcessEnded('stopped', '');
    const child = this.#child ?? this.#start();
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<InboxReply>((resolve, reject) => {
        this.#waiting = { resolve, reject };
        timer = setTimeout(() => {
          timer = setTimeout(() => {
            child.kill('SIGKILL');
            this.#child = undefined;
            reject(this.#silent());
          }, LAST_LOOK_MS);
        }, SILENT_MAX_MS);
        child.stdin?.write(`${JSON.stringify(request)}\n`);
      });
    } finally {
      clearTimeout(timer);
      this.#waiting = undefined;
    }
  }

  /**
   * Waits until a killed process has ended, because it may still have the file open. A process that waits for the
   * disk cannot be killed.
   */
  async #lastOneGone(): Promise<void> {
    const tooLate = new AbortController();
    const late = sleep(SILENT_MAX_MS, 'late', { signal: tooLate.signal }).catch(() => undefined);
    if ((await Promise.race([this.#ended, late])) === 'late') throw this.#silent();
    tooLate.abort();
  }

  #silent(): TillsyncError {
    const seconds = SILENT_MAX_MS / 1000;
    return new TillsyncError(
      'storage-failed',
      `The inbox ${this.#options.path} could not be read or emptied within ${seconds} s.`,
      { hint: `What the POS put into it is still there. ${HINT}` },
    );
  }

  #start(): ChildProcess {
    const { path, group } = this.#options;
    const program = [
      process.execPath,
      `--max-old-space-size=${HEAP_MIB}`,
      '--max-semi-space-size=1',
      '--v8-pool-size=0',
      fileURLToPath(CHILD),
      JSON.stringify({ path, group }),
    ];
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !SECRET.test(name)));
    const child = spawn('/bin/sh', ['-p', '-c', limited(), 'sh', ...program], {
      cwd: '/',
      env,
      stdio: 'pipe',
    });
    this.#child = child;
    let [chunks, bytes, said]: [Buffer[], number, string] = [[], 0, ''];
    child.stdout.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > ANSWER_BYTES_MAX) child.kill('SIGKILL');
      if (chunk.at(-1) !== 10 || !this.#waiting) return;
      const line = Buffer.concat(chunks).toString();
      [chunks, bytes] = [[], 0];
      try {
        this.#waiting.resolve(JSON.parse(line) as InboxReply);
      } catch {
        child.kill('SIGKILL');
      }
    });
    child.stderr.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-STDERR_BYTES_MAX);
    });
    // The end of the process reports a failed write, so the error is ignored here.
    child.stdin.on('error', () => {});
    this.#ended = new Promise((resolve) => {
      const end = (why: string) => {
        if (this.#child === child) this.#child = undefined;
        this.#waiting?.reject(new ProcessEnded(why, said));
        resolve();
      };
      child.once('error', (error) => end(error.message));
      child.once('close', (code, signal) => end(signal ?? `exit code ${code}`));
    });
    return child;
  }

  #plainly(error: unknown): TillsyncError {
    if (!(error instanceof ProcessEnded)) return error as TillsyncError;
    if (this.#isStopping) return new TillsyncError('aborted', 'Stopped while looking into the inbox.');
    return new TillsyncError(
      'storage-failed',
      `The program that looks into the inbox ${this.#options.path} ended twice (${error.why}).`,
      {
        hint: `What the POS put into it is still there. ${HINT}`,
        cause: new Error(error.said),
      },
    );
  }
}

/** The error of a process that ended before it answered. */
class ProcessEnded extends Error {
  readonly why: string;
  readonly said: string;

  constructor(why: string, said: string) {
    super(why);
    this.why = why;
    this.said = said;
  }
}

/** Pause after which a command tries a locked file again. */
const TRY_EVERY_MS = 100;
const LOCKED_MAX_MS = 10_000;

export interface LookIntoInboxOptions {
  path: string;
  group?: string | undefined;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

/**
 * Starts an inbox process for a command of the command line, runs `look` with it, and ends the process. Waits up to ten
 * seconds if a POS has locked the file. Throws what `InboxProcess.ask` throws.
 */
export async function lookIntoInbox<T>(
  { path, group, clock, signal }: LookIntoInboxOptions,
  look: (ask: InboxProcess['ask']) => Promise<T>,
): Promise<T> {
  const inbox = new InboxProcess({ path, group, signal });
  const endMs = clock.monotonicMs() + LOCKED_MAX_MS;
  const ask: InboxProcess['ask'] = async (request) => {
    for (;;) {
      try {
        return await inbox.ask(request);
      } catch (error) {
        if (!hasCode(error, 'storage-busy') || clock.monotonicMs() >= endMs || signal?.aborted) throw error;
      }
      await clock.sleep(TRY_EVERY_MS, signal);
    }
  };
  try {
    return await look(ask);
  } finally {
    await inbox.close();
  }
}
