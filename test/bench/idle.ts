import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';

const PROGRAM = path.join(import.meta.dirname, '../../src/cli/main.ts');
const BARE_SERVER =
  'require("node:http").createServer((_, r) => r.end("ok")).listen(0, () => console.log("up"))';
const SETTLE_MS = 20_000;

/** What tillsync costs while nothing happens: memory against a bare HTTP server, and writes to the disk. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-idle-'));
  const children: Child[] = [];
  try {
    const sandbox = start(children, [PROGRAM, 'sandbox', '--json', '--orders-every', '0s', '--port', '0']);
    const { url, refreshToken } = JSON.parse(await output(sandbox, /^\}/m)) as Record<string, string>;
    const config = writeConfig(directory, url ?? '');
    const environment = { TILLSYNC_REFRESH_TOKEN: refreshToken, TILLSYNC_WEBHOOK_SECRET: 'bench-secret' };
    const tillsync = start(children, [PROGRAM, 'run', '--config', config], environment);
    const bare = start(children, ['-e', BARE_SERVER]);
    await Promise.all([output(tillsync, /tillsync is running/), output(bare, /up/)]);
    options.progress(`started; letting the first poll end for ${SETTLE_MS / 1000} s`);
    await sleep(SETTLE_MS);
    return await measure(tillsync, bare, options);
  } finally {
    for (const child of children) await stop(child);
    rmSync(directory, { recursive: true });
  }
}

async function measure(tillsync: Child, bare: Child, options: BenchOptions): Promise<BenchResult[]> {
  const seconds = options.quick ? 20 : 600;
  options.progress(`idling for ${seconds} s`);
  const writtenBefore = writtenBytes(tillsync);
  const samples: { tillsync: number; bare: number }[] = [];
  for (let i = 0; i < 10; i++) {
    await sleep((seconds * 1000) / 10);
    samples.push({ tillsync: residentMib(tillsync), bare: residentMib(bare) });
  }
  const written = writtenBytes(tillsync) - writtenBefore;
  const ours = median(samples.map((sample) => sample.tillsync));
  const theirs = median(samples.map((sample) => sample.bare));
  return [
    {
      name: 'resident memory, idle / bare Node HTTP server',
      ratio: ours / theirs,
      bound: '<= 2.1',
      detail: `tillsync from the checkout ${ours.toFixed(0)} MiB, bare ${theirs.toFixed(0)} MiB`,
    },
    {
      name: `bytes written in ${seconds} idle seconds between two polls`,
      ratio: written,
      bound: '<= 0',
      detail: `${written} bytes; no order, no poll and no callback in that time`,
    },
  ];
}

/** Everything as in a store, but with the next poll out of the way: half an hour from now. */
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
poll = "${minute} * * * *"
[local]
listen = "127.0.0.1:0"
[[branches]]
subsidiary_id = "sub-1"
`,
  );
  return file;
}

type Child = ReturnType<typeof start>;

function start(children: unknown[], args: string[], environment: Record<string, string | undefined> = {}) {
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...environment },
  });
  children.push(child);
  return child;
}

/** What it printed so far, once that matches. */
async function output(child: Child, pattern: RegExp): Promise<string> {
  let text = '';
  for await (const [chunk] of on(child)) {
    text += chunk;
    if (pattern.test(text)) break;
  }
  if (!pattern.test(text)) throw new Error(`${child.spawnargs.join(' ')} ended before it was up: ${text}`);
  child.stdout.resume();
  return text;
}

async function* on(child: Child): AsyncGenerator<[string]> {
  for (;;) {
    const [chunk] = await Promise.race([once(child.stdout, 'data'), once(child, 'exit').then(() => [null])]);
    if (chunk === null) return;
    yield [String(chunk)];
  }
}

async function stop(child: Child): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
}

function residentMib(child: Child): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]) / 1024;
}

/** Bytes that it caused to be sent to the disk. */
function writtenBytes(child: Child): number {
  return Number(/^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${child.pid}/io`, 'utf8'))?.[1]);
}
