import type { ChildProcess, ChildProcessWithoutNullStreams } from 'node:child_process';
import { cleaned, TillsyncError } from './errors.ts';

/** Environment variables that a program gets. Secrets, credentials and systemd's sockets are left out. */
const PASSED_ON = /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|TILLSYNC_CONFIG)$/;
const SAID_MAX = 1_000;
/** Longest value of a variable, in characters. Linux accepts 128 KiB. */
const VARIABLE_MAX = 8_000;
/** Time to wait for the last output of a program that ended, because one of its children may keep the pipe open. */
const LAST_WORDS_MS = 200;

/** How a program ended. */
export interface ProgramEnd {
  /** Whether the exit code was 0. */
  ok: boolean;
  /** Result in words that follow the program's name, such as `ended with 1`. */
  what: string;
  /** Last part of the program's standard error (`said`) and of its standard output (`printed`). */
  said: string;
  printed: string;
  cause?: unknown;
}

interface ProgramRun {
  /** Text for the program's standard input. The program need not read it. */
  input: string;
  /** Environment of this process. The program gets a small part of it, without secrets. */
  env: NodeJS.ProcessEnv;
  /** Further environment variables for the program. Control characters are removed, and long values are cut. */
  variables?: Readonly<Record<string, string>>;
  timeoutMs: number;
  /** When this signal aborts, the program and all its children are killed. */
  signal: AbortSignal;
}

/** Runs a program without a shell. If it takes too long, it is killed with all its children. Throws only `aborted`. */
export async function runProgram(
  [program = '', ...words]: readonly string[],
  { input, env, variables, timeoutMs, signal }: ProgramRun,
): Promise<ProgramEnd> {
  // Loaded on first use, because most stores run no program.
  const { spawn } = await import('node:child_process');
  if (signal.aborted) throw stopped();
  const passed = Object.entries(env).filter(([name]) => PASSED_ON.test(name));
  const own = Object.entries(variables ?? {}).map(([name, value]) => [name, cleaned(value, VARIABLE_MAX)]);
  let child: ChildProcessWithoutNullStreams;
  try {
    child = spawn(program, words, {
      cwd: '/',
      env: Object.fromEntries([...passed, ...own]),
      // The program gets a process group of its own, so that its children can be killed with it.
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
    // Children that still run may continue to write, but nobody reads their output.
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

/**
 * Returns why the program did not start, without its name, because the caller's text already says which program it is.
 */
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
    // The process had already ended.
  }
}
