import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { openState } from '../../src/app/stores.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { freePort, PUBLISHED_LIMITS } from '../../src/demo/sandbox-platform.ts';
import { newKey } from '../../src/link/nats.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { httpWebhookTransport } from '../../src/sandbox/webhook.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { type NatsServer, startNatsServer } from '../support/nats-server.ts';
import { until } from '../support/workplace.ts';
import {
  type BenchBranch,
  type BranchesOrder,
  type BranchesReport,
  type Committed,
  openBranch,
  TEMPLATE,
} from './hub-branches.ts';
import {
  type Child,
  outputOf,
  packagedProgram,
  residentMib,
  startNode,
  stopChild,
} from './packaged-program.ts';

const PROCESSES = 4;
/** Also on a machine that is busy with other things. */
const START_MS = 600_000;
/** Each of them in every branch; an answer of the platform carries the stock of all branches. */
const PRODUCTS = 20;
const SECRET = 'bench-secret';
const UNPUBLISHED = 'SELECT count(*) AS n FROM feed WHERE published = 0';

/** The hub's daemon and nats-server as in production, a platform in this process, and many branches. */
export interface HubPlace {
  sandbox: Sandbox;
  callbackUrl: string;
  secret: string;
  branches: string[];
  /** Steps of orders that branches have on the disk, as they tell it. */
  onCommitted: (committed: Committed[]) => void;
  /** Steps that the platform sends, and whether the hub has taken them. */
  onSent: (order: { orderId: string; status: string }, how: { sentMs: number; answeredMs: number }) => void;
  /** MiB. */
  memory(): { hub: number; server: number; branch: number };
  killServer(): Promise<void>;
  /** Resolves when it listens. */
  startServer(): Promise<void>;
  /** Entries of the feed that are not on nats-server yet. */
  unpublished(): number;
  hubRows<T>(sql: string, ...values: unknown[]): T[];
  branchRows<T>(branch: string, sql: string): T[];
  stop(names: readonly string[]): Promise<void>;
  start(names: readonly string[]): Promise<void>;
  command(...words: string[]): Promise<number>;
  close(): Promise<void>;
}

export async function openHubPlace(
  directory: string,
  count: number,
  progress: (message: string) => void,
): Promise<HubPlace> {
  const undo: (() => Promise<unknown> | unknown)[] = [];
  const close = async () => {
    for (let last = undo.pop(); last; last = undo.pop()) await last();
  };
  try {
    return await build(directory, count, progress, undo, close);
  } catch (error) {
    await close();
    throw error;
  }
}

async function build(
  directory: string,
  count: number,
  progress: (message: string) => void,
  undo: (() => Promise<unknown> | unknown)[],
  close: () => Promise<void>,
): Promise<HubPlace> {
  progress('bundling the program');
  const program = await packagedProgram(path.join(directory, 'program'));
  const [natsPort, webhookPort] = [await freePort(), await freePort()];
  const url = `nats://127.0.0.1:${natsPort}`;
  const callbackUrl = `http://127.0.0.1:${webhookPort}/webhook`;
  const names = Array.from({ length: count }, (_, i) => `B${i + 1}`);
  const webhook = httpWebhookTransport();
  let place: HubPlace;
  const sandbox = await startSandbox({
    ...{ clock: systemClock, random: seededRandom(41), limits: PUBLISHED_LIMITS },
    seed: {
      branches: names.map((externalId, i) => ({ subsidiaryId: `sub-${i + 1}`, externalId })),
      products: PRODUCTS,
    },
    async webhookTransport(request) {
      const { internalOrderId: orderId, status } = JSON.parse(request.body) as {
        internalOrderId: string;
        status: string;
      };
      const sentMs = Date.now();
      const answer = await webhook.send(request);
      if (answer < 300) place.onSent({ orderId, status }, { sentMs, answeredMs: Date.now() });
      return answer;
    },
  });
  undo.push(
    () => webhook.close(),
    () => sandbox.close(),
  );
  const storage = path.join(directory, 'hub');
  const configFile = path.join(directory, 'hub.toml');
  writeFileSync(
    configFile,
    hubConfig({ baseUrl: sandbox.url, storage, webhookPort, callbackUrl, url, names }),
  );
  const environment = {
    ...program.environment,
    CACHE_DIRECTORY: path.join(directory, 'cache'),
    TILLSYNC_CONFIG: configFile,
    TILLSYNC_REFRESH_TOKEN: sandbox.issueTokens().refreshToken,
    TILLSYNC_WEBHOOK_SECRET: SECRET,
  };
  const command = async (...words: string[]) => {
    const beganMs = performance.now();
    const child = startNode([...program.args, ...words], environment);
    child.stdout.resume();
    const [code] = await once(child, 'close');
    if (code !== 0) throw new Error(`tillsync ${words.join(' ')} ended with ${code}.`);
    return performance.now() - beganMs;
  };
  const serverFile = path.join(storage, 'nats/server.conf');
  await command('hub', 'server-config', serverFile, '--json');
  progress(`${count} branches get their keys`);
  const own = await joinAll(storage, names);
  await command('hub', 'server-config', serverFile, '--json');
  let server: NatsServer = await startNatsServer(serverFile, natsPort);
  undo.push(() => server.kill());
  const hub = startNode([...program.args, 'run'], environment);
  undo.push(() => stopChild(hub));
  await outputOf(hub, /tillsync is running/);
  sandbox.control.setWebhook({ callbackUrl, secret: SECRET, active: true });
  const branchesAt = path.join(directory, 'branches');
  mkdirSync(branchesAt);
  await (await openBranch(path.join(branchesAt, TEMPLATE), 'template', url)).close();
  progress(`${count} branches start in ${PROCESSES} processes`);
  const processes = groups(own, PROCESSES).map((branches) => new Branches(branches));
  undo.push(() => Promise.all(processes.map((each) => each.end())));
  for (const each of processes) each.onCommitted = (committed) => place.onCommitted(committed);
  await Promise.all(processes.map((each) => each.begin(url, branchesAt)));
  const rows = <T>(file: string, sql: string, ...values: unknown[]): T[] => {
    const db = new Database(file, { readonly: true });
    try {
      return db.prepare<unknown[], T>(sql).all(...values);
    } finally {
      db.close();
    }
  };
  const hubRows = <T>(sql: string, ...values: unknown[]) =>
    rows<T>(path.join(storage, 'mirror.db'), sql, ...values);
  place = {
    ...{ sandbox, callbackUrl, secret: SECRET, branches: names, command, hubRows },
    onCommitted: () => {},
    onSent: () => {},
    memory: () => ({
      hub: residentMib(hub),
      server: residentMib({ pid: server.pid } as Child),
      branch: processes.reduce((sum, each) => sum + residentMib(each.child as Child), 0) / count,
    }),
    killServer: () => server.kill(),
    async startServer() {
      server = await startNatsServer(serverFile, natsPort);
    },
    unpublished: () => hubRows<{ n: number }>(UNPUBLISHED)[0]?.n ?? 0,
    branchRows: (branch, sql) => rows(path.join(branchesAt, branch, 'mirror.db'), sql),
    stop: (away) => tellAll(processes, 'stop', away),
    start: (back) => tellAll(processes, 'start', back),
    close,
  };
  await until('every branch has followed', () => haveSaidHello(hubRows, count), START_MS);
  return place;
}

