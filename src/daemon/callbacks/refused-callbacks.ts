import type { Callback } from '../../domain/callback.ts';
import type { Alarms } from '../../domain/health/alarm.ts';
import type { Clock } from '../../domain/time/clock.ts';

/** A shop has few orders an hour, and one stray request is nothing. */
const REFUSED_MIN = 3;
const WITHIN_MS = 3_600_000;
/** So long without another one, the trouble counts as over. */
const QUIET_MS = 86_400_000;

export interface RefusedCallbacksOptions {
  alarms: Alarms;
  bodyLimitBytes: number;
  clock: Pick<Clock, 'monotonicMs'>;
}

/** Notices that callbacks are refused, again and again, for their secret or their size, and says why. */
export class RefusedCallbacks {
  readonly #options: RefusedCallbacksOptions;
  #secret: { atMonoMs: number; isMissing: boolean; from: string }[] = [];
  #large: number[] = [];
  #lastMonoMs: number;
  #isUp: boolean | undefined;

  constructor(options: RefusedCallbacksOptions) {
    this.#options = options;
    this.#lastMonoMs = options.clock.monotonicMs();
  }

  answered({ status, fault, from, isProbe }: Callback): void {
    if (isProbe) return;
    const atMonoMs = this.#options.clock.monotonicMs();
    if (status === 200) {
      // A good one proves the secret, and nothing of the size.
      this.#secret = [];
      if (this.#large.length < REFUSED_MIN) this.#lower();
      return;
    }
    if (fault === 'no-callback') return;
    if (status === 401) this.#secret.push({ atMonoMs, isMissing: fault === 'secret-missing', from });
    else if (status === 413) this.#large.push(atMonoMs);
    else return;
    this.#lastMonoMs = atMonoMs;
    this.#secret = this.#secret.filter((each) => atMonoMs - each.atMonoMs < WITHIN_MS).slice(-1_000);
    this.#large = this.#large.filter((each) => atMonoMs - each < WITHIN_MS).slice(-1_000);
    this.#judge();
  }

  /** Lowers the alarm once nothing was refused for a day. */
  settle(): void {
    if (this.#isUp === false || this.#options.clock.monotonicMs() - this.#lastMonoMs < QUIET_MS) return;
    this.#large = [];
    this.#lower();
  }

  #lower(): void {
    if (this.#isUp === false) return;
    this.#isUp = false;
    this.#options.alarms.lower('webhook.refused');
  }

  #judge(): void {
    const told: string[] = [];
    const last = this.#secret.at(-1);
    if (last && this.#secret.length >= REFUSED_MIN) {
      told.push(
        last.isMissing
          ? `They carry no secret (401), the last from ${last.from}. {tillsync} webhook set gives the platform the one that is agreed.`
          : `They carry another secret than the one that is agreed (401), the last from ${last.from}. {tillsync} webhook set gives the platform the right one.`,
      );
    }
    if (this.#large.length >= REFUSED_MIN) {
      const { bodyLimitBytes } = this.#options;
      told.push(
        `They are larger than webhook.body_limit, which is ${bodyLimitBytes} bytes (413). Raise it in the configuration, then restart tillsync; until then these orders come by polling.`,
      );
    }
    if (told.length === 0) return;
    this.#isUp = true;
    this.#options.alarms.raise('webhook.refused', told.join(' '));
  }
}
