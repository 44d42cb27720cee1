import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { onTestFinished } from 'vitest';
import { ordersStaleAfterMs } from '../../src/app/read-only-services.ts';
import { openServices, type Services } from '../../src/app/services.ts';
import { readConfig } from '../../src/config/config.ts';
import type { Config } from '../../src/config/config-type.ts';
import { configError } from '../../src/config/source.ts';
import { hasCode } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Clock } from '../../src/core/time.ts';
import { feedBranches } from '../../src/daemon/feed-branches.ts';
import { branchLoops } from '../../src/daemon/link-loops.ts';
import type { NamedLoop } from '../../src/daemon/outgoing.ts';
import type { Verdict } from '../../src/health/verdict.ts';
import { BranchFollower } from '../../src/link/branch.ts';
import { Hub } from '../../src/link/hub.ts';
import { noteStream } from '../../src/link/hub-feed.ts';
import type { BranchLink, HubLink } from '../../src/link/link.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { readSentOrder } from '../../src/orders/merging/order-reader.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';
import { freshMirror, freshState } from '../support/fresh-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { InProcessServer } from './in-process.ts';

/** Age of a gap after which a branch asks for a snapshot. */
export const GAP_MAX_MS = 25_000;

export function configOf(text: string): Config {
  const read = readConfig({ file: 'chain.toml', env: {}, text });
  if ('faults' in read) throw configError(read.faults);
  return read.config;
}

/** Cache of parsed configurations by their text. Stores with the same text differ only by their directories. */
const configs = new Map<string, Config>();

function configIn(directory: string, text: string): Config {
  const config = configs.get(text) ?? configOf(text);
  configs.set(text, config);
  return { ...config, storage: { ...config.storage, directory } };
}

/** A store of the chain with real files, built from the same parts as in production. The test runs each step. */
abstract class Store {
  /** Clock of this store's machine. It equals `clock` unless the test makes it wrong. */
  readonly own: Clock;
  readonly directory = mkdtempSync(path.join(tmpdir(), 'tillsync-chain-'));
  readonly clock: FakeClock;
  #services: Services | undefined;

  constructor(clock: FakeClock, own: Clock = clock) {
    this.clock = clock;
    this.own = own;
    freshMirror(this.directory);
    freshState(this.directory);
    onTestFinished(async () => {
      await this.stop();
      rmSync(this.directory, { recursive: true, force: true });
    });
  }

  protected abstract readonly config: Config;

  get services(): Services {
    if (!this.#services) throw new Error('not started');
    return this.#services;
  }

  protected async open(): Promise<Services> {
    this.#services = await openServices({
      config: this.config,
      secrets: { webhookSecrets: [] },
      clock: this.own,
      random: seededRandom(3),
      log: silentLog,
      transport: { send: () => Promise.reject(new Error('nobody is called')), close: async () => {} },
    });
    return this.#services;
  }

  async stop(): Promise<void> {
    await this.#services?.close();
    this.#services = undefined;
  }

  /** Deletes the mirror, as if the disk was replaced. Call it only between `stop` and `start`. */
  loseMirror(): void {
    for (const end of ['', '-wal', '-shm']) rmSync(`${this.mirrorFile}${end}`, { force: true });
  }

  get mirrorFile(): string {
    return path.join(this.directory, 'mirror.db');
  }

  rows<T>(sql: string, ...values: unknown[]): T[] {
    const db = new Database(this.mirrorFile, { readonly: true });
    try {
      return db.prepare<unknown[], T>(sql).all(...values);
    } finally {
      db.close();
    }
  }

  /** Returns the orders of the mirror, as a POS reads them. */
  orders(store?: string): unknown[] {
    const sql = `SELECT order_id, code, status, store_external_id, amount, customer_email, payload,
        (SELECT count(*) FROM order_items i WHERE i.order_id = o.order_id) AS items
      FROM orders o WHERE ? IS NULL OR store_external_id = ? ORDER BY order_id`;
    return this.rows(sql, store ?? null, store ?? null);
  }
}

const TWO_BRANCHES = `
      [[branches]]
      subsidiary_id = "sub-1"
      external_id = "B1"
      [[branches]]
      subsidiary_id = "sub-2"
      external_id = "B2"
      may_price = true`;

