import type { Alarms } from '../domain/health/alarm.ts';
import type { Endpoint, PlatformLimits } from '../domain/platform/limits.ts';
import type { RateLedger } from '../domain/platform/rate-ledger.ts';
import type { ForbiddenNote } from '../platform/rate-budget.ts';

export interface PlatformAlarmsOptions {
  alarms: Alarms;
  ledger: Pick<RateLedger, 'blockHistory'>;
  limits: PlatformLimits;
}

/** Tells a person of a block by the platform, and of its end, also when another process met it. */
export class PlatformAlarms {
  readonly #options: PlatformAlarmsOptions;
  /** Endpoints that answered here since the last 403 to them. */
  readonly #answering = new Set<Endpoint>();

  constructor(options: PlatformAlarmsOptions) {
    this.#options = options;
  }

  forbidden({ kind, endpoint, error }: ForbiddenNote): void {
    this.#answering.delete(endpoint);
    const message = [error.message, error.hint].filter(Boolean).join(' ');
    this.#options.alarms.raise(kind === 'block' ? 'platform.blocked' : 'platform.forbidden', message);
  }

  /** A 2xx proves that the token is not blocked, and that this endpoint is allowed. */
  answered(endpoint: Endpoint): void {
    const { alarms } = this.#options;
    alarms.lower('platform.blocked');
    if (this.#answering.has(endpoint)) return;
    this.#answering.add(endpoint);
    if (this.#wasForbidden(endpoint)) alarms.lower('platform.forbidden');
  }

  #wasForbidden(endpoint: Endpoint): boolean {
    const { ledger, limits } = this.#options;
    try {
      return ledger.blockHistory(endpoint, limits).own !== null;
    } catch {
      // The next answer asks again.
      this.#answering.delete(endpoint);
      return false;
    }
  }
}