/** Whether each branch has said hello. */
function haveSaidHello(hubRows: HubPlace['hubRows'], count: number): boolean {
  const sql = 'SELECT count(*) AS n FROM feed_branches WHERE line IS NOT NULL';
  return hubRows<{ n: number }>(sql)[0]?.n === count;
}

/** Keys for all branches, as if each had joined. */
async function joinAll(storage: string, names: readonly string[]): Promise<BenchBranch[]> {
  const state = openState({ path: path.join(storage, 'state.db'), clock: systemClock });
  try {
    const own: BenchBranch[] = [];
    for (const name of names) {
      const { seed, publicKey } = await newKey();
      state.hub.invite(name, publicKey, systemClock.nowMs() + 60_000);
      state.hub.join(name, publicKey, systemClock.nowMs());
      own.push({ name, seed });
    }
    return own;
  } finally {
    state.close();
  }
}

interface HubConfig {
  baseUrl: string;
  storage: string;
  webhookPort: number;
  callbackUrl: string;
  url: string;
  names: readonly string[];
}

function hubConfig({ baseUrl, storage, webhookPort, callbackUrl, url, names }: HubConfig): string {
  const branches = names.map(
    (name, i) => `[[branches]]\nsubsidiary_id = "sub-${i + 1}"\nexternal_id = "${name}"\n`,
  );
  return `[platform]
base_url = "${baseUrl}"
[storage]
directory = ${JSON.stringify(storage)}
[webhook]
listen = "127.0.0.1:${webhookPort}"
callback_url = "${callbackUrl}"
[local]
listen = "127.0.0.1:0"
[hub]
nats = "${url}"
${branches.join('')}`;
}

function groups<T>(all: readonly T[], count: number): T[][] {
  const size = Math.ceil(all.length / count);
  return Array.from({ length: count }, (_, i) => all.slice(i * size, (i + 1) * size));
}

async function tellAll(
  processes: readonly Branches[],
  kind: 'stop' | 'start',
  names: readonly string[],
): Promise<void> {
  await Promise.all(processes.map((each) => each.tell(kind, names)));
}

/** A process with some of the branches. */
class Branches {
  readonly child: ChildProcess;
  readonly #branches: readonly BenchBranch[];
  #done: () => void = () => {};
  onCommitted: (committed: Committed[]) => void = () => {};

  constructor(branches: readonly BenchBranch[]) {
    this.#branches = branches;
    this.child = fork(path.join(import.meta.dirname, 'hub-branches.ts'), { execArgv: [] });
    this.child.on('message', (report: BranchesReport) => {
      if (report.kind === 'done') this.#done();
      else this.onCommitted(report.committed);
    });
  }

  begin(url: string, directory: string): Promise<void> {
    return this.#obeyed({ kind: 'begin', url, directory, branches: [...this.#branches] });
  }

  async tell(kind: 'stop' | 'start', names: readonly string[]): Promise<void> {
    const own = this.#branches.map(({ name }) => name).filter((name) => names.includes(name));
    if (own.length > 0) await this.#obeyed({ kind, names: own });
  }

  async end(): Promise<void> {
    this.child.kill('SIGKILL');
    if (this.child.exitCode === null && this.child.signalCode === null) await once(this.child, 'exit');
  }

  #obeyed(order: BranchesOrder): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#done = resolve;
    this.child.once('exit', () => reject(new Error('A process with branches ended.')));
    this.child.send(order);
    return promise;
  }
}
