import { existsSync, statSync } from 'node:fs';
import type { AccessOptions, GroupSocket, WrongKeyListener } from '../api/access.ts';
import type { ChangeSignal, LocalApiOptions } from '../api/api.ts';
import { localApi } from '../api/local-api.ts';
import { Metrics } from '../api/metrics.ts';
import { pageFiles, pageRoutes } from '../api/page-routes.ts';
import { createLocalServer } from '../api/server.ts';
import { healthRoutes, metricsRoutes, stalledLoops } from '../api/status-routes.ts';
import { programVersion } from '../app/installation.ts';
import {
  buildOrRelease,
  openServices,
  type Releasers,
  type Services,
  type ServicesOptions,
} from '../app/services.ts';
import { markRunning, ownSocket, storagePaths } from '../app/storage.ts';
import { noteConfigChanges } from '../config/config-changes.ts';
import type { Config } from '../config/config-type.ts';
import { mainKey } from '../config/key-file.ts';
import { isBranch } from '../config/roles.ts';
import { isSetUp } from '../config/source.ts';
import { asTillsyncError, formatCommands } from '../core/errors.ts';
import { groupId, openWhenFree } from '../core/files.ts';
import type { Log } from '../core/log.ts';
import { repeat } from '../core/loop.ts';
import { keptFiles } from '../db/damaged-files.ts';
import { headDamage } from '../db/mirror-head.ts';
import { Counters } from '../health/counters.ts';
import { Recently } from '../health/health-checks.ts';
import { type HookLoopOptions, hookLoop } from '../hooks/hook-loop.ts';
import { receiverOf, testHook } from '../hooks/hook-test.ts';
import { type Callback, CallbackLog } from '../orders/receiving/callback-log.ts';
import { webhookLoop } from '../platform/webhook-registration.ts';
import { alarmLoops, alarmTest } from './alarm-loop.ts';
import { backupDiskOf, backupLoops, backupsOf } from './backups.ts';
import { type IncomingOrders, incomingOrders, listenForCallbacks } from './incoming.ts';
import { branchLoops, hubLoops, type LinkOptions, settleRole } from './link-loops.ts';
import { type NamedLoop, outgoingLoops } from './outgoing.ts';
import { type SupervisedLoop, supervise } from './service.ts';

export interface DaemonOptions extends ServicesOptions, LinkOptions {
  /** File descriptor of a listening socket for callbacks that systemd keeps open across restarts. */
  callbackSocketFd?: number | undefined;
}

export interface Daemon {
  /** Address at which callbacks are received; null if the webhook is off. */
  webhookUrl: string | null;
  localUrl: string;
  services: Services;
  /** Whether the inbox of the POS is there. A POS that opens it earlier would make an empty file in its place. */
  hasInbox(): boolean;
  /** Returns the names of loops that reported nothing for too long, so that a restart may help. */
  stalledLoops(): string[];
  /** Accepts no new work, finishes running work, and closes everything. */
  stop(): Promise<void>;
}

/** Starts the daemon: databases, listeners, loops. If that fails, closes what was opened and throws. */
export function startDaemon(options: DaemonOptions): Promise<Daemon> {
  return buildOrRelease(options.log, (releasers) => build(options, releasers));
}

