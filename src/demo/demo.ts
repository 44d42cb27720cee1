import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureKey, pageLink } from '../config/key-file.ts';
import { type Log, silentLog } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import type { SandboxControl } from '../sandbox/control.ts';
import { type Sandbox, startSandbox } from '../sandbox/server.ts';
import {
  runTraffic,
  type TrafficEvent,
  type TrafficSummary,
  UNRELIABLE_WEBHOOK,
} from '../sandbox/traffic.ts';
import {
  type Comparison,
  compareOrders,
  DemoPos,
  type DemoPosSummary,
  MIRRORED_ROWS,
  type MirroredRow,
} from './demo-pos.ts';
import { DEMO_LIMITS, demoConfig, freePort } from './sandbox-platform.ts';

/** Time for the end of a demo: a last poll and a comparison. */
const CLOSING_MS = DEMO_LIMITS.ordersIntervalMs + 3_000;
export const VIEW_EVERY_MS = 500;
const PUSH_DEADLINE_MS = 10_000;
const PUSH_ENDPOINTS = ['product.put', 'product.stock.put', 'product.batch', 'product.stock.batch'] as const;

export interface DemoOptions {
  clock: Clock;
  random: Random;
  log?: Log;
  /**
   * Ends the demo's traffic when aborted. The mirror is then still compared with the platform, and the summary
   * returned.
   */
  signal: AbortSignal;
  /** Approximate duration of the demo. If undefined, the demo runs until `signal` is aborted. */
  durationMs?: number;
  onView?: (view: DemoView) => void;
  onEvent?: (text: string) => void;
}

/** Figures that people see while the demo runs. */
export interface DemoView {
  atPlatform: number;
  inMirror: number;
  /** Number of orders in the mirrors of all branches together. */
  inBranches?: number;
  /** Number of callbacks that the platform sent, or lost on purpose. */
  callbacks: number;
  polls: number;
  refreshes: number;
}

export interface DemoSummary extends Comparison, DemoView {
  traffic: TrafficSummary;
  restarts: number;
  /** Calls that broke a limit of the platform, and uses of dead refresh tokens; both should be 0. */
  violations: number;
  deadTokenUses: number;
  /** Figures of the simulated POS, and the number of its stocks that are equal on the platform. */
  pos: Omit<DemoPosSummary, 'shelves'> & { stocks: number; stocksEqual: number };
  /** Number of calls that sent changes to the platform. */
  pushCalls: number;
}

/**
 * Runs the daemon against the sandbox platform, restarts it once during the traffic, and compares the mirror with the
 * platform.
 */
export async function runDemo(options: DemoOptions): Promise<DemoSummary> {
  const { clock, random, signal } = options;
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-demo-'));
  const sandbox = await startSandbox({ clock, random, limits: DEMO_LIMITS, accessTokenLifetimeMs: 20_000 });
  const ends = new AbortController();
  const trafficMs = trafficMsOf(options, CLOSING_MS);
  if (trafficMs !== undefined) void clock.sleep(trafficMs, signal).then(() => ends.abort());
  signal.addEventListener('abort', () => ends.abort(), { once: true });
  const { refreshToken } = sandbox.issueTokens();
  // The ports stay the same after a restart, because the platform and an open page go on calling them.
  const [webhookPort, localPort] = await Promise.all([freePort(), freePort()]);
  const config = demoConfig({ baseUrl: sandbox.url, directory, webhookPort, localPort });
  const secrets = { refreshToken, webhookSecrets: ['demo-webhook-secret'] };
  const start = () => startDaemon({ config, secrets, clock, random, log: options.log ?? silentLog });
  let daemon = await start();
  const key = ensureKey(directory, config.storage.group, silentLog);
  options.onEvent?.(`see it on the status page: ${pageLink(daemon.localUrl, key)}`);
  try {
    const localUrl = () => daemon.localUrl;
    const pos = new DemoPos({ localUrl, key, clock, random, onEvent: (text) => options.onEvent?.(text) });
    const traffic = playTraffic(options, sandbox, ends.signal);
    const trading = pos.trade(ends.signal);
    const watching = watch(options, sandbox, () => daemon, ends.signal);
    await clock.sleep((trafficMs ?? 30_000) / 2, ends.signal);
    let restarts = 0;
    if (!ends.signal.aborted) {
      options.onEvent?.('tillsync is stopped and started again while orders come in');
      await daemon.stop();
      daemon = await start();
      restarts = 1;
    }
    const played = await traffic;
    await Promise.all([watching, trading]);
    await catchUp(options, sandbox, daemon);
    const sold = await lastWord(options, pos, sandbox, daemon);
    return { ...sumUp(sandbox, daemon), pos: sold, traffic: played, restarts };
  } finally {
    await daemon.stop();
    await sandbox.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

/**
 * Returns for how long the platform makes orders, so that the demo ends after `durationMs`; undefined if the demo runs
 * until its signal is aborted.
 */
export function trafficMsOf({ durationMs }: DemoOptions, closingMs: number): number | undefined {
  return durationMs === undefined ? undefined : Math.max(durationMs - closingMs, durationMs / 2);
}

/** Plays orders on a platform whose webhook loses, repeats and delays notifications. */
export function playTraffic(
  { clock, random, onEvent }: DemoOptions,
  { control }: Sandbox,
  signal: AbortSignal,
): Promise<TrafficSummary> {
  control.setWebhookBehaviour(UNRELIABLE_WEBHOOK);
  return runTraffic({
    clock,
    random,
    control,
    signal,
    plan: { orderEveryMs: 500, stepEveryMs: 250 },
    onEvent: ({ kind, order }) => onEvent?.(`order #${order.code} ${WORDS[kind]} (${order.status})`),
  });
}

const WORDS: Record<TrafficEvent['kind'], string> = {
  created: 'came in',
  hidden: 'is hidden from the webhook',
  advanced: 'moved on',
  changed: 'was changed without a callback',
  repeated: 'was announced again',
};

async function watch(
  options: DemoOptions,
  { control }: Sandbox,
  daemon: () => Daemon,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const inMirror = rowsOf(daemon()).length;
      options.onView?.({ ...figures(control), atPlatform: control.orders().length, inMirror });
    } catch {
      // No mirror is open between the stop and the start of the daemon.
    }
    await options.clock.sleep(VIEW_EVERY_MS, signal);
  }
}

