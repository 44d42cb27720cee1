import { statSync } from 'node:fs';
import type { FastifyPluginAsync } from 'fastify';
import type { GroupSocket } from '../api/access.ts';
import type { ChangeSignal } from '../api/api.ts';
import { localApi } from '../api/local-api.ts';
import { pageFiles, pageRoutes } from '../api/page-routes.ts';
import { createLocalServer, type LocalServer } from '../api/server.ts';
import { healthRoutes, metricsRoutes, stalledLoops } from '../api/status-routes.ts';
import { programVersion } from '../app/installation.ts';
import { type LoopBeat, Metrics } from '../app/metrics.ts';
import { buildOrRelease, openParts, type Parts, type PartsOptions, type Releasers } from '../app/parts.ts';
import { ordersStaleAfterMs } from '../app/readers.ts';
import { markRunning } from '../app/storage.ts';
import type { Config } from '../config/config-type.ts';
import { isSetUp } from '../config/source.ts';
import { asTillsyncError, asTyped } from '../core/errors.ts';
import { groupId } from '../core/files.ts';
import type { Log } from '../core/log.ts';
import { Counters, measuredTransport } from '../health/counters.ts';
import { CallbackLog } from '../orders/callbacks.ts';
import { webhookLoop } from '../orders/webhook.ts';
import { alarmLoops } from './alarm-loops.ts';
import { callbackReceiver, incomingOrders, listenForCallbacks } from './incoming.ts';
import { type NamedLoop, outgoingLoops } from './outgoing.ts';
import { type SupervisedLoop, supervise } from './service.ts';

export interface DaemonOptions extends PartsOptions {
  /** A listening socket for callbacks that is open already and outlives this process. */
  callbackSocketFd?: number | undefined;
}

export interface Daemon {
  /** Where callbacks are received; null when the webhook is switched off. */
  webhookUrl: string | null;
  localUrl: string;
  parts: Parts;
  /** Names of the loops that have been silent for longer than they may; a restart may help. */
  stalledLoops(): string[];
  /** Takes no new work, finishes what is in flight, closes everything. */
  stop(): Promise<void>;
}

/** Starts the whole daemon: databases, listeners, loops. Throws after closing what was open already. */
export function startDaemon(options: DaemonOptions): Promise<Daemon> {
  return buildOrRelease(options.log, (releasers) => build(options, releasers));
}

async function build(options: DaemonOptions, releasers: Releasers): Promise<Daemon> {
  const { config, clock, log } = options;
  const version = programVersion();
  const counters = new Counters();
  const parts = await openParts({
    ...options,
    meter: {
      measured: (transport) => measuredTransport(transport, counters, clock),
      waited: counters.waited,
    },
  });
  releasers.push('storage', () => parts.close());
  keepUnwrittenAlarms(parts, log);
  releasers.push('mark', await markRunning({ leases: parts.state.leases, clock, log }));
  const stopping = new AbortController();
  const loops: SupervisedLoop[] = [];
  const loopsAlive = (): LoopBeat[] =>
    loops.map((loop) => ({ name: loop.name, lastBeatMs: loop.lastBeatMs() }));
  const orders = incomingOrders(options, parts, () => mayCall(parts));
  const metrics = new Metrics({ parts, config, counters, loopsAlive, version, clock, log });
  releasers.push('metrics', () => metrics.close());
  const health = healthRoutes({
    ...{ clock, loopsAlive, apiKey: options.secrets.localApiKey },
    notReady: () => notReady(parts, stopping.signal),
    storage: config.storage.directory,
  });
  const local = createLocal(options, { parts, changes: orders.changes, metrics, version, health });
  releasers.push('local listener', () => local.close());
  const { url: localUrl } = await local.listen();

  const callbackLog = new CallbackLog({ store: parts.state.callbacks, clock, log, signal: stopping.signal });
  const receiver = config.webhook.enabled
    ? await listenForCallbacks({
        receiver: (listenFd) =>
          callbackReceiver(options, parts, orders, {
            listenFd,
            onDropped: () => counters.droppedConnections.add(1, {}),
            onAnswered(callback, durationMs) {
              counters.answered(callback.status, durationMs);
              callbackLog.note(callback);
              orders.refused.answered(callback);
            },
          }),
        inheritedFd: options.callbackSocketFd,
        ...config.webhook,
        log,
      })
    : undefined;
  const webhookUrl = receiver?.url ?? null;
  orders.standing.begin({
    enabled: receiver !== undefined && isSetUp(config),
    hasSecret: parts.webhookSecrets.accepted().length > 0,
  });

  // Whoever waits for the listeners does not wait for the first turn of every loop.
  const { promise: begin, resolve: beginLoops } = Promise.withResolvers<void>();
  const supervisor = { clock, log, signal: stopping.signal, begin };
  const working: NamedLoop[] = [
    { name: 'orders', run: (signal, beat) => orders.loop(beat).run(signal) },
    {
      name: 'webhook',
      run: (signal, beat) => webhookLoop(registrationLoop(options, parts, beat), signal),
    },
    ...outgoingLoops(options, parts, () => mayCall(parts), counters),
    ...alarmLoops(options, parts, counters),
  ];
  // A store that nobody has set up calls nobody.
  for (const { name, run } of isSetUp(config) ? working : []) loops.push(supervise(name, run, supervisor));
  releasers.push('loops and callbacks', async () => {
    stopping.abort();
    beginLoops();
    await Promise.all([receiver?.close(), ...loops.map((loop) => loop.ended)]);
    callbackLog.flush();
  });
  if (isSetUp(config)) {
    log.info({ webhookUrl, localUrl, storage: config.storage.directory }, 'tillsync is running');
  } else log.warn({ localUrl }, asTyped('tillsync is not set up yet. Run: {tillsync} init'));
  // Not before the caller has told that it is ready.
  setImmediate(beginLoops);
  return {
    webhookUrl,
    localUrl,
    parts,
    stalledLoops: () => stalledLoops({ clock, loopsAlive }),
    stop: () => releasers.release(),
  };
}

