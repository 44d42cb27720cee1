import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openServices, type ServicesOptions } from '../../../src/app/services.ts';
import { silentLog } from '../../../src/core/log.ts';
import { type Daemon, startDaemon } from '../../../src/daemon/daemon.ts';
import type { Holders } from '../../../src/db/lease.ts';
import { demoConfig } from '../../../src/demo/sandbox-platform.ts';
import { createSandbox, type SandboxCore } from '../../../src/sandbox/sandbox.ts';
import type { WebhookTransport } from '../../../src/sandbox/webhook.ts';
import { API_KEY } from '../../support/api-key.ts';
import { Network } from './network.ts';
import { chanceFor, type Profile } from './profile.ts';
import { Stillness } from './stillness.ts';
import { Lives, StoreClock, WorldClock } from './store-clock.ts';

type WebhookRequest = Parameters<WebhookTransport>[0];

const SECRET = 'simulated-secret';
const CLOSING_TURNS = 20;
const STARTING_TURNS = 1_000;
const DAY_MS = 86_400_000;
const PUBLIC_ADDRESS = 'https://store.example/webhook';

/**
 * A store with its real loops, listeners and files on a simulated machine and network, with one seed for all chance.
 * A crash happens between two turns of the daemon's event loop: the old daemon reaches neither platform nor POS any
 * more, and the next one opens the files as they were then. So no transaction is torn and no write is lost;
 * test/slow/crash tries kills within a write and power cuts with real processes.
 */
export class SimulatedStore {
  readonly world: WorldClock;
  readonly stillness = new Stillness();
  readonly sandbox: SandboxCore;
  readonly network: Network;
  readonly profile: Profile;
  clock: StoreClock;
  /** Crashed daemons that are still stopping; each is removed once its files are deleted. */
  readonly #ghosts = new Set<Promise<void>>();
  readonly #base: string;
  readonly #refreshToken: string;
  readonly #lives = new Lives();
  readonly #chance;
  #boots = 1;
  #directories = 0;
  #life = { isCut: false, ending: new AbortController() };
  #holders: Holders | undefined;
  #daemon: Daemon | undefined;

