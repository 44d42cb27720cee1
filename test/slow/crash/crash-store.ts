import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { storedKey } from '../../../src/config/key-file.ts';
import { systemClock } from '../../../src/core/system-clock.ts';
import type { Random } from '../../../src/core/time.ts';
import { httpWebhookTransport } from '../../../src/sandbox/webhook.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { limitMs } from '../../support/shared-config.ts';
import { openWorkplace, QUICK_LIMITS, SECRET, until, type Workplace } from '../../support/workplace.ts';
import { notArrived } from './arrivals.ts';
import { DaemonLife, type Program, runCommand } from './daemon-life.ts';
import { SubmittedChange } from './handed-over.ts';
import type { CallbackWatch, KillPoint } from './kill-points.ts';
import { isInWindow, lockOutFaults } from './lock-out.ts';
import { writeOldFiles } from './old-files.ts';
import { otherUserFaults } from './other-user.ts';
import { faultsOf } from './platform-faults.ts';
import { PlatformGate } from './platform-gate.ts';
import { insertRows, PosProcess } from './pos-inbox.ts';
import { openPowerLoss, type PowerLoss } from './power-loss.ts';
import { type Expectations, inspect, modeFaults } from './soundness.ts';
import { StoreLoad } from './store-load.ts';

export interface CrashStoreOptions {
  seed: number;
  program: Program;
  /** Whether the daemon finds files of an earlier version at its first start; else it finds none. */
  isOld: boolean;
  /** Set if a kill also loses unsynced data; `lies` is that of `openPowerLoss`. */
  power?: { lies?: string } | undefined;
}

/** Result of one crash. */
export interface Crash {
  point: string;
  /** True if the daemon was killed without reaching the point, because that took too long. */
  missed: boolean;
  /** True if the stored refresh token is dead. That is no fault if the kill came between the rotation and the save. */
  lockedOut: boolean;
  faults: string[];
}

/**
 * Limits of the platform whose intervals are longer than a kill and a restart take, so that a daemon that forgets its
 * earlier calls breaks them.
 */
const LIMITS = { ...QUICK_LIMITS, endpointIntervalMs: 300, ordersIntervalMs: 1_500 };
const START_DEADLINE_MS = limitMs(15_000);
/** Time after the daemon's complete start, when it is killed even if it has not reached the kill point. */
const POINT_DEADLINE_MS = limitMs(2_500);

/**
 * A store that crashes many times, with the same files, the same platform, a POS and customers that never
 * pause.
 */
export class CrashStore {
  readonly place: Workplace;
  readonly handedOver = new SubmittedChange();
  readonly #options: CrashStoreOptions;
  readonly #gate: PlatformGate;
  readonly #load: StoreLoad;
  readonly #random: Random;
  readonly #callbacks: CallbackWatch;
  readonly #env: Record<string, string>;
  readonly #power: PowerLoss | undefined;
  readonly #expected: Expectations;
  readonly #closeTransport: () => Promise<void>;
  /** Time of each kill, by the number of the daemon's run (`gate.life`). */
  readonly #killedMs = new Map<number, number>();
  #pos: PosProcess | undefined;
  /** API key of the last daemon that was ready. */
  #apiKey: string | undefined;
  #lockOuts = 0;
  #life: DaemonLife | undefined;
  isUpgraded: boolean;
  /** True once the daemon has started completely at least once, so that all files exist. */
  hasRun = false;

