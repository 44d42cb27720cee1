import { randomBytes } from 'node:crypto';
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { Releasers } from '../app/services.ts';
import { sweepNow } from '../catalog/sweep.ts';
import { readConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { configError } from '../config/source.ts';
import { TillsyncError } from '../core/errors.ts';
import { silentLog } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { DEMO_LIMITS, type DemoSetup, demoConfigText, freePort } from '../demo/sandbox-platform.ts';
import { retentionRun } from '../health/retention.ts';
import { seededRandom } from '../sandbox/draws.ts';
import { type Sandbox, startSandbox } from '../sandbox/server.ts';
import { allArticles, articleFile, OTHER, OWN, productsOf } from './articles.ts';
import { CommandGate, Gate } from './gate.ts';

/** Ways in which a till can get orders and hand over counts. */
const WAYS = ['sql', 'http', 'stream', 'hook', 'files'] as const;
export type Way = (typeof WAYS)[number];

const CATALOGUE_WITHIN_MS = 120_000;
/**
 * Number of tries to start tillsync. Another program may use the port meanwhile, or the old tillsync may still be
 * ending.
 */
const START_TRIES = 5;
const START_AGAIN_MS = 1_000;
/** Number of counts of 0 that may be handed over at once. More look like a mistake and are held for a person. */
const ZEROS_MAX = 8;

export interface PlaceOptions {
  clock: Clock;
  seed: number;
  way: Way;
  /** Time before the due time of a scheduled order at which the till prepares it, in seconds. */
  leadS: number;
  /** Start of the command line of each tillsync command: the program and its first arguments. */
  program: readonly string[];
  /** Environment of this process. The till gets it without tillsync's own variables. */
  env: NodeJS.ProcessEnv;
}

/** A simulated platform, a tillsync and the files for a till, in a temporary directory. */
export class Place {
  readonly clock: Clock;
  readonly way: Way;
  readonly leadS: number;
  readonly random: Random;
  readonly directory: string;
  readonly storage: string;
  readonly sandbox: Sandbox;
  readonly gate: Gate;
  readonly commands: CommandGate;
  /** Environment variables that tell the till its files and addresses. */
  readonly tillEnv: NodeJS.ProcessEnv;
  readonly #releasers: Releasers;
  readonly #config: Config;
  readonly #key: string;
  /** Secret of the till's hook, in the format of Standard Webhooks. */
  readonly #hookSecret = `whsec_${randomBytes(24).toString('base64')}`;
  #refreshToken: string;
  readonly #files: TillFiles;
  #daemon: Daemon | undefined;
  #sold = 0;

  static async open({ clock, seed, way, leadS, program, env }: PlaceOptions): Promise<Place> {
    const releasers = new Releasers(silentLog);
    const directory = mkdtempSync(join(tmpdir(), 'tillsync-conform-'));
    releasers.push('directory', () => rmSync(directory, { recursive: true, force: true }));
    try {
      const random = seededRandom(seed);
      const sandbox = await startSandbox({
        ...{ clock, random, limits: DEMO_LIMITS },
        seed: { branches: [OWN, OTHER], products: 0 },
      });
      releasers.push('sandbox', () => sandbox.close());
      for (const product of productsOf(allArticles(), clock.nowMs())) sandbox.control.putProduct(product);
      let place: Place | undefined;
      const gate = new Gate(clock, () => place?.localUrl);
      const url = await gate.listen();
      releasers.push('gate', () => gate.close());
      const [webhookPort, localPort, hookPort] = [await freePort(), await freePort(), await freePort()];
      const ports = { webhookPort, localPort, hookPort: way === 'hook' ? hookPort : undefined };
      const made = {
        clock,
        way,
        leadS,
        random,
        directory,
        sandbox,
        gate,
        url,
        ports,
        program,
        env,
        releasers,
      };
      place = new Place(made);
      releasers.push('tillsync', () => place?.stopDaemon());
      await place.startDaemon();
      await place.#catalogue();
      return place;
    } catch (error) {
      await releasers.release();
      throw error;
    }
  }

  private constructor(made: Made) {
    const { clock, way, leadS, random, directory, sandbox, gate, url, ports, program, env, releasers } = made;
    this.clock = clock;
    this.way = way;
    this.leadS = leadS;
    this.random = random;
    this.directory = directory;
    this.storage = join(directory, 'tillsync');
    this.sandbox = sandbox;
    this.gate = gate;
    this.#releasers = releasers;
    this.#key = randomBytes(16).toString('hex');
    this.#refreshToken = sandbox.issueTokens().refreshToken;
    const { hookPort, ...listen } = ports;
    const demo = { ...listen, baseUrl: sandbox.url, directory: this.storage, branches: [OWN, OTHER] };
    const text = configText(demo, hookPort);
    const configFile = join(directory, 'tillsync.toml');
    writeFileSync(configFile, text);
    const read = readConfig({ file: configFile, env: {}, text });
    if ('faults' in read) throw configError(read.faults);
    this.#config = read.config;
    this.#files = tillFiles(directory);
    this.commands = new CommandGate(join(directory, 'commands'), program, {
      TILLSYNC_CONFIG: configFile,
      TILLSYNC_LOCAL_API_KEY: this.#key,
    });
    this.tillEnv = {
      ...Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith('TILLSYNC_'))),
      PATH: `${this.commands.directory}:${env.PATH ?? ''}`,
      TILL_STORE: OWN.externalId,
      TILL_MIRROR: this.mirrorFile,
      TILL_INBOX: this.inboxFile,
      TILL_URL: url,
      TILL_KEY: this.#key,
      TILL_DIRECTORY: this.#files.directory,
      TILL_ARTICLES: this.#files.articles,
      TILL_SALES: this.#files.sales,
      TILL_REPORT: this.#files.report,
      TILL_LEAD: String(leadS),
      TILL_CONFIG: configFile,
      ...(ports.hookPort !== undefined && {
        TILL_HOOK_PORT: String(ports.hookPort),
        TILL_HOOK_SECRET: this.#hookSecret,
      }),
    };
  }

  get mirrorFile(): string {
    return join(this.storage, 'mirror.db');
  }

  get inboxFile(): string {
    return join(this.storage, 'inbox', 'inbox.db');
  }

  get tillDirectory(): string {
    return this.#files.directory;
  }

  /** Address of the local API; undefined while tillsync does not run. */
  get localUrl(): string | undefined {
    return this.#daemon?.localUrl;
  }

  get daemon(): Daemon {
    if (!this.#daemon) throw new TillsyncError('internal', 'The kit asked a tillsync that is off.');
    return this.#daemon;
  }

  /** Runs a query on the mirror and returns its rows. */
  rows<T>(sql: string, ...params: unknown[]): T[] {
    return this.daemon.services.mirror.read((db) => db.prepare<unknown[], T>(sql).all(...params));
  }

  async startDaemon(): Promise<void> {
    for (let tries = 1; this.#daemon === undefined; tries++) {
      try {
        this.#daemon = await this.#newDaemon();
      } catch (error) {
        if (tries === START_TRIES) throw error;
        await this.clock.sleep(START_AGAIN_MS);
      }
    }
  }

  #newDaemon(): Promise<Daemon> {
    return startDaemon({
      config: this.#config,
      secrets: {
        refreshToken: this.#refreshToken,
        webhookSecrets: ['conform-webhook-secret'],
        localApiKey: this.#key,
        hookSecrets: { till: [this.#hookSecret] },
      },
      clock: this.clock,
      random: this.random,
      log: silentLog,
    });
  }

  async stopDaemon(): Promise<void> {
    const daemon = this.#daemon;
    this.#daemon = undefined;
    await daemon?.stop();
  }

  /**
   * Deletes the mirror, as a broken disk would, and `state.db` too if `withState`. tillsync then makes a new mirror
   * from the platform's orders.
   */
  async loseMirror(withState: boolean): Promise<void> {
    await this.stopDaemon();
    const files = withState ? [this.mirrorFile, join(this.storage, 'state.db')] : [this.mirrorFile];
    for (const file of files) for (const end of ['', '-wal', '-shm']) rmSync(file + end, { force: true });
    // The tokens went with state.db, so a person gives it new ones.
    if (withState) this.#refreshToken = this.sandbox.issueTokens().refreshToken;
    await this.startDaemon();
    await this.#catalogue();
  }

  /** Deletes old events of ended orders, as tillsync does after some months. */
  async trimFeed(): Promise<void> {
    const { mirror, state } = this.daemon.services;
    const settings = { ...this.#config.retention, eventsMs: 1 };
    const { clock } = this;
    const given = { mirror, settings, leases: state.leases, alarms: mirror.health, clock, log: silentLog };
    await retentionRun({ ...given, skewMs: () => 0, beat: () => {} }, new AbortController().signal);
  }

  /** Makes the till sell over the counter: appends lines `number TAB sku TAB qty` to the till's file of sales. */
  sell(sales: readonly { sku: number; qty: number }[]): void {
    const lines = sales.map(({ sku, qty }) => {
      this.#sold += 1;
      return `${this.#sold}\t${sku}\t${qty}\n`;
    });
    appendFileSync(this.#files.sales, lines.join(''));
  }

  /**
   * Appends a sale over the counter without its line feed and without the last digits of its quantity, as a program
   * does that is still writing. Returns the function that writes the rest.
   */
  beginSale({ sku, qty }: { sku: number; qty: number }): () => void {
    this.#sold += 1;
    const digits = String(qty);
    appendFileSync(this.#files.sales, `${this.#sold}\t${sku}\t${digits.slice(0, 1)}`);
    return () => appendFileSync(this.#files.sales, `${digits.slice(1)}\n`);
  }

  /** Reads the platform's catalogue again, as tillsync does each night. */
  async sweep(): Promise<void> {
    const { catalogSweep, branches, mirror } = this.daemon.services;
    await sweepNow({ catalogSweep, branches, mirror }, {});
  }

  /**
   * Holds what the till hands over on its way to tillsync, whichever way it takes, until the returned function is
   * called.
   */
  hold(): () => void {
    const unlock = this.lockInbox();
    this.commands.hold(true);
    const release = this.gate.hold();
    return () => {
      release();
      this.commands.hold(false);
      unlock();
    };
  }

  /** Returns the lines of the till's report in columns, such as `booked TAB order id TAB total`. */
  report(): string[][] {
    const text = readFileSync(this.#files.report, 'utf8');
    // The last part has no line break: it is empty, or a line that is still being written.
    return text
      .split('\n')
      .slice(0, -1)
      .map((line) => line.replace(/\r$/, '').split('\t'));
  }

  /** Locks the inbox until the returned function is called. */
  lockInbox(): () => void {
    const db = new Database(this.inboxFile, { fileMustExist: true, timeout: 2_000 });
    db.exec('BEGIN EXCLUSIVE');
    return () => {
      db.exec('ROLLBACK');
      db.close();
    };
  }

  async close(): Promise<void> {
    await this.#releasers.release();
  }

  async #catalogue(): Promise<void> {
    const listed = allArticles().filter(({ isListed }) => isListed).length * 2;
    const endMs = this.clock.monotonicMs() + CATALOGUE_WITHIN_MS;
    while ((this.rows<{ n: number }>('SELECT count(*) AS n FROM stocks')[0]?.n ?? 0) < listed) {
      if (this.clock.monotonicMs() > endMs)
        throw new TillsyncError('internal', 'The kit waited in vain for its own catalogue.');
      await this.clock.sleep(50);
    }
  }
}

interface Made {
  clock: Clock;
  way: Way;
  leadS: number;
  random: Random;
  directory: string;
  sandbox: Sandbox;
  gate: Gate;
  url: string;
  ports: { webhookPort: number; localPort: number; hookPort: number | undefined };
  program: readonly string[];
  env: NodeJS.ProcessEnv;
  releasers: Releasers;
}

interface TillFiles {
  /** Directory for files of the till itself. */
  directory: string;
  articles: string;
  sales: string;
  report: string;
}

function tillFiles(directory: string): TillFiles {
  const own = join(directory, 'till');
  mkdirSync(own);
  const files = {
    directory: own,
    articles: join(directory, 'articles.tsv'),
    sales: join(directory, 'sales.tsv'),
    report: join(directory, 'report.tsv'),
  };
  writeFileSync(files.articles, articleFile(allArticles()));
  writeFileSync(files.sales, '');
  writeFileSync(files.report, '');
  return files;
}

function configText(place: DemoSetup, hookPort: number | undefined): string {
  const hook =
    hookPort === undefined
      ? ''
      : `[[hooks]]\nname = "till"\nurl = "http://127.0.0.1:${hookPort}/"\nfrom = "start"\n`;
  return `${demoConfigText(place)}[guard]\nzero_items_max = ${ZEROS_MAX}\n${hook}`;
}
