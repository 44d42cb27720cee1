import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setPriority } from 'node:os';
import { TillsyncError } from '../core/errors.ts';

const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;
/** Environment variables from systemd that are meant only for the daemon. */
const OF_THE_DAEMON = /^(NOTIFY_SOCKET|WATCHDOG_\w+|LISTEN_\w+)$/;
/** Niceness of a command that the daemon runs. It is above 0, because callbacks are more urgent than commands. */
const NICENESS = 10;

interface OwnCommandOptions {
  /** Configuration file of the daemon, which the command uses too. */
  configFile: string;
  timeoutMs: number;
  /** Ends the command when aborted. */
  signal: AbortSignal;
}

/** Result of a command. */
export interface OwnCommandEnd {
  /** Exit code; null if the command exceeded its time or was killed. */
  exit: number | null;
  stdout: string;
  stderr: string;
}

/**
 * Runs a command of this program in a process of its own, with lower priority where that is permitted. Throws
 * `aborted` if the signal ends it, and the errors of `spawn`.
 */
export async function runOwnCommand(
  words: readonly string[],
  { configFile, timeoutMs, signal }: OwnCommandOptions,
): Promise<OwnCommandEnd> {
  const [, main = ''] = process.argv;
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !OF_THE_DAEMON.test(name)));
  const child = spawn(process.execPath, [...process.execArgv, main, ...words, '--config', configFile], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
    signal,
  });
  const [stdout, stderr] = [textOf(child.stdout), textOf(child.stderr)];
  if (child.pid !== undefined) lowerPriority(child.pid);
  const [exit] = (await once(child, 'close').catch((error: unknown) => {
    throw signal.aborted ? new TillsyncError('aborted', 'Stopped while a command ran.') : error;
  })) as [number | null];
  return { exit, stdout: stdout(), stderr: stderr() };
}

function lowerPriority(pid: number): void {
  try {
    setPriority(pid, NICENESS);
  } catch {
    // The filter of system calls in tillsync.service forbids it, so the command runs with the daemon's priority there.
  }
}

function textOf(stream: NodeJS.ReadableStream): () => string {
  const chunks: Buffer[] = [];
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= OUTPUT_BYTES_MAX) chunks.push(chunk);
  });
  return () => Buffer.concat(chunks).toString('utf8');
}
