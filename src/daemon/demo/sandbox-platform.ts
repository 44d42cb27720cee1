import type { Log } from '../../domain/log.ts';
import type { PlatformLimits } from '../../domain/platform/limits.ts';
import type { Clock, Random } from '../../domain/time/clock.ts';
import { seededRandom } from '../../sandbox/draws.ts';
import { type Sandbox, startSandbox } from '../../sandbox/server.ts';
import type { OrderShape } from '../../sandbox/settings.ts';

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
