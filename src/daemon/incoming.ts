import { readFileSync } from 'node:fs';
import { ChangeSignal } from '../api/api.ts';
import type { Parts, PartsOptions } from '../app/parts.ts';
import type { Config } from '../config/config-type.ts';
import { cronSchedule } from '../config/schedule.ts';
import { asTyped, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import { RefusedCallbacks } from '../orders/callbacks.ts';
import type { Mirror } from '../orders/mirror.ts';
import { OrderLoop, WebhookWatch } from '../orders/order-loop.ts';
import { GapWatch } from '../orders/order-poll.ts';
import { readSentOrder } from '../orders/order-reader.ts';
import { createReceiver, type Receiver, type ReceiverOptions } from '../orders/receiver.ts';
import { compileSpellings } from '../orders/spellings.ts';

/** After this time without an unreadable callback the trouble counts as over. */
const OVER_AFTER_MS = 86_400_000;
const QUARANTINE_MAX = 10_000;

/** Alarms and freshness about callbacks as a whole, apart from each one's effect on the mirror. */
export class CallbackStanding {
  readonly #mirror: Pick<
    Mirror,
    'freshness' | 'freshnessBoard' | 'alarms' | 'raisedAlarms' | 'quarantineList'
  >;
  readonly #clock: Clock;
  readonly #log: Log;
  #unreadableMonoMs: number;
  #isStoring: boolean | undefined;
  /** Whether callbacks were refused for a retry since the last poll. */
  #wasPutOff = false;

  constructor({ mirror, clock, log }: Pick<Parts, 'mirror'> & Pick<PartsOptions, 'clock' | 'log'>) {
    this.#mirror = mirror;
    this.#clock = clock;
    this.#log = log;
    this.#unreadableMonoMs = clock.monotonicMs();
  }

  /** Sets the state before the first callback, because an earlier run's state may be outdated. */
  begin({ enabled, hasSecret }: { enabled: boolean; hasSecret: boolean }): void {
    const { alarms, freshnessBoard } = this.#mirror;
    if (!enabled) {
      freshnessBoard.report('orders.webhook', 'off', 'Callbacks are off in the configuration.');
      alarms.note('webhook.silent', null);
      return;
    }
    if (!hasSecret) {
      const message = asTyped(
        'Instant orders are off: no secret for callbacks is set. Orders still arrive within two minutes. To set one, run: {tillsync} webhook rotate-secret',
      );
      this.#log.warn({}, message);
      freshnessBoard.report('orders.webhook', 'degraded', message);
      return;
    }
    const before = this.#mirror.freshness().find(({ subject }) => subject === 'orders.webhook')?.state;
    if (before !== 'ok' && before !== 'unknown') {
      freshnessBoard.report('orders.webhook', 'unknown', 'No callback has come since tillsync was started.');
    }
  }

  unreadable(reason: string): void {
    this.#unreadableMonoMs = this.#clock.monotonicMs();
    const message = `A callback with the right secret could not be read as an order: ${reason} It was saved. To see it, run: {tillsync} quarantine list`;
    this.#mirror.alarms.note('webhook.unreadable', message);
  }

  /** Called when callbacks are on the disk. The first time, and after a fault, it clears the alarm. */
  kept(): void {
    if (this.#isStoring) return;
    this.#isStoring = true;
    this.#mirror.alarms.note('storage.failing', null);
  }

  /** Called when callbacks could not be stored and their senders were asked to retry. */
  putOff(error: TillsyncError): void {
    // A lock passes by itself, and a stopping daemon accepts nothing.
    if (error.code === 'storage-busy' || error.code === 'aborted') return;
    this.#isStoring = false;
    this.#wasPutOff = true;
    const message = [
      `Callbacks are put off (503), since they cannot be stored: ${error.message}`,
      error.hint,
    ];
    this.#mirror.alarms.note('storage.failing', message.filter(Boolean).join(' '));
  }

  /**
   * Called after a complete poll. Clears the alarm of a failing disk, unless callbacks were refused since the last
   * poll, because large ones may still find no room. Clears the alarm of unreadable ones once none is in quarantine,
   * or none came for a day.
   */
  settle(): void {
    const mirror = this.#mirror;
    if (!this.#wasPutOff) mirror.alarms.note('storage.failing', null);
    this.#wasPutOff = false;
    if (!mirror.raisedAlarms().some(({ key }) => key === 'webhook.unreadable')) return;
    const isQuiet = this.#clock.monotonicMs() - this.#unreadableMonoMs >= OVER_AFTER_MS;
    const isEmpty = () => !mirror.quarantineList(QUARANTINE_MAX).some(({ source }) => source === 'webhook');
    if (isQuiet || isEmpty()) mirror.alarms.note('webhook.unreadable', null);
  }
}

interface CallbackListenersOptions {
  /** Makes a receiver on this open socket, or on the configured address. */
  receiver: (listenFd: number | undefined) => Receiver;
  /** The socket that systemd keeps open across restarts. */
  inheritedFd: number | undefined;
  /** Where the configuration wants callbacks. */
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
 * Listens on the inherited socket, and on the configured address if that differs. So the configured address always
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

/** Connects polls and callbacks. `mayCall`: whether tokens are available. */
export function incomingOrders(
  { config, clock, random, log }: PartsOptions,
  { mirror, orderPoll, webhookSecrets }: Pick<Parts, 'mirror' | 'orderPoll' | 'webhookSecrets'>,
  mayCall: () => boolean,
) {
  const { freshnessBoard: freshness, alarms } = mirror;
  const { enabled, host, port, path, bodyLimitBytes } = config.webhook;
  const watch = new WebhookWatch({ enabled, freshness, alarms, log });
  const standing = new CallbackStanding({ mirror, clock, log });
  const refused = new RefusedCallbacks({ alarms, bodyLimitBytes, clock });
  const changes = new ChangeSignal();
  const gaps = new GapWatch({ codesBetween: (min, max) => mirror.codesBetween(min, max) });
  const spellings = compileSpellings(config.orders.fields, config.orders.timezone);
  let loop: OrderLoop | undefined;
  return {
    standing,
    refused,
    changes,
    /** The loop of polls. */
    run(signal: AbortSignal, beat: () => void): Promise<void> {
      loop = new OrderLoop({
        poll: orderPoll,
        schedule: cronSchedule(config.orders.poll, config.orders.timezone),
        watch: {
          polled(createdIds) {
            watch.polled(createdIds);
            standing.settle();
            refused.settle();
            changes.notify();
          },
        },
        newGaps: (report) => gaps.newGaps(report.codes),
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
        keeper: mirror,
        read: (value, raw) => readSentOrder(value, raw, spellings),
        clock,
        log,
        tls: tlsFiles(config),
        ...more,
        onKept(kept) {
          changes.notify();
          standing.kept();
          for (const { entry, outcome } of kept) {
            if (entry.kind === 'order') watch.announced(entry.observation.reading.orderId);
            // A poll decides what this webhook alone cannot.
            if (outcome === 'held') loop?.wake(true);
          }
        },
        onPutOff: (error) => standing.putOff(error),
        onUnreadable: (reason) => standing.unreadable(reason),
      }),
  };
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
