import { counted } from '../domain/counted.ts';
import type { Alarms } from '../domain/health/alarm.ts';
import type { FreshnessBoard } from '../domain/health/freshness.ts';
import type { Log } from '../domain/log.ts';

const ANNOUNCED_MAX = 5_000;
const SILENT_IN_A_ROW = 3;

export interface WebhookWatchOptions {
  enabled: boolean;
  freshness: FreshnessBoard;
  alarms: Alarms;
  log: Log;
}

/**
 * Notices when polls bring new orders that no webhook announced. An order that a poll creates has until the
 * end of the next poll to be announced too, since its notification may be on its way.
 */
export class WebhookWatch {
  readonly #options: WebhookWatchOptions;
  readonly #announced = new Set<string>();
  #pending: string[] = [];
  #silentInARow = 0;
  #primed = false;
  /** Whether any came since the start; the first one also ends an alarm that an earlier run raised. */
  #heard = false;

  constructor(options: WebhookWatchOptions) {
    this.#options = options;
  }

  /** An authenticated notification of this order arrived, whatever the merge made of it. */
  announced(orderId: string): void {
    this.#announced.add(orderId);
    if (this.#announced.size > ANNOUNCED_MAX) {
      const [oldest] = this.#announced;
      if (oldest !== undefined) this.#announced.delete(oldest);
    }
    if (this.#heard && this.#silentInARow === 0) return;
    this.#options.alarms.lower('webhook.silent');
    if (this.#silentInARow > 0) {
      this.#options.freshness.ok('orders.webhook');
      // Those of the silence that is over; their notifications were lost with the others.
      this.#pending = [];
    }
    this.#heard = true;
    this.#silentInARow = 0;
  }

  /** A complete poll created these orders. The first after a start may bring what was missed while it was down. */
  polled(createdIds: readonly string[]): void {
    if (!this.#options.enabled) return;
    const unannounced = this.#pending.filter((id) => !this.#announced.has(id));
    this.#pending = this.#primed ? createdIds.filter((id) => !this.#announced.has(id)) : [];
    this.#primed = true;
    if (unannounced.length === 0) return;
    this.#silentInARow += unannounced.length;
    const message =
      `The last ${counted(this.#silentInARow, 'new order')} came only by polling; no callback announced ${this.#silentInARow === 1 ? 'it' : 'them'}. ` +
      'Check that the webhook is active ({tillsync} webhook show) and that its address reaches this machine ({tillsync} webhook test).';
    this.#options.log.warn({ orderIds: unannounced.slice(0, 10), count: unannounced.length }, message);
    this.#options.freshness.report('orders.webhook', 'degraded', message);
    if (this.#silentInARow >= SILENT_IN_A_ROW) this.#options.alarms.raise('webhook.silent', message);
  }
}
