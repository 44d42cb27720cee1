import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect, nkeyAuthenticator } from '@nats-io/transport-node';
import Database from 'better-sqlite3';
import { pruneFeed } from '../../src/link/hub-feed.ts';
import { STREAM } from '../../src/link/server-config.ts';
import { freePort } from './free-port.ts';
import { type NatsServer, startNatsServer } from './nats-server.ts';
import { rowsIn } from './rows.ts';
import {
  COMPILED,
  type CommandResult,
  type DaemonProcess,
  openWorkplace,
  runCommand,
  runDaemon,
  SECRET,
  until,
  type Workplace,
} from './workplace.ts';

export const TWO_BRANCHES = `[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"
[[branches]]
subsidiary_id = "sub-2"
external_id = "B2"
`;

/** A branch of a chain on this machine, with its own tillsync and files. */
export interface BranchPlace {
  storage: string;
  configFile: string;
  env: Record<string, string>;
  /** Invitation with which the branch joined. */
  invitation: string;
}

/** A hub with a real nats-server, and branches that join it, all as separate processes. */
export class ChainPlace {
  readonly directory = mkdtempSync(path.join(tmpdir(), 'tillsync-chain-'));
  serverFile = path.join(this.directory, 'nats/server.conf');
  readonly hub: Workplace;
  readonly port: number;
  server!: NatsServer;
  readonly #running: DaemonProcess[] = [];
  readonly #of = new Map<BranchPlace, DaemonProcess>();

  private constructor(hub: Workplace, port: number) {
    this.hub = hub;
    this.port = port;
  }

  /** Opens a chain whose nats-server runs and whose hub's tillsync does not run yet. `branches` is TOML. */
  static async open(seed: number, branches: string): Promise<ChainPlace> {
    const place = await ChainPlace.prepare(seed, branches);
    const written = await place.hub.command('hub', 'server-config', place.serverFile);
    if (written.code !== 0) throw new Error(written.stderr);
    await place.startServer();
    return place;
  }

  /** Opens a chain whose hub and two branches run; each branch has its first order. */
  static async openRunning(seed: number) {
    const chain = await ChainPlace.open(seed, TWO_BRANCHES);
    const hub = await chain.startHub();
    const [b1, b2] = [await chain.join('B1'), await chain.join('B2')];
    for (const place of [b1, b2]) await chain.start(place);
    await chain.arrives(b1, chain.orderFor('sub-1'));
    await chain.arrives(b2, chain.orderFor('sub-2'));
    return { chain, hub, b1, b2 };
  }

  /** Prepares the hub. Its nats-server does not run, and the server's configuration file is not written yet. */
  static async prepare(seed: number, branches: string): Promise<ChainPlace> {
    const place = new ChainPlace(await openWorkplace(seed), await freePort());
    const { hub, port } = place;
    const before = readFileSync(hub.configFile, 'utf8').split('[[branches]]')[0];
    const own = `[hub]\nnats = "nats://127.0.0.1:${port}"\n`;
    writeFileSync(hub.configFile, `${before}${own}${branches}`);
    return place;
  }

  async startServer(port = this.port): Promise<void> {
    this.server = await startNatsServer(this.serverFile, port);
  }

  async startHub(): Promise<DaemonProcess> {
    const { hub } = this;
    const daemon = await hub.run();
    const { callbackUrl } = hub.config.webhook;
    hub.sandbox.control.setWebhook({ callbackUrl, secret: SECRET, active: true });
    return daemon;
  }

  async invite(name: string, ...how: string[]): Promise<string> {
    const { stdout, stderr, code } = await this.hub.command('branch', 'invite', name, '--json', ...how);
    if (code !== 0) throw new Error(stdout + stderr);
    return (JSON.parse(stdout) as { invitation: string }).invitation;
  }

  /** Makes the directory and the paths of a branch that has not joined yet. Its files are named `as`. */
  branchAt(as: string, invitation: string): BranchPlace {
    const storage = path.join(this.directory, as);
    const configFile = path.join(this.directory, `${as}.toml`);
    mkdirSync(storage, { recursive: true });
    const env = { ...COMPILED, PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: configFile };
    return { storage, configFile, env, invitation };
  }

  async joinAs({ env, storage, invitation }: BranchPlace, ...options: string[]): Promise<CommandResult> {
    const how = ['--directory', storage, '--local-listen', `127.0.0.1:${await freePort()}`, ...options];
    return runCommand(env, ['init', '--join', '-', ...how], `${invitation}\n`);
  }

  async join(name: string): Promise<BranchPlace> {
    const place = this.branchAt(name, await this.invite(name));
    const { stderr, code } = await this.joinAs(place);
    if (code !== 0) throw new Error(stderr);
    const text = readFileSync(place.configFile, 'utf8');
    writeFileSync(place.configFile, `${text}\n[log]\nlevel = "debug"\n`);
    return place;
  }

  async start(place: BranchPlace): Promise<DaemonProcess> {
    const daemon = await runDaemon(place.env, new Set(), []);
    this.#of.set(place, daemon);
    this.#running.push(daemon);
    return daemon;
  }

