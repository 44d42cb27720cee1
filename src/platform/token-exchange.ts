import type { NewTokenPair } from '../domain/platform/tokens.ts';
import type { Clock } from '../domain/time/clock.ts';
import { expectSuccess, readAs, readData, sentMessage } from './answers.ts';
import { tokenRefreshData, tokenRefreshRequest } from './schemas/token.ts';
import { serverDateMs } from './server-date.ts';
import { datedPair } from './token-times.ts';
import type { Transport } from './transport.ts';

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
