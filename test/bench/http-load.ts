import { execFile, spawnSync } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';

export interface LoadOptions {
  url: string;
  secret: string;
  /** Prefix of every order id, so that the ids of two runs differ. */
  idPrefix: string;
  /** File with an order. Each request replaces the text ORDER_ID in it by an id of its own. */
  bodyFile: string;
  connections: number;
  seconds: number;
  /** Whether each delivery opens a connection of its own. Otherwise kept-alive connections are used. */
  newConnections: boolean;
}

export interface LoadReport {
  requestsPerSecond: number;
  /** Number of answers with a 2xx status. */
  acknowledged: number;
  /** Number of other answers and of failed connections. */
  failed: number;
  p50Ms: number;
  p99Ms: number;
}

/** Whether a program of this name is installed. */
export const has = (program: string) => spawnSync('which', [program]).status === 0;
const HAS_WRK = has('wrk');
const HAS_TASKSET = has('taskset');

export const LOADER = HAS_WRK ? 'wrk' : 'built-in loader (wrk is not installed)';

/** Returns a command line that runs `program` on a core of its own, if possible. */
export function onCore(core: 0 | 1, program: string, args: string[]): [string, string[]] {
  return HAS_TASKSET ? ['taskset', ['-c', String(core), program, ...args]] : [program, args];
}

/** Posts distinct orders for a while, from another core than the server's. */
export async function loadHttp(options: LoadOptions): Promise<LoadReport> {
  const { url, secret, idPrefix, bodyFile, connections, seconds, newConnections } = options;
  const tail = [secret, idPrefix, newConnections ? 'close' : 'keep', bodyFile];
  const size = [`-c${connections}`, `-d${seconds}s`];
  const [program, args] = HAS_WRK
    ? onCore(1, 'wrk', ['-t1', ...size, '--latency', '-s', here('load-orders.lua'), url, '--', ...tail])
    : onCore(1, process.execPath, [here('node-load.ts'), url, String(connections), String(seconds), ...tail]);
  const { stdout } = await promisify(execFile)(program, args);
  return HAS_WRK ? readWrk(stdout) : (JSON.parse(stdout) as LoadReport);
}

const here = (name: string) => path.join(import.meta.dirname, name);

function readWrk(text: string): LoadReport {
  const total = numberIn(text, /(\d+) requests in/);
  const not2xx = numberIn(text, /Non-2xx or 3xx responses: (\d+)/);
  const errors = /Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/.exec(text);
  const socketErrors = errors ? errors.slice(1).reduce((sum, n) => sum + Number(n), 0) : 0;
  return {
    requestsPerSecond: numberIn(text, /Requests\/sec:\s+([\d.]+)/),
    acknowledged: total - not2xx,
    failed: not2xx + socketErrors,
    p50Ms: millisecondsIn(text, '50%'),
    p99Ms: millisecondsIn(text, '99%'),
  };
}

function numberIn(text: string, pattern: RegExp): number {
  return Number(pattern.exec(text)?.[1] ?? 0);
}

const UNIT_MS: Record<string, number> = { us: 0.001, ms: 1, s: 1000, m: 60_000 };

function millisecondsIn(text: string, percentile: string): number {
  const match = new RegExp(`${percentile}\\s+([\\d.]+)(us|ms|s|m)`).exec(text);
  return match ? Number(match[1]) * (UNIT_MS[match[2] ?? ''] ?? Number.NaN) : Number.NaN;
}
