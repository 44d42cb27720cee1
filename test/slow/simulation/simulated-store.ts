import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Daemon, startDaemon } from '../../../src/daemon/daemon.ts';
import { compareOrders, MIRRORED_ROWS, type MirroredRow } from '../../../src/daemon/demo-compare.ts';
import { demoConfig } from '../../../src/daemon/demo-config.ts';
import { PUBLISHED_LIMITS } from '../../../src/daemon/sandbox-platform.ts';
import type { Random } from '../../../src/domain/clock.ts';
import { TillsyncError } from '../../../src/domain/errors.ts';
import { silentLog } from '../../../src/domain/log.ts';
import { readOrder } from '../../../src/domain/order-reader.ts';
import { compileSpellings } from '../../../src/domain/spelling-tree.ts';
import type { Transport } from '../../../src/platform/transport.ts';
import { readNotification } from '../../../src/receiver/notification.ts';
import { createSandbox, type SandboxCore } from '../../../src/sandbox/core.ts';
import { FakeClock, seededRandom } from '../../support/fake-clock.ts';

/** A platform's hour is this long for a network that is down: nothing arrives and nothing is answered. */
export interface Network {
  isDown: boolean;
}

/** A store with its real loops on a simulated clock, network and chance, all from one seed. */
export class SimulatedStore {
  readonly clock = new FakeClock(Date.UTC(2026, 3, 3, 9));
  readonly random: Random;
  readonly sandbox: SandboxCore;
  readonly network: Network = { isDown: false };
  readonly #directory: string;
  readonly #refreshToken: string;
  #daemon: Daemon | undefined;

  constructor(seed: number) {
    this.random = seededRandom(seed);
    const fast = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();
    this.#directory = mkdtempSync(path.join(fast, 'tillsync-simulation-'));
    this.sandbox = createSandbox({
      clock: this.clock,
      random: this.random,
      limits: PUBLISHED_LIMITS,
      latencyMs: [1, 400],
      webhookTransport: ({ body }) => this.#deliver(body),
    });
    this.sandbox.control.setWebhook({ callbackUrl: 'https://store.example/', secret: 's', active: true });
    this.#refreshToken = this.sandbox.issueTokens().refreshToken;
  }

  get daemon(): Daemon {
    if (!this.#daemon) throw new Error('The store is closed at the moment.');
    return this.#daemon;
  }

  async open(): Promise<void> {
    const demo = demoConfig({ baseUrl: 'http://platform.test', directory: this.#directory, webhookPort: 0 });
    this.#daemon = await startDaemon({
      config: {
        ...demo,
        webhook: { ...demo.webhook, callbackUrl: '' },
        orders: { ...demo.orders, poll: '*/2 * * * *' },
        limits: PUBLISHED_LIMITS,
      },
      secrets: { refreshToken: this.#refreshToken, webhookSecrets: ['s'] },
      clock: this.clock,
      random: this.random,
      log: silentLog,
      transport: this.#transport(),
    });
  }

  /** A clean stop needs time to pass, since calls under way are seen through. */
  async shut(): Promise<void> {
    const stopping = this.daemon.stop();
    this.#daemon = undefined;
    let stopped = false;
    void stopping.then(() => {
      stopped = true;
    });
    while (!stopped) await this.clock.advance(1_000);
  }

  /** One sentence for each order that differs between the platform and the mirror. */
  differences(): string[] {
    const rows = this.daemon.parts.mirror.read(({ db }) => db.prepare<[], MirroredRow>(MIRRORED_ROWS).all());
    return compareOrders(this.sandbox.control.orders(), rows).differences;
  }

  remove(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #deliver(body: string): Promise<number> {
    if (this.network.isDown || !this.#daemon) throw new Error('connection refused');
    const { entry } = readNotification(Buffer.from(body), {
      read: (value) => readOrder(value, compileSpellings()),
      receivedAtMs: this.clock.nowMs(),
    });
    await this.#daemon.parts.mirror.keeper.keep([entry]);
    return 200;
  }

  #transport(): Transport {
    return {
      send: async ({ method, path: url, headers, body, signal }) => {
        const unreachable = new TillsyncError('platform-unreachable', 'The network is down.');
        if (this.network.isDown) throw unreachable;
        const lower = Object.fromEntries(
          Object.entries(headers).map(([name, text]) => [name.toLowerCase(), text]),
        );
        const answer = await this.sandbox.handle({ method, url, headers: lower, body, signal });
        if (answer.kind === 'dropped' || this.network.isDown) throw unreachable;
        return { status: answer.status, headers: answer.headers, bytes: Buffer.from(answer.body) };
      },
      close: async () => {},
    };
  }
}
