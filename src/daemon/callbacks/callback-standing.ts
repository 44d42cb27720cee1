import type { TillsyncError } from '../../domain/errors.ts';
import { asTyped } from '../../domain/installation.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { Mirror } from '../../store/mirror/mirror.ts';

/** How long after the last unreadable callback that trouble counts as over. */
const OVER_AFTER_MS = 86_400_000;
const QUARANTINE_MAX = 10_000;

export interface CallbackStandingOptions {
  mirror: Pick<Mirror, 'freshness' | 'freshnessBoard' | 'alarms' | 'raisedAlarms' | 'quarantineList'>;
  clock: Clock;
  log: Log;
}

/** What people are told of the callbacks as a whole, beside what each one does to the mirror. */
export class CallbackStanding {
  readonly #options: CallbackStandingOptions;
  #unreadableMonoMs: number;
  #isStoring: boolean | undefined;

  constructor(options: CallbackStandingOptions) {
    this.#options = options;
    this.#unreadableMonoMs = options.clock.monotonicMs();
  }

  /** Says how things stand before the first callback; what an earlier run left there may be true no more. */
  begin({ enabled, hasSecret }: { enabled: boolean; hasSecret: boolean }): void {
    const { mirror, log } = this.#options;
    const { freshnessBoard } = mirror;
    if (!enabled) {
      freshnessBoard.report('orders.webhook', 'off', 'Callbacks are off in the configuration.');
      mirror.alarms.lower('webhook.silent');
      return;
    }
    if (!hasSecret) {
      const message = asTyped(
        'Instant orders are off: no secret for callbacks is set. Orders still arrive within two minutes. To set one, run: {tillsync} webhook rotate-secret',
      );
      log.warn({}, message);
      freshnessBoard.report('orders.webhook', 'degraded', message);
      return;
    }
    const before = mirror.freshness().find(({ subject }) => subject === 'orders.webhook')?.state;
    if (before !== 'ok' && before !== 'unknown') {
      freshnessBoard.report('orders.webhook', 'unknown', 'No callback has come since tillsync was started.');
    }
  }

  unreadable(reason: string): void {
    this.#unreadableMonoMs = this.#options.clock.monotonicMs();
    const message = `A callback with the right secret could not be read as an order: ${reason} It was saved. To see it, run: {tillsync} quarantine list`;
    this.#options.mirror.alarms.raise('webhook.unreadable', message);
  }

  /** Callbacks are on the disk; the first time, and again after a fault, that ends the alarm. */
  kept(): void {
    if (this.#isStoring) return;
    this.#isStoring = true;
    this.#options.mirror.alarms.lower('storage.failing');
  }

  /** Callbacks were put off since they could not be stored. */
  putOff(error: TillsyncError): void {
    // A lock passes by itself, and while stopping nothing is taken.
    if (error.code === 'storage-busy' || error.code === 'aborted') return;
    this.#isStoring = false;
    const message = [
      `Callbacks are put off (503), since they cannot be stored: ${error.message}`,
      error.hint,
    ];
    this.#options.mirror.alarms.raise('storage.failing', message.filter(Boolean).join(' '));
  }

  /** Lowers the alarm for unreadable callbacks once none lies in quarantine any more, or none came for a day. */
  settle(): void {
    const { mirror, clock } = this.#options;
    if (!mirror.raisedAlarms().some(({ key }) => key === 'webhook.unreadable')) return;
    const isQuiet = clock.monotonicMs() - this.#unreadableMonoMs >= OVER_AFTER_MS;
    const isEmpty = () => !mirror.quarantineList(QUARANTINE_MAX).some(({ source }) => source === 'webhook');
    if (isQuiet || isEmpty()) mirror.alarms.lower('webhook.unreadable');
  }
}