interface LocalParts {
  parts: Parts;
  changes: ChangeSignal;
  metrics: Metrics;
  version: string;
  health: FastifyPluginAsync;
}

function createLocal({ config, secrets, clock, log }: PartsOptions, own: LocalParts): LocalServer {
  const { parts, changes, metrics, version, health } = own;
  const apiKey = secrets.localApiKey;
  return createLocalServer({
    ...config.local,
    groupSocket: groupSocketOf(config),
    hasKey: apiKey !== undefined,
    clock,
    log,
    plugins: [
      health,
      localApi({
        parts,
        apiKey,
        changes,
        isSetUp: isSetUp(config),
        ordersStaleAfterMs: () => ordersStaleAfterMs({ config, lastPollOkMs: parts.mirror.lastPollOkMs() }),
        version,
        clock,
        log,
      }),
      metricsRoutes(apiKey, () => metrics.collect()),
      pageRoutes(pageFiles, log),
    ],
  });
}

/** For the group that may read the mirror. */
function groupSocketOf({
  local: { socket },
  storage: { directory, group },
}: Config): GroupSocket | undefined {
  if (socket === '') return undefined;
  return { path: socket, gid: group === '' ? statSync(directory).gid : groupId(group) };
}

/** False while only a person can bring new tokens. */
function mayCall(parts: Parts): boolean {
  return parts.platform.tokens.describe().state === 'ok';
}

function registrationLoop({ clock, random, log }: PartsOptions, parts: Parts, beat: () => void) {
  return { registration: parts.webhookRegistration, mayCall: () => mayCall(parts), clock, random, log, beat };
}

/** Beside the mirror, for commands: what the mirror does not take, they would not learn of. */
function keepUnwrittenAlarms({ mirror, state }: Parts, log: Log): void {
  const keep = (alarms: Parameters<typeof state.aside.replace>[0]) => {
    try {
      state.aside.replace(alarms);
    } catch (error) {
      log.debug({ code: asTillsyncError(error).code }, 'alarms could not be kept beside the mirror');
    }
  };
  keep([]);
  mirror.onUnwrittenAlarms(keep);
}

function notReady(parts: Parts, stopping: AbortSignal): string[] {
  if (stopping.aborted) return ['tillsync is stopping.'];
  try {
    parts.mirror.newestSeq();
    const locked = parts.mirror.raisedAlarms().find(({ key }) => key === 'mirror.locked');
    return locked ? [locked.message] : [];
  } catch {
    return ['The mirror cannot be read.'];
  }
}