  private constructor(
    options: CrashStoreOptions,
    services: { place: Workplace; gate: PlatformGate; gateUrl: string; callbacks: CallbackWatch },
    closeTransport: () => Promise<void>,
  ) {
    const { place, gate } = services;
    this.#options = options;
    this.place = place;
    this.#gate = gate;
    this.#callbacks = services.callbacks;
    this.#closeTransport = closeTransport;
    this.#random = seededRandom(options.seed ^ 0x5eed);
    const { storage, directory, sandbox, config } = place;
    chmodSync(directory, 0o755);
    this.isUpgraded = !options.isOld;
    if (options.power && !existsSync(storage)) {
      mkdirSync(storage);
      chmodSync(storage, 0o2750);
    }
    const oldOrders = options.isOld ? writeOldFiles(storage) : [];
    this.#power = options.power && openPowerLoss({ directory, root: storage, ...options.power });
    this.#power?.adopt();
    // The daemon makes its key itself, so that kills and power cuts come meanwhile.
    const { TILLSYNC_LOCAL_API_KEY: _, ...env } = place.env;
    this.#env = {
      ...env,
      TILLSYNC_PLATFORM_BASE_URL: services.gateUrl,
      TILLSYNC_GUARD_PRICE_FACTOR_MAX: '0',
      TILLSYNC_OUTBOX_LINGER: '50ms',
      ...this.#power?.env,
    };
    sandbox.control.setWebhook({ callbackUrl: config.webhook.callbackUrl, secret: SECRET, active: true });
    this.#load = new StoreLoad({
      control: sandbox.control,
      localUrl: `http://${config.local.host}:${config.local.port}`,
      apiKey: () => storedKey(storage),
      handedOver: this.handedOver,
      insert: () => this.#pos?.insert ?? (async (rows) => insertRows(this.#inbox, rows)),
      random: this.#random,
    });
    const { handedOver } = this;
    this.#expected = { handedOver, oldOrders, events: new Map(), deliveries: sandbox.control.deliveries() };
  }

  static async open(options: CrashStoreOptions): Promise<CrashStore> {
    const callbacks: CallbackWatch = {};
    const http = httpWebhookTransport();
    const place = await openWorkplace(options.seed, {
      limits: LIMITS,
      accessTokenLifetimeMs: 2_000,
      reuseRevokes: true,
      webhookRetry: { delaysMs: [30, 60] },
      webhookTransport: async (request) => {
        const answer = http.send(request);
        callbacks.sent?.();
        const status = await answer;
        if (status < 300) callbacks.confirmed?.();
        return status;
      },
    });
    const gate = new PlatformGate(place.sandbox, place.refreshToken);
    const gateUrl = await gate.listen();
    return new CrashStore(options, { place, gate, gateUrl, callbacks }, () => http.close());
  }

  /** Runs the daemon until it is killed at `point`, and checks the files that it left. */
  async crash(point: KillPoint): Promise<Crash> {
    const life = this.#start();
    const load = this.#load.run().then(
      () => [],
      (error: unknown) => [`the POS was told something else: ${String(error)}`],
    );
    const scene = {
      storage: this.place.storage,
      life,
      gate: this.#gate,
      load: this.#load,
      callbacks: this.#callbacks,
      random: this.#random,
    };
    const aim = (async () => point.aim(scene))();
    aim.catch(() => undefined);
    const missed = await this.#untilDead(life);
    const letGo = await aim.catch(() => undefined);
    letGo?.();
    this.#load.stop();
    this.#pos?.kill();
    const [refusals] = await Promise.all([load, this.#pos?.dead()]);
    await this.place.sandbox.control.settled();
    this.#power?.cut();
    const { all, lockedOut } = this.#lookAt(life);
    all.push(...refusals);
    if (lockedOut && all.length === 0) all.push(...(await this.#diagnose()));
    return { point: point.name, missed, lockedOut, faults: all };
  }

  /**
   * Runs a last daemon that is not killed, until everything has arrived and it stops cleanly. Returns the
   * faults.
   */
  async finish(): Promise<string[]> {
    const { control } = this.place.sandbox;
    const life = this.#start();
    await life.running();
    const missing = () => notArrived(this.place, this.#expected);
    await until('all is where it belongs', () => missing().length === 0, 30_000).catch(() => {});
    const faults = missing();
    const code = await life.stop();
    if (code !== 0) faults.push(`SIGTERM ended it with ${code}`);
    this.#pos?.kill();
    await this.#pos?.dead();
    await control.settled();
    faults.push(...this.#look().faults, ...otherUserFaults(this.place), ...this.#ofThePlatform());
    return faults;
  }

  /** Copies the files for a person; returns the copy's path and the log. */
  keepEvidence(): string {
    const kept = mkdtempSync(path.join(tmpdir(), 'tillsync-crash-evidence-'));
    const filter = (file: string) => !file.endsWith('.sock');
    if (existsSync(this.place.storage)) cpSync(this.place.storage, kept, { recursive: true, filter });
    return `${kept}\n${this.#life?.log.slice(-4_000) ?? ''}`;
  }

  async close(): Promise<void> {
    this.#life?.kill();
    this.#pos?.kill();
    await this.#load.close();
    await this.#gate.close();
    await this.#closeTransport();
    await this.place.close();
  }

  get #inbox(): string {
    return path.join(this.place.storage, 'inbox', 'inbox.db');
  }

  #start(): DaemonLife {
    this.#gate.life += 1;
    this.#life = new DaemonLife(this.#options.program.start(['run'], this.#env));
    if (this.#power)
      this.#pos = new PosProcess(this.#inbox, { PATH: process.env.PATH ?? '', ...this.#power.env });
    return this.#life;
  }

  async #untilDead(life: DaemonLife): Promise<boolean> {
    const startedMs = performance.now();
    let runsSinceMs: number | undefined;
    let missed = false;
    while (!life.ended) {
      const nowMs = performance.now();
      if (life.runs) runsSinceMs ??= nowMs;
      missed =
        runsSinceMs === undefined
          ? nowMs - startedMs > START_DEADLINE_MS
          : nowMs - runsSinceMs > POINT_DEADLINE_MS;
      if (missed) life.kill();
      await systemClock.sleep(5);
    }
    await life.dead();
    if (life.killedMs !== null) this.#killedMs.set(this.#gate.life, life.killedMs);
    return missed;
  }

  #look() {
    return inspect(this.place.storage, path.join(this.place.directory, 'copy'), this.#expected);
  }

  #lookAt(life: DaemonLife): { all: string[]; lockedOut: boolean } {
    const all: string[] = [];
    if (life.killedMs === null) all.push('the daemon ended by itself');
    const { faults, refreshToken, isUpgraded } = this.#look();
    this.isUpgraded ||= isUpgraded;
    all.push(...faults, ...this.#ofThePlatform());
    this.hasRun ||= life.runs;
    if (life.runs) all.push(...modeFaults(this.place.storage), ...this.#keyFaults());
    const rotation = this.#gate.lastRotation;
    const lockedOut = rotation !== undefined && refreshToken !== this.#gate.refreshToken;
    if (lockedOut && !isInWindow(rotation, this.#gate.life, life.killedMs ?? 0)) {
      all.push('the stored refresh token is dead, and nobody was killed while it was exchanged');
    }
    return { all, lockedOut };
  }

  /** Returns a fault if a daemon that was ready has another API key than those before, or none. */
  #keyFaults(): string[] {
    const stored = storedKey(this.place.storage);
    const before = this.#apiKey ?? stored;
    this.#apiKey = stored;
    return stored !== undefined && stored === before ? [] : [`the API key was ${before} and is ${stored}`];
  }

  #ofThePlatform(): string[] {
    const { control } = this.place.sandbox;
    return faultsOf({ control, calls: this.#gate.calls, killedMs: this.#killedMs, lockOuts: this.#lockOuts });
  }

  async #diagnose(): Promise<string[]> {
    const { control } = this.place.sandbox;
    this.#lockOuts += 1;
    const faults = await lockOutFaults({
      control,
      life: this.#start(),
      command: (words, input) => runCommand(this.#options.program.start(words, this.#env), input),
      newToken: () => {
        this.#gate.refreshToken = control.issueTokens().refreshToken;
        return this.#gate.refreshToken;
      },
    });
    this.#pos?.kill();
    await this.#pos?.dead();
    return faults;
  }
}
