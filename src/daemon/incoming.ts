import { readFileSync } from 'node:fs';
import { ChangeSignal } from '../api/api.ts';
import type { Services, ServicesOptions } from '../app/services.ts';
import type { Config } from '../config/config-type.ts';
import { cronSchedule } from '../config/schedule.ts';
import { TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { compileSpellings } from '../orders/merging/field-aliases.ts';
import { readSentOrder } from '../orders/merging/order-reader.ts';
import { type KeptCallback, RefusedCallbacks } from '../orders/receiving/callback-log.ts';
import { createReceiver, type Receiver, type ReceiverOptions } from '../orders/receiving/callback-server.ts';
import { OrderLoop, WebhookMonitor } from '../orders/receiving/order-loop.ts';
import { GapMonitor } from '../orders/receiving/order-poll.ts';
import { CallbackHealth } from './callback-health.ts';

interface CallbackListenersOptions {
  /** Makes a receiver on the open socket `listenFd`, or on the configured address if `listenFd` is undefined. */
  receiver: (listenFd: number | undefined) => Receiver;
  /** File descriptor of the socket that systemd keeps open across restarts. */
  inheritedFd: number | undefined;
  /** Host of the configured address for callbacks. */
  host: string;
  port: number;
  log: Log;
}

interface CallbackListeners {
  url: string;
  close(): Promise<void>;
}

const REMEDY = 'To make them one: systemctl daemon-reload, then restart the socket unit and the service.';

/**
 * Listens on the inherited socket, and also on the configured address if it differs. So the configured address always
 * works, and callbacks to the old one are not lost. Throws `config-invalid`.
 */
export async function listenForCallbacks(options: CallbackListenersOptions): Promise<CallbackListeners> {
  const { inheritedFd, host, port, log } = options;
  const inherited = options.receiver(inheritedFd);
  const found = await inherited.listen();
  const isSame = port === 0 || (found.port === port && isSameHost(found.host, host));
  if (inheritedFd === undefined || isSame) return { url: found.url, close: () => inherited.close() };
  const configured = options.receiver(undefined);
  try {
    const { url } = await configured.listen();
    log.warn(
      { socket: found.host, url },
      `The socket unit listens elsewhere than webhook.listen says. ${REMEDY}`,
    );
    return {
      url,
      close: async () => {
        await Promise.all([inherited.close(), configured.close()]);
      },
    };
  } catch (error) {
    if (!(error instanceof TillsyncError)) throw error;
    log.warn(
      { socket: found.host, err: error },
      `Callbacks arrive only where the socket unit listens, not where webhook.listen says. ${REMEDY}`,
    );
    return { url: found.url, close: () => inherited.close() };
  }
}

function isSameHost(found: string, configured: string): boolean {
  if (configured === 'localhost') return found === '127.0.0.1' || found === '::1';
  return found === configured;
}

export type IncomingOrders = ReturnType<typeof incomingOrders>;

/** Connects polls and callbacks with the mirror. `mayCall` returns whether usable tokens exist. */
export function incomingOrders(
  { config, clock, random, log }: ServicesOptions,
  {
    mirror,
    orderPoll,
    webhookSecrets,
    state,
  }: Pick<Services, 'mirror' | 'orderPoll' | 'webhookSecrets' | 'state'>,
  mayCall: () => boolean,
) {
  const { health: freshness } = mirror;
  const { enabled, host, port, path, bodyLimitBytes } = config.webhook;
  const watch = new WebhookMonitor({ enabled, freshness, log });
  const callbackHealth = new CallbackHealth({ mirror, clock, log });
  const refused = new RefusedCallbacks({
    bodyLimitBytes,
    clock,
    before: enabled ? callbacksBefore(state) : [],
  });
  const changes = new ChangeSignal();
  const gaps = new GapMonitor({ codesBetween: (min, max) => mirror.orders.codesBetween(min, max) });
  const spellings = compileSpellings(config.orders.fields, config.orders.timezone, config.orders.statuses);
  let loop: OrderLoop | undefined;
  return {
    callbackHealth,
    refused,
    /** Returns why callbacks are refused or unreadable. May throw `storage-…`. */
    callbacks: () => ({ refused: refused.trouble(), unreadable: callbackHealth.unreadableTrouble() }),
    changes,
    /** Runs the loop of polls. */
    run(signal: AbortSignal, beat: () => void): Promise<void> {
      loop = new OrderLoop({
        poll: orderPoll,
        schedule: cronSchedule(config.orders.poll, config.orders.timezone),
        watch: {
          polled(createdIds) {
            if (!isOff(state)) watch.polled(createdIds);
            callbackHealth.settle();
            changes.notify();
          },
        },
        newGaps: (report) => gaps.newGaps(report.codes),
        judgeHeld: async () => {
          const changed = await mirror.judgeHeldAgain();
          if (changed.length === 0) return;
          log.info(
            { orderIds: changed.slice(0, 10), count: changed.length },
            'callbacks that waited are believed',
          );
          changes.notify();
        },
        mayCall,
        clock,
        random,
        log,
        wideEveryMs: config.orders.wideEveryMs,
        beat,
      });
      return loop.run(signal);
    },
    /** Makes a receiver of callbacks. Throws `config-invalid` for unreadable TLS files. */
    receiver: (more: Pick<ReceiverOptions, 'listenFd' | 'onAnswered' | 'onDropped'>): Receiver =>
      createReceiver({
        host,
        port,
        path,
        bodyLimitBytes,
        secrets: () => webhookSecrets.accepted(),
        sink: mirror,
        read: (value, raw) => readSentOrder(value, raw, spellings),
        clock,
        log,
        tls: tlsFiles(config),
        ...more,
        onSaved(kept) {
          changes.notify();
          callbackHealth.kept();
          for (const { entry, outcome } of kept) {
            if (entry.kind === 'order') watch.announced(entry.observation.reading.orderId);
            // Wakes the polls, because a poll decides whether the held callback is right.
            if (outcome === 'held') loop?.wake(true);
          }
        },
        onPutOff: (error) => callbackHealth.putOff(error),
        onUnreadable: (reason) => callbackHealth.unreadable(reason),
      }),
  };
}

/** Returns whether a person switched callbacks off. A fault of state.db is told elsewhere. */
function isOff({ webhook }: Services['state']): boolean {
  try {
    return webhook.read().isOff;
  } catch (error) {
    if (error instanceof TillsyncError) return false;
    throw error;
  }
}

const BEFORE_MAX = 1_000;

/** Returns callbacks of earlier processes. They are only shown to people, so a fault of state.db is ignored. */
function callbacksBefore({ callbacks }: Services['state']): KeptCallback[] {
  try {
    return callbacks.list(0, BEFORE_MAX);
  } catch (error) {
    if (error instanceof TillsyncError) return [];
    throw error;
  }
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
