import { hasCode, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import { expectSuccess, type PlatformClock, sentMessage, serverDateMs } from './answers.ts';
import type { CallOptions, Endpoint } from './platform.ts';
import type { LaneTicket, RateBudget } from './rate-budget.ts';
import type { AccessToken, TokenKeeper } from './token-keeper.ts';
import type { CallAnswer, Transport, TransportAnswer } from './transport.ts';

export interface AuthorizedCallOptions {
  transport: Transport;
  budget: RateBudget;
  keeper: TokenKeeper;
  platformClock: PlatformClock;
  clock: Clock;
  log: Log;
}

export interface PlatformCall {
  endpoint: Endpoint;
  method: string;
  path: string;
  query?: Record<string, string | undefined> | undefined;
  /** Sent as JSON. */
  body?: unknown;
  timeoutMs: number;
  bodyMaxBytes: number;
  /** Values that no message may repeat. */
  secrets?: readonly string[];
}

/**
 * Sends a call with a good token at an allowed moment, once; and once more with a fresh token after a 401.
 * Returns an answer of status 2xx, throws for every other.
 */
export class AuthorizedCall {
  readonly #o: AuthorizedCallOptions;

  constructor(options: AuthorizedCallOptions) {
    this.#o = options;
  }

  async send(call: PlatformCall, options: CallOptions = {}): Promise<CallAnswer> {
    const { budget, keeper, clock, platformClock } = this.#o;
    for (let attempt = 0; ; attempt++) {
      const { ticket, access } = await this.#enter(call, options);
      const sent = await budget.during(ticket, () => this.#attempt(call, options, ticket, access));
      const answer: CallAnswer = { ...sent, secrets: [...(call.secrets ?? []), access.token] };
      const serverNowMs = serverDateMs(answer.headers);
      if (serverNowMs !== undefined) platformClock.observe(serverNowMs);
      const { status } = answer;
      if (status === 403) throw await budget.forbidden(ticket, sentMessage(answer));
      if (status === 429) {
        const header = answer.headers['retry-after'];
        throw await budget.rateLimited(ticket, { header, serverNowMs: serverNowMs ?? clock.nowMs() });
      }
      const isSuccess = status >= 200 && status < 300;
      await (isSuccess ? budget.answered(ticket) : budget.failed(ticket));
      if (isSuccess) keeper.accepted(access);
      if (status !== 401) {
        expectSuccess(answer);
        return answer;
      }
      if (attempt > 0) throw unauthorized(call.endpoint);
      keeper.reject(access);
    }
  }

  /** A good token first, since a lane is held for the length of one call only. */
  async #enter(
    call: PlatformCall,
    options: CallOptions,
  ): Promise<{ ticket: LaneTicket; access: AccessToken }> {
    const { budget, keeper } = this.#o;
    for (;;) {
      await keeper.ready(options);
      const ticket = await budget.enter(call.endpoint, options);
      if (!ticket) continue;
      let access: AccessToken | undefined;
      try {
        access = keeper.current();
      } finally {
        if (!access) await budget.cancel(ticket);
      }
      if (access) return { ticket, access };
    }
  }

  async #attempt(
    call: PlatformCall,
    options: CallOptions,
    ticket: LaneTicket,
    access: AccessToken,
  ): Promise<TransportAnswer> {
    const { transport, budget, clock, log } = this.#o;
    const startMs = clock.monotonicMs();
    try {
      options.onSend?.();
      const answer = await transport.send({
        endpoint: call.endpoint,
        method: call.method,
        path: call.path + queryText(call.query),
        headers: {
          accept: 'application/json',
          authorization: `Bearer ${access.token}`,
          ...(call.body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(call.body !== undefined && { body: JSON.stringify(call.body) }),
        timeoutMs: call.timeoutMs,
        bodyMaxBytes: call.bodyMaxBytes,
        ...(options.signal && { signal: options.signal }),
      });
      const durationMs = Math.round(clock.monotonicMs() - startMs);
      log.debug({ endpoint: call.endpoint, status: answer.status, durationMs }, 'The platform answered.');
      return answer;
    } catch (error) {
      await budget.failed(ticket);
      if (!hasCode(error, 'aborted')) log.debug({ endpoint: call.endpoint, err: error }, 'A call failed.');
      throw error;
    }
  }
}

function queryText(query: PlatformCall['query'] = {}): string {
  const sent = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as [string, string]],
  );
  return sent.length === 0 ? '' : `?${new URLSearchParams(sent).toString()}`;
}

function unauthorized(endpoint: Endpoint): TillsyncError {
  return new TillsyncError(
    'unauthorized',
    `The platform answers 401 to ${endpoint} also with a fresh token.`,
    {
      httpStatus: 401,
      hint: 'Check that the tokens belong to this company, and ask the platform for help.',
    },
  );
}
