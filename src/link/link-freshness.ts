import { asTillsyncError, failureCode, hasCode } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import type { Mirror } from '../orders/reading/mirror.ts';

/** Outages up to this length are not reported, because a restarting server is back sooner. */
const LINK_PATIENCE_MS = 60_000;

/** Reports a lost link only after `LINK_PATIENCE_MS`, but a refused key or an invalid configuration at once. */
export class LinkFreshness {
  readonly #mirror: Pick<Mirror, 'health'>;
  readonly #clock: Clock;
  #sinceMs: number | undefined;

  constructor(mirror: Pick<Mirror, 'health'>, clock: Clock) {
    this.#mirror = mirror;
    this.#clock = clock;
  }

  ok(): void {
    this.#sinceMs = undefined;
    this.#mirror.health.ok('hub.link');
  }

  failed(error: unknown): void {
    const nowMs = this.#clock.monotonicMs();
    this.#sinceMs ??= nowMs;
    const isRefused = hasCode(error, 'link-refused', 'config-invalid');
    if (!isRefused && nowMs - this.#sinceMs < LINK_PATIENCE_MS) return;
    reportLinkDown(this.#mirror, error);
  }
}

/** Records in the freshness that the link is down, with the reason. */
export function reportLinkDown({ health }: Pick<Mirror, 'health'>, error: unknown): void {
  const known = asTillsyncError(error);
  const text = [known.message, known.hint].filter(Boolean).join(' ');
  health.report('hub.link', 'failing', text, failureCode(known));
}
