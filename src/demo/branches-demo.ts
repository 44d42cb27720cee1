import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Releasers } from '../app/services.ts';
import { ensureKey, pageLink, storedKey } from '../config/key-file.ts';
import { TillsyncError } from '../core/errors.ts';
import { silentLog } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.ts';
import { newestNumber } from '../link/branch-status.ts';
import { linkCursor, waitingUp } from '../link/branch-upload.ts';
import { newKey } from '../link/nats.ts';
import { hubKeys, writeServerFile } from '../link/server-file.ts';
import { type Sandbox, startSandbox } from '../sandbox/server.ts';
import {
  type DemoOptions,
  type DemoSummary,
  figures,
  playTraffic,
  rowsOf,
  shelvesEqual,
  trafficMsOf,
  VIEW_EVERY_MS,
} from './demo.ts';
import { type Comparison, compareOrders, DemoPos, type PosBranch } from './demo-pos.ts';
import { findNatsServer, Line, startNatsServer } from './nats-server.ts';
import { DEMO_LIMITS, demoBranchConfig, demoConfig, freePort } from './sandbox-platform.ts';

/** Time after which the last branch is disconnected, or a third of the traffic's duration if that is shorter. */
const CUT_AFTER_MS = 20_000;
/** Time for which the last branch stays disconnected if the demo has no set duration. */
const AWAY_MS = 120_000;
const CLOSING_MS = DEMO_LIMITS.ordersIntervalMs + 8_000;
const SETTLE_WITHIN_MS = 30_000;
const INVITED_FOR_MS = 3_600_000;

/** One branch of the demo, with its own tillsync and POS. */
interface DemoBranch extends PosBranch {
  daemon: Daemon;
  pos: DemoPos;
  line: Line;
}

interface BranchOutcome extends Comparison {
  branch: string;
  booked: number;
  soldOverTheCounter: number;
  stocks: number;
  stocksEqual: number;
}

/** Figures as in the demo of one store; `inMirror` counts orders in the hub's mirror. */
export type BranchesDemoSummary = Pick<
  DemoSummary,
  keyof Comparison | 'callbacks' | 'polls' | 'refreshes' | 'violations' | 'deadTokenUses' | 'traffic'
> & {
  branches: BranchOutcome[];
  /**
   * The branch that was disconnected, for how long, how many feed entries it had missed and how many changes it had
   * kept by then, and how long it took to catch up. Null if the demo ended before the disconnection.
   */
  away: {
    branch: string;
    awayMs: number;
    missedEvents: number;
    keptChanges: number;
    caughtUpMs: number;
  } | null;
};

/** Runs a hub, its nats-server and `branches` branches, each with a POS. One branch is disconnected for a while. */
export async function runBranchesDemo(
  options: DemoOptions & { branches: number },
): Promise<BranchesDemoSummary> {
  const { clock, random, signal, log = silentLog, onEvent } = options;
  const program = findNatsServer();
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-demo-'));
  const releasers = new Releasers(log);
  releasers.push('directory', () => rmSync(directory, { recursive: true, force: true }));
  try {
    const names: PosBranch[] = Array.from({ length: options.branches }, (_, i) => ({
      subsidiaryId: `sub-${i + 1}`,
      externalId: `B${i + 1}`,
    }));
    const sandbox = await startSandbox({
      clock,
      random,
      limits: DEMO_LIMITS,
      accessTokenLifetimeMs: 20_000,
      seed: { branches: names },
    });
    releasers.push('sandbox', () => sandbox.close());
    const hub = await startHub(options, { directory, program, names, sandbox, releasers });
    onEvent?.(`the hub, with the board of its branches: ${pageOf(hub.daemon)}`);
    const branches: DemoBranch[] = [];
    for (const name of names) {
      const branch = await startBranch(options, { directory, name, hub, releasers });
      branches.push(branch);
      onEvent?.(`branch ${name.externalId} has joined: ${pageOf(branch.daemon)}`);
    }
    const hasProducts = ({ daemon }: DemoBranch) =>
      daemon.services.stores.read(({ catalogQueries }) => catalogQueries.counts().products) > 0;
    await settled(clock, 'the catalogue', () => signal.aborted || branches.every(hasProducts));
    const ends = new AbortController();
    const trafficMs = trafficMsOf(options, CLOSING_MS);
    if (trafficMs !== undefined) void clock.sleep(trafficMs, signal).then(() => ends.abort());
    signal.addEventListener('abort', () => ends.abort(), { once: true });
    const playing = playTraffic(options, sandbox, ends.signal);
    const trading = branches.map(({ pos }) => pos.trade(ends.signal));
    const watching = watch(options, sandbox, hub.daemon, branches, ends.signal);
    const away = await takeOff(options, hub.daemon, branches, ends.signal, trafficMs);
    const traffic = await playing;
    await Promise.all([...trading, watching]);
    return { ...(await close(options, sandbox, hub.daemon, branches)), traffic, away };
  } finally {
    await releasers.release();
  }
}

