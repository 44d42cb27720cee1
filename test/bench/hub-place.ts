import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { openState } from '../../src/app/state.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { freePort, PUBLISHED_LIMITS } from '../../src/demo/sandbox-platform.ts';
import { newKey } from '../../src/link/nats.ts';
import type { PlatformLimits } from '../../src/platform/platform.ts';
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

const PROCESSES_MIN = 4;
/** Maximum number of branches in one process. */
const TOGETHER_MAX = 250;
/** Time limit for the hub and all branches to start, even on a machine that is busy with other work. */
const START_MS = 1_800_000;
/**
 * Returns the number of products, each of which is in every branch. Many branches get fewer products, because the first
 * sweep reads each product once per branch, each time with the stocks of all branches.
 */
const productsOf = (branches: number) => (branches > 500 ? 4 : 20);
/**
 * Limits during the first sweep, which needs a call per branch and would take most of the time at the published rate.
 * The sandbox always allows this rate; after the sweep the hub uses the published interval between calls.
 */
const SWEEP_LIMITS: PlatformLimits = {
  ...PUBLISHED_LIMITS,
  endpointIntervalMs: 20,
  requestsPerWindow: 1_000_000,
};
const SECRET = 'bench-secret';
const UNPUBLISHED = 'SELECT count(*) AS n FROM _feed WHERE published = 0';

