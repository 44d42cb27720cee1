import { whenFree } from '../domain/busy.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import type { CallOptions, Wait } from '../domain/platform/call.ts';
import { type Endpoint, intervalMsOf, type PlatformLimits } from '../domain/platform/limits.ts';
import type { LaneTicket, RateLedger } from '../domain/platform/rate-ledger.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import { formatDuration } from '../domain/time/duration.ts';
import { judgeForbidden } from './block-rule.ts';
import { retryAfterMs } from './retry-after.ts';

export interface RateBudgetOptions {
  ledger: RateLedger;
  limits: PlatformLimits;
  clock: Clock;
  random: Random;
  log: Log;
  onForbidden?: (told: ForbiddenNote) => void;
  onAnswered?: (endpoint: Endpoint) => void;
  /** Told after each wait how long it really was. */
  onWaited?: ((wait: Wait) => void) | undefined;
}

/** What a 403 brought about: a block of everything, or of this endpoint alone. */
export interface ForbiddenNote {
  kind: 'block' | 'forbidden';
  endpoint: Endpoint;
  error: TillsyncError;
}

export interface EnterOptions extends Pick<CallOptions, 'signal' | 'onWait'> {
  /** Asked before each try; true ends the waiting without a lane. */
  giveUp?: () => boolean;
}

/**
 * How long a lane outlives the last sign of life of its holder: long enough for a busy event loop, short enough
 * that a restart after a crash need not wait for the timeout of a call that nobody waits for any more.
 */
const HOLD_MS = 20_000;
const SIGN_OF_LIFE_MS = 5_000;
/** Even a long wait looks again this often: a block may be lifted, a person may have acted. */
const LOOK_AGAIN_MS = 60_000;
const JITTER_MAX_MS = 250;
const JITTER_SHARE = 0.05;

/** Waits until the shared ledger lets a call through, and tells it how the call ended. */
export class RateBudget {
  readonly #o: RateBudgetOptions;
  /** 429 answers in a row, per endpoint. */
  readonly #limited = new Map<Endpoint, number>();

  constructor(options: RateBudgetOptions) {
    this.#o = options;
  }

  /**
   * Takes the endpoint's lane, waiting as long as it must. Throws `aborted`, or `forbidden` at once while the
   * platform refuses this endpoint alone. Undefined only after `giveUp`.
   */
  async enter(endpoint: Endpoint, options: EnterOptions): Promise<LaneTicket | undefined> {
    const { clock, ledger, limits } = this.#o;
    const { signal, onWait, giveUp } = options;
    for (;;) {
      if (signal?.aborted) throw new TillsyncError('aborted', 'Stopped before the call was sent.');
      if (giveUp?.()) return undefined;
      const grant = await whenFree(clock, () => ledger.acquire(endpoint, limits, HOLD_MS), undefined, signal);
      if (grant.granted) return grant.ticket;
      const { wait } = grant;
      if (wait.reason === 'blocked') await this.#throwIfForbidden(endpoint, signal);
      onWait?.(wait);
      const jitterMs = Math.min(JITTER_MAX_MS, wait.waitMs * JITTER_SHARE) * this.#o.random.next();
      const startMs = clock.monotonicMs();
      await clock.sleep(Math.min(wait.waitMs + jitterMs, LOOK_AGAIN_MS), signal);
      this.#o.onWaited?.({ ...wait, waitMs: clock.monotonicMs() - startMs });
    }
  }

  /** Keeps the lane while `action` runs, however long that takes. */
  async during<T>(ticket: LaneTicket, action: () => Promise<T>): Promise<T> {
    const over = new AbortController();
    void this.#keep(ticket, over.signal);
    try {
      return await action();
    } finally {
      over.abort();
    }
  }

  /** The answer is whole and was a success. */
  async answered(ticket: LaneTicket): Promise<void> {
    this.#limited.delete(ticket.endpoint);
    await this.#settle(ticket, 'answered');
    this.#o.onAnswered?.(ticket.endpoint);
  }

  /** The call ended in any other way. */
  async failed(ticket: LaneTicket): Promise<void> {
    await this.#settle(ticket, 'failed');
  }

  /** The call was never sent. */
  async cancel(ticket: LaneTicket): Promise<void> {
    await this.#note(() => this.#o.ledger.cancel(ticket));
  }

