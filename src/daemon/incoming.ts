import { readFileSync } from 'node:fs';
import { ChangeSignal } from '../api/api.ts';
import type { Services, ServicesOptions } from '../app/services.ts';
import type { Config } from '../config/config-type.ts';
import { cronSchedule } from '../config/schedule.ts';
import { CALLBACKS_SILENT, type Freshness } from '../core/alarm.ts';
import { formatCommands, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import { type KeptCallback, RefusedCallbacks } from '../orders/callback-log.ts';
import { createReceiver, type Receiver, type ReceiverOptions } from '../orders/callback-server.ts';
import { compileSpellings } from '../orders/field-aliases.ts';
import type { Mirror } from '../orders/mirror.ts';
import { OrderLoop, WebhookMonitor } from '../orders/order-loop.ts';
import { GapMonitor } from '../orders/order-poll.ts';
import { newestQuarantined } from '../orders/order-queries.ts';
import { readSentOrder } from '../orders/order-reader.ts';

/** Time without an unreadable callback after which the fault counts as over. */
const OVER_AFTER_MS = 86_400_000;

const isOfCallbacks = ({ subject }: Freshness) => subject === 'orders.webhook';

/** Alarms and freshness about callbacks as a whole, apart from each one's effect on the mirror. */
export class CallbackHealth {
  readonly #mirror: Pick<Mirror, 'freshness' | 'freshnessBoard' | 'alarms' | 'read'>;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Last unreadable callback since this start; the quarantine has earlier ones. */
  #unreadable: { reason: string; atMonoMs: number } | undefined;
  #isStoring: boolean | undefined;
  /** Whether senders of callbacks were asked to retry since the last poll. */
  #wasPutOff = false;

  constructor({ mirror, clock, log }: Pick<Services, 'mirror'> & Pick<ServicesOptions, 'clock' | 'log'>) {
    this.#mirror = mirror;
    this.#clock = clock;
    this.#log = log;
  }

  /** Sets the state before the first callback, because an earlier run's state may be outdated. */
  begin({ enabled, hasSecret }: { enabled: boolean; hasSecret: boolean }): void {
    const { freshnessBoard } = this.#mirror;
    if (!enabled) {
      freshnessBoard.report('orders.webhook', 'off', 'Callbacks are off in the configuration.');
      return;
    }
    if (!hasSecret) {
      const message = formatCommands(
        'Instant orders are off: no secret for callbacks is set. Orders still arrive within two minutes. To set one, run: {tillsync} webhook rotate-secret',
      );
      this.#log.warn({}, message);
      freshnessBoard.report('orders.webhook', 'degraded', message);
      return;
    }
    const { state, failure } = this.#mirror.freshness().find(isOfCallbacks) ?? {};
    // Only a callback ends the finding that no callbacks come.
    if (state !== 'ok' && state !== 'unknown' && failure?.code !== CALLBACKS_SILENT) {
      freshnessBoard.report('orders.webhook', 'unknown', 'No callback has come since tillsync was started.');
    }
  }

  unreadable(reason: string): void {
    this.#unreadable = { reason, atMonoMs: this.#clock.monotonicMs() };
  }

  /** Why a callback of the last day could not be read; null if none, or none of them is in the quarantine. */
  unreadableTrouble(): string | null {
    const newest = this.#mirror.read((db) => newestQuarantined(db, 'webhook'));
    if (newest === undefined) return null;
    const { nowMs, monotonicMs } = { nowMs: this.#clock.nowMs(), monotonicMs: this.#clock.monotonicMs() };
    const ageMs = this.#unreadable
      ? monotonicMs - this.#unreadable.atMonoMs
      : nowMs - Date.parse(newest.receivedAt);
    if (ageMs >= OVER_AFTER_MS) return null;
    return `A callback with the right secret could not be read as an order: ${this.#unreadable?.reason ?? newest.reason} It was saved. To see it, run: {tillsync} quarantine list`;
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
   * poll, because large ones may still find no room.
   */
  settle(): void {
    if (!this.#wasPutOff) this.#mirror.alarms.note('storage.failing', null);
    this.#wasPutOff = false;
  }
}

interface CallbackListenersOptions {
  /** Makes a receiver on this open socket, or on the configured address. */
  receiver: (listenFd: number | undefined) => Receiver;
  /** The socket that systemd keeps open across restarts. */
  inheritedFd: number | undefined;
  /** Host at which the configuration expects callbacks. */
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
  { config, clock, random, log }: ServicesOptions,
  {
    mirror,
    orderPoll,
    webhookSecrets,
    state,
  }: Pick<Services, 'mirror' | 'orderPoll' | 'webhookSecrets' | 'state'>,
  mayCall: () => boolean,
) {
  const { freshnessBoard: freshness } = mirror;
  const { enabled, host, port, path, bodyLimitBytes } = config.webhook;
  const watch = new WebhookMonitor({ enabled, freshness, log });
  const standing = new CallbackHealth({ mirror, clock, log });
  const refused = new RefusedCallbacks({
    bodyLimitBytes,
    clock,
    before: enabled ? callbacksBefore(state) : [],
  });
  const changes = new ChangeSignal();
  const gaps = new GapMonitor({ codesBetween: (min, max) => mirror.codesBetween(min, max) });
  const spellings = compileSpellings(config.orders.fields, config.orders.timezone);
  let loop: OrderLoop | undefined;
  return {
    standing,
    refused,
    /** Returns the present fault of callbacks. May throw `storage-…`. */
    callbacks: () => ({ refused: refused.trouble(), unreadable: standing.unreadableTrouble() }),
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
        sink: mirror,
        read: (value, raw) => readSentOrder(value, raw, spellings),
        clock,
        log,
        tls: tlsFiles(config),
        ...more,
        onSaved(kept) {
          changes.notify();
          standing.kept();
          for (const { entry, outcome } of kept) {
            if (entry.kind === 'order') watch.announced(entry.observation.reading.orderId);
            // A poll decides whether the held webhook is right.
            if (outcome === 'held') loop?.wake(true);
          }
        },
        onPutOff: (error) => standing.putOff(error),
        onUnreadable: (reason) => standing.unreadable(reason),
      }),
  };
}

const BEFORE_MAX = 1_000;

/** Callbacks of earlier runs, which are only for people, so that a fault of state.db does not matter here. */
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
