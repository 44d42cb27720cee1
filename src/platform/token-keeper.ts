import { asTillsyncError, hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { awakeFor, backoffMs, retryDelayMs } from '../core/loop.ts';
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
  /** Told once when the platform refuses the tokens, and once when new ones have come. */
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
  readonly #onWaits = new Set<(wait: Wait) => void>();
  #underWay: { sinceMonoMs: number; done: Promise<void> } | undefined;
  /** The last failed try to renew, and when the next one is welcome. */
  #failed: { generation: number; count: number; untilMonoMs: number; error: TillsyncError } | undefined;
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
    this.#refresh = new TokenRefresh(options);
  }

  /**
   * Returns when `current` has a token, renewing it near half of its life. Throws `auth-required` when only a
   * person can help, or why a renewal that cannot be done without did not work.
   */
  async ready(options: Waiting = {}): Promise<void> {
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
    const { generation, atMonoMs } = this.#renewed;
    const ageMs = this.#o.clock.monotonicMs() - atMonoMs;
    const isJustRenewed = ageMs < Math.min(JUST_RENEWED_MS, accessLifeMs(pair) * DUE_SHARE);
    if (pair.generation === generation && isJustRenewed) {
      throw unauthorized('The platform answers 401 to an access token it issued just now.');
    }
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

  /**
   * Offers tokens from the environment or from credentials. They are taken when the store has none, or when it
   * is locked out and this refresh token was never handed in before: a rotated token in the store is newer. Those of
   * another company are never taken.
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

  /** Stores tokens on a person's word, whatever is there. Throws `usage` for those of another company. */
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
    const { store, platformClock } = this.#o;
    const pair = store.read();
    const intentAtMs = store.readIntent()?.startedAtMs ?? null;
    return describeTokens(pair, intentAtMs, pair ? platformClock.ofPair(pair) : 0);
  }

  /** Begins no refresh any more and waits for what was sent. */
  async finish(): Promise<void> {
    this.#finished = true;
    const late = this.#refresh.finish();
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
    return accessRestMs(pair, this.#o.platformClock.ofPair(pair)) > restMinMs;
  }

  #isDue(pair: TokenPair): boolean {
    if (this.#due.generation !== pair.generation) {
      this.#due = { generation: pair.generation, share: DUE_SHARE + DUE_SPREAD * this.#o.random.next() };
    }
    return isDue(pair, this.#o.platformClock.ofPair(pair), this.#due.share);
  }

  /** Why the last try failed, while the next one has to wait. */
  #resting(generation: number): TillsyncError | undefined {
    if (this.#failed?.generation !== generation) return undefined;
    const { untilMonoMs, error } = this.#failed;
    const restMs = untilMonoMs - this.#o.clock.monotonicMs();
    if (restMs <= 0) return undefined;
    const { code, message, hint } = error;
    const details = { cause: error, retryAfterMs: Math.ceil(restMs), retryable: true };
    return new TillsyncError(code, message, { ...details, ...(hint && { hint }) });
  }

  /** Waits for the one refresh of this process, beginning it if there is none; leaving early does not end it. */
  async #join(
    generation: number,
    { signal, onWait }: Waiting,
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
/** How long an answer is waited for; one that comes later is saved all the same. */
const TIMEOUT_MS = 60_000;
/**
 * A holder that lives gives the lease back itself, and that of a dead one ends at once; so this is for one that stands
 * still. While it does, the answer to its refresh may lie unread in its socket.
 */
const LEASE_HOLD_MS = 600_000;
/** How long a stopping process still waits for an answer, and keeps trying to save a pair. */
const ANSWER_WHILE_STOPPING_MS = 20_000;
const SAVE_WHILE_STOPPING_MS = 8_000;
const LEASE_POLL_MS = 100;
const SAVE_RETRY_FIRST_MS = 50;
const SAVE_RETRY_LONGEST_MS = 5_000;

/**
 * One rotation of the pair, with all processes in mind. Between the platform's answer and the save lies the one
 * moment whose loss cannot be mended, so the order is: prove that the disk takes writes by an intent, send on a
 * connection of its own, save, and only then do anything else.
 */
class TokenRefresh {
  readonly #o: TokenKeeperOptions;
  readonly #stopping = new AbortController();
  /** Requests that nobody waits for any more, each to the end of its save. */
  readonly #late = new Set<Promise<void>>();

  constructor(options: TokenKeeperOptions) {
    this.#o = options;
  }

  /** Ends waits, and waits within reason for the answers that are still to come. */
  async finish(): Promise<void> {
    this.#stopping.abort();
    const over = new AbortController();
    const limit = awakeFor(this.#o.clock, ANSWER_WHILE_STOPPING_MS, over.signal);
    await Promise.race([Promise.all(this.#late), limit]);
    over.abort();
  }

  /**
   * Returns once the pair of `generation` is replaced or locked out: true when this call rotated it. Throws
   * `auth-required` when the platform refuses the token, else why it did not work this time.
   */
  async replace(generation: number, onWait: (wait: Wait) => void): Promise<boolean> {
    const isOver = () => {
      const pair = this.#o.store.read();
      return pair?.generation !== generation || pair.lockedOut !== null;
    };
    return (await this.#underLease(onWait, isOver, (ticket) => this.#rotate(generation, ticket))) ?? false;
  }

  /**
   * Exchanges a refresh token that a person offers. The stored pair stays as it is until the platform has taken the
   * offered one, so a wrong one costs nothing. Throws `auth-required` when the platform refuses it.
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

  /** Undefined only after `giveUp`. Getting the lease is a durable write, so it proves that the disk takes one. */
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
        // A lease that cannot be released ends by itself.
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

  /** Has the answer's pair saved, also when it comes late. False: the platform refuses the token for good. */
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
   * POST /token/refresh, once, and never cut short: the answer may carry the only pair that is still good. What it
   * throws leaves open whether the token was used up, unless `neverSent` says that nothing left this machine.
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

  /** Waits for the answer as long as may be; `save` takes the pair of one that comes later. */
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
    await awakeFor(clock, TIMEOUT_MS, AbortSignal.any([over, stopping]));
    if (stopping.aborted) await awakeFor(clock, ANSWER_WHILE_STOPPING_MS, over);
  }

  /** The pair exists only in this process now: no fault of the disk is a reason to give it up. */
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

  /** A person's word decides whose the store is; a rotation only tells it where nothing is known yet. */
  #noteCompany({ accessToken, refreshToken }: NewTokenPair, isOffered: boolean): void {
    const { store, log } = this.#o;
    try {
      const company = companyOf(accessToken) ?? companyOf(refreshToken);
      const known = store.company();
      if (company !== undefined && company !== known && (isOffered || known === null)) {
        store.setCompany(company);
      }
    } catch (error) {
      // The next rotation tells it again.
      log.debug({ err: error }, 'The company of the tokens could not be noted.');
    }
  }

  async #lockOut(generation: number, cause: LockOut['cause']): Promise<void> {
    const { store, clock, log } = this.#o;
    // A holder that was frozen beyond its lease may have rotated and saved meanwhile.
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

/** `pair`: undefined for 401, 403 and 429; any other failure is thrown. */
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
