import type { Services, ServicesOptions } from '../app/services.ts';
import { CALLBACKS_SILENT, type Freshness } from '../core/alarm.ts';
import { formatCommands, type TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import type { Mirror } from '../orders/mirror.ts';
import { newestQuarantined } from '../orders/order-queries.ts';

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
