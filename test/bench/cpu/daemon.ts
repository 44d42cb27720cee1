import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { onCore } from '../http-load.ts';
import { LoneClient } from '../lone-callback.ts';
import {
  CHECKOUT,
  type Child,
  inherited,
  outputOf,
  type Program,
  packagedProgram,
  startNode,
  stopChild,
} from '../packaged-program.ts';
import { sampleOrder } from '../sample-order.ts';
import { freePort, SECRET, startServer } from '../server-process.ts';
import { type CpuMeasure, cpuOf, spentUs } from './measure.ts';

const CONNECTIONS = 50;
/** Number of callbacks in a round. */
const CALLBACKS = 250;

/** Measures callbacks to the whole packaged daemon, which answers when the order is durable and visible. */
export const CALLBACK: CpuMeasure = {
  name: 'durable callback',
  beside: 'a Fastify that checks the secret, parses, and stores nothing',
  rounds: 80,
  async open(directory) {
    const port = await freePort();
    const bare = await startServer('receiver-server.ts', 'bare', directory, SECRET);
    const daemon = await startDaemon(directory, { webhookPort: port });
    let number = 0;
    const connect = (url: string) =>
      Promise.all(Array.from({ length: CONNECTIONS }, () => LoneClient.connect(url)));
    const clients = {
      ours: await connect(`http://127.0.0.1:${port}/webhook`),
      bare: await connect(bare.url),
    };
    const load = (pid: number, side: readonly LoneClient[]) =>
      cpuOf(pid, CALLBACKS, async () => {
        for (let sent = 0; sent < CALLBACKS; sent += CONNECTIONS) {
          const bodies = side.map(() => orderOf(++number));
          // The server stands still until all requests are sent, so that all of them wait when it continues. Otherwise
          // the machine's other work would decide how many share a commit.
          process.kill(pid, 'SIGSTOP');
          const answers = side.map((client, i) => client.post(bodies[i] as string));
          process.kill(pid, 'SIGCONT');
          await Promise.all(answers);
        }
      });
    return {
      ours: () => load(pidOf(daemon.child), clients.ours),
      bare: () => load(bare.pid, clients.bare),
      async close() {
        for (const client of [...clients.ours, ...clients.bare]) client.close();
        await bare.stop();
        await daemon.stop();
      },
    };
  },
};

const orderOf = (number: number) => sampleOrder(`65a1${String(number).padStart(20, '0')}`, number);

/**
 * Libraries that the bare server loads too. Without them, the ratio would differ by half between machines, because a
 * machine may load code slowly and start Node fast.
 */
const LIBRARIES = [
  'fastify',
  'better-sqlite3',
  'zod',
  'pino',
  'undici',
  'jose',
  'node-cron',
  'commander',
  'smol-toml',
];
const SERVER_OF_LIBRARIES = `
  Promise.all(${JSON.stringify(LIBRARIES)}.map((name) => import(name))).then(([fastify]) =>
    fastify.default().listen({ port: 0, host: '127.0.0.1' }).then(() => {
      require('node:module').flushCompileCache();
      console.log('up');
    }));`;

const startOfLibraries = (directory: string) =>
  timed(
    startNode(['-e', SERVER_OF_LIBRARIES], { NODE_COMPILE_CACHE: path.join(directory, 'libraries') }),
    /up/,
  );

/** Returns the CPU time in microseconds that the program used until its output matched `up`. */
async function timed(child: Child, up: RegExp): Promise<number> {
  await outputOf(child, up);
  const us = spentUs(pidOf(child));
  await stopChild(child);
  return us;
}

/** Measures the CPU time from the daemon's start until it listens, with a warm compile cache. */
export const START: CpuMeasure = {
  name: 'start',
  beside: 'a Fastify server until it listens that loads the same libraries',
  rounds: 20,
  async open(directory) {
    const prepared = await prepareDaemon(directory, { webhookPort: 0 });
    const bare = () => startOfLibraries(directory);
    // The first start fills the cache and creates the databases.
    await timed(startPrepared(prepared), UP);
    await bare();
    return {
      ours: () => timed(startPrepared(prepared), UP),
      bare,
      close() {},
    };
  },
};

const SETTLE_MS = 10_000;
const WATCHED_MS = 10_000;

/**
 * Measures ten seconds without an order, a call or a change, scaled to a minute. It is compared with the start of a
 * bare server, because an idle one uses no time.
 */
export const IDLE_MINUTE: CpuMeasure = {
  name: 'idle minute',
  beside: 'the start of a Fastify server that loads the same libraries',
  rounds: 3,
  async open(directory) {
    const sandbox = startNode([
      ...[...CHECKOUT.args, 'sandbox', '--json', '--orders-every', '0s', '--port', '0'],
    ]);
    const platform = JSON.parse(await outputOf(sandbox, /^\}/m)) as { url: string; refreshToken: string };
    const daemon = await startDaemon(directory, { webhookPort: 0, platform });
    await sleep(SETTLE_MS);
    return {
      ours: () => cpuOf(pidOf(daemon.child), WATCHED_MS / 60_000, () => sleep(WATCHED_MS)),
      bare: () => startOfLibraries(directory),
      async close() {
        await daemon.stop();
        await stopChild(sandbox);
      },
    };
  },
};

const UP = /tillsync is running/;

interface DaemonOptions {
  /** Port of the webhook; 0 for any free port. */
  webhookPort: number;
  /** If left out, nothing answers at the platform's address. */
  platform?: { url: string; refreshToken: string };
}

interface Prepared {
  program: Program;
  config: string;
}

async function prepareDaemon(directory: string, { webhookPort, platform }: DaemonOptions): Promise<Prepared> {
  const program = await packagedProgram(path.join(directory, 'program'));
  mkdirSync(path.join(directory, 'daemon'));
  const config = path.join(directory, 'daemon', 'config.toml');
  // The next poll is half an hour away.
  const minute = new Date(Date.now() + 30 * 60_000).getUTCMinutes();
  writeFileSync(
    config,
    `[platform]
base_url = "${platform?.url ?? 'http://127.0.0.1:9'}"
[storage]
directory = "${path.join(directory, 'daemon', 'storage')}"
[webhook]
listen = "127.0.0.1:${webhookPort}"
[orders]
timezone = "America/Santiago"
poll = "${minute} * * * *"
[local]
listen = "127.0.0.1:0"
[[branches]]
subsidiary_id = "sub-1"
[log]
`,
  );
  const environment = {
    ...program.environment,
    CACHE_DIRECTORY: path.join(directory, 'cache'),
    TILLSYNC_WEBHOOK_SECRET: SECRET,
    ...(platform && { TILLSYNC_REFRESH_TOKEN: platform.refreshToken }),
  };
  return { program: { ...program, environment }, config };
}

function startPrepared({ program, config }: Prepared): Child {
  const args = [...program.args, 'run', '--config', config];
  const [command, words] = onCore(0, process.execPath, args);
  return spawn(command, words, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...inherited(), ...program.environment },
  }) as Child;
}

async function startDaemon(
  directory: string,
  options: DaemonOptions,
): Promise<{ child: Child; stop(): Promise<void> }> {
  const child = startPrepared(await prepareDaemon(directory, options));
  await outputOf(child, UP);
  return { child, stop: () => stopChild(child) };
}

function pidOf({ pid }: ChildProcess): number {
  if (pid === undefined) throw new Error('The process did not start.');
  return pid;
}