  /** The platform answered 429: holds the endpoint back and says how that is to be told. */
  async rateLimited(
    ticket: LaneTicket,
    retryAfter: { header: string | undefined; serverNowMs: number },
  ): Promise<TillsyncError> {
    const { ledger, limits, random } = this.#o;
    const { endpoint } = ticket;
    const before = this.#limited.get(endpoint) ?? 0;
    this.#limited.set(endpoint, before + 1);
    const waitMs = retryAfterMs({
      ...retryAfter,
      intervalMs: intervalMsOf(endpoint, limits),
      before,
      random,
    });
    await this.#note(() => ledger.holdBack(endpoint, waitMs));
    await this.#settle(ticket, 'failed');
    return new TillsyncError('rate-limited', `The platform asks to wait with ${endpoint} (HTTP 429).`, {
      httpStatus: 429,
      retryAfterMs: waitMs,
      hint: 'tillsync keeps to the published limits; look for another program that uses the same token.',
    });
  }

  /** The platform answered 403: stops what must stop, for every process, and says how that is to be told. */
  async forbidden(ticket: LaneTicket, message: string | undefined): Promise<TillsyncError> {
    const { ledger, limits, log } = this.#o;
    const { endpoint } = ticket;
    const text = message ?? 'HTTP 403';
    let waitMs = 0;
    let kind = 'block';
    await this.#note(() => {
      const verdict = judgeForbidden(ledger.blockHistory(endpoint, limits), limits, endpoint);
      ({ waitMs, kind } = verdict);
      if (kind !== 'known') ledger.block(kind === 'block' ? 'all' : endpoint, waitMs, text, endpoint);
    });
    await this.#settle(ticket, 'failed');
    log.warn({ endpoint, kind, waitMs }, 'The platform answered 403.');
    const error =
      kind === 'forbidden' ? forbiddenError(endpoint, waitMs, text) : blockedError(endpoint, waitMs, text);
    this.#o.onForbidden?.({ kind: kind === 'forbidden' ? kind : 'block', endpoint, error });
    return error;
  }

  async #throwIfForbidden(endpoint: Endpoint, signal: AbortSignal | undefined): Promise<void> {
    const { clock, ledger, limits } = this.#o;
    const { own } = await whenFree(clock, () => ledger.blockHistory(endpoint, limits), undefined, signal);
    if (own && own.endedMsAgo < 0) throw forbiddenError(endpoint, -own.endedMsAgo, own.message);
  }

  async #keep(ticket: LaneTicket, over: AbortSignal): Promise<void> {
    for (;;) {
      await this.#o.clock.sleep(SIGN_OF_LIFE_MS, over);
      if (over.aborted) return;
      await this.#note(() => {
        if (!over.aborted) this.#o.ledger.extend(ticket, HOLD_MS);
      });
    }
  }

  #settle(ticket: LaneTicket, outcome: 'answered' | 'failed'): Promise<void> {
    return this.#note(() => this.#o.ledger.settle(ticket, this.#o.limits, outcome));
  }

  /** A call's result is not lost because its pacing could not be written: the lane then frees itself later. */
  async #note(action: () => void): Promise<void> {
    try {
      await whenFree(this.#o.clock, action);
    } catch (error) {
      this.#o.log.warn({ err: error }, 'The rate budget could not be written.');
    }
  }
}

function blockedError(endpoint: Endpoint, waitMs: number, message: string): TillsyncError {
  return new TillsyncError(
    'blocked',
    `The platform blocked the token (403 to ${endpoint}: ${message}); all calls rest for ${formatDuration(waitMs)}.`,
    {
      httpStatus: 403,
      retryAfterMs: waitMs,
      hint: 'tillsync goes on by itself; look for another program that uses the same token.',
    },
  );
}

function forbiddenError(endpoint: Endpoint, waitMs: number, message: string): TillsyncError {
  return new TillsyncError(
    'forbidden',
    `The platform does not allow ${endpoint} with this token (403: ${message}), while other calls go through.`,
    {
      httpStatus: 403,
      retryAfterMs: waitMs,
      hint: "Ask the platform's support to allow it for this company; it is tried again within the hour.",
    },
  );
}