async function build(given: DaemonOptions, releasers: Releasers): Promise<Daemon> {
  const { config, clock, log } = given;
  const version = programVersion();
  const counters = new Counters();
  const rescued = await rescue(given);
  const services = await openServices({ ...given, counters });
  releasers.push('storage', () => services.close());
  releasers.push(
    'mark',
    await markRunning({ leases: services.state.leases, directory: config.storage.directory, clock, log }),
  );
  keepUnwrittenAlarms(services, log);
  if (rescued !== undefined) services.mirror.health.note('mirror.damaged', formatCommands(rescued));
  const { apiKey, ...keyAt } = mainKey(config.storage, given.secrets.localApiKey, log);
  given.onSecret?.(apiKey);
  const options = { ...given, secrets: { ...given.secrets, localApiKey: apiKey } };
  const { wrongKeys, onWrongKey } = keyWatch(counters, options);
  const access: AccessOptions = { apiKey, ...keyAt, namedKeys: services.state.apiKeys, onWrongKey };
  const stopping = new AbortController();
  const loops: SupervisedLoop[] = [];
  /** Returns false while no call can succeed until a person brings new tokens. */
  const mayCall = () => services.platform.tokens.mayCall();
  const orders = incomingOrders(options, services, mayCall);
  // Before the set-up, no loop runs, and so there is no inbox.
  const hasInbox = () => !isSetUp(config) || existsSync(storagePaths(config.storage.directory).inbox);
  const metrics = new Metrics({ services, config, counters, loopsAlive: () => loops, version, clock, log });
  releasers.push('metrics', () => metrics.close());
  const local = createLocalServer({
    ...config.local,
    ...socketsOf(config),
    ...{ clock, log },
    plugins: [
      healthRoutes({
        ...{ clock, loopsAlive: () => loops, ...access },
        notReady: () => notReady(services.mirror, hasInbox(), stopping.signal),
        storage: config.storage.directory,
      }),
      localApi({
        ...{ services, ...access, version, clock, log, receivers: receiversOf(options, services) },
        changes: orders.changes,
      }),
      metricsRoutes(access, () => metrics.collect()),
      pageRoutes(pageFiles, log),
    ],
  });
  releasers.push('local listener', () => local.close());
  const { url: localUrl } = await local.listen();

  const { receiver, callbackLog } = await openCallbacks(options, services, orders, counters, stopping.signal);
  const webhookUrl = receiver?.url ?? null;
  // Where none is set, the registration makes one, and tells if it cannot.
  const isMade = config.webhook.callbackUrl !== '';
  const hasSecret = isMade || services.webhookSecrets.accepted().length > 0;
  const enabled = receiver !== undefined && isSetUp(config);
  if (!isBranch(config)) {
    const { isOff } = services.state.webhook.read();
    orders.callbackHealth.begin({ enabled, hasSecret, isOff });
  }
  await settleRole(config, services);

  // The loops start after the listeners are ready, so that no callback waits for the first run of a loop.
  const { promise: begin, resolve: beginLoops } = Promise.withResolvers<void>();
  const supervisor = { clock, log, signal: stopping.signal, begin };
  // Without a configured platform, no loop runs.
  const working = isSetUp(config) ? loopsOf(options, services, orders, counters, mayCall, wrongKeys) : [];
  for (const { name, run } of working) loops.push(supervise(name, run, supervisor));
  // Not awaited here, so that a lock on the mirror does not delay callbacks.
  const noted = noteConfigChanges(services, options.secrets, log);
  releasers.push('loops and callbacks', async () => {
    stopping.abort();
    beginLoops();
    await Promise.all([receiver?.close(), noted, ...loops.map((loop) => loop.ended)]);
    callbackLog.flush();
  });
  tellRunning(options, { webhookUrl, localUrl });
  setImmediate(beginLoops);
  return {
    webhookUrl,
    localUrl,
    services,
    hasInbox,
    stalledLoops: () => stalledLoops({ clock, loopsAlive: () => loops }),
    stop: () => releasers.release(),
  };
}

/** Opens the receiver of callbacks and the log of callbacks. Opens no receiver if the webhook is off. */
async function openCallbacks(
  { config, clock, log, callbackSocketFd }: DaemonOptions,
  services: Services,
  orders: IncomingOrders,
  counters: Counters,
  signal: AbortSignal,
) {
  const callbackLog = new CallbackLog({ store: services.state.callbacks, clock, log, signal });
  if (!config.webhook.enabled) return { callbackLog, receiver: undefined };
  const onAnswered = (callback: Callback, durationMs: number) => {
    counters.answered(callback.status, durationMs);
    callbackLog.note(callback);
    orders.refused.answered(callback);
  };
  const receiver = await listenForCallbacks({
    receiver: (listenFd) => orders.receiver({ listenFd, onAnswered, onDropped: counters.dropped }),
    inheritedFd: callbackSocketFd,
    ...config.webhook,
    log,
  });
  return { callbackLog, receiver };
}

const WRONG_KEY_LOGGED_EVERY_MS = 60_000;

/** Counts requests with a wrong API key for the alarm, and logs a warning at most once a minute. */
function keyWatch(
  counters: Pick<Counters, 'wrongKeys'>,
  { clock, log }: Pick<ServicesOptions, 'clock' | 'log'>,
): { wrongKeys: Recently; onWrongKey: WrongKeyListener } {
  const wrongKeys = new Recently(clock);
  let loggedMs = Number.NEGATIVE_INFINITY;
  const onWrongKey = (from: string) => {
    wrongKeys.note(from);
    counters.wrongKeys.add(1, {});
    if (clock.monotonicMs() - loggedMs < WRONG_KEY_LOGGED_EVERY_MS) return;
    loggedMs = clock.monotonicMs();
    log.warn({ from, inLastHour: wrongKeys.of().count }, 'the local API was asked with a wrong key');
  };
  return { wrongKeys, onWrongKey };
}

/** Makes a mirror anew whose damaged head would end each start. Returns what happened, as a text for people. */
async function rescue(options: DaemonOptions): Promise<string | undefined> {
  const { config, configFile, secrets, clock, log } = options;
  const { mirror } = storagePaths(config.storage.directory);
  const damage = await openWhenFree(clock, () => headDamage(mirror));
  if (damage === undefined) return undefined;
  const { rescueMirror } = await import('../support/damaged-mirror.ts');
  const backups = async () => (configFile === undefined ? [] : backupsOf(config, configFile, clock.nowMs()));
  return rescueMirror(damage, { config, clock, log, backups, passphrase: secrets.backupPassphrase });
}

const DAMAGED_LOOK_EVERY_MS = 60_000;

