import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import type { Config } from '../../src/config/config-type.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { compareOrders, MIRRORED_ROWS, type MirroredRow } from '../../src/demo/demo-pos.ts';
import { demoConfig } from '../../src/demo/sandbox-platform.ts';
import type { PlatformLimits } from '../../src/platform/platform.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import type { SandboxServerOptions } from '../../src/sandbox/shop.ts';
import { API_KEY } from './api-key.ts';
import { COMPILED_CODE } from './compiled-code.ts';
import { seededRandom } from './fake-clock.ts';
import { freePort } from './free-port.ts';

export const ROOT = path.resolve(import.meta.dirname, '../..');
export const NODE = path.join(ROOT, 'node_modules/.bin/node');
/** Path of the program: the bundle if bundled-program.ts has made one for this run, otherwise the sources. */
export const MAIN = process.env.BUNDLED_TILLSYNC ?? path.join(ROOT, 'src/cli/main.ts');
export const SECRET = 'workplace-secret';
/** Lets a command start with a third of the processor time, because its code is compiled only once. */
export const COMPILED = { NODE_COMPILE_CACHE: COMPILED_CODE };

/** The platform's limits with shorter times. */
export const QUICK_LIMITS: PlatformLimits = {
  endpointIntervalMs: 50,
  ordersIntervalMs: 400,
  windowMs: 300_000,
  requestsPerWindow: 5_000,
  ordersPerWindow: 2_000,
};

/** A store in a temporary directory, with a strict platform in the test's own process. */
export interface Workplace {
  directory: string;
  storage: string;
  configFile: string;
  config: Config;
  env: Record<string, string>;
  refreshToken: string;
  sandbox: Sandbox;
  mirrorRows(): MirroredRow[];
  /** Returns differences between mirror and platform; empty if they are equal. */
  differences(): string[];
  /** Starts `tillsync run` as its own process, under the command in `under`, such as setpriv. */
  run(...under: string[]): Promise<DaemonProcess>;
  /** Runs one command to its end. */
  command(...words: string[]): Promise<CommandResult>;
  close(): Promise<void>;
}

export interface DaemonProcess {
  child: ChildProcess;
  localUrl: string;
  log(): string;
  /** Sends the signal and waits for the end; returns the exit code, or null if a signal killed it. */
  end(signal: NodeJS.Signals): Promise<number | null>;
}

export interface CommandResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

export async function openWorkplace(
  seed: number,
  sandboxOptions: Partial<SandboxServerOptions> = {},
): Promise<Workplace> {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-place-'));
  const storage = path.join(directory, 'storage');
  const limits = sandboxOptions.limits ?? QUICK_LIMITS;
  const sandbox = await startSandbox({
    clock: systemClock,
    random: seededRandom(seed),
    limits,
    ...sandboxOptions,
  });
  const [webhookPort, localPort] = [await freePort(), await freePort()];
  const demo = demoConfig({ baseUrl: sandbox.url, directory: storage, webhookPort });
  const config: Config = {
    ...demo,
    orders: { ...demo.orders, poll: '* * * * * *' },
    limits,
    local: { ...demo.local, port: localPort },
  };
  const configFile = path.join(directory, 'config.toml');
  writeFileSync(configFile, toml(config));
  const { refreshToken } = sandbox.issueTokens();
  const env = {
    ...COMPILED,
    PATH: process.env.PATH ?? '',
    TILLSYNC_CONFIG: configFile,
    TILLSYNC_REFRESH_TOKEN: refreshToken,
    TILLSYNC_WEBHOOK_SECRET: SECRET,
    TILLSYNC_LOCAL_API_KEY: API_KEY,
  };
  const running = new Set<ChildProcess>();
  const mirrorRows = () => {
    const db = new Database(path.join(storage, 'mirror.db'), { readonly: true });
    try {
      return db.prepare<[], MirroredRow>(MIRRORED_ROWS).all();
    } finally {
      db.close();
    }
  };
  return {
    directory,
    storage,
    configFile,
    config,
    env,
    refreshToken,
    sandbox,
    mirrorRows,
    differences: () => compareOrders(sandbox.control.orders(), mirrorRows()).differences,
    run: (...under) => runDaemon(env, running, under),
    command: (...words) => runCommand(env, words),
    async close() {
      for (const child of running) child.kill('SIGKILL');
      await sandbox.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/**
 * Waits until `condition` holds, checking often; fails with `what` after the deadline. A check that starts a process is
 * repeated less often, because the process that is waited for needs the processor.
 */
export async function until(what: string, condition: () => boolean | Promise<boolean>, quietMs = 60_000) {
  const deadlineMs = quietMs * Number(process.env.TILLSYNC_SLOW ?? 1);
  const endMs = performance.now() + deadlineMs;
  for (;;) {
    const startedMs = performance.now();
    if (await condition()) return;
    const nowMs = performance.now();
    if (nowMs > endMs) throw new Error(`Waited ${deadlineMs} ms in vain until ${what}`);
    await systemClock.sleep(Math.max(20, 2 * (nowMs - startedMs)));
  }
}

function toml(config: Config): string {
  const { webhook, local, limits, orders } = config;
  return `
[platform]
base_url = "${config.platform.baseUrl}"
[storage]
directory = "${config.storage.directory}"
[webhook]
listen = "${webhook.host}:${webhook.port}"
callback_url = "${webhook.callbackUrl}"
[orders]
poll = "${orders.poll}"
timezone = "${orders.timezone}"
[local]
listen = "${local.host}:${local.port}"
[limits]
endpoint_interval = "${limits.endpointIntervalMs}ms"
orders_interval = "${limits.ordersIntervalMs}ms"
window = "${limits.windowMs}ms"
requests_per_window = ${limits.requestsPerWindow}
orders_per_window = ${limits.ordersPerWindow}
[log]
level = "debug"
[[branches]]
subsidiary_id = "sub-1"
[[branches]]
external_id = "B2"
`;
}

/** Starts `tillsync run` with this environment. */
export async function runDaemon(
  env: Record<string, string>,
  running: Set<ChildProcess>,
  under: readonly string[],
): Promise<DaemonProcess> {
  const [program = NODE, ...words] = [...under, NODE, MAIN, 'run'];
  const child = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  let text = '';
  child.stdout?.on('data', (chunk) => {
    text += chunk;
  });
  child.stderr?.on('data', (chunk) => {
    text += chunk;
  });
  const closed = once(child, 'close').finally(() => running.delete(child));
  await until(`the daemon runs:\n${text}`, () => {
    if (child.exitCode !== null) throw new Error(`the daemon ended with ${child.exitCode}:\n${text}`);
    return text.includes('tillsync is running');
  });
  const started = text.split('\n').find((line) => line.includes('tillsync is running')) as string;
  return {
    child,
    localUrl: (JSON.parse(started) as { localUrl: string }).localUrl,
    log: () => text,
    async end(signal) {
      child.kill(signal);
      await closed;
      if (text.includes('a loop ended by itself')) throw new Error(`A loop ended by itself:\n${text}`);
      return child.exitCode;
    },
  };
}

export async function runCommand(
  env: Record<string, string>,
  words: readonly string[],
  input?: string,
): Promise<CommandResult> {
  const child = spawn(NODE, [MAIN, ...words], { env, stdio: ['pipe', 'pipe', 'pipe'] });
  child.stdin?.end(input ?? '');
  let [stdout, stderr] = ['', ''];
  child.stdout?.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr?.on('data', (chunk) => {
    stderr += chunk;
  });
  await once(child, 'close');
  return { code: child.exitCode, stdout, stderr };
}
