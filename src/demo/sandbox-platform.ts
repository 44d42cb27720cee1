import { once } from 'node:events';
import { createServer } from 'node:net';
import { readConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { configError } from '../config/source.ts';
import type { Log } from '../core/log.ts';
import { systemRandom } from '../core/system-clock.ts';
import type { Clock, Random } from '../core/time.ts';
import type { PlatformLimits } from '../platform/platform.ts';
import { seededRandom } from '../sandbox/draws.ts';
import { startSandbox } from '../sandbox/server.ts';
import type { OrderShape } from '../sandbox/settings.ts';
import type { PosBranch } from './demo-pos.ts';

/**
 * First port of the kernel's range for outgoing connections. Another program's connection could occupy such a port
 * while a daemon restarts.
 */
const OUTGOING_PORTS_FROM = 32_768;
const PORTS_FROM = 16_384;

/** Returns a free port of this machine's loopback address. */
export async function freePort(random: Random = systemRandom): Promise<number> {
  for (;;) {
    const port = PORTS_FROM + Math.floor(random.next() * (OUTGOING_PORTS_FROM - PORTS_FROM));
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') continue;
      throw error;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}

/** The platform's limits with shorter times, so that the demo shows in seconds what takes minutes on the platform. */
export const DEMO_LIMITS: PlatformLimits = {
  endpointIntervalMs: 200,
  ordersIntervalMs: 4_000,
  windowMs: 300_000,
  requestsPerWindow: 1_000,
  ordersPerWindow: 100,
};

export interface DemoSetup {
  baseUrl: string;
  directory: string;
  webhookPort: number;
  /** Port of the local API; if left out or 0, a free port at every start. */
  localPort?: number;
  /** Branches of the company; if left out, three branches that share this tillsync. */
  branches?: readonly Partial<PosBranch>[];
  /** Address of the nats-server, if each branch has its own tillsync. */
  nats?: string;
}

const THREE_BRANCHES = [
  { subsidiaryId: 'sub-1', externalId: 'B1' },
  { subsidiaryId: 'sub-2', externalId: 'B2' },
  { subsidiaryId: 'sub-3' },
];

/** Returns a store's configuration for the sandbox at `baseUrl`. */
export function demoConfig(place: DemoSetup): Config {
  return parsed(demoConfigText(place));
}

/**
 * Returns the configuration of `demoConfig` as the text of a configuration file. A caller may append further tables.
 */
export function demoConfigText(place: DemoSetup): string {
  const { baseUrl, directory, webhookPort, localPort = 0, branches = THREE_BRANCHES, nats = '' } = place;
  const listed = branches.map(
    ({ subsidiaryId, externalId }) => `[[branches]]
    subsidiary_id = "${subsidiaryId}"
    ${externalId === undefined ? '' : `external_id = "${externalId}"`}`,
  );
  return `
    [platform]
    base_url = "${baseUrl}"
    timeout = "10s"
    [storage]
    directory = ${JSON.stringify(directory)}
    [webhook]
    listen = "127.0.0.1:${webhookPort}"
    callback_url = "http://127.0.0.1:${webhookPort}/webhook"
    [orders]
    poll = "*/4 * * * * *"
    timezone = "America/Santiago"
    ${listed.join('\n    ')}
    [hub]
    nats = "${nats}"
    [stock]
    hold_back_unbooked = true
    [local]
    listen = "127.0.0.1:${localPort}"
    [limits]
    endpoint_interval = "${DEMO_LIMITS.endpointIntervalMs}ms"
    orders_interval = "${DEMO_LIMITS.ordersIntervalMs}ms"
    [log]
    level = "silent"
`;
}

/** Returns the configuration of one branch of the hub at `hub`. */
export function demoBranchConfig(place: {
  directory: string;
  hub: string;
  branch: string;
  localPort: number;
}): Config {
  return parsed(`
    [storage]
    directory = ${JSON.stringify(place.directory)}
    [link]
    hub = "${place.hub}"
    branch = "${place.branch}"
    [orders]
    timezone = "America/Santiago"
    [shop]
    name = "${place.branch}"
    [local]
    listen = "127.0.0.1:${place.localPort}"
    [log]
    level = "silent"`);
}

function parsed(text: string): Config {
  const read = readConfig({ file: 'demo.toml', env: {}, text });
  if ('faults' in read) throw configError(read.faults);
  return read.config;
}

/** The platform's published limits (document, "Limits"). */
export const PUBLISHED_LIMITS: PlatformLimits = Object.freeze({
  endpointIntervalMs: 1000,
  ordersIntervalMs: 120_000,
  windowMs: 300_000,
  requestsPerWindow: 1000,
  ordersPerWindow: 100,
});

export interface SandboxPlatformOptions {
  clock: Clock;
  random: Random;
  log: Log;
  host: string;
  port: number;
  limits: PlatformLimits;
  /** Interval at which one new order is made and one random open order gets its next status; 0 means never. */
  ordersEveryMs: number;
  shape?: Partial<OrderShape>;
  /** The same seed makes the same products. Without a seed, products are random. */
  seed?: number;
  webhook?: { callbackUrl: string; secret: string };
}

/** A sandbox that runs by itself, for a vendor or a demonstration. */
export interface SandboxPlatform {
  url: string;
  /** A new token pair of an invented company, useless outside this sandbox. */
  tokens: { token: string; refreshToken: string };
  orders(): number;
  close(): Promise<void>;
}

/** Starts the sandbox with invented orders. */
export async function startSandboxPlatform(options: SandboxPlatformOptions): Promise<SandboxPlatform> {
  const { clock, random, ordersEveryMs, webhook, shape, seed, ...rest } = options;
  const { control, ...sandbox } = await startSandbox({
    ...rest,
    clock,
    random,
    ...(shape && { shape }),
    ...(seed !== undefined && { seed: { random: seededRandom(seed) } }),
  });
  if (webhook) control.setWebhook({ ...webhook, active: true });
  const stop = new AbortController();
  const makeTraffic = async () => {
    const open: string[] = [];
    while (ordersEveryMs > 0 && !stop.signal.aborted) {
      open.push(control.createOrder().internalOrderId);
      const at = Math.floor(random.next() * open.length);
      const chosen = open[at];
      if (chosen !== undefined && control.advanceOrder(chosen) === undefined) open.splice(at, 1);
      await clock.sleep(ordersEveryMs, stop.signal);
    }
  };
  const traffic = makeTraffic();
  return {
    url: sandbox.url,
    tokens: sandbox.issueTokens(),
    orders: () => control.orders().length,
    close: async () => {
      stop.abort();
      await traffic;
      await sandbox.close();
    },
  };
}
