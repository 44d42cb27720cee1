import { TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { type Clock, formatDuration, type Random } from '../core/time.ts';
import { type CallOptions, type Endpoint, intervalMsOf, type PlatformLimits, type Wait } from './platform.ts';

/**
 * The durable, shared memory of the rate budget. Every process asks it before each call; each method is one
 * short immediate transaction and may throw `storage-busy`.
 */
export interface RateLedger {
  /**
   * Takes the endpoint's lane when the interval since the last answer, the window caps and any block allow it,
   * else says why not and for how long. A lane that was taken and never settled (its process died) frees
   * itself after `holdMs` plus the interval.
   */
  acquire(endpoint: Endpoint, limits: PlatformLimits, holdMs: number): LaneGrant;
  /** Keeps a lane for another `holdMs` from now, while its call is under way; nothing once it was overtaken. */
  extend(ticket: LaneTicket, holdMs: number): void;
  /**
   * Ends a call: the interval counts from now, the moment of the answer (or of giving up). A 2xx answer also
   * ends what is left of a block, for it proves that the platform lets calls through again.
   */
  settle(ticket: LaneTicket, limits: PlatformLimits, outcome?: 'answered' | 'failed'): void;
  /** Gives a lane back whose call was never sent, as if it had not been taken. */
  cancel(ticket: LaneTicket): void;
  /** The platform answered 429: nobody calls `endpoint` for `waitMs`. */
  holdBack(endpoint: Endpoint, waitMs: number): void;
  /**
   * The platform answered 403 to `endpoint`: nobody calls anything (or only not `scope`) for `waitMs`. After a
   * block of all, one call at a time probes until a 2xx answer comes.
   */
  block(scope: 'all' | Endpoint, waitMs: number, message: string, endpoint?: Endpoint): void;
  /** What a 403 answer to `endpoint` is judged by. */
  blockHistory(endpoint: Endpoint, limits: PlatformLimits): BlockHistory;
  /** Ends a block before its time, after a call got through. */
  unblock(scope: 'all' | Endpoint): void;
  /** What holds `endpoint` back now; undefined: nothing. */
  waitOf(endpoint: Endpoint, limits: PlatformLimits): Wait | undefined;
  /** For status: what is held back now. */
  waits(limits: PlatformLimits): Wait[];
}

export type LaneGrant = { granted: true; ticket: LaneTicket } | { granted: false; wait: Wait };

export interface LaneTicket {
  endpoint: Endpoint;
  /** Fencing number: settling a ticket that another process has overtaken changes nothing. */
  generation: number;
  /** Key of the window entry that this call occupies. */
  callId: number;
}

export interface BlockHistory {
  /** Calls in the current window, of all endpoints and of `order.all`. */
  requests: number;
  orders: number;
  /** The last block of everything, and the last of this endpoint alone; null when there was none. */
  all: BlockRecord | null;
  own: BlockRecord | null;
}

export interface BlockRecord {
  /** Whose 403 began it. */
  endpoint: Endpoint;
  durationMs: number;
  /** Milliseconds since it ended; negative while it lasts. */
  endedMsAgo: number;
  message: string;
  /** Whether, since it ended, another endpoint or this one itself answered 2xx. */
  othersAnswered: boolean;
  endpointAnswered: boolean;
}

/**
 * What follows from a 403.
 *
 * The document knows one reason for it: the anti-abuse cap was exceeded and the token is blocked for a while. So
 * everything stops at once. When our own count explains the block (other programs may share the token, so half
 * a cap is enough), it can end no sooner than a whole window; otherwise a short block finds out cheaply.
 * A 403 soon after a block shows that it was too short, so it doubles, up to an hour.
 *
 * Servers also answer 403 when a token may not use one endpoint. A blocked token is blocked everywhere, so the
 * two differ in what other endpoints answer: when another one answered 2xx after the block had ended and the
 * same endpoint gives 403 again, it is a matter of permission, and only that endpoint is held back.
 */
export type BlockVerdict =
  /** The block that is on already; the answer belongs to a call that was sent before it. */
  | { kind: 'known'; waitMs: number }
  | { kind: 'block'; waitMs: number }
  | { kind: 'forbidden'; waitMs: number };

const FIRST_MS = 60_000;
const LONGEST_MS = 3_600_000;
const FORBIDDEN_MS = 3_600_000;
/** A 403 within this time of a block's end means that it came again. */
const AGAIN_MS = 3_600_000;

export function judgeForbidden(
  history: BlockHistory,
  limits: PlatformLimits,
  endpoint: string,
): BlockVerdict {
  const { all, own } = history;
  if (all && all.endedMsAgo < 0) return { kind: 'known', waitMs: -all.endedMsAgo };
  const deniedBefore = own !== null && !own.endpointAnswered;
  const othersGoOn = all !== null && all.endpoint === endpoint && all.othersAnswered && !all.endpointAnswered;
  if (deniedBefore || othersGoOn) return { kind: 'forbidden', waitMs: FORBIDDEN_MS };
  const explained =
    history.requests >= limits.requestsPerWindow / 2 || history.orders >= limits.ordersPerWindow / 2;
  const firstMs = explained ? limits.windowMs : FIRST_MS;
  const again = all !== null && all.endedMsAgo < AGAIN_MS;
  const waitMs = again
    ? Math.min(Math.max(firstMs, all.durationMs * 2), Math.max(firstMs, LONGEST_MS))
    : firstMs;
  return { kind: 'block', waitMs };
}

const RETRY_AFTER_MAX_MS = 600_000;
const RETRY_JITTER_SHARE = 0.1;

export interface RetryAfter {
  /** The header as sent; undefined when there was none. */
  header: string | undefined;
  /** The platform's wall clock when it answered. */
  serverNowMs: number;
  intervalMs: number;
  /** How many 429 in a row came before this one. */
  before: number;
  random: Random;
}

/**
 * How long to leave an endpoint alone after a 429. The header is believed between the endpoint's interval and
 * ten minutes, since a proxy may invent anything; without one the interval doubles each time. Jitter only adds.
 */
export function retryAfterMs({ header, serverNowMs, intervalMs, before, random }: RetryAfter): number {
  const asked = parse(header, serverNowMs) ?? intervalMs * 2 ** Math.min(before, 16);
  const longestMs = Math.max(RETRY_AFTER_MAX_MS, intervalMs);
  const clamped = Math.min(Math.max(asked, intervalMs), longestMs);
  return Math.round(clamped * (1 + RETRY_JITTER_SHARE * random.next()));
}

function parse(header: string | undefined, serverNowMs: number): number | undefined {
  const text = header?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  const dateMs = /[a-z]/i.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(dateMs) ? undefined : dateMs - serverNowMs;
}

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
