import { hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { awakeFor, expectSuccess, readAs, readData, sentMessage, serverDateMs } from './answers.ts';
import type { Wait } from './platform.ts';
import type { LaneTicket, RateBudget } from './rate-budget.ts';
import { tokenRefreshData, tokenRefreshRequest } from './schemas.ts';
import {
  companyOf,
  datedPair,
  type LockOut,
  type NewTokenPair,
  type TokenPair,
  type TokenStore,
} from './tokens.ts';
import { neverSent, noAnswerWithin, type Transport } from './transport.ts';

const HINT = 'Get a new token pair from the company panel or the support, then run: {tillsync} auth set';

/** The lock-out as it is told to whoever wanted to call. */
export function lockedOutError({ atMs, cause }: LockOut): TillsyncError {
  const why =
    cause === 'reply-lost'
      ? 'an answer with new tokens was lost on its way, and the platform takes the old refresh token no more'
      : 'the platform refused the refresh token as invalid, expired or revoked';
  return new TillsyncError(
    'auth-required',
    `Since ${isoUtc(atMs).slice(0, 16).replace('T', ' ')} UTC the platform asks for new tokens: ${why}.`,
    {
      hint: HINT,
      httpStatus: 401,
    },
  );
}

export function noTokensError(): TillsyncError {
  return new TillsyncError('auth-required', 'No tokens have been handed in yet.', { hint: HINT });
}

const BODY_MAX_BYTES = 1024 * 1024;

export type ExchangeResult =
  | { kind: 'pair'; pair: NewTokenPair }
  /** 401: invalid, expired or revoked. */
  | { kind: 'refused' }
  | { kind: 'rate-limited'; header: string | undefined; serverNowMs: number }
  | { kind: 'forbidden'; message: string | undefined };

/**
 * POST /token/refresh, once, and never cut short: the answer may carry the only pair that is still good. What it throws leaves open whether the token was used up, unless `neverSent` says
 * that nothing left this machine.
 */
export async function exchangeToken(options: {
  transport: Transport;
  clock: Clock;
  refreshToken: string;
}): Promise<ExchangeResult> {
  const { transport, clock, refreshToken } = options;
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
  const nowMs = clock.nowMs();
  const clockSkewMs = (serverDateMs(answer.headers) ?? nowMs) - nowMs;
  const serverNowMs = nowMs + clockSkewMs;
  if (answer.status === 401) return { kind: 'refused' };
  if (answer.status === 429)
    return { kind: 'rate-limited', header: answer.headers['retry-after'], serverNowMs };
  if (answer.status === 403) return { kind: 'forbidden', message: sentMessage(answer) };
  expectSuccess(answer);
  const data = readAs(tokenRefreshData, readData(answer), answer);
  const pair = datedPair({
    accessToken: data.token,
    refreshToken: data.refreshToken,
    expiresIn: data.expiresIn,
    nowMs,
    clockSkewMs,
  });
  return { kind: 'pair', pair };
}

export interface TokenRefreshOptions {
  store: TokenStore;
  budget: RateBudget;
  transport: Transport;
  clock: Clock;
  log: Log;
  /** How long an answer is waited for; one that comes later is saved all the same. */
  timeoutMs: number;
}

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
export class TokenRefresh {
  readonly #o: TokenRefreshOptions;
  readonly #stopping = new AbortController();
  /** Requests that nobody waits for any more, each to the end of its save. */
  readonly #late = new Set<Promise<void>>();

  constructor(options: TokenRefreshOptions) {
    this.#o = options;
  }

  /** Ends waits; a request that was sent is seen through to its save. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Waits for the answers that are still to come, within reason. */
  async lateAnswers(): Promise<void> {
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
    const rotated = await this.#underLease({ onWait, giveUp: isOver }, (ticket) =>
      this.#rotate(generation, ticket),
    );
    return rotated ?? false;
  }

  /**
   * Exchanges a refresh token that a person offers. The stored pair stays as it is until the platform has taken the
   * offered one, so a wrong one costs nothing. Throws `auth-required` when the platform refuses it.
   */
  async tryOut(refreshToken: string, onWait: (wait: Wait) => void): Promise<void> {
    const { budget } = this.#o;
    await this.#underLease({ onWait }, async (ticket) => {
      let result: ExchangeResult;
      try {
        result = await this.#exchange(refreshToken, (pair) => this.#save(pair, null, refreshToken));
      } catch (error) {
        await budget.failed(ticket);
        throw error;
      }
      switch (result.kind) {
        case 'pair':
          await this.#save(result.pair, null, refreshToken);
          return await budget.answered(ticket);
        case 'refused':
          await budget.failed(ticket);
          throw refusedOffer();
        case 'rate-limited':
          throw await budget.rateLimited(ticket, result);
        case 'forbidden':
          throw await budget.forbidden(ticket, result.message);
      }
    });
  }

  /** Undefined only after `giveUp`. Getting the lease is a durable write, so it proves that the disk takes one. */
  async #underLease<T>(
    { onWait, giveUp }: { onWait: (wait: Wait) => void; giveUp?: () => boolean },
    action: (ticket: LaneTicket) => Promise<T>,
  ): Promise<T | undefined> {
    const { store, budget, clock } = this.#o;
    const signal = this.#stopping.signal;
    for (;;) {
      const ticket = await budget.enter('token.refresh', { signal, onWait, ...(giveUp && { giveUp }) });
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

  async #rotate(generation: number, ticket: LaneTicket): Promise<boolean> {
    const { store, budget, clock } = this.#o;
    let pair: TokenPair | null;
    let openIntent: boolean;
    try {
      pair = store.read();
      openIntent = store.readIntent()?.generation === generation;
      if (pair?.generation !== generation || pair.lockedOut) {
        await budget.cancel(ticket);
        return false;
      }
      await whenFree(clock, () => store.writeIntent(generation));
    } catch (error) {
      await budget.cancel(ticket);
      throw error;
    }
    const { refreshToken } = pair;
    const dropIntent = async () => {
      if (!openIntent) await whenFree(clock, () => store.clearIntent(generation)).catch(() => undefined);
    };
    let result: ExchangeResult;
    try {
      result = await this.#exchange(refreshToken, (pair) => this.#save(pair, generation));
    } catch (error) {
      if (neverSent(error)) await dropIntent();
      await budget.failed(ticket);
      throw error;
    }
    switch (result.kind) {
      case 'pair':
        await this.#save(result.pair, generation);
        await budget.answered(ticket);
        return true;
      case 'refused':
        await this.#refused(generation, openIntent, ticket);
        return false;
      case 'rate-limited':
        await dropIntent();
        throw await budget.rateLimited(ticket, result);
      case 'forbidden':
        await dropIntent();
        throw await budget.forbidden(ticket, result.message);
    }
  }

  /** Waits for the answer as long as may be; `save` takes the pair of one that comes later. */
  async #exchange(
    refreshToken: string,
    save: (pair: NewTokenPair) => Promise<void>,
  ): Promise<ExchangeResult> {
    const { timeoutMs, log } = this.#o;
    const answer = exchangeToken({ ...this.#o, refreshToken });
    const over = new AbortController();
    const limit = this.#patience(over.signal).then(() => undefined);
    const result = await Promise.race([answer, limit]).finally(() => over.abort());
    if (result) return result;
    const late = answer
      .then((come) => (come.kind === 'pair' ? save(come.pair) : undefined))
      .catch((error: unknown) =>
        log.debug({ err: error }, 'A refresh that nobody waited for any more failed.'),
      )
      .finally(() => this.#late.delete(late));
    this.#late.add(late);
    throw noAnswerWithin(timeoutMs);
  }

  async #patience(over: AbortSignal): Promise<void> {
    const { clock, timeoutMs } = this.#o;
    const stopping = this.#stopping.signal;
    await awakeFor(clock, timeoutMs, AbortSignal.any([over, stopping]));
    if (stopping.aborted) await awakeFor(clock, ANSWER_WHILE_STOPPING_MS, over);
  }

  /** The pair exists only in this process now: no fault of the disk is a reason to give it up. */
  async #save(pair: NewTokenPair, generation: number | null, offered?: string): Promise<void> {
    const { store, clock, log } = this.#o;
    let stopAtMs: number | undefined;
    for (let attempt = 0; ; attempt++) {
      try {
        if (await whenFree(clock, () => store.save(pair, generation, offered))) {
          const saved = generation === null ? {} : { generation: generation + 1 };
          log.info(saved, 'The tokens were renewed.');
          this.#noteCompany(pair, offered !== undefined);
        } else {
          log.warn({ generation }, 'Renewed tokens were dropped: newer ones are in the store.');
        }
        return;
      } catch (error) {
        if (!(error instanceof TillsyncError) || !error.code.startsWith('storage-')) throw error;
        if (attempt === 0)
          log.error({ err: error }, 'Renewed tokens cannot be saved yet; they are kept in memory.');
        if (this.#stopping.signal.aborted) stopAtMs ??= clock.monotonicMs() + SAVE_WHILE_STOPPING_MS;
        if (stopAtMs !== undefined && clock.monotonicMs() >= stopAtMs) throw error;
      }
      const pauseMs = Math.min(SAVE_RETRY_FIRST_MS * 2 ** Math.min(attempt, 10), SAVE_RETRY_LONGEST_MS);
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

  async #refused(generation: number, openIntent: boolean, ticket: LaneTicket): Promise<void> {
    const { store, budget, clock, log } = this.#o;
    await budget.failed(ticket);
    // A holder that was frozen beyond its lease may have rotated and saved meanwhile.
    if ((await whenFree(clock, () => store.read()))?.generation !== generation) return;
    const lockOut: LockOut = { atMs: clock.nowMs(), cause: openIntent ? 'reply-lost' : 'refused' };
    try {
      await whenFree(clock, () => store.markLockedOut(generation, lockOut));
    } catch (error) {
      if (!hasCode(error, 'storage-busy', 'storage-full', 'storage-readonly', 'storage-failed')) throw error;
      log.error({ err: error }, 'The lock-out could not be written.');
    }
    throw lockedOutError(lockOut);
  }
}

function refusedOffer(): TillsyncError {
  return new TillsyncError('auth-required', 'The platform refuses this refresh token; nothing was changed.', {
    hint: 'Get a new one from the company panel. A token that any program has used once is used up.',
    httpStatus: 401,
  });
}
