import { asTillsyncError, hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { backoffMs, retryDelayMs, sleepAwake } from '../core/loop.ts';
import type { Clock, Random } from '../core/time.ts';
import type { CallOptions, Wait } from './platform.ts';
import type { RateBudget, SlotTicket } from './rate-budget.ts';
import { tokenRefreshData, tokenRefreshRequest } from './schemas.ts';
import {
  accessLifeMs,
  accessRestMs,
  companyOf,
  datedPair,
  describeTokens,
  type HandedInTokens,
  handedInPair,
  isDue,
  type LockOut,
  lockedOutError,
  type NewTokenPair,
  noTokensError,
  otherCompanyOf,
  type PlatformClock,
  refuseOtherCompany,
  type TokenPair,
  type TokenStatus,
  type TokenStore,
} from './tokens.ts';
import {
  type CallAnswer,
  expectSuccess,
  neverSent,
  noAnswerWithin,
  readAs,
  readData,
  serverDateMs,
  type Transport,
} from './transport.ts';

export interface TokenKeeperOptions {
  store: TokenStore;
  budget: RateBudget;
  transport: Transport;
  clock: Clock;
  random: Random;
  log: Log;
  platformClock: PlatformClock;
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
  #lockedOut: { generation: number; lockOut: LockOut } | undefined;
  #finished = false;

  constructor(options: TokenKeeperOptions) {
    this.#o = options;
    this.#refresh = new TokenRefresh(options);
  }

  /**
   * Resolves when `current` has a token. Renews the token near half of its life. Throws `auth-required` if only a
   * person can help, or the error of a renewal that is needed now and failed.
   */
  async ready(options: WaitOptions = {}): Promise<void> {
    const pair = this.#pair();
    const usable = this.#isUsable(pair);
    if (usable && !this.#isDue(pair)) return;
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
    const pair = this.#pair();
    if (!this.#isUsable(pair) || pair.accessToken === null) return undefined;
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

  /** Renews the pair now, because a person wants it. */
  async refresh(options: WaitOptions = {}): Promise<void> {
    await this.#join(this.#pair().generation, options, undefined);
    this.#pair();
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
      return store.save(handedInPair(tokens), held?.generation ?? 0) ? 'adopted' : 'kept';
    });
  }

  /** Stores tokens of a person, whatever the store has. Throws `usage` for another company's, unless `otherCompany`. */
  async set({ otherCompany = false, ...tokens }: HandedInTokens & { otherCompany?: boolean }): Promise<void> {
    const { store, clock } = this.#o;
    const { refreshToken, accessToken } = tokens;
    const company = companyOf(accessToken) ?? companyOf(refreshToken);
    await whenFree(clock, () => {
      if (!otherCompany) refuseOtherCompany(store, accessToken, refreshToken);
      store.save(handedInPair(tokens), null);
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
    return accessRestMs(pair, this.#o.platformClock.ofPair(pair)) > restMinMs;
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
  ): Promise<void> {
    if (this.#finished) throw stopped();
    const { clock } = this.#o;
    this.#underWay ??= { sinceMonoMs: clock.monotonicMs(), done: this.#replace(generation) };
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

  async #replace(generation: number): Promise<void> {
    const { clock, log, random, store } = this.#o;
    try {
      const rotated = await this.#refresh.replace(generation, (wait) => {
        for (const onWait of this.#onWaits) onWait(wait);
      });
      if (rotated) this.#renewed = { generation: generation + 1, atMonoMs: clock.monotonicMs() };
    } catch (thrown) {
      const error = asTillsyncError(thrown);
      if (error.code === 'auth-required') {
        this.#meetLockOut(generation, store.read()?.lockedOut ?? { atMs: clock.nowMs(), cause: 'refused' });
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

const BODY_MAX_BYTES = 1024 * 1024;
/** Longest wait for an answer. An answer that comes later is saved too. */
const TIMEOUT_MS = 60_000;
/**
 * Duration of the refresh lease. It matters only if the holder is frozen, with a perhaps unread answer in its socket. A
 * running holder releases the lease, and the lease of a dead holder ends at once.
 */
const LEASE_HOLD_MS = 600_000;
/** Times for which a stopping process waits for an answer, and retries to save a pair. */
const ANSWER_WHILE_STOPPING_MS = 20_000;
const SAVE_WHILE_STOPPING_MS = 8_000;
const LEASE_POLL_MS = 100;
const SAVE_RETRY_FIRST_MS = 50;
const SAVE_RETRY_LONGEST_MS = 5_000;

/**
 * Rotates the pair once, even if several processes try. A pair that is lost before it is saved cannot be recovered. So
 * a rotation first writes an intent, which proves that the disk accepts writes; then sends the request on its own
 * connection; and saves the answer before anything else is done.
 */
class TokenRefresh {
  readonly #o: TokenKeeperOptions;
  readonly #stopping = new AbortController();
  /** Requests whose callers no longer wait. Each ends when its pair is saved. */
  readonly #late = new Set<Promise<void>>();

  constructor(options: TokenKeeperOptions) {
    this.#o = options;
  }

  /** Aborts refreshes that are not sent yet, then waits a limited time for answers that no caller waits for. */
  async finish(): Promise<void> {
    this.#stopping.abort();
    const over = new AbortController();
    const limit = sleepAwake(this.#o.clock, ANSWER_WHILE_STOPPING_MS, over.signal);
    await Promise.race([Promise.all(this.#late), limit]);
    over.abort();
  }

  /**
   * Resolves when the pair of `generation` is replaced or locked out; to true if this call replaced it. Throws
   * `auth-required` if the platform refuses the token, otherwise the reason of the failure.
   */
  async replace(generation: number, onWait: (wait: Wait) => void): Promise<boolean> {
    const isOver = () => {
      const pair = this.#o.store.read();
      return pair?.generation !== generation || pair.lockedOut !== null;
    };
    return (await this.#underLease(onWait, isOver, (ticket) => this.#rotate(generation, ticket))) ?? false;
  }

  /**
   * Exchanges a refresh token that a person offers. The stored pair stays until the platform accepts the token, so a
   * wrong token does no harm. Throws `auth-required` if the platform refuses it.
   */
  async tryOut(refreshToken: string, onWait: (wait: Wait) => void): Promise<void> {
    const isNeverOver = () => false;
    await this.#underLease(onWait, isNeverOver, async (ticket) => {
      const save = (pair: NewTokenPair) => this.#save(pair, null, refreshToken);
      if (await this.#exchange(ticket, refreshToken, save, async () => {})) return;
      throw new TillsyncError(
        'auth-required',
        'The platform refuses this refresh token; nothing was changed.',
        {
          hint: 'Get a new one from the company panel. A token that any program has used once is used up.',
          httpStatus: 401,
        },
      );
    });
  }

  /**
   * Runs `action` while holding the refresh lease. Returns undefined if `giveUp` ended the wait. Acquiring the lease is
   * a durable write, which proves that the disk accepts writes.
   */
  async #underLease<T>(
    onWait: (wait: Wait) => void,
    giveUp: () => boolean,
    action: (ticket: SlotTicket) => Promise<T>,
  ): Promise<T | undefined> {
    const { store, budget, clock } = this.#o;
    const signal = this.#stopping.signal;
    for (;;) {
      const ticket = await budget.enter('token.refresh', { signal, onWait, giveUp });
      if (!ticket) return undefined;
      let fence: number | undefined;
      try {
        fence = await whenFree(clock, () => store.acquireLease(LEASE_HOLD_MS));
      } finally {
        if (fence === undefined) await budget.cancel(ticket);
      }
      if (fence === undefined) {
        onWait({ endpoint: 'token.refresh', reason: 'refreshing', waitMs: LEASE_POLL_MS });
        await clock.sleep(LEASE_POLL_MS, signal);
        continue;
      }
      const held = fence;
      try {
        return await budget.during(ticket, () => action(ticket));
      } finally {
        // A lease that could not be released ends by itself.
        await whenFree(clock, () => store.releaseLease(held)).catch(() => undefined);
      }
    }
  }

  async #rotate(generation: number, ticket: SlotTicket): Promise<boolean> {
    const { store, budget, clock } = this.#o;
    let pair: TokenPair | null;
    let hasOpenIntent: boolean;
    try {
      pair = store.read();
      hasOpenIntent = store.readIntent()?.generation === generation;
      if (pair?.generation !== generation || pair.lockedOut) {
        await budget.cancel(ticket);
        return false;
      }
      await whenFree(clock, () => store.writeIntent(generation));
    } catch (error) {
      await budget.cancel(ticket);
      throw error;
    }
    const dropIntent = async () => {
      if (hasOpenIntent) return;
      await whenFree(clock, () => store.clearIntent(generation)).catch(() => undefined);
    };
    const save = (fresh: NewTokenPair) => this.#save(fresh, generation);
    if (await this.#exchange(ticket, pair.refreshToken, save, dropIntent)) return true;
    await this.#lockOut(generation, hasOpenIntent ? 'reply-lost' : 'refused');
    return false;
  }

  /**
   * Sends the refresh token, and saves the pair in the answer even if the answer is late. Returns false if the platform
   * refuses the token (401).
   */
  async #exchange(
    ticket: SlotTicket,
    refreshToken: string,
    save: (pair: NewTokenPair) => Promise<void>,
    onUnused: () => Promise<void>,
  ): Promise<boolean> {
    const { budget } = this.#o;
    let exchange: Exchange;
    try {
      exchange = await this.#inTime(this.#send(refreshToken), save);
    } catch (error) {
      if (neverSent(error)) await onUnused();
      await budget.failed(ticket);
      throw error;
    }
    const { answer, pair } = exchange;
    if (pair) {
      await save(pair);
      await budget.answered(ticket);
      return true;
    }
    if (answer.status === 401) {
      await budget.failed(ticket);
      return false;
    }
    await onUnused();
    throw await budget.refused(ticket, answer);
  }

  /**
   * Sends POST /token/refresh once, and never aborts it, because the answer may have the only valid pair. After an
   * error the token may be used up, unless `neverSent` is true.
   */
  async #send(refreshToken: string): Promise<Exchange> {
    const { transport, clock } = this.#o;
    const sent = await transport.send({
      endpoint: 'token.refresh',
      method: 'POST',
      path: '/token/refresh',
      headers: { 'content-type': 'application/json', accept: 'application/json' },
      body: JSON.stringify(tokenRefreshRequest.parse({ refreshToken })),
      bodyMaxBytes: BODY_MAX_BYTES,
      freshConnection: true,
    });
    const answer = { ...sent, secrets: [refreshToken] };
    if ([401, 403, 429].includes(answer.status)) return { answer };
    const nowMs = clock.nowMs();
    const clockSkewMs = (serverDateMs(answer.headers) ?? nowMs) - nowMs;
    expectSuccess(answer);
    const { token: accessToken, ...data } = readAs(tokenRefreshData, readData(answer), answer);
    return { answer, pair: datedPair({ ...data, accessToken, nowMs, clockSkewMs }) };
  }

  /** Waits for the answer up to the time limit. A later answer is saved by `save`. */
  async #inTime(exchange: Promise<Exchange>, save: (pair: NewTokenPair) => Promise<void>): Promise<Exchange> {
    const over = new AbortController();
    const limit = this.#patience(over.signal).then(() => undefined);
    const result = await Promise.race([exchange, limit]).finally(() => over.abort());
    if (result) return result;
    const late = exchange
      .then(({ pair }) => pair && save(pair))
      .catch((error: unknown) =>
        this.#o.log.debug({ err: error }, 'A refresh that nobody waited for any more failed.'),
      )
      .finally(() => this.#late.delete(late));
    this.#late.add(late);
    throw noAnswerWithin(TIMEOUT_MS);
  }

  async #patience(over: AbortSignal): Promise<void> {
    const { clock } = this.#o;
    const stopping = this.#stopping.signal;
    await sleepAwake(clock, TIMEOUT_MS, AbortSignal.any([over, stopping]));
    if (stopping.aborted) await sleepAwake(clock, ANSWER_WHILE_STOPPING_MS, over);
  }

  /** Saves the new pair. It is retried after every disk error, because only this process has the pair. */
  async #save(pair: NewTokenPair, generation: number | null, offered?: string): Promise<void> {
    const { store, clock, log } = this.#o;
    let stopAtMs: number | undefined;
    for (let attempt = 0; ; attempt++) {
      try {
        if (await whenFree(clock, () => store.save(pair, generation, offered))) {
          log.info(generation === null ? {} : { generation: generation + 1 }, 'The tokens were renewed.');
          this.#noteCompany(pair, offered !== undefined);
        } else {
          log.warn({ generation }, 'Renewed tokens were dropped: newer ones are in the store.');
        }
        return;
      } catch (error) {
        if (!(error instanceof TillsyncError) || !error.code.startsWith('storage-')) throw error;
        if (attempt === 0) {
          log.error({ err: error }, 'Renewed tokens cannot be saved yet; they are kept in memory.');
        }
        if (this.#stopping.signal.aborted) stopAtMs ??= clock.monotonicMs() + SAVE_WHILE_STOPPING_MS;
        if (stopAtMs !== undefined && clock.monotonicMs() >= stopAtMs) throw error;
      }
      const pauseMs = backoffMs(attempt, SAVE_RETRY_FIRST_MS, SAVE_RETRY_LONGEST_MS);
      await clock.sleep(stopAtMs === undefined ? pauseMs : Math.min(pauseMs, 250));
    }
  }

  /** Stores the company of the tokens. A rotation never replaces a stored company; a token from a person does. */
  #noteCompany({ accessToken, refreshToken }: NewTokenPair, isOffered: boolean): void {
    const { store, log } = this.#o;
    try {
      const company = companyOf(accessToken) ?? companyOf(refreshToken);
      const known = store.company();
      if (company !== undefined && company !== known && (isOffered || known === null)) {
        store.setCompany(company);
      }
    } catch (error) {
      // The company is noted at the next rotation.
      log.debug({ err: error }, 'The company of the tokens could not be noted.');
    }
  }

  async #lockOut(generation: number, cause: LockOut['cause']): Promise<void> {
    const { store, clock, log } = this.#o;
    // Another process may have saved a new pair, if this one was frozen for longer than its lease.
    if ((await whenFree(clock, () => store.read()))?.generation !== generation) return;
    const lockOut: LockOut = { atMs: clock.nowMs(), cause };
    try {
      await whenFree(clock, () => store.markLockedOut(generation, lockOut));
    } catch (error) {
      if (!hasCode(error, 'storage-busy', 'storage-full', 'storage-readonly', 'storage-failed')) throw error;
      log.error({ err: error }, 'The lock-out could not be written.');
    }
    throw lockedOutError(lockOut);
  }
}

/** `pair` is undefined after 401, 403 and 429. Any other failure is thrown. */
interface Exchange {
  answer: CallAnswer;
  pair?: NewTokenPair;
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