/**
 * How many polls may pass until the mirror has what the platform has: a callback that the platform gave up on may still
 * come in during a poll, which then does not decide on its order.
 */
const LAST_POLLS_MAX = 4;

/** Makes the platform's callbacks reliable again, waits until all are sent, and then for the last polls. */
async function catchUp({ onEvent }: DemoOptions, { control }: Sandbox, daemon: Daemon): Promise<void> {
  onEvent?.('no more changes; waiting for the last poll');
  control.setWebhookBehaviour({ drop: 0, duplicate: 0, reorder: 0, delay: 0 });
  await control.settled();
  for (let polls = 0; polls < LAST_POLLS_MAX; polls++) {
    await daemon.services.orderPoll.poll({ wide: true });
    if (compareOrders(control.orders(), rowsOf(daemon)).differences.length === 0) return;
  }
}

/** Lets the POS submit every count once more, and waits until the platform has all counts. */
async function lastWord(
  { clock }: DemoOptions,
  pos: DemoPos,
  { control }: Sandbox,
  { services }: Daemon,
): Promise<DemoSummary['pos']> {
  const { shelves, ...did } = await pos.close();
  for (let waitedMs = 0; waitedMs < PUSH_DEADLINE_MS; waitedMs += 100) {
    const { pending, sending, needsRead } = services.outbox.counts();
    if (pending + sending + needsRead === 0) break;
    await clock.sleep(100);
  }
  return { ...did, stocks: shelves.length, stocksEqual: shelvesEqual(control, shelves) };
}

/** Returns how many of the POS's stocks have the same quantity on the platform. */
export function shelvesEqual(control: SandboxControl, shelves: DemoPosSummary['shelves']): number {
  return shelves.filter(({ sku, subsidiaryId, qty }) => control.stockOf(sku, subsidiaryId) === qty).length;
}

function sumUp({ control }: Sandbox, daemon: Daemon): Omit<DemoSummary, 'traffic' | 'restarts' | 'pos'> {
  return {
    ...compareOrders(control.orders(), rowsOf(daemon)),
    ...figures(control),
    violations: control.violations().length,
    deadTokenUses: control.deadRefreshUses().length,
    pushCalls: PUSH_ENDPOINTS.reduce((sum, endpoint) => sum + control.calls(endpoint).length, 0),
  };
}

export function figures(control: SandboxControl) {
  return {
    callbacks: control.deliveries().length,
    polls: control.calls('order.all').length,
    refreshes: control.calls('token.refresh').length,
  };
}

export function rowsOf(daemon: Daemon): MirroredRow[] {
  return daemon.services.mirror.read((db) => db.prepare<[], MirroredRow>(MIRRORED_ROWS).all());
}