/** Ends the alarm about a damaged mirror once a person has moved the file away, and keeps it until then. */
function damagedMirrorLoop(
  { config, clock, log }: DaemonOptions,
  { mirror: { health } }: Services,
): NamedLoop {
  const { mirror: path } = storagePaths(config.storage.directory);
  const look = async () => {
    const kept = keptFiles(path);
    const isTold = health.raised().some(({ key }) => key === 'mirror.damaged');
    if (kept.length === 0) health.note('mirror.damaged', null);
    else if (!isTold) health.note('mirror.damaged', `The damaged file is saved as ${kept.join(', ')}.`);
  };
  const onError = (error: unknown) => log.warn({ err: error }, 'damaged files could not be looked for');
  return {
    name: 'mirror.damaged',
    run: (signal, beat) =>
      repeat({ act: look, everyMs: DAMAGED_LOOK_EVERY_MS, onError, clock, beat }, signal),
  };
}

function tellRunning(
  { config, log }: Pick<ServicesOptions, 'config' | 'log'>,
  urls: Pick<Daemon, 'webhookUrl' | 'localUrl'>,
): void {
  const { localUrl } = urls;
  if (isSetUp(config)) log.info({ ...urls, storage: config.storage.directory }, 'tillsync is running');
  else log.warn({ localUrl }, formatCommands('tillsync is not set up yet. Run: {tillsync} init'));
}

function loopsOf(
  options: DaemonOptions,
  services: Services,
  orders: IncomingOrders,
  counters: Counters,
  mayCall: () => boolean,
  wrongKeys: Recently,
): NamedLoop[] {
  const { clock, random, log } = options;
  const { webhookRegistration: registration } = services;
  const outgoing = outgoingLoops(options, services, mayCall, counters);
  const backupDisk = backupDiskOf(options.config, clock);
  const beside: NamedLoop[] = [
    ...alarmLoops(options, services, counters, { wrongKeys, callbacks: orders.callbacks }),
    {
      name: 'hooks',
      run: (signal, beat) => hookLoop(hookOptions(options, services, orders.changes, counters, beat), signal),
    },
    ...backupLoops(options, services, backupDisk),
    damagedMirrorLoop(options, services),
  ];
  if (isBranch(options.config)) {
    const own = outgoing.filter(({ name }) => name === 'inbox' || name === 'retention');
    return [...own, ...branchLoops(options, services, () => orders.changes.notify()), ...beside];
  }
  return [
    ...hubLoops(options, services),
    { name: 'orders', run: orders.run },
    {
      name: 'webhook',
      run: (signal, beat) => webhookLoop({ registration, mayCall, clock, random, log, beat }, signal),
    },
    ...outgoing,
    ...beside,
  ];
}

function hookOptions(
  { config, secrets, clock, random, log, lookEveryMs }: ServicesOptions,
  { mirror, state, platform, branches }: Services,
  changes: ChangeSignal,
  counters: Counters,
  beat: () => void,
): HookLoopOptions {
  const given = { config, secrets, env: process.env, version: programVersion(), clock };
  return {
    hooks: config.hooks,
    receiverOf: (hook) => receiverOf(given, hook),
    mirror,
    place: { timezone: config.orders.timezone, branches },
    rows: state.hooks,
    alarms: mirror.health,
    onChange: (listener) => changes.subscribe(listener),
    platformSkewMs: () => platform.clock.skewMs(),
    onTried: (hook, outcome) => counters.hookTries.add(1, { hook, outcome }),
    clock,
    random,
    log,
    lookEveryMs,
    beat,
  };
}

/** Returns the functions that send test messages, in the surroundings of the daemon. */
function receiversOf(options: DaemonOptions, services: Services): LocalApiOptions['receivers'] {
  const { config, secrets, clock } = options;
  const { mirror } = services;
  const given = { config, secrets, env: process.env, version: programVersion(), clock, mirror };
  return {
    testAlarms: alarmTest(options, services),
    testHook: (asked, signal) => testHook({ ...given, signal }, asked),
  };
}

/**
 * Returns the Unix sockets of the local API: the service's own for commands, and perhaps that of the POS, whose group is
 * the one that may read the mirror.
 */
function socketsOf({ local: { socket }, storage: { directory, group } }: Config): {
  ownSocket: string;
  groupSocket?: GroupSocket;
} {
  const own = { ownSocket: ownSocket(directory) };
  if (socket === '') return own;
  const gid = group === '' ? statSync(directory).gid : groupId(group);
  return { ...own, groupSocket: { path: socket, gid } };
}

/** Stores in state.db the alarms that could not be written into the mirror, so that commands can show them. */
function keepUnwrittenAlarms({ mirror, state }: Services, log: Log): void {
  mirror.health.onUnwritten = (alarms) => {
    try {
      state.alarms.setAside(alarms);
    } catch (error) {
      log.debug({ code: asTillsyncError(error).code }, 'alarms could not be kept beside the mirror');
      throw error;
    }
  };
  mirror.health.notifyUnwritten();
}

function notReady(mirror: Services['mirror'], hasInbox: boolean, stopping: AbortSignal): string[] {
  if (stopping.aborted) return ['tillsync is stopping.'];
  if (!hasInbox) return ['The inbox for the POS is being created.'];
  try {
    mirror.orders.newestSeq();
    const locked = mirror.health.raised().find(({ key }) => key === 'mirror.locked');
    return locked ? [locked.message] : [];
  } catch {
    return ['The mirror cannot be read.'];
  }
}
