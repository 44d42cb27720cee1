import type { ChildProcess, ChildProcessWithoutNullStreams } from 'node:child_process';
import { cleaned, TillsyncError } from './errors.ts';

/** Variables that a program gets, to find its way. Secrets, credentials and systemd's sockets are not passed on. */
const PASSED_ON = /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|TILLSYNC_CONFIG)$/;
const SAID_MAX = 1_000;
/** Linux accepts 128 KiB for each, and a NUL would end it. */
const VARIABLE_MAX = 8_000;
/** Time for a program's last output after it has ended. One of its children may keep the pipe open. */
const LAST_WORDS_MS = 200;

/** Result of a program. */
export interface ProgramEnd {
  /** Whether the program ended with 0. */
  ok: boolean;
  /** Words that follow the program's name in a sentence, such as `ended with 1`. */
  what: string;
  /** The last part of the program's standard error, and of its standard output. */
  said: string;
  printed: string;
  cause?: unknown;
}

interface ProgramRun {
  /** Text for the program's standard input, which it need not read. */
  input: string;
  /** This process's environment; the program gets a small part of it, without secrets. */
  env: NodeJS.ProcessEnv;
  /** Further variables for the program's environment. Control characters are removed and long values cut. */
  variables?: Readonly<Record<string, string>>;
  timeoutMs: number;
  /** Ends the program and all its children. */
  signal: AbortSignal;
}

/**
 * Runs a program with arguments, without a shell. If it takes too long, it is ended with all its children. Throws
 * only `aborted`.
 */
export async function runProgram(
  [program = '', ...words]: readonly string[],
  { input, env, variables, timeoutMs, signal }: ProgramRun,
): Promise<ProgramEnd> {
  // Loaded on use, because most stores run no program.
  const { spawn } = await import('node:child_process');
  if (signal.aborted) throw stopped();
  const passed = Object.entries(env).filter(([name]) => PASSED_ON.test(name));
  const own = Object.entries(variables ?? {}).map(([name, value]) => [name, cleaned(value, VARIABLE_MAX)]);
  let child: ChildProcessWithoutNullStreams;
  try {
    child = spawn(program, words, {
      cwd: '/',
      env: Object.fromEntries([...passed, ...own]),
      // The program has a process group of its own, so that its children can be ended with it.
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
    });
  } catch (cause) {
    const what = whyNotStarted(cause instanceof Error ? cause : new Error(String(cause)));
    return { ok: false, what, cause, said: '', printed: '' };
  }
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const [said, printed] = [lastOf(child.stderr), lastOf(child.stdout)];
  const { promise, resolve, reject } = Promise.withResolvers<Pick<ProgramEnd, 'ok' | 'what' | 'cause'>>();
  const timer = setTimeout(() => {
    killGroup(child);
    resolve({ ok: false, what: `was ended, for it took longer than ${timeoutMs} ms` });
  }, timeoutMs);
  const onAbort = () => {
    killGroup(child);
    reject(stopped());
  };
  signal.addEventListener('abort', onAbort, { once: true });
  child.once('error', (cause) => resolve({ ok: false, what: whyNotStarted(cause), cause }));
  child.once('exit', (code, by) => {
    const ended = {
      ok: code === 0,
      what: code === null ? `was ended by ${by}` : `ended with ${code}`,
    };
    const last = setTimeout(() => resolve(ended), LAST_WORDS_MS);
    child.once('close', () => {
      clearTimeout(last);
      resolve(ended);
    });
  });
  try {
    const end = await promise;
    return { ...end, said: said(), printed: printed() };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
    // Children that still run may write on, but nobody reads it.
    child.stderr.destroy();
    child.stdout.destroy();
  }
}

function lastOf(stream: NodeJS.ReadableStream): () => string {
  let text = '';
  stream.setEncoding('utf8').on('data', (more: string) => {
    text = (text + more).slice(-SAID_MAX);
  });
  stream.on('error', () => {});
  return () => text.trim();
}

function stopped(): TillsyncError {
  return new TillsyncError('aborted', 'Stopped while a program ran.');
}

/** Returns words on why the program did not start, without its name, which is in the configuration. */
function whyNotStarted(cause: Error): string {
  const code = 'code' in cause ? cause.code : undefined;
  if (code === 'ENOENT')
    return 'cannot be started: the program is not there, or what its first line names is not';
  if (code === 'EACCES')
    return 'cannot be started: permission denied. The user of tillsync must be able to read and execute it';
  return `cannot be started: ${cause.message}`;
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The process has ended by itself.
  }
}
