import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import {
  BARE_SERVER,
  CHECKOUT,
  type Child,
  outputOf,
  type Program,
  packagedProgram,
  residentMib,
  startNode,
  stopChild,
} from './packaged-program.ts';

export const expectedSeconds = { quick: 20, full: 640 };

/**
 * Measures the packaged program while nothing happens: its memory against a bare HTTP server's, and its writes to the
 * disk. The checkout's memory is reported too, because it includes what Node needs to read TypeScript.
 */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-idle-'));
  const children: Child[] = [];
  try {
    options.progress('bundling the program');
    const packaged = await packagedProgram(path.join(directory, 'program'));
    const sandboxes = [sandbox(children), sandbox(children)];
    const [one, other] = (await Promise.all(sandboxes)) as [Platform, Platform];
    const tillsync = daemon(children, packaged, path.join(directory, 'packaged'), one);
    const checkout = daemon(children, CHECKOUT, path.join(directory, 'checkout'), other);
    const bare = start(children, ['-e', BARE_SERVER]);
    const up = [outputOf(tillsync, /tillsync is running/), outputOf(checkout, /tillsync is running/)];
    await Promise.all([...up, outputOf(bare, /up/)]);
    const settleMs = options.quick ? 5_000 : 20_000;
    options.progress(`started; letting the first poll end for ${settleMs / 1000} s`);
    await sleep(settleMs);
    return await measure({ tillsync, checkout, bare }, options);
  } finally {
    for (const child of children) await stopChild(child);
    rmSync(directory, { recursive: true });
  }
}

interface Platform {
  url: string;
  refreshToken: string;
}

async function sandbox(children: Child[]): Promise<Platform> {
  const child = start(children, [
    ...CHECKOUT.args,
    'sandbox',
    '--json',
    '--orders-every',
    '0s',
    '--port',
    '0',
  ]);
  return JSON.parse(await outputOf(child, /^\}/m));
}

function daemon(children: Child[], program: Program, directory: string, platform: Platform): Child {
  mkdirSync(directory);
  const config = writeConfig(directory, platform.url);
  return start(children, [...program.args, 'run', '--config', config], {
    ...program.environment,
    CACHE_DIRECTORY: path.join(directory, 'cache'),
    TILLSYNC_REFRESH_TOKEN: platform.refreshToken,
    TILLSYNC_WEBHOOK_SECRET: 'bench-secret',
  });
}

interface Measured {
  tillsync: Child;
  checkout: Child;
  bare: Child;
}

async function measure(children: Measured, options: BenchOptions): Promise<BenchResult[]> {
  const seconds = options.quick ? 5 : 600;
  options.progress(`idling for ${seconds} s`);
  const writtenBefore = writtenBytes(children.tillsync);
  const samples: Record<keyof Measured, number>[] = [];
  for (let i = 0; i < 10; i++) {
    await sleep((seconds * 1000) / 10);
    if (!options.quick) options.progress(`idle for ${((i + 1) * seconds) / 10} of ${seconds} s`);
    const { tillsync, checkout, bare } = children;
    samples.push({
      tillsync: residentMib(tillsync),
      checkout: residentMib(checkout),
      bare: residentMib(bare),
    });
  }
  const written = writtenBytes(children.tillsync) - writtenBefore;
  const [ours, checkout, theirs] = (['tillsync', 'checkout', 'bare'] as const).map((name) =>
    median(samples.map((sample) => sample[name])),
  ) as [number, number, number];
  return [
    {
      name: 'resident memory, idle / bare Node HTTP server',
      ratio: ours / theirs,
      bound: '<= 2.2',
      detail: `packaged ${ours.toFixed(0)} MiB, from the checkout ${checkout.toFixed(0)} MiB, bare ${theirs.toFixed(0)} MiB`,
    },
    {
      name: `bytes written in ${seconds} idle seconds between two polls`,
      ratio: written,
      // The bound leaves room for the running mark, which the daemon renews every two minutes, because other containers
      // cannot see its process.
      bound: '<= 200000',
      detail: `${written} bytes; no order, no poll and no callback in that time`,
    },
  ];
}

/** Writes a store's configuration whose next poll is half an hour away. */
function writeConfig(directory: string, baseUrl: string): string {
  const file = path.join(directory, 'config.toml');
  const minute = new Date(Date.now() + 30 * 60_000).getUTCMinutes();
  writeFileSync(
    file,
    `[platform]
base_url = "${baseUrl}"
[storage]
directory = "${path.join(directory, 'storage')}"
[webhook]
listen = "127.0.0.1:0"
[orders]
timezone = "America/Santiago"
poll = "${minute} * * * *"
[local]
listen = "127.0.0.1:0"
[[branches]]
subsidiary_id = "sub-1"
`,
  );
  return file;
}

function start(children: Child[], args: string[], environment: Record<string, string> = {}): Child {
  const child = startNode(args, environment);
  children.push(child);
  return child;
}

/** Returns the bytes that the process caused to be written to the disk. */
function writtenBytes(child: Child): number {
  return Number(/^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${child.pid}/io`, 'utf8'))?.[1]);
}
