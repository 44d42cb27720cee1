import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Config } from '../config/config-type.ts';
import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import type { PlatformLimits } from '../platform/platform.ts';
import { seededRandom } from '../sandbox/draws.ts';
import { type Sandbox, startSandbox } from '../sandbox/server.ts';
import type { OrderShape } from '../sandbox/settings.ts';

/** A port of this machine's loopback address that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** The platform's rules in a hurry, so that a few seconds show what takes minutes in a store. */
export const DEMO_LIMITS: PlatformLimits = {
  endpointIntervalMs: 200,
  ordersIntervalMs: 4_000,
  windowMs: 300_000,
  requestsPerWindow: 1_000,
  ordersPerWindow: 100,
};

const DAY_MS = 86_400_000;

export interface DemoPlace {
  baseUrl: string;
  directory: string;
  webhookPort: number;
  /** 0, when not given: a free one at every start. */
  localPort?: number;
}

/** A store's configuration for the sandbox at `baseUrl`. */
export function demoConfig({ baseUrl, directory, webhookPort, localPort = 0 }: DemoPlace): Config {
  return {
    platform: {
      baseUrl,
      timeoutMs: 10_000,
      webhookReadMethod: 'GET',
      webhookReadPath: '/webhook',
      webhookActiveField: 'active',
    },
    storage: { directory, group: '' },
    webhook: {
      enabled: true,
      host: '127.0.0.1',
      port: webhookPort,
      path: '/webhook',
      callbackUrl: `http://127.0.0.1:${webhookPort}/webhook`,
      tlsCertFile: '',
      tlsKeyFile: '',
      bodyLimitBytes: 1024 * 1024,
    },
    orders: {
      poll: '*/4 * * * * *',
      timezone: 'America/Santiago',
      lookbackDays: 1,
      wideDays: 30,
      wideEveryMs: 3_600_000,
      pageParameter: '',
      listPath: '',
      fields: {},
    },
    catalog: { sweep: '30 4 * * *', pageSize: 100 },
    branches: [
      { subsidiaryId: 'sub-1', externalId: 'B1' },
      { subsidiaryId: 'sub-2', externalId: 'B2' },
      { subsidiaryId: 'sub-3' },
    ],
    outbox: { lingerMs: 250 },
    stock: { holdBackUnbooked: true, skipUnchanged: true, trustForMs: 600_000, platformDeducts: true },
    guard: { zeroItemsMax: 100, zeroItemsWindowMs: 600_000, priceFactorMax: 10, missingShareMax: 0.5 },
    retention: {
      ...{ eventsMs: 90 * DAY_MS, payloadsMs: 30 * DAY_MS, ordersMs: 400 * DAY_MS },
      ...{ outboxMs: 30 * DAY_MS, quarantineMs: 90 * DAY_MS, maxBytes: 1024 ** 3 },
    },
    local: { host: '127.0.0.1', port: localPort, others: [], socket: '' },
    alarms: {
      ...{ command: [], url: '', name: '', level: 'amber' },
      ...{ settleMs: 60_000, repeatMs: 0, dailyMax: 20, timeoutMs: 30_000 },
    },
    limits: DEMO_LIMITS,
    log: { level: 'silent', pretty: false },
  };
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
  /** How often a new order comes in and another moves on; 0: never by itself. */
  ordersEveryMs: number;
  shape?: Partial<OrderShape>;
  /** The same products for the same number; without it they are made up anew. */
  seed?: number;
  webhook?: { callbackUrl: string; secret: string };
}

/** A sandbox that runs by itself, for a vendor or a demonstration. */
export interface SandboxPlatform {
  url: string;
  /** A fresh pair of a made-up company; worth nothing outside this sandbox. */
  tokens: { token: string; refreshToken: string };
  orders(): number;
  close(): Promise<void>;
}

/** Starts the platform in small with made-up traffic. */
export async function startSandboxPlatform(options: SandboxPlatformOptions): Promise<SandboxPlatform> {
  const { clock, random, ordersEveryMs, webhook, shape, seed, ...rest } = options;
  const sandbox = await startSandbox({
    ...rest,
    clock,
    random,
    ...(shape && { shape }),
    ...(seed !== undefined && { seed: { random: seededRandom(seed) } }),
  });
  if (webhook) sandbox.control.setWebhook({ ...webhook, active: true });
  const stop = new AbortController();
  const traffic = ordersEveryMs > 0 ? makeTraffic(sandbox, options, stop.signal) : Promise.resolve();
  return {
    url: sandbox.url,
    tokens: sandbox.issueTokens(),
    orders: () => sandbox.control.orders().length,
    close: async () => {
      stop.abort();
      await traffic;
      await sandbox.close();
    },
  };
}

async function makeTraffic(
  { control }: Sandbox,
  { clock, random, ordersEveryMs }: SandboxPlatformOptions,
  signal: AbortSignal,
): Promise<void> {
  const open: string[] = [];
  while (!signal.aborted) {
    open.push(control.createOrder().internalOrderId);
    const at = Math.floor(random.next() * open.length);
    const chosen = open[at];
    if (chosen !== undefined && control.advanceOrder(chosen) === undefined) open.splice(at, 1);
    await clock.sleep(ordersEveryMs, signal);
  }
}