interface Hub {
  daemon: Daemon;
  natsPort: number;
}

async function startHub(
  { clock, random, log = silentLog }: DemoOptions,
  place: { directory: string; program: string; names: PosBranch[]; sandbox: Sandbox; releasers: Releasers },
): Promise<Hub> {
  const { program, names, sandbox, releasers } = place;
  const directory = join(place.directory, 'hub');
  mkdirSync(directory);
  const [webhookPort, localPort, natsPort] = await Promise.all([freePort(), freePort(), freePort()]);
  const nats = `nats://127.0.0.1:${natsPort}`;
  const config = demoConfig({
    baseUrl: sandbox.url,
    directory,
    webhookPort,
    localPort,
    nats,
    branches: names,
  });
  const { refreshToken } = sandbox.issueTokens();
  const secrets = { refreshToken, webhookSecrets: ['demo-webhook-secret'] };
  const daemon = await startDaemon({ config, secrets, clock, random, log });
  releasers.push('hub', () => daemon.stop());
  const file = join(place.directory, 'nats', 'server.conf');
  const rows = daemon.services.state.hub;
  await hubKeys(rows);
  rows.noteServerConfig({ file, storeDirectory: join(place.directory, 'nats', 'jetstream'), tls: null });
  await writeServerFile(rows, config.hub, clock.nowMs());
  const server = await startNatsServer(program, { file, port: natsPort, clock });
  releasers.push('nats-server', () => server.close());
  return { daemon, natsPort };
}

/**
 * Starts a branch. The hub knows the branch's key before the branch starts, because on one machine nobody has to carry
 * an invitation.
 */
async function startBranch(
  { clock, random, log = silentLog }: DemoOptions,
  place: { directory: string; name: PosBranch; hub: Hub; releasers: Releasers },
): Promise<DemoBranch> {
  const { name, hub, releasers } = place;
  const branch = name.externalId;
  const directory = join(place.directory, branch);
  mkdirSync(directory);
  const { seed, publicKey } = await newKey();
  const rows = hub.daemon.services.state.hub;
  rows.invite(branch, publicKey, clock.nowMs() + INVITED_FOR_MS);
  rows.join(branch, publicKey, clock.nowMs());
  const [linePort, localPort] = await Promise.all([freePort(), freePort()]);
  const line = new Line(hub.natsPort);
  await line.listen(linePort);
  releasers.push('line', () => line.close());
  const config = demoBranchConfig({ directory, branch, localPort, hub: `nats://127.0.0.1:${linePort}` });
  const secrets = { linkSeed: seed, webhookSecrets: [] };
  const daemon = await startDaemon({ config, secrets, clock, random, log });
  releasers.push(branch, () => daemon.stop());
  // The POS gets no `onEvent`, because texts about counter sales would hide the orders that the demo shows.
  const key = ensureKey(directory, config.storage.group, silentLog);
  const pos = new DemoPos({ localUrl: () => daemon.localUrl, key, branch: name, clock, random });
  return { ...name, daemon, pos, line };
}

function pageOf({ localUrl, services }: Daemon): string {
  return pageLink(localUrl, storedKey(services.config.storage.directory));
}

async function watch(
  { clock, onView }: DemoOptions,
  { control }: Sandbox,
  hub: Daemon,
  branches: readonly DemoBranch[],
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    onView?.({
      ...figures(control),
      atPlatform: control.orders().length,
      inMirror: rowsOf(hub).length,
      inBranches: branches.reduce((sum, { daemon }) => sum + rowsOf(daemon).length, 0),
    });
    await clock.sleep(VIEW_EVERY_MS, signal);
  }
}

