import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { onTestFinished } from 'vitest';
import { openServices, type Services, type ServicesOptions } from '../../src/app/services.ts';
import type { Config } from '../../src/config/config-type.ts';
import type { Secrets } from '../../src/config/secrets.ts';
import { type Log, silentLog } from '../../src/core/log.ts';
import type { Clock } from '../../src/core/time.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import type { Holders } from '../../src/db/lease.ts';
import { demoConfig } from '../../src/demo/sandbox-platform.ts';
import type { Transport, TransportAnswer } from '../../src/platform/transport.ts';
import { createSandbox, type SandboxCore } from '../../src/sandbox/sandbox.ts';
import type { SandboxOptions } from '../../src/sandbox/shop.ts';
import { sandboxTransport } from '../platform/rig.ts';
import { API_KEY } from './api-key.ts';
import { FakeClock, seededRandom, untilIdle } from './fake-clock.ts';
import { freshMirror, freshState } from './fresh-mirror.ts';
import { inboxHere } from './inbox-here.ts';

type TransportRequest = Parameters<Transport['send']>[0];

const SECRET = 'rig-secret';
const STARTING_TURNS = 2_000;
const CLOSING_TURNS = 20;
const LOOK_EVERY_MS = 300_000;
/** Ten products include every way of mapping; more would make each start's sweep longer. */
const SEED = { products: 10 };

/** Is called instead of each call to the platform, and may change the request or the answer. `pass` makes the call. */
export type Tamper = (
  request: TransportRequest,
  pass: () => Promise<TransportAnswer>,
) => Promise<TransportAnswer>;

/**
 * The clock of one process. While the process is frozen, as under SIGSTOP or on a sleeping machine, no sleep ends, but
 * time goes on.
 */
export class FreezableClock implements Clock {
  readonly #world: FakeClock;
  #thawing: Promise<void> | undefined;
  #thaw: () => void = () => {};

  constructor(world: FakeClock) {
    this.#world = world;
  }

  get bootId(): string {
    return this.#world.bootId;
  }

  nowMs(): number {
    return this.#world.nowMs();
  }

  monotonicMs(): number {
    return this.#world.monotonicMs();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await this.#world.sleep(ms, signal);
    await this.#thawing;
  }

  /** Freezes the process, and waits until `thaw` is called. */
  async frozen(): Promise<void> {
    this.#thawing ??= new Promise((resolve) => {
      this.#thaw = resolve;
    });
    await this.#thawing;
  }

  thaw(): void {
    this.#thaw();
    this.#thawing = undefined;
  }
}

export interface StoreRigOptions {
  /** Interval at which loops check for work of other processes; five minutes if left out. */
  lookEveryMs?: number;
  platform?: Partial<SandboxOptions>;
  config?: (config: Config) => Config;
  secrets?: Partial<Secrets>;
  log?: Log;
  /** Whether the inbox has its own process, as in a shop. */
  inboxProcess?: boolean;
}

/**
 * A store in its own directory, wired as in production, on a clock that a test moves: real loops, listeners and
 * files, with a strict platform without sockets.
 */
export interface StoreRig {
  clock: FakeClock;
  sandbox: SandboxCore;
  directory: string;
  /**
   * Opens the services of a command, without loops and listeners. Several services share the files, as processes do.
   */
  services(tamper?: Tamper, ownClock?: Clock): Promise<Services>;
  /** Starts the daemon with all its loops. */
  daemon(tamper?: Tamper, own?: { clock?: Clock; holders?: Holders }): Promise<Daemon>;
  /** Advances time until the promise is settled. */
  run<T>(promise: Promise<T>, maxMs?: number): Promise<T>;
  /** Reads the mirror as another program would. */
  rows<T>(sql: string, ...values: unknown[]): T[];
  /** Sends the callback of an order, or this JSON text, as the platform does, and returns the HTTP status of the answer. */
  announce(daemon: Daemon, notification: unknown): Promise<number>;
}

export function storeRig({
  platform = {},
  config = (same) => same,
  secrets,
  log = silentLog,
  inboxProcess = false,
  lookEveryMs = LOOK_EVERY_MS,
}: StoreRigOptions = {}): StoreRig {
  const clock = new FakeClock(undefined, undefined, untilIdle);
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-rig-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  freshMirror(directory);
  freshState(directory);
  const demo = demoConfig({ baseUrl: 'http://platform.test', directory, webhookPort: 0 });
  const settings = config({
    ...demo,
    webhook: { ...demo.webhook, callbackUrl: '' },
    // Polls at the start, and then rarely.
    orders: { ...demo.orders, poll: '*/30 * * * *' },
  });
  const sandbox = createSandbox({
    clock,
    random: seededRandom(7),
    limits: settings.limits,
    ...platform,
    seed: { ...SEED, ...platform.seed },
  });
  onTestFinished(() => sandbox.close());
  const { refreshToken } = sandbox.issueTokens();
  const process = (tamper: Tamper = (_request, pass) => pass(), ownClock: Clock = clock): ServicesOptions => {
    const direct = sandboxTransport(sandbox, clock);
    return {
      config: settings,
      secrets: { refreshToken, webhookSecrets: [SECRET], localApiKey: API_KEY, ...secrets },
      clock: ownClock,
      lookEveryMs,
      openInbox: inboxProcess ? undefined : inboxHere,
      random: seededRandom(11),
      log,
      transport: { ...direct, send: (request) => tamper(request, () => direct.send(request)) },
    };
  };
  const settled = async <T>(promise: Promise<T>, maxMs: number, turns: number): Promise<T> => {
    let isOver = false;
    const over = promise.finally(() => {
      isOver = true;
    });
    over.catch(() => undefined);
    const endMs = clock.monotonicMs() + maxMs;
    while (!isOver && clock.monotonicMs() < endMs) {
      // Listening and closing need further turns of the event loop, during which the fake clock stands still.
      for (let turn = 0; turn < turns && !isOver; turn++)
        await new Promise((resolve) => setImmediate(resolve));
      if (!isOver) await clock.advance(250);
    }
    if (!isOver) throw new Error(`not settled within ${maxMs} ms of the clock`);
    return over;
  };
  const run: StoreRig['run'] = (promise, maxMs = 600_000) => settled(promise, maxMs, CLOSING_TURNS);
  return {
    clock,
    sandbox,
    directory,
    run,
    async services(tamper, ownClock) {
      const services = await openServices(process(tamper, ownClock));
      onTestFinished(() => run(services.close()));
      return services;
    },
    async daemon(tamper, own = {}) {
      const options = { ...process(tamper, own.clock), ...(own.holders && { holders: own.holders }) };
      const daemon = await settled(startDaemon(options), 60_000, STARTING_TURNS);
      onTestFinished(() => run(daemon.stop()));
      return daemon;
    },
    rows<T>(sql: string, ...values: unknown[]) {
      const db = new Database(path.join(directory, 'mirror.db'), { readonly: true });
      try {
        return db.prepare<unknown[], T>(sql).all(...values);
      } finally {
        db.close();
      }
    },
    async announce({ webhookUrl }, notification) {
      const answer = await fetch(String(webhookUrl), {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-webhook-secret': SECRET },
        body: typeof notification === 'string' ? notification : JSON.stringify(notification),
      });
      return answer.status;
    },
  };
}
