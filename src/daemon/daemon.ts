import type { FastifyPluginAsync } from 'fastify';
import type { ChangeSignal } from '../local/change-signal.ts';
import { healthRoutes, type LoopBeat, stalledLoops } from '../local/health.ts';
import { metricsRoutes } from '../local/metrics/metrics-routes.ts';
import { pageRoutes } from '../local/page/page-routes.ts';
import { createLocalServer, type LocalServer } from '../local/server.ts';
import { webhookLoop } from '../sync/webhook-loop.ts';
import { alarmLoops } from './alarms/alarm-loops.ts';
import { listenForCallbacks } from './callbacks/callback-listeners.ts';
import { callbackReceiver } from './callbacks/callback-receiver.ts';
import { outgoingLoops } from './changes/outgoing.ts';
import { incomingOrders } from './incoming-orders.ts';
import { localApiPlugin } from './local-api.ts';
import { Counters } from './metrics/counters.ts';
import { measuredTransport } from './metrics/measured-transport.ts';
import { Metrics } from './metrics/metrics.ts';
import { pageFiles } from './page-files.ts';
import { openParts, type Parts, type PartsOptions } from './parts.ts';
import { ordersStaleAfterMs } from './reading/orders-stale.ts';
import { buildOrRelease, type Releasers } from './releasers.ts';
import { markRunning } from './service/running-mark.ts';
import { type SupervisedLoop, supervise } from './service/supervisor.ts';
import { programVersion } from './version.ts';

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
  releasers.push('mark', await markRunning({ leases: parts.state.leases, clock, log }));
  const stopping = new AbortController();
  const loops: SupervisedLoop[] = [];
  const loopsAlive = (): LoopBeat[] =>
    loops.map((loop) => ({ name: loop.name, lastBeatMs: loop.lastBeatMs() }));
  const orders = incomingOrders(options, parts, () => mayCall(parts));
  const metrics = new Metrics({ parts, config, counters, loopsAlive, version, clock, log });
  releasers.push('metrics', () => metrics.close());
  const health = healthRoutes({ clock, loopsAlive, notReady: () => notReady(parts, stopping.signal) });
  const local = createLocal(options, { parts, changes: orders.changes, metrics, version, health });
  releasers.push('local listener', () => local.close());
  const { url: localUrl } = await local.listen();

  const receiver = config.webhook.enabled
    ? await listenForCallbacks({
        receiver: (listenFd) =>
          callbackReceiver(options, parts, orders, { listenFd, onAnswered: counters.answered }),
        inheritedFd: options.callbackSocketFd,
        ...config.webhook,
        log,
      })
    : undefined;
  const webhookUrl = receiver?.url ?? null;
  orders.standing.begin({
    enabled: receiver !== undefined,
    hasSecret: parts.webhookSecrets.accepted().length > 0,
  });

  // Whoever waits for the listeners does not wait for the first turn of every loop.
  const { promise: begin, resolve: beginLoops } = Promise.withResolvers<void>();
  const supervisor = { clock, log, signal: stopping.signal, begin };
  loops.push(supervise('orders', (signal, beat) => orders.loop(beat).run(signal), supervisor));
  loops.push(
    supervise(
      'webhook',
      (signal, beat) => webhookLoop(registrationLoop(options, parts, beat), signal),
      supervisor,
    ),
  );
  const outgoing = outgoingLoops(options, parts, () => mayCall(parts), counters);
  for (const { name, run } of [...outgoing, ...alarmLoops(options, parts, counters)]) {
    loops.push(supervise(name, run, supervisor));
  }
  releasers.push('loops and callbacks', async () => {
    stopping.abort();
    beginLoops();
    await Promise.all([receiver?.close(), ...loops.map((loop) => loop.ended)]);
  });
  log.info({ webhookUrl, localUrl, storage: config.storage.directory }, 'tillsync is running');
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
    host: config.local.host,
    port: config.local.port,
    clock,
    log,
    plugins: [
      health,
      localApiPlugin({
        parts,
        apiKey,
        changes,
        ordersStaleAfterMs: () => ordersStaleAfterMs({ config, lastPollOkMs: parts.mirror.lastPollOkMs() }),
        version,
        clock,
        log,
      }),
      metricsRoutes({ apiKey, collect: () => metrics.collect() }),
      pageRoutes({ load: pageFiles, log }),
    ],
  });
}

/** False while only a person can bring new tokens. */
function mayCall(parts: Parts): boolean {
  return parts.platform.tokens.describe().state === 'ok';
}

function registrationLoop({ clock, random, log }: PartsOptions, parts: Parts, beat: () => void) {
  return { registration: parts.webhookRegistration, mayCall: () => mayCall(parts), clock, random, log, beat };
}

function notReady(parts: Parts, stopping: AbortSignal): string[] {
  if (stopping.aborted) return ['tillsync is stopping.'];
  try {
    parts.mirror.newestSeq();
    return [];
  } catch {
    return ['The mirror cannot be read.'];
  }
}