  /** Stops the daemon with SIGTERM. */
  async stop(place: BranchPlace): Promise<void> {
    const daemon = this.#of.get(place);
    await daemon?.end('SIGTERM');
  }

  async kill(place: BranchPlace): Promise<void> {
    await this.#of.get(place)?.end('SIGKILL');
  }

  commandAt({ env }: BranchPlace, ...words: string[]): Promise<CommandResult> {
    return runCommand(env, words);
  }

  /** Makes a second machine with a copy of a branch's `state.db`, so that both have the branch's key for the link. */
  async twinOf(place: BranchPlace): Promise<BranchPlace> {
    const twin = this.branchAt(`twin-of-${path.basename(place.storage)}`, '');
    copyFileSync(path.join(place.storage, 'state.db'), path.join(twin.storage, 'state.db'));
    const text = readFileSync(place.configFile, 'utf8')
      .replace(place.storage, twin.storage)
      .replace(/listen = .*/, `listen = "127.0.0.1:${await freePort()}"`);
    writeFileSync(twin.configFile, text);
    // The copied daemon's lease is deleted, as if the copy came from a machine that was off.
    this.edit(twin.storage, 'state.db', 'DELETE FROM leases');
    return twin;
  }

  /** Changes a database of a tillsync that is off. */
  edit(storage: string, file: string, sql: string): void {
    const db = new Database(path.join(storage, file));
    try {
      db.exec(sql);
    } finally {
      db.close();
    }
  }

  /** Inserts an acknowledgement into the inbox of a branch, as its POS does. */
  acknowledge({ storage }: BranchPlace, orderId: string): void {
    const db = new Database(path.join(storage, 'inbox/inbox.db'));
    try {
      db.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(orderId);
    } finally {
      db.close();
    }
  }

  /** Makes the server and the stopped hub delete the data that they would delete within `days` days. */
  async letDaysPass(days: number): Promise<void> {
    const [{ seed } = { seed: '' }] = rowsOf<{ seed: string }>(
      this.hub.storage,
      "SELECT json_extract(keys, '$.hub') AS seed FROM hub",
      'state.db',
    );
    const connection = await connect({
      servers: `nats://127.0.0.1:${this.port}`,
      inboxPrefix: '_INBOX.@hub',
      authenticator: nkeyAuthenticator(new TextEncoder().encode(seed)),
    });
    const { streams } = await jetstreamManager(connection, { checkAPI: false });
    const { config } = await streams.info(STREAM);
    // With this age limit the server deletes all messages, as after its own seven days.
    await streams.update(STREAM, { ...config, max_age: 100_000_000, duplicate_window: 100_000_000 });
    await until(
      'the server has nothing left',
      async () => (await streams.info(STREAM)).state.messages === 0,
      30_000,
    );
    await streams.update(STREAM, config);
    await connection.close();
    const db = new Database(path.join(this.hub.storage, 'mirror.db'));
    try {
      db.transaction(() => {
        while (pruneFeed(db, Date.now() + days * 86_400_000));
      })();
    } finally {
      db.close();
    }
  }

  /** Whether the branch has applied all entries of its feed, from its first snapshot on. */
  hasCaughtUp(name: string, { storage }: BranchPlace): boolean {
    const feed = `SELECT coalesce(b.epoch, _hub.epoch) AS epoch, last_n AS n FROM _hub, _feed_branches b WHERE branch = '${name}'`;
    const [given] = rowsOf<{ epoch: string; n: number }>(this.hub.storage, feed);
    const [taken] = rowsOf<{ epoch: string; n: number }>(storage, 'SELECT epoch, mark AS n FROM _link');
    return given !== undefined && given.n > 0 && given.epoch === taken?.epoch && given.n === taken.n;
  }

  /** Makes an order of a branch on the platform, and returns its id. */
  orderFor(subsidiaryId: string): string {
    return this.hub.sandbox.control.createOrder({ subsidiaryId }).internalOrderId;
  }

  has({ storage }: { storage: string }, orderId: string): boolean {
    return rowsOf(storage, `SELECT 1 FROM orders WHERE order_id = '${orderId}'`).length === 1;
  }

  arrives(place: { storage: string }, orderId: string): Promise<void> {
    return until(`order ${orderId} is there`, () => this.has(place, orderId), 60_000);
  }

  /** Edits the hub's configuration file, which the hub reads at its next start. */
  configure(change: (text: string) => string): void {
    const { configFile } = this.hub;
    writeFileSync(configFile, change(readFileSync(configFile, 'utf8')));
  }

  alarmOf(key: string): string | undefined {
    const sql = `SELECT message FROM alarms WHERE key = '${key}'`;
    return rowsOf<{ message: string }>(this.hub.storage, sql)[0]?.message;
  }

  async close(): Promise<void> {
    for (const each of this.#running) each.child.kill('SIGKILL');
    await this.server?.kill();
    await this.hub.close();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Reads rows of a database in a storage directory. */
export function rowsOf<T>(storage: string, sql: string, file = 'mirror.db'): T[] {
  return rowsIn(path.join(storage, file), sql);
}
