import type { Services, ServicesOptions } from '../app/services.ts';
import { CALLBACKS_SILENT, type Freshness } from '../core/alarm.ts';
import { formatCommands, type TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { newestQuarantined } from '../orders/reading/order-queries.ts';
import { CALLBACKS_OFF } from '../platform/webhook-registration.ts';

/** Time without an unreadable callback after which the alarm ends. */
const OVER_AFTER_MS = 86_400_000;

const isOfCallbacks = ({ subject }: Freshness) => subject === 'orders.webhook';

/** Maintains the alarms and the freshness of the flow of callbacks. The merge into the mirror handles each callback. */
export class CallbackHealth {
  readonly #mirror: Pick<Mirror, 'health' | 'read'>;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Last unreadable callback of this process. Earlier ones are in quarantine. */
  #unreadable: { reason: string; atMonoMs: number } | undefined;
  #isStoring: boolean | undefined;
  /** True if, since the last poll, senders were asked to send callbacks again. */
  #wasPutOff = false;

  constructor({ mirror, clock, log }: Pick<Services, 'mirror'> & Pick<ServicesOptions, 'clock' | 'log'>) {
    this.#mirror = mirror;
    this.#clock = clock;
    this.#log = log;
  }

  /** Sets the freshness before the first callback, because the state of an earlier process may be outdated. */
  begin({ enabled, hasSecret, isOff }: { enabled: boolean; hasSecret: boolean; isOff: boolean }): void {
    const { health } = this.#mirror;
    if (!enabled) {
      health.report('orders.webhook', 'off', 'Callbacks are off in the configuration.');
      return;
    }
    if (isOff) {
      health.report('orders.webhook', 'off', formatCommands(CALLBACKS_OFF));
      return;
    }
    if (!hasSecret) {
      const message = formatCommands(
        'Instant orders are off: no secret for callbacks is set. Orders still arrive within two minutes. To set one, run: {tillsync} webhook rotate-secret',
      );
      this.#log.warn({}, message);
      health.report('orders.webhook', 'degraded', message);
      return;
    }
    const { state, failure } = health.freshness().find(isOfCallbacks) ?? {};
    // The finding that no callbacks arrive ends only when a callback arrives.
    if (state !== 'ok' && state !== 'unknown' && failure?.code !== CALLBACKS_SILENT) {
      health.report('orders.webhook', 'unknown', 'No callback has come since tillsync was started.');
    }
  }

  unreadable(reason: string): void {
    this.#unreadable = { reason, atMonoMs: this.#clock.monotonicMs() };
  }

  /**
   * Returns why a callback of the last day was unreadable; null if there was none or it is no longer in quarantine.
   */
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

  /** Called after callbacks were stored. Ends the alarm of a failing disk if it may be raised. */
  kept(): void {
    if (this.#isStoring) return;
    this.#isStoring = true;
    this.#mirror.health.note('storage.failing', null);
  }

  /** Called if callbacks could not be stored and their senders were asked to send them again. */
  putOff(error: TillsyncError): void {
    // A lock passes by itself, and a stopping daemon stores nothing, so neither is a fault.
    if (error.code === 'storage-busy' || error.code === 'aborted') return;
    this.#isStoring = false;
    this.#wasPutOff = true;
    const message = [
      `Callbacks are put off (503), since they cannot be stored: ${error.message}`,
      error.hint,
    ];
    this.#mirror.health.note('storage.failing', message.filter(Boolean).join(' '));
  }

  /**
   * Called after a complete poll. Ends the alarm of a failing disk, unless callbacks were refused after the last poll,
   * because large callbacks may still not fit.
   */
  settle(): void {
    if (!this.#wasPutOff) this.#mirror.health.note('storage.failing', null);
    this.#wasPutOff = false;
  }
}