/** The hub's daemon and nats-server as in production, a sandbox in this process, and many branches. */
export interface HubPlace {
  sandbox: Sandbox;
  callbackUrl: string;
  secret: string;
  branches: string[];
  /** Called with orders' events that branches report as durable. */
  onCommitted: (committed: Committed[]) => void;
  /** Returns how much of one processor the hub's main thread uses during `ms`, in percent. */
  busyPercent(ms: number): Promise<number>;
  /** Called with each event that the platform sent and the hub accepted. The times are wall-clock times in ms. */
  onSent: (order: { orderId: string; status: string }, how: { sentMs: number; answeredMs: number }) => void;
  /** Returns the resident memory of the hub, of nats-server and, on average, of a branch, in MiB. */
  memory(): { hub: number; server: number; branch: number };
  killServer(): Promise<void>;
  /** Starts the server; resolves when it listens. */
  startServer(): Promise<void>;
  /** Returns the number of entries of the feed that are not on nats-server yet. */
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
  const tlsUrl = `tls://localhost:${natsPort}`;
  const callbackUrl = `http://127.0.0.1:${webhookPort}/webhook`;
  const names = Array.from({ length: count }, (_, i) => `B${i + 1}`);
  const webhook = httpWebhookTransport();
  let place: HubPlace;
  const sandbox = await startSandbox({
    clock: systemClock,
    random: seededRandom(41),
    limits: SWEEP_LIMITS,
    seed: {
      branches: names.map((externalId, i) => ({ subsidiaryId: `sub-${i + 1}`, externalId })),
      products: productsOf(count),
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
  const ofHub = { baseUrl: sandbox.url, storage, webhookPort, callbackUrl, url, tlsUrl, names };
  writeFileSync(configFile, hubConfig(ofHub, SWEEP_LIMITS));
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
  const tls = makeCertificate(directory);
  const words = ['--tls-cert', tls.cert, '--tls-key', tls.key, '--tls-ca', tls.ca];
  await command('hub', 'server-config', serverFile, '--json', ...words);
  progress(`${count} branches get their keys`);
  const ca = readFileSync(tls.ca, 'utf8');
  const own = await joinAll(storage, names);
  await command('hub', 'server-config', serverFile, '--json');
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
  progress(`the catalogues of ${count} branches are read`);
  const sweeper = startNode([...program.args, 'run'], environment);
  undo.push(() => stopChild(sweeper));
  await outputOf(sweeper, /tillsync is running/);
  const swept = 'SELECT count(DISTINCT subsidiary_id) AS n FROM _sweeps WHERE completed_ms IS NOT NULL';
  await until('all are read', () => hubRows<{ n: number }>(swept)[0]?.n === count, START_MS);
  await stopChild(sweeper);
  writeFileSync(configFile, hubConfig(ofHub, PUBLISHED_LIMITS));
  let server: NatsServer = await startNatsServer(serverFile, natsPort);
  undo.push(() => server.kill());
  const hub = startNode([...program.args, 'run'], environment);
  undo.push(() => stopChild(hub));
  await outputOf(hub, /tillsync is running/);
  sandbox.control.setWebhook({ callbackUrl, secret: SECRET, active: true });
  const branchesAt = path.join(directory, 'branches');
  mkdirSync(branchesAt);
  await (await openBranch(path.join(branchesAt, TEMPLATE), 'template', tlsUrl)).close();
  const parts = Math.max(PROCESSES_MIN, Math.ceil(count / TOGETHER_MAX));
  progress(`${count} branches start in ${parts} processes`);
  const processes = groups(own, parts).map((branches) => new Branches(branches));
  undo.push(() => Promise.all(processes.map((each) => each.end())));
  for (const each of processes) each.onCommitted = (committed) => place.onCommitted(committed);
  await Promise.all(processes.map((each) => each.begin({ url: tlsUrl, ca, directory: branchesAt })));
  place = {
    sandbox,
    callbackUrl,
    secret: SECRET,
    branches: names,
    command,
    hubRows,
    busyPercent: (ms) => busyPercent(hub.pid ?? 0, ms),
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

/** Whether each branch has connected to the hub. */
function haveSaidHello(hubRows: HubPlace['hubRows'], count: number): boolean {
  const sql = 'SELECT count(*) AS n FROM _feed_branches WHERE line IS NOT NULL';
  return hubRows<{ n: number }>(sql)[0]?.n === count;
}

/** Makes certificates as in docs/chain.md, for this machine. */
function makeCertificate(directory: string): { cert: string; key: string; ca: string } {
  const at = (name: string) => path.join(directory, name);
  const openssl = (...words: string[]) => execFileSync('openssl', words, { stdio: 'ignore' });
  const made = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '90'];
  openssl(...made, '-subj', '/CN=chain', '-keyout', at('ca.key'), '-out', at('ca.pem'));
  const signed = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-subj', '/CN=localhost'];
  const files = ['-keyout', at('hub.key'), '-out', at('hub.pem')];
  const names = ['-addext', 'subjectAltName=DNS:localhost', '-addext', 'basicConstraints=critical,CA:FALSE'];
  openssl(...made, ...signed, ...files, ...names);
  return { cert: at('hub.pem'), key: at('hub.key'), ca: at('ca.pem') };
}

/** Unit of the CPU times in /proc. */
const TICKS_PER_SECOND = 100;

/**
 * Returns how much of one processor a process's first thread, which runs all its JavaScript, uses during `ms`, in
 * percent.
 */
async function busyPercent(pid: number, ms: number): Promise<number> {
  const seconds = () => {
    const stat = readFileSync(`/proc/${pid}/task/${pid}/stat`, 'utf8');
    // The fields follow the name, which may contain spaces. State is the third field, user and system time
    // are the 14th and 15th.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  };
  const [before, beganMs] = [seconds(), performance.now()];
  await systemClock.sleep(ms);
  return ((seconds() - before) / ((performance.now() - beganMs) / 1000)) * 100;
}

/** Makes the keys of all branches, and records each branch as joined. */
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
  tlsUrl: string;
  names: readonly string[];
}

function hubConfig(
  { baseUrl, storage, webhookPort, callbackUrl, url, tlsUrl, names }: HubConfig,
  { endpointIntervalMs }: PlatformLimits,
): string {
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
[limits]
endpoint_interval = "${endpointIntervalMs}ms"
requests_per_window = ${SWEEP_LIMITS.requestsPerWindow}
[hub]
nats = "${url}"
public_url = "${tlsUrl}"
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

  begin(place: { url: string; ca: string; directory: string }): Promise<void> {
    return this.#obeyed({ kind: 'begin', ...place, branches: [...this.#branches] });
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
