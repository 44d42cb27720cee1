import { readFileSync } from 'node:fs';
import type { Config } from '../config/config-type.ts';
import { cronSchedule } from '../config/schedule.ts';
import { TillsyncError } from '../domain/errors.ts';
import { readOrder } from '../domain/order-reader.ts';
import { compileSpellings } from '../domain/spelling-tree.ts';
import { ChangeSignal } from '../local/change-signal.ts';
import { healthRoutes, type LoopBeat, stalledLoops } from '../local/health.ts';
import { pageRoutes } from '../local/page/page-routes.ts';
import { createLocalServer } from '../local/server.ts';
import { createReceiver, type Receiver } from '../receiver/receiver.ts';
import { GapWatch } from '../sync/gap-watch.ts';
import { OrderLoop } from '../sync/order-loop.ts';
import { webhookLoop } from '../sync/webhook-loop.ts';
import { WebhookWatch } from '../sync/webhook-watch.ts';
import { listenForCallbacks } from './callback-listeners.ts';
import { CallbackStanding } from './callback-standing.ts';
import { localApiPlugin } from './local-api.ts';
import { ordersStaleAfterMs } from './orders-stale.ts';
import { outgoingLoops } from './outgoing.ts';
import { pageFiles } from './page-files.ts';
import { openParts, type Parts, type PartsOptions } from './parts.ts';
import { Releasers } from './releasers.ts';
import { markRunning } from './running-mark.ts';
import { type SupervisedLoop, supervise } from './supervisor.ts';
import { programVersion } from './version.ts';

const STALE_AFTER_MS = 600_000;

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
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const releasers = new Releasers(options.log);
  try {
    return await build(options, releasers);
  } catch (error) {
    await releasers.release();
    throw error;
  }
}

async function build(options: DaemonOptions, releasers: Releasers): Promise<Daemon> {
  const { config, secrets, clock, log } = options;
  const version = programVersion();
  const parts = await openParts(options);
  releasers.push('storage', () => parts.close());
  releasers.push('mark', await markRunning({ leases: parts.state.leases, clock, log }));
  const stopping = new AbortController();
  const loops: SupervisedLoop[] = [];
  const loopsAlive = (): LoopBeat[] =>
    loops.map((loop) => ({ name: loop.name, lastBeatMs: loop.lastBeatMs() }));
  const orders = createOrders(options, parts);

  const local = createLocalServer({
    host: config.local.host,
    port: config.local.port,
    clock,
    log,
    plugins: [
      healthRoutes({
        clock,
        loopsAlive,
        notReady: () => notReady(parts, stopping.signal),
      }),
      localApiPlugin({
        parts,
        apiKey: secrets.localApiKey,
        changes: orders.changes,
        ordersStaleAfterMs: () => ordersStaleAfterMs({ config, lastPollOkMs: parts.mirror.lastPollOkMs() }),
        version,
        clock,
        log,
      }),
      pageRoutes({ load: pageFiles, log }),
    ],
  });
  releasers.push('local listener', () => local.close());
  const { url: localUrl } = await local.listen();

  const receiver = config.webhook.enabled
    ? await listenForCallbacks({
        receiver: (listenFd) => buildReceiver(options, parts, orders, listenFd),
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

  const supervisor = { clock, log, signal: stopping.signal };
  loops.push(supervise('orders', (signal, beat) => orders.loop(beat).run(signal), supervisor));
  loops.push(
    supervise(
      'webhook',
      (signal, beat) => webhookLoop(registrationLoop(options, parts, beat), signal),
      supervisor,
    ),
  );
  for (const { name, run } of outgoingLoops(options, parts, () => mayCall(parts))) {
    loops.push(supervise(name, run, supervisor));
  }
  releasers.push('loops and callbacks', async () => {
    stopping.abort();
    await Promise.all([receiver?.close(), ...loops.map((loop) => loop.ended)]);
  });
  log.info({ webhookUrl, localUrl, storage: config.storage.directory }, 'tillsync is running');
  return {
    webhookUrl,
    localUrl,
    parts,
    stalledLoops: () => stalledLoops({ clock, loopsAlive }),
    stop: () => releasers.release(),
  };
}

/** False while only a person can bring new tokens. */
function mayCall(parts: Parts): boolean {
  return parts.platform.tokens.describe().state === 'ok';
}

function createOrders({ config, clock, random, log }: PartsOptions, parts: Parts) {
  const { mirror, orderPoll } = parts;
  const { freshnessBoard: freshness, alarms } = mirror;
  const watch = new WebhookWatch({ enabled: config.webhook.enabled, freshness, alarms, log });
  const standing = new CallbackStanding({ mirror, clock, log });
  const changes = new ChangeSignal();
  const gaps = new GapWatch({ codesBetween: (min, max) => mirror.codesBetween(min, max) });
  let current: OrderLoop | undefined;
  const loop = (beat: () => void) => {
    current = new OrderLoop({
      poll: orderPoll,
      schedule: cronSchedule(config.orders.poll, config.orders.timezone),
      watch: {
        polled(createdIds) {
          watch.polled(createdIds);
          standing.settle();
          changes.notify();
        },
      },
      newGaps: (report) => gaps.newGaps(report.codes),
      mayCall: () => mayCall(parts),
      alarms,
      clock,
      random,
      log,
      wideEveryMs: config.orders.wideEveryMs,
      staleAfterMs: Math.max(STALE_AFTER_MS, config.limits.ordersIntervalMs * 3),
      beat,
    });
    return current;
  };
  return { watch, standing, loop, changes, wake: () => current?.wake() };
}

type Orders = ReturnType<typeof createOrders>;

function buildReceiver(
  { config, clock, log }: PartsOptions,
  parts: Parts,
  orders: Orders,
  listenFd: number | undefined,
): Receiver {
  const { mirror, webhookSecrets } = parts;
  const { host, port, path, bodyLimitBytes } = config.webhook;
  const spellings = compileSpellings(config.orders.fields);
  return createReceiver({
    host,
    port,
    path,
    bodyLimitBytes,
    secrets: () => webhookSecrets.accepted(),
    keeper: mirror.keeper,
    read: (value) => readOrder(value, spellings),
    clock,
    log,
    tls: tlsFiles(config),
    listenFd,
    onKept(kept) {
      orders.changes.notify();
      orders.standing.kept();
      for (const { entry, outcome } of kept) {
        if (entry.kind === 'order') orders.watch.announced(entry.observation.reading.orderId);
        // What the webhook cannot settle, a poll can.
        if (outcome === 'held') orders.wake();
      }
    },
    onPutOff: (error) => orders.standing.putOff(error),
    onUnreadable: (reason) => orders.standing.unreadable(reason),
  });
}

function tlsFiles(config: Config): { cert: string; key: string } | undefined {
  const { tlsCertFile, tlsKeyFile } = config.webhook;
  if (tlsCertFile === '') return undefined;
  try {
    return { cert: readFileSync(tlsCertFile, 'utf8'), key: readFileSync(tlsKeyFile, 'utf8') };
  } catch (cause) {
    throw new TillsyncError('config-invalid', 'The certificate or its key cannot be read.', {
      cause,
      hint: 'Check webhook.tls_cert_file and webhook.tls_key_file, and that the user of tillsync may read them.',
    });
  }
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
