import { asTillsyncError, hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import type { PlatformClock } from './answers.ts';
import type { CallOptions, Wait } from './platform.ts';
import type { RateBudget } from './rate-budget.ts';
import { lockedOutError, noTokensError, TokenRefresh } from './token-refresh.ts';
import {
  accessLifeMs,
  accessRestMs,
  companyOf,
  describeTokens,
  handedInPair,
  isDue,
  type LockOut,
  otherCompanyOf,
  refuseOtherCompany,
  type TokenPair,
  type TokenStatus,
  type TokenStore,
} from './tokens.ts';
import type { Transport } from './transport.ts';

/** Tokens that a person obtained from the platform's support or panel. */
export interface HandedInTokens {
  refreshToken: string;
  accessToken?: string | null;
  /** They may be of another company than this store. */
  otherCompany?: boolean;
}

export interface HandInOptions {
  store: TokenStore;
  clock: Clock;
}

/**
 * Offers tokens from the environment or from credentials. They are taken when the store has none, or when it
 * is locked out and this refresh token was never handed in before: a rotated token in the store is newer. Those of
 * another company are never taken.
 */
export function seedTokens(options: HandInOptions, tokens: HandedInTokens): Promise<'adopted' | 'kept'> {
  const { store, clock } = options;
  return whenFree(clock, () => {
    const held = store.read();
    if (held && !(held.lockedOut && isUnknown(store, held.refreshToken, tokens.refreshToken))) return 'kept';
    if (otherCompanyOf(store, tokens.accessToken, tokens.refreshToken)) return 'kept';
    return store.save(handedInPair(tokens), held?.generation ?? 0) ? 'adopted' : 'kept';
  });
}

/** Stores tokens on a person's word, whatever is there. */
export async function setTokens({ store, clock }: HandInOptions, tokens: HandedInTokens): Promise<void> {
  const { refreshToken, accessToken, otherCompany } = tokens;
  const company = companyOf(accessToken) ?? companyOf(refreshToken);
  await whenFree(clock, () => {
    if (!otherCompany) refuseOtherCompany(store, accessToken, refreshToken);
    store.save(handedInPair(tokens), null);
    if (company !== undefined) store.setCompany(company);
  });
}

function isUnknown(store: TokenStore, held: string, offered: string): boolean {
  return held !== offered && !store.wasHandedIn(offered);
}

const FIRST_MS = 5_000;
const LONGEST_MS = 300_000;

/** Spaces the tries to renew one generation of tokens after a network fault or a fault of the platform. */
export class RefreshBackoff {
  readonly #clock: Clock;
  readonly #random: Random;
  #generation = -1;
  #count = 0;
  #untilMonoMs = 0;
  #error: TillsyncError | undefined;

  constructor(options: { clock: Clock; random: Random }) {
    this.#clock = options.clock;
    this.#random = options.random;
  }

  /** Milliseconds until the next try; 0 when it is welcome. */
  restMs(generation: number): number {
    return generation === this.#generation ? Math.max(0, this.#untilMonoMs - this.#clock.monotonicMs()) : 0;
  }

  /** Notes a failed try and returns how long the next one has to wait. */
  failed(generation: number, error: TillsyncError): number {
    this.#count = generation === this.#generation ? this.#count + 1 : 1;
    const plainMs = Math.min(FIRST_MS * 2 ** Math.min(this.#count - 1, 10), LONGEST_MS);
    const waitMs = Math.round(
      Math.max(plainMs * (0.75 + 0.5 * this.#random.next()), error.retryAfterMs ?? 0),
    );
    this.#generation = generation;
    this.#untilMonoMs = this.#clock.monotonicMs() + waitMs;
    this.#error = error;
    return waitMs;
  }

  /** Why the last try failed, for a caller that cannot go on without it. */
  error(generation: number): TillsyncError {
    const last = this.#error;
    return new TillsyncError(
      last?.code ?? 'platform-unreachable',
      last?.message ?? 'The tokens could not be renewed yet.',
      {
        cause: last,
        retryAfterMs: Math.ceil(this.restMs(generation)),
        retryable: true,
        ...(last?.hint && { hint: last.hint }),
      },
    );
  }
}

export interface TokenKeeperOptions {
  store: TokenStore;
  budget: RateBudget;
  transport: Transport;
  clock: Clock;
  random: Random;
  log: Log;
  platformClock: PlatformClock;
  /** How long the answer to a refresh is waited for before the call that needs it fails; it is saved also later. */
  refreshTimeoutMs?: number;
  /** Told once when a lock-out is met, and once when new tokens have ended it. */
  onLockOut?: (lockOut: LockOut) => void;
  onHealed?: () => void;
  /** Told once for each pair whose access token the platform has taken. */
  onAccepted?: () => void;
}

/** An access token and the generation of the pair it belongs to. */
export interface AccessToken {
  token: string;
  generation: number;
}

type Waiting = Pick<CallOptions, 'signal' | 'onWait'>;

/** Until then nobody else tries with the same token, so it is longer than an answer that still comes may take. */
const REFRESH_TIMEOUT_MS = 60_000;
/** Part of an access token's life after which it is renewed; spread, so that processes do not do it at once. */
const DUE_SHARE = 0.45;
const DUE_SPREAD = 0.1;
/** A token that ends within this time, or this part of its life, is not worth sending. */
const REST_MIN_MS = 2_000;
const REST_MIN_SHARE = 0.05;
/** How long calls whose token still works wait for its renewal, counted from its beginning. */
const PATIENCE_MS = 5_000;
const LONGEST_WAIT_MS = 86_400_000;
/** A 401 to a token renewed so recently is not cured by renewing it again. */
const JUST_RENEWED_MS = 60_000;

/**
 * Keeps an access token at hand. The store is read before every call, so what another process or a person put
 * there counts at once.
 */
export class TokenKeeper {
  readonly #o: TokenKeeperOptions;
  readonly #refresh: TokenRefresh;
  readonly #backoff: RefreshBackoff;
  readonly #platformClock: PlatformClock;
  readonly #onWaits = new Set<(wait: Wait) => void>();
  #underWay: { sinceMonoMs: number; done: Promise<void> } | undefined;
  /** Generation whose access token got a 401. */
  #rejected = 0;
  /** Generation whose access token got a 2xx. */
  #accepted = 0;
  #renewed = { generation: 0, atMonoMs: 0 };
  #due = { generation: -1, share: 0 };
  #lockedOut: { generation: number; lockOut: LockOut } | undefined;
  #finished = false;

  constructor(options: TokenKeeperOptions) {
    this.#o = options;
    this.#backoff = new RefreshBackoff(options);
    this.#platformClock = options.platformClock;
    this.#refresh = new TokenRefresh({
      ...options,
      timeoutMs: options.refreshTimeoutMs ?? REFRESH_TIMEOUT_MS,
    });
  }

  /**
   * Returns when `current` has a token, renewing it near half of its life. Throws `auth-required` when only a
   * person can help, or why a renewal that cannot be done without did not work.
   */
  async ready(options: Waiting = {}): Promise<void> {
    const pair = this.#pair();
    const usable = this.#isUsable(pair);
    if (usable && !this.#isDue(pair)) return;
    if (this.#finished || this.#backoff.restMs(pair.generation) > 0) {
      if (usable) return;
      throw this.#finished ? stopped() : this.#backoff.error(pair.generation);
    }
    try {
      await this.#join(pair.generation, options, usable ? PATIENCE_MS : undefined);
    } catch (error) {
      if (!usable || hasCode(error, 'auth-required', 'aborted')) throw error;
    }
  }

  /** The token to send now, if it is good; looks at the store alone. Throws `auth-required`. */
  current(): AccessToken | undefined {
    const pair = this.#pair();
    if (!this.#isUsable(pair) || pair.accessToken === null) return undefined;
    return { token: pair.accessToken, generation: pair.generation };
  }

  /** The platform answered 401 to `access`: `ready` brings another. Throws `unauthorized` if that is no use. */
  reject(access: AccessToken): void {
    const pair = this.#pair();
    if (pair.generation !== access.generation) return;
    if (this.#wasJustRenewed(pair)) throw uselessRenewal();
    this.#rejected = access.generation;
  }

  /** The platform answered 2xx to `access`. */
  accepted(access: AccessToken): void {
    if (this.#accepted === access.generation) return;
    this.#accepted = access.generation;
    this.#o.onAccepted?.();
  }

  /** Renews the pair now, on a person's word. */
  async refresh(options: Waiting = {}): Promise<void> {
    await this.#join(this.#pair().generation, options, undefined);
    this.#pair();
  }

  /** `seedTokens`: tokens from the environment or from credentials. */
  seed(tokens: HandedInTokens): Promise<'adopted' | 'kept'> {
    return seedTokens(this.#o, tokens);
  }

  /** `setTokens`: tokens on a person's word. */
  set(tokens: HandedInTokens): Promise<void> {
    return setTokens(this.#o, tokens);
  }

  /**
   * As `set`, but only once the platform has taken the refresh token; else the stored pair stays. `known`: it was
   * handed in before and led to the pair that is stored, so nothing was done. Throws `auth-required` for a token
   * that the platform refuses, `usage` for one of another company. Sees an exchange that was sent through to its save.
   */
  async tryOut(
    refreshToken: string,
    onWait: (wait: Wait) => void = () => {},
    otherCompany = false,
  ): Promise<'adopted' | 'known'> {
    const { store } = this.#o;
    if (!otherCompany) refuseOtherCompany(store, refreshToken);
    const held = store.read();
    if (held && !held.lockedOut && store.wasHandedIn(refreshToken)) return 'known';
    await this.#refresh.tryOut(refreshToken, onWait);
    return 'adopted';
  }

  describe(): TokenStatus {
    const { store } = this.#o;
    const pair = store.read();
    return describeTokens(
      pair,
      store.readIntent()?.startedAtMs ?? null,
      pair ? this.#platformClock.ofPair(pair) : 0,
    );
  }

  /** Begins no refresh any more and waits for what was sent. */
  async finish(): Promise<void> {
    this.#finished = true;
    this.#refresh.stop();
    const late = this.#refresh.lateAnswers();
    await this.#underWay?.done.catch(() => undefined);
    await late;
  }

  /** The pair in the store, telling a lock-out and its end once each. */
  #pair(): TokenPair {
    const pair = this.#o.store.read();
    if (!pair) throw noTokensError();
    const noted = this.#lockedOut?.generation === pair.generation ? this.#lockedOut.lockOut : null;
    const lockOut = pair.lockedOut ?? noted;
    if (lockOut) {
      this.#meetLockOut(pair.generation, lockOut);
      throw lockedOutError(lockOut);
    }
    if (this.#lockedOut) {
      this.#lockedOut = undefined;
      this.#o.log.info({ generation: pair.generation }, 'New tokens have ended the lock-out.');
      this.#o.onHealed?.();
    }
    return pair;
  }

  #meetLockOut(generation: number, lockOut: LockOut): void {
    if (this.#lockedOut?.generation === generation) return;
    this.#lockedOut = { generation, lockOut };
    const { message, hint } = lockedOutError(lockOut);
    this.#o.log.error({ generation, cause: lockOut.cause, hint }, message);
    this.#o.onLockOut?.(lockOut);
  }

  #isUsable(pair: TokenPair): boolean {
    if (pair.accessToken === null || pair.generation === this.#rejected) return false;
    const restMinMs = Math.min(REST_MIN_MS, accessLifeMs(pair) * REST_MIN_SHARE);
    return accessRestMs(pair, this.#platformClock.ofPair(pair)) > restMinMs;
  }

  #wasJustRenewed(pair: TokenPair): boolean {
    const { generation, atMonoMs } = this.#renewed;
    const ageMs = this.#o.clock.monotonicMs() - atMonoMs;
    return (
      pair.generation === generation && ageMs < Math.min(JUST_RENEWED_MS, accessLifeMs(pair) * DUE_SHARE)
    );
  }

  #isDue(pair: TokenPair): boolean {
    if (this.#due.generation !== pair.generation) {
      this.#due = { generation: pair.generation, share: DUE_SHARE + DUE_SPREAD * this.#o.random.next() };
    }
    return isDue(pair, this.#platformClock.ofPair(pair), this.#due.share);
  }

  /** Waits for the one refresh of this process, beginning it if there is none; leaving early does not end it. */
  async #join(
    generation: number,
    { signal, onWait }: Waiting,
    patienceMs: number | undefined,
  ): Promise<void> {
    if (this.#finished) throw stopped();
    const { clock } = this.#o;
    this.#underWay ??= { sinceMonoMs: clock.monotonicMs(), done: this.#replace(generation) };
    const { sinceMonoMs, done } = this.#underWay;
    const left = new AbortController();
    const leaving = signal ? AbortSignal.any([signal, left.signal]) : left.signal;
    if (onWait) this.#onWaits.add(onWait);
    try {
      const endMonoMs = patienceMs === undefined ? Number.POSITIVE_INFINITY : sinceMonoMs + patienceMs;
      const waitMs = Math.min(endMonoMs - clock.monotonicMs(), LONGEST_WAIT_MS);
      await Promise.race([done, clock.sleep(waitMs, leaving)]);
      if (signal?.aborted) throw stopped();
    } finally {
      left.abort();
      if (onWait) this.#onWaits.delete(onWait);
    }
  }

  async #replace(generation: number): Promise<void> {
    const { clock, log, store } = this.#o;
    try {
      const rotated = await this.#refresh.replace(generation, (wait) => {
        for (const onWait of this.#onWaits) onWait(wait);
      });
      if (rotated) this.#renewed = { generation: generation + 1, atMonoMs: clock.monotonicMs() };
    } catch (error) {
      const told = asTillsyncError(error);
      if (told.code === 'auth-required') {
        this.#meetLockOut(generation, store.read()?.lockedOut ?? { atMs: clock.nowMs(), cause: 'refused' });
      } else if (told.code !== 'aborted') {
        const waitMs = this.#backoff.failed(generation, told);
        log.warn(
          { err: told, waitMs },
          'The tokens could not be renewed; the same token is tried again later.',
        );
      }
      throw told;
    } finally {
      this.#underWay = undefined;
    }
  }
}

function stopped(): TillsyncError {
  return new TillsyncError('aborted', 'Stopped while waiting for the tokens.');
}

function uselessRenewal(): TillsyncError {
  return new TillsyncError(
    'unauthorized',
    'The platform answers 401 to an access token it issued just now.',
    {
      httpStatus: 401,
      hint: 'Check that the tokens belong to this company, and ask the platform for help.',
    },
  );
}
