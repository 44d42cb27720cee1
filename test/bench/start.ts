import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import {
  BARE_SERVER,
  type Child,
  outputOf,
  packagedProgram,
  residentMib,
  startNode,
  stopChild,
} from './packaged-program.ts';

export const expectedSeconds = { quick: 12, full: 60 };

interface Start {
  ms: number;
  residentMib: number;
}

/**
 * Measures the time from the packaged program's start until it listens, with a warm compile cache, against a bare HTTP
 * server.
 */
export async function run({ quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-start-'));
  try {
    progress('bundling the program');
    const program = await packagedProgram(path.join(directory, 'program'));
    const bareServer = path.join(directory, 'bare.cjs');
    writeFileSync(bareServer, BARE_SERVER);
    const environment = { ...program.environment, CACHE_DIRECTORY: path.join(directory, 'cache') };
    const config = writeConfig(directory);
    const tillsync = () =>
      timed(
        () => startNode([...program.args, 'run', '--config', config], environment),
        /tillsync is running/,
      );
    const bare = () => timed(() => startNode([bareServer]), /up/);
    // The first start fills the cache and creates the databases.
    await tillsync();
    const pairs: { ours: Start; theirs: Start }[] = [];
    const rounds = quick ? 5 : 31;
    progress(`${rounds} starts of each`);
    for (let i = 0; i < rounds; i++) pairs.push({ ours: await tillsync(), theirs: await bare() });
    return results(pairs);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

async function timed(start: () => Child, up: RegExp): Promise<Start> {
  const beganMs = performance.now();
  const child = start();
  await outputOf(child, up);
  const measured = { ms: performance.now() - beganMs, residentMib: residentMib(child) };
  await stopChild(child);
  return measured;
}

function results(pairs: readonly { ours: Start; theirs: Start }[]): BenchResult[] {
  const middle = (who: 'ours' | 'theirs', what: keyof Start) => median(pairs.map((pair) => pair[who][what]));
  const [oursMs, bareMs] = [middle('ours', 'ms'), middle('theirs', 'ms')];
  const [oursMib, bareMib] = [middle('ours', 'residentMib'), middle('theirs', 'residentMib')];
  return [
    {
      name: 'start of the packaged program to listening / bare Node HTTP server',
      ratio: oursMs / bareMs,
      bound: '<= 6',
      detail: `${oursMs.toFixed(0)} ms, bare ${bareMs.toFixed(0)} ms`,
    },
    {
      name: 'resident memory when it listens / bare Node HTTP server',
      ratio: oursMib / bareMib,
      bound: '<= 2.2',
      detail: `${oursMib.toFixed(0)} MiB, bare ${bareMib.toFixed(0)} MiB`,
    },
  ];
}

/**
 * Writes a configuration in which nothing answers at the platform's address. A start takes as long as with a platform,
 * because tillsync makes its calls later.
 */
function writeConfig(directory: string): string {
  const file = path.join(directory, 'config.toml');
  writeFileSync(
    file,
    `[platform]
base_url = "http://127.0.0.1:9"
[storage]
directory = "${path.join(directory, 'storage')}"
[webhook]
listen = "127.0.0.1:0"
[orders]
timezone = "America/Santiago"
[local]
listen = "127.0.0.1:0"
[[branches]]
subsidiary_id = "sub-1"
[log]
`,
  );
  return file;
}