  constructor(profile: Profile) {
    this.profile = profile;
    const fast = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();
    this.#base = mkdtempSync(path.join(fast, 'tillsync-simulation-'));
    this.world = new WorldClock(profile.startMs, this.stillness.settle);
    this.clock = new StoreClock(this.world, this.#boots, 0);
    this.#chance = chanceFor(profile.seed, 1);
    this.sandbox = createSandbox({
      clock: this.world,
      random: chanceFor(profile.seed, 2),
      limits: profile.limits,
      timeZone: profile.calendar,
      webhookTransport: (request) => this.#deliver(request),
      ...profile.platform,
    });
    this.network = new Network(this.sandbox, this.world);
    this.#refreshToken = this.sandbox.issueTokens().refreshToken;
  }

  get directory(): string {
    return path.join(this.#base, `storage-${this.#directories}`);
  }

  /** The running daemon; undefined while it is down. */
  get daemon(): Daemon | undefined {
    return this.#daemon;
  }

  /** Starts the daemon; does nothing if it runs already. */
  async open(): Promise<void> {
    if (this.#daemon) return;
    this.#life = { isCut: false, ending: new AbortController() };
    this.#holders = this.#lives.begin();
    const options = this.#process(this.#holders);
    const starting = this.stillness.begin(() => startDaemon(options));
    // Listening takes turns of the event loop but no simulated time; waiting for a locked file takes simulated time.
    await this.#ended(starting, STARTING_TURNS);
    this.#daemon = await starting;
  }

  /** Runs a command of a person beside the daemon. The command polls once, or is cut off by a crash of the machine. */
  async pollBeside(): Promise<void> {
    const holders = this.#lives.begin();
    const { signal } = this.#life.ending;
    const services = await openServices(this.#process(holders));
    await services.orderPoll.poll({ signal }).catch(() => {});
    await services.close();
    this.#lives.end(holders);
  }

  #process(holders: Holders): ServicesOptions {
    const demo = demoConfig({ baseUrl: 'http://platform.test', directory: this.directory, webhookPort: 0 });
    const { poll, holdBack, receives = true, limits, keptDays, pageSize } = this.profile;
    const keptMs = (keptDays ?? 1_000) * DAY_MS;
    return {
      config: {
        ...demo,
        webhook: { ...demo.webhook, enabled: receives, callbackUrl: receives ? PUBLIC_ADDRESS : '' },
        orders: { ...demo.orders, poll },
        stock: { ...demo.stock, holdBackUnbooked: holdBack },
        retention: { ...demo.retention, eventsMs: keptMs, payloadsMs: keptMs, outboxMs: keptMs },
        catalog: { ...demo.catalog, pageSize },
        limits,
      },
      secrets: { refreshToken: this.#refreshToken, webhookSecrets: [SECRET], localApiKey: API_KEY },
      clock: this.clock,
      random: this.#chance,
      log: silentLog,
      transport: this.network.transport(this.#life),
      holders,
      lookEveryMs: this.profile.lookEveryMs,
    };
  }

  /** Stops the daemon cleanly. This takes simulated time, because running calls are finished first. */
  async stop(): Promise<void> {
    const daemon = this.#daemon;
    if (!daemon) return;
    this.#daemon = undefined;
    this.stillness.hangUp();
    await this.#ended(daemon.stop());
    if (this.#holders) this.#lives.end(this.#holders);
  }

  crash(): void {
    const daemon = this.#daemon;
    if (!daemon) return;
    this.#daemon = undefined;
    this.stillness.hangUp();
    this.#life.isCut = true;
    this.#life.ending.abort();
    this.#lives.endAll();
    const left = this.directory;
    this.#directories += 1;
    mkdirSync(this.directory, { mode: 0o750 });
    // The -shm file of a dead process is left out, because SQLite makes it again from the log, and so is its socket.
    cpSync(left, this.directory, { recursive: true, filter: (file) => !/-shm$|\.sock$/.test(file) });
    const ghost = daemon.stop().then(() => {
      rmSync(left, { recursive: true, force: true });
      this.#ghosts.delete(ghost);
    });
    this.#ghosts.add(ghost);
  }

  /** Cuts the machine's power, so that its next start has a new boot number, not only a new process. */
  reboot(): void {
    this.crash();
    this.#boots += 1;
    this.clock = new StoreClock(this.world, this.#boots, this.clock.wrongByMs);
  }

  /** Returns the size of each file in the storage directory. */
  fileBytes(): Record<string, number> {
    const files = readdirSync(this.directory, { recursive: true, encoding: 'utf8' });
    return Object.fromEntries(
      files
        .map((name) => [name, statSync(path.join(this.directory, name))] as const)
        .filter(([, facts]) => facts.isFile())
        .map(([name, { size }]) => [name, size]),
    );
  }

  async remove(): Promise<void> {
    await this.stop();
    await this.#ended(Promise.all(this.#ghosts));
    await this.sandbox.close();
    rmSync(this.#base, { recursive: true, force: true });
  }

  async #ended(ending: Promise<unknown>, turns = CLOSING_TURNS): Promise<void> {
    let over = false;
    let failed: unknown;
    ending.then(
      () => {
        over = true;
      },
      (error: unknown) => {
        failed = error;
        over = true;
      },
    );
    while (!over) {
      // Closing a listener takes turns of the event loop but no simulated time.
      for (let turn = 0; turn < turns && !over; turn++) await new Promise((resolve) => setImmediate(resolve));
      if (!over) await this.world.advance(250);
    }
    if (failed) throw failed;
  }

  async #deliver({ url, headers, body }: WebhookRequest): Promise<number> {
    const address = this.#daemon?.webhookUrl;
    if (this.network.isDown || !address || url !== PUBLIC_ADDRESS) throw new Error('connection refused');
    const { status } = await this.stillness.call(address, { method: 'POST', headers, body });
    return status;
  }
}
