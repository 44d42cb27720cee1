import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import { retryDelayMs, whenFree } from '../core/loop.ts';
import type { Random } from '../core/time.ts';
import type { CallOptions, Wait } from './platform.ts';
import { TokenRefresh, type TokenRefreshOptions } from './token-refresh.ts';
import {
  accessLifeMs,
  accessRestMs,
  companyOf,
  describeTokens,
  dueAtMs,
  type HandedInTokens,
  handedInPair,
  isDue,
  isTryDue,
  type LockOut,
  lockedOutError,
  noTokensError,
  otherCompanyOf,
  refuseOtherCompany,
  type TokenPair,
  type TokenStatus,
} from './tokens.ts';

export interface TokenKeeperOptions extends TokenRefreshOptions {
  random: Random;
  /** `onLockOut` is called once if the platform refuses the tokens, `onHealed` once when new ones have arrived. */
  onLockOut?: (lockOut: LockOut) => void;
  onHealed?: () => void;
  /** Called once for each pair, when the platform accepts its access token for the first time. */
  onAccepted?: () => void;
}

/** An access token and the generation of its pair. */
export interface AccessToken {
  token: string;
  generation: number;
}

type WaitOptions = Pick<CallOptions, 'signal' | 'onWait'>;

/** Share of a token's life after which it is renewed. The random addition keeps processes from renewing together. */
const DUE_SHARE = 0.45;
const DUE_SPREAD = 0.1;
/** A token is not sent in the last part of its life: the shorter of this time and this share. */
const REST_MIN_MS = 2_000;
const REST_MIN_SHARE = 0.05;
/** Maximum time, from the start of a renewal, that a call with a still valid token waits for the renewal. */
const PATIENCE_MS = 5_000;
const LONGEST_WAIT_MS = 86_400_000;
/** A 401 this soon after a renewal causes no further renewal, which would not help. */
const JUST_RENEWED_MS = 60_000;

/**
 * Provides a valid access token. It reads the store before every call, so that tokens that another process or a person
 * stored are used at once.
 */
export class TokenKeeper {
  readonly #o: TokenKeeperOptions;
  readonly #refresh: TokenRefresh;
  readonly #onWaits = new Set<(wait: Wait) => void>();
  #underWay: { sinceMonoMs: number; done: Promise<void> } | undefined;
  /** The last failed renewal, and the monotonic time at which the next one may start. */
  #failed: { generation: number; count: number; untilMonoMs: number; error: TillsyncError } | undefined;
  /** Generation of the pair whose access token got a 401. */
  #rejected = 0;
  /** Generation of the pair whose access token got a 2xx. */
  #accepted = 0;
  #renewed = { generation: 0, atMonoMs: 0 };
  #due = { generation: -1, share: 0 };
  /** Pair that calls may use without a further look at it, until a time on its server's clock. */
  #good = { generation: -1, untilMs: 0 };
  #lockedOut: { generation: number; lockOut: LockOut } | undefined;
  #finished = false;

  constructor(options: TokenKeeperOptions) {
    this.#o = options;
    this.#refresh = new TokenRefresh(options);
  }