export class HubStore extends Store {
  protected config: Config;
  readonly server: InProcessServer;
  hub!: Hub;
  /** If set, the hub tells branches that orders are stale after this time, instead of the time by its poll schedule. */
  staleAfterMs: number | undefined;
  #link: HubLink | undefined;

  constructor(clock: FakeClock, server: InProcessServer) {
    super(clock);
    this.server = server;
    this.config = this.#configWith(TWO_BRANCHES);
  }

  /** Sets the branches in the configuration, from the next start on. The default is B1 and B2. */
  configure(branches = TWO_BRANCHES): void {
    this.config = this.#configWith(branches);
  }

  #configWith(branches: string): Config {
    return configIn(
      this.directory,
      `
      [platform]
      base_url = "http://platform.test"
      [hub]
      nats = "nats://127.0.0.1:4222"
      ${branches}`,
    );
  }

  async start(): Promise<void> {
    const { mirror, stores, state } = await this.open();
    const link = this.server.hub();
    this.#link = link;
    const branches = () => feedBranches(this.config, state.hub);
    this.hub = new Hub({
      link,
      branches,
      mirror,
      stores,
      rows: state.hub,
      guards: this.config.guard,
      holdBack: 'auto',
      onQueued: () => {},
      clock: this.clock,
      log: silentLog,
      ordersStaleAfterMs: () => this.staleAfterMs ?? ordersStaleAfterMs(this.config, mirror),

      areOrdersStale: () => false,
    });
    for (const { branch, name, renamedFrom } of branches()) {
      const key = `U${name.padEnd(55, 'A')}`;
      if (state.hub.hasJoined(branch) || renamedFrom !== undefined) continue;
      state.hub.invite(branch, key, this.clock.nowMs() + 1_000, name);
      state.hub.join(branch, key, this.clock.nowMs());
    }
    await this.hub.begin();
    await link.answer((branch, question, body) => this.hub.answer(branch, question, body));
  }

  override async stop(): Promise<void> {
    await this.#link?.close();
    await super.stop();
  }

  /** Publishes as the hub's loop does: reads the id of the server's stream, then publishes every waiting entry. */
  async publish(): Promise<void> {
    const place = (await this.#link?.prepare([])) ?? '';
    const branches = this.services.state.hub.branches();
    await this.services.mirror.write((db) => noteStream(db, place, branches, this.clock.nowMs()));
    await this.hub.catchUp();
    while (await this.hub.publish());
  }

  /**
   * Sweeps every branch. A branch's list has the products with a stock there, each with the stocks of all branches.
   */
  async sweep(records: readonly ProductRecord[]): Promise<void> {
    const { stores, branches } = this.services;
    for (const branch of branches) {
      const mark = stores.read(({ catalog }) => catalog.readMark());
      const list = records.filter(({ children }) =>
        children.some(({ stocks }) => stocks.some((stock) => stock.subsidiaryId === branch.subsidiaryId)),
      );
      const seen = new Set(list.map(({ id }) => id));
      await stores.write(({ catalog }) => {
        catalog.applyPage(branch, list, mark);
        const nowMs = this.clock.nowMs();
        catalog.completeSweep({ branch, mark, startedAtMs: nowMs, scheduledMs: nowMs, pages: 1, seen });
      });
    }
  }

  /** Merges an order as if a callback brought it. */
  async order(number: number, store: string, status = 'pending', createdAt?: string): Promise<void> {
    await this.save(
      sampleNotification(number, { store: { externalId: store }, status, ...(createdAt && { createdAt }) }),
    );
  }

  /** Merges a notification as if a callback or a poll brought it. */
  async save(value: Record<string, unknown>, source: 'webhook' | 'poll' = 'webhook'): Promise<void> {
    const raw = JSON.stringify(value);
    const reading = readSentOrder(value, raw, compileSpellings({}));
    if ('unreadable' in reading) throw new Error(reading.unreadable);
    const observedAtMs = this.clock.nowMs();
    const observation = { source, observedAtMs, raw, reading };
    await this.services.mirror.save([{ kind: 'order', observation }]);
  }
}

export class BranchStore extends Store {
  readonly name: string;
  readonly configFile: string;
  protected readonly config: Config;
  readonly server: InProcessServer;
  /** Verdict that the branch reports. */
  verdict: Verdict = { level: 'green', findings: [] };
  follower!: BranchFollower;
  link!: BranchLink;

