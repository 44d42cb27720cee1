import { hasCode, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { backoffMs, sleepAwake, whenFree } from '../core/loop.ts';
import type { Clock } from '../core/time.ts';
import { expectSuccess, jsonObject, type PlatformClock, readAs, readData, serverDateMs } from './answers.ts';
import type { Wait } from './platform.ts';
import type { RateBudget, SlotTicket } from './rate-budget.ts';
import { tokenRefreshData, tokenRefreshRequest } from './schemas.ts';
import {
  companyOf,
  datedPair,
  isTryDue,
  type LockOut,
  lockedOutError,
  type NewTokenPair,
  type TokenPair,
  type TokenStore,
} from './tokens.ts';
import { type CallAnswer, neverSent, noAnswerWithin, type Transport } from './transport.ts';

export interface TokenRefreshOptions {
  store: TokenStore;
  budget: RateBudget;
  transport: Transport;
  clock: Clock;
  log: Log;
  platformClock: PlatformClock;
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
export class TokenRefresh {
  readonly #o: TokenRefreshOptions;
  readonly #stopping = new AbortController();
  #refusal: { generation: number; lockOut: LockOut } | undefined;
  /** Requests whose callers no longer wait. Each ends when its pair is saved. */
  readonly #late = new Set<Promise<void>>();

  constructor(options: TokenRefreshOptions) {
    this.#o = options;
  }

  /** Returns the last refusal of this pair that this process met, even if it could not be stored. */
  refusalOf(generation: number): LockOut | undefined {
    return this.#refusal?.generation === generation ? this.#refusal.lockOut : undefined;
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
   * `auth-required` if the platform refuses the token, otherwise the reason of the failure. A refused token is tried
   * only when that is due, or if a person wants it.
   */
  async replace(
    generation: number,
    { onWait, isWanted }: { onWait: (wait: Wait) => void; isWanted: boolean },
  ): Promise<boolean> {
    const { store, clock, platformClock } = this.#o;
    const isOver = () => {
      const pair = store.read();
      if (pair?.generation !== generation) return true;
      if (!pair.lockedOut || isWanted) return false;
      // Another process may have tried it meanwhile.
      return !isTryDue(pair, clock.nowMs(), platformClock.ofPair(pair));
    };
    const rotate = (ticket: SlotTicket) => this.#rotate(generation, ticket, isOver);
    return (await this.#underLease(onWait, isOver, rotate)) ?? false;
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

  async #rotate(generation: number, ticket: SlotTicket, isOver: () => boolean): Promise<boolean> {
    const { store, budget, clock } = this.#o;
    let pair: TokenPair | null;
    let hasOpenIntent: boolean;
    try {
      pair = store.read();
      hasOpenIntent = store.readIntent()?.generation === generation;
      if (!pair || isOver()) {
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
    return this.#lockOut(generation, hasOpenIntent ? 'reply-lost' : 'refused');
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
    await onUnused();
    if (answer.status !== 401) throw await budget.refused(ticket, answer);
    await budget.failed(ticket);
    if (jsonObject(answer)) return false;
    throw refusedByGateway();
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
    // The old pair is used up by now, so a pair without the envelope is taken too.
    const bare = tokenRefreshData.safeParse(jsonObject(answer)).data;
    const { token: accessToken, ...data } = bare ?? readAs(tokenRefreshData, readData(answer), answer);
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

  /** Records a refusal and throws `auth-required`, unless another process has replaced the pair. */
  async #lockOut(generation: number, cause: LockOut['cause']): Promise<false> {
    const { store, clock, log } = this.#o;
    // Another process may have saved a new pair, if this one was frozen for longer than its lease.
    const pair = await whenFree(clock, () => store.read());
    if (pair?.generation !== generation) return false;
    const nowMs = clock.nowMs();
    const { atMs, refusals } = pair.lockedOut ?? this.refusalOf(generation) ?? { atMs: nowMs, refusals: 0 };
    const lockOut: LockOut = { atMs, cause, refusals: refusals + 1, refusedAtMs: nowMs };
    this.#refusal = { generation, lockOut };
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

/**
 * Returns the error for a 401 to a refresh that is no JSON object. The API answers in JSON, so a gateway in front of it
 * sent this one, and the tokens are as good as before.
 */
function refusedByGateway(): TillsyncError {
  return new TillsyncError(
    'platform-failed',
    "A gateway in front of the platform refused the renewal of the tokens (HTTP 401, without the API's JSON). The tokens are kept.",
    {
      httpStatus: 401,
      hint: "tillsync tries it again. If it stays for an hour, ask the platform's support, or set new tokens: {tillsync} auth set",
    },
  );
}