  /**
   * Resolves when `current` has a token. Renews the token near half of its life, and tries a refused one again when
   * that is due. Throws `auth-required` if only a person can help, or the error of a renewal that is needed now and
   * failed.
   */
  async ready(options: WaitOptions = {}): Promise<void> {
    const stored = this.#stored();
    if (this.#isGood(stored)) return;
    if (this.#isTryDue(stored)) return this.#join(stored.generation, options, undefined);
    const pair = this.#pair();
    const usable = this.#isUsable(pair);
    if (usable && !this.#isDue(pair)) {
      const untilMs = Math.min(dueAtMs(pair, this.#due.share), this.#usableUntilMs(pair));
      this.#good = { generation: pair.generation, untilMs };
      return;
    }
    const resting = this.#resting(pair.generation);
    if (this.#finished || resting) {
      if (usable) return;
      throw resting && !this.#finished ? resting : stopped();
    }
    try {
      await this.#join(pair.generation, options, usable ? PATIENCE_MS : undefined);
    } catch (error) {
      if (!usable || hasCode(error, 'auth-required', 'aborted')) throw error;
    }
  }

  /** Returns the access token if it can be sent, otherwise undefined. Starts no renewal. Throws `auth-required`. */
  current(): AccessToken | undefined {
    const stored = this.#stored();
    const isGood = this.#isGood(stored);
    const pair = isGood ? stored : this.#pair();
    if (pair.accessToken === null || !(isGood || this.#isUsable(pair))) return undefined;
    return { token: pair.accessToken, generation: pair.generation };
  }

  /**
   * Records a 401 for `access`, so that `ready` gets a new token. Throws `unauthorized` if a new one would not help.
   */
  reject(access: AccessToken): void {
    const pair = this.#pair();
    if (pair.generation !== access.generation) return;
    const { generation, atMonoMs } = this.#renewed;
    const ageMs = this.#o.clock.monotonicMs() - atMonoMs;
    const isJustRenewed = ageMs < Math.min(JUST_RENEWED_MS, accessLifeMs(pair) * DUE_SHARE);
    if (pair.generation === generation && isJustRenewed) {
      throw unauthorized('The platform answers 401 to an access token it issued just now.');
    }
    this.#rejected = access.generation;
  }

  /** Records a 2xx for `access`. */
  accepted(access: AccessToken): void {
    if (this.#accepted === access.generation) return;
    this.#accepted = access.generation;
    this.#o.onAccepted?.();
  }

  /** Renews the pair now, because a person wants it, even if the platform refused it before. */
  async refresh(options: WaitOptions = {}): Promise<void> {
    await this.#join(this.#stored().generation, options, undefined, true);
    this.#pair();
  }

  /** Whether a call may succeed: there are tokens, and the platform did not refuse them or they are tried again now. */
  mayCall(): boolean {
    const pair = this.#o.store.read();
    return pair !== null && (!this.#lockOutOf(pair) || this.#isTryDue(pair));
  }

  /**
   * Offers tokens from the environment or from credentials. The store adopts them if it has none, or if it is locked
   * out and the refresh token is neither stored nor was handed in before. It never adopts another company's tokens.
   */
  seed(tokens: HandedInTokens): Promise<'adopted' | 'kept'> {
    const { store, clock } = this.#o;
    const { refreshToken, accessToken } = tokens;
    return whenFree(clock, () => {
      const held = store.read();
      const isNews = held?.refreshToken !== refreshToken && !store.wasHandedIn(refreshToken);
      if (held && !(held.lockedOut && isNews)) return 'kept';
      if (otherCompanyOf(store, accessToken, refreshToken)) return 'kept';
      return store.save(handedInPair(tokens), held?.generation ?? 0, refreshToken) ? 'adopted' : 'kept';
    });
  }

  /** Stores tokens of a person, whatever the store has. Throws `usage` for another company's, unless `otherCompany`. */
  async set({ otherCompany = false, ...tokens }: HandedInTokens & { otherCompany?: boolean }): Promise<void> {
    const { store, clock } = this.#o;
    const { refreshToken, accessToken } = tokens;
    const company = companyOf(accessToken) ?? companyOf(refreshToken);
    await whenFree(clock, () => {
      if (!otherCompany) refuseOtherCompany(store, accessToken, refreshToken);
      store.save(handedInPair(tokens), null, refreshToken);
      if (company !== undefined) store.setCompany(company);
    });
  }

  /**
   * Exchanges a refresh token for a pair and stores it. Returns `known`, without an exchange, if the token was handed
   * in before and there is no lock-out. Throws `auth-required` if it is refused, `usage` if it is another company's.
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
    const { store, platformClock } = this.#o;
    const pair = store.read();
    const intentAtMs = store.readIntent()?.startedAtMs ?? null;
    return describeTokens(pair, intentAtMs, pair ? platformClock.ofPair(pair) : 0);
  }

  /** Prevents further refreshes, and waits for those that were sent. */
  async finish(): Promise<void> {
    this.#finished = true;
    const late = this.#refresh.finish();
    await this.#underWay?.done.catch(() => undefined);
    await late;
  }

  /** Returns the stored pair. Reports a lock-out once, and the end of it once. */
  #pair(): TokenPair {
    const pair = this.#stored();
    const lockOut = this.#lockOutOf(pair);
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

  #stored(): TokenPair {
    const pair = this.#o.store.read();
    if (!pair) throw noTokensError();
    return pair;
  }

  /** Returns the stored lock-out, else one that could not be stored. */
  #lockOutOf({ lockedOut, generation }: TokenPair): LockOut | null {
    const noted = this.#lockedOut?.generation === generation ? this.#lockedOut.lockOut : null;
    return lockedOut ?? noted;
  }

  #isTryDue(pair: TokenPair): boolean {
    const { clock, platformClock } = this.#o;
    const lockedOut = this.#lockOutOf(pair);
    if (!lockedOut || this.#finished || this.#resting(pair.generation)) return false;
    return isTryDue({ ...pair, lockedOut }, clock.nowMs(), platformClock.ofPair(pair));
  }

  #meetLockOut(generation: number, lockOut: LockOut): void {
    const isKnown = this.#lockedOut?.generation === generation;
    this.#lockedOut = { generation, lockOut };
    if (isKnown) return;
    const { message, hint } = lockedOutError(lockOut);
    this.#o.log.error({ generation, cause: lockOut.cause, hint }, message);
    this.#o.onLockOut?.(lockOut);
  }

  #isUsable(pair: TokenPair): boolean {
    if (pair.accessToken === null || pair.generation === this.#rejected) return false;
    return this.#o.platformClock.ofPair(pair) < this.#usableUntilMs(pair);
  }

  /** Returns when, on its server's clock, the last part of the access token's life begins. */
  #usableUntilMs(pair: TokenPair): number {
    return accessRestMs(pair, 0) - Math.min(REST_MIN_MS, accessLifeMs(pair) * REST_MIN_SHARE);
  }

  /** Whether the pair was found usable and not due, and still is. */
  #isGood(pair: TokenPair): boolean {
    const { generation, untilMs } = this.#good;
    if (pair.generation !== generation || generation === this.#rejected) return false;
    if (pair.lockedOut || this.#lockedOut) return false;
    return this.#o.platformClock.ofPair(pair) < untilMs;
  }

  #isDue(pair: TokenPair): boolean {
    if (this.#due.generation !== pair.generation) {
      this.#due = { generation: pair.generation, share: DUE_SHARE + DUE_SPREAD * this.#o.random.next() };
    }
    return isDue(pair, this.#o.platformClock.ofPair(pair), this.#due.share);
  }

  /** Returns the error of the last refresh if the next one has to wait; undefined otherwise. */
  #resting(generation: number): TillsyncError | undefined {
    if (this.#failed?.generation !== generation) return undefined;
    const { untilMonoMs, error } = this.#failed;
    const restMs = untilMonoMs - this.#o.clock.monotonicMs();
    if (restMs <= 0) return undefined;
    const { code, message, hint } = error;
    const details = { cause: error, retryAfterMs: Math.ceil(restMs), retryable: true };
    return new TillsyncError(code, message, { ...details, ...(hint && { hint }) });
  }

  /** Waits for the running refresh of this process, or starts one. Aborting the wait does not abort the refresh. */
  async #join(
    generation: number,
    { signal, onWait }: WaitOptions,
    patienceMs = Number.POSITIVE_INFINITY,
    isWanted = false,
  ): Promise<void> {
    if (this.#finished) throw stopped();
    const { clock } = this.#o;
    this.#underWay ??= { sinceMonoMs: clock.monotonicMs(), done: this.#replace(generation, isWanted) };
    const { sinceMonoMs, done } = this.#underWay;
    const left = new AbortController();
    const leaving = signal ? AbortSignal.any([signal, left.signal]) : left.signal;
    if (onWait) this.#onWaits.add(onWait);
    try {
      const waitMs = Math.min(sinceMonoMs + patienceMs - clock.monotonicMs(), LONGEST_WAIT_MS);
      await Promise.race([done, clock.sleep(waitMs, leaving)]);
      if (signal?.aborted) throw stopped();
    } finally {
      left.abort();
      if (onWait) this.#onWaits.delete(onWait);
    }
  }

  async #replace(generation: number, isWanted: boolean): Promise<void> {
    const { clock, log, random } = this.#o;
    const onWait = (wait: Wait) => {
      for (const each of this.#onWaits) each(wait);
    };
    try {
      const rotated = await this.#refresh.replace(generation, { onWait, isWanted });
      if (rotated) this.#renewed = { generation: generation + 1, atMonoMs: clock.monotonicMs() };
    } catch (thrown) {
      const error = asTillsyncError(thrown);
      if (error.code === 'auth-required') {
        const lockOut = this.#refresh.refusalOf(generation);
        if (lockOut) this.#meetLockOut(generation, lockOut);
      } else if (error.code !== 'aborted') {
        const count = this.#failed?.generation === generation ? this.#failed.count + 1 : 1;
        const waitMs = Math.round(retryDelayMs(count, error, random));
        this.#failed = { generation, count, untilMonoMs: clock.monotonicMs() + waitMs, error };
        log.warn(
          { err: error, waitMs },
          'The tokens could not be renewed; the same token is tried again later.',
        );
      }
      throw error;
    } finally {
      this.#underWay = undefined;
    }
  }
}

export function unauthorized(message: string): TillsyncError {
  return new TillsyncError('unauthorized', message, {
    httpStatus: 401,
    hint: 'Check that the tokens belong to this company, and ask the platform for help.',
  });
}

function stopped(): TillsyncError {
  return new TillsyncError('aborted', 'Stopped while waiting for the tokens.');
}