  constructor(clock: FakeClock, server: InProcessServer, name: string, own: Clock = clock) {
    super(clock, own);
    this.server = server;
    this.name = name;
    this.configFile = path.join(this.directory, 'config.toml');
    const text = `
      [link]
      hub = "nats://127.0.0.1:4222"
      branch = "${name}"`;
    this.config = configIn(this.directory, text);
    writeFileSync(this.configFile, `${text}\n[storage]\ndirectory = ${JSON.stringify(this.directory)}`);
  }

  async start(): Promise<void> {
    const { mirror, stores, platform } = await this.open();
    this.link = this.server.branch(this.name);
    this.follower = new BranchFollower({
      ...{
        link: this.link,
        mirror,
        stores,
        spellings: compileSpellings({}),
        version: '0',
        verdict: () => this.verdict,
        outboxKeptMs: 0,
        onOrders: () => {},
        onHubClock: (nowMs: number) => platform.clock.observe(nowMs),
      },
      clock: this.own,
      log: silentLog,
    });
    await this.follower.begin();
  }

  /** Returns the branch's loops as in production, with this store's link. */
  loops(): NamedLoop[] {
    const settings = {
      config: this.config,
      secrets: { webhookSecrets: [] },
      random: seededRandom(3),
      log: silentLog,
    };
    return branchLoops(
      { ...settings, clock: this.own, link: { branch: this.link } },
      this.services,
      () => {},
    );
  }

  /** Applies the entries that the server has for this branch. */
  async follow(): Promise<void> {
    try {
      await this.#followOnce();
    } catch (error) {
      // After a gap the branch waits first; then the server sends the same entries again.
      if (this.server.isDown || !hasCode(error, 'link-down')) throw error;
      await this.clock.advance(GAP_MAX_MS);
      await this.#followOnce();
    }
  }

  async #followOnce(): Promise<void> {
    if (this.server.pending(this.name) === 0) return;
    const over = new AbortController();
    await this.link.follow(async (messages) => {
      const isTaken = await this.follower.take(messages);
      if (messages.length >= this.server.pending(this.name)) over.abort();
      return isTaken;
    }, over.signal);
  }

  /** Submits a stock count as the POS does. `store` is the name that the POS uses for its own store. */
  async count(externalId: string, qty: number, reference: string, store?: string): Promise<void> {
    const change = { externalId, qty, ...(store !== undefined && { subsidiaryExternalId: store }) };
    await this.services.stores.write(({ intake }) =>
      intake.accept([{ kind: 'stock', change, reference }], { source: 'inbox', guards: this.config.guard }),
    );
  }
}

export interface Chain {
  clock: FakeClock;
  server: InProcessServer;
  hub: HubStore;
  branches: [BranchStore, BranchStore];
  /** Repairs the link, then exchanges all messages in three rounds, or only those of the branches `among`. */
  settle(among?: readonly BranchStore[]): Promise<void>;
}

/** Opens a hub with two branches. The first branch's clock is ahead of all others by `aheadMs`. */
export async function openChain({ aheadMs = 0 } = {}): Promise<Chain> {
  const clock = new FakeClock();
  const ahead: Clock = {
    bootId: clock.bootId,
    nowMs: () => clock.nowMs() + aheadMs,
    monotonicMs: () => clock.monotonicMs(),
    sleep: (ms, signal) => clock.sleep(ms, signal),
  };
  const server = new InProcessServer();
  const hub = new HubStore(clock, server);
  const branches: [BranchStore, BranchStore] = [
    new BranchStore(clock, server, 'B1', ahead),
    new BranchStore(clock, server, 'B2'),
  ];
  for (const store of [hub, ...branches]) await store.start();
  return {
    clock,
    server,
    hub,
    branches,
    async settle(among: readonly BranchStore[] = branches) {
      server.isDown = false;
      server.lostAnswers = 0;
      server.lostAcknowledgements = 0;
      for (let round = 0; round < 3; round++) {
        for (const branch of among) {
          await branch.follower.hello();
          while (await branch.follower.uploadOnce());
        }
        await hub.publish();
        for (const branch of among) await branch.follow();
      }
    },
  };
}