/** Returns how many entries of a branch's feed the branch has not received from the hub yet. */
function behind(hub: Daemon, { externalId, daemon }: DemoBranch): number {
  const newest = hub.services.mirror.read((db) => newestNumber(db, externalId));
  return newest - daemon.services.mirror.read(linkCursor).mark;
}

const isWhole = (hub: Daemon, branch: DemoBranch) =>
  behind(hub, branch) === 0 && branch.daemon.services.mirror.read(waitingUp).waiting === 0;

/** Disconnects the last branch for a while; it keeps selling, and then catches up. */
async function takeOff(
  { clock, onEvent }: DemoOptions,
  hub: Daemon,
  branches: readonly DemoBranch[],
  signal: AbortSignal,
  trafficMs: number | undefined,
): Promise<BranchesDemoSummary['away']> {
  const branch = branches.at(-1);
  if (!branch) return null;
  const name = branch.externalId;
  await clock.sleep(Math.min(CUT_AFTER_MS, (trafficMs ?? Number.POSITIVE_INFINITY) / 3), signal);
  if (signal.aborted) return null;
  branch.line.cut();
  onEvent?.(`branch ${name} is off the net; its POS goes on selling`);
  const startMs = clock.monotonicMs();
  await clock.sleep(trafficMs === undefined ? AWAY_MS : trafficMs / 3, signal);
  const missedEvents = behind(hub, branch);
  const keptChanges = branch.daemon.services.mirror.read(waitingUp).waiting;
  branch.line.mend();
  const backMs = clock.monotonicMs();
  onEvent?.(`branch ${name} is back: ${missedEvents} steps wait for it, ${keptChanges} changes at it`);
  // Only the missed events have to arrive; events that are new during the catch-up are not waited for.
  const { mark } = branch.daemon.services.mirror.read(linkCursor);
  const target = mark + missedEvents;
  const isUp = () => branch.daemon.services.mirror.read(linkCursor).mark >= target;
  await settled(clock, `branch ${name} to catch up`, isUp);
  const caughtUpMs = Math.round(clock.monotonicMs() - backMs);
  onEvent?.(`branch ${name} has caught up, ${caughtUpMs} ms after the line was mended`);
  return { branch: name, awayMs: Math.round(backMs - startMs), missedEvents, keptChanges, caughtUpMs };
}

async function settled(clock: Clock, what: string, isSo: () => boolean): Promise<void> {
  const endMs = clock.monotonicMs() + SETTLE_WITHIN_MS;
  while (!isSo()) {
    if (clock.monotonicMs() >= endMs)
      throw new TillsyncError('internal', `The demo waited in vain for ${what}.`);
    await clock.sleep(100);
  }
}

/** Lets each POS submit its last counts, then compares every mirror with the platform. */
async function close(
  { clock, onEvent }: DemoOptions,
  { control }: Sandbox,
  hub: Daemon,
  branches: readonly DemoBranch[],
): Promise<Omit<BranchesDemoSummary, 'traffic' | 'away'>> {
  onEvent?.('no more changes; waiting for the last poll');
  control.setWebhookBehaviour({ drop: 0, duplicate: 0, reorder: 0, delay: 0 });
  await control.settled();
  await hub.services.orderPoll.poll({ wide: true });
  await settled(clock, 'every branch', () => branches.every((branch) => isWhole(hub, branch)));
  const sold = await Promise.all(branches.map(({ pos }) => pos.close()));
  const isSent = ({ services }: Daemon) => {
    const { pending, sending, needsRead } = services.outbox.counts();
    return pending + sending + needsRead === 0;
  };
  await settled(
    clock,
    'the last changes',
    () =>
      [hub, ...branches.map(({ daemon }) => daemon)].every(isSent) &&
      branches.every((branch) => isWhole(hub, branch)),
  );
  const outcomes = branches.map(({ externalId, daemon }, i): BranchOutcome => {
    const { booked = 0, soldOverTheCounter = 0, shelves = [] } = sold[i] ?? {};
    const own = control.orders().filter(({ store }) => store.externalId === externalId);
    return {
      branch: externalId,
      booked,
      soldOverTheCounter,
      ...compareOrders(own, rowsOf(daemon)),
      stocks: shelves.length,
      stocksEqual: shelvesEqual(control, shelves),
    };
  });
  return {
    ...compareOrders(control.orders(), rowsOf(hub)),
    ...figures(control),
    branches: outcomes,
    violations: control.violations().length,
    deadTokenUses: control.deadRefreshUses().length,
  };
}
