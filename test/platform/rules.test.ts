/** Tests src/platform/tokens.ts and src/platform/refusals.ts. */

import fc from 'fast-check';
import { SignJWT } from 'jose';
import { expect, test } from 'vitest';
import {
  expectJsonLike,
  expectSuccess,
  readBatchData,
  readData,
  readSingle,
} from '../../src/platform/answers.ts';
import { retryAfterMs } from '../../src/platform/refusals.ts';
import {
  accessLifeMs,
  accessRestMs,
  datedPair,
  handedInPair,
  isDue,
  type TokenPair,
} from '../../src/platform/tokens.ts';
import type { CallAnswer } from '../../src/platform/transport.ts';
import { seededRandom } from '../support/fake-clock.ts';

const HOUR_MS = 3_600_000;
const NOW_MS = Date.UTC(2026, 0, 15, 12);

const jwt = (claims: Record<string, unknown>) =>
  new SignJWT(claims)
    .setProtectedHeader({ alg: 'HS256' })
    .sign(Buffer.from('0123456789abcdef0123456789abcdef'));

function codeOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return 'none';
}

const answer = (status: number, body: string, headers: Record<string, string> = {}): CallAnswer => ({
  status,
  headers,
  bytes: Buffer.from(body),
  secrets: [],
});

test('a wait after 429 lies between the interval and ten minutes, with little jitter', () => {
  fc.assert(
    fc.property(
      fc.option(
        fc.oneof(
          fc.string(),
          fc.integer().map(String),
          fc.date({ noInvalidDate: true }).map((d) => d.toUTCString()),
        ),
      ),
      fc.constantFrom(1000, 120_000, 900_000),
      fc.nat(40),
      (header, intervalMs, before) => {
        const waitMs = retryAfterMs({
          header: header ?? undefined,
          serverNowMs: NOW_MS,
          intervalMs,
          before,
          random: seededRandom(1),
        });
        expect(waitMs).toBeGreaterThanOrEqual(intervalMs);
        expect(waitMs).toBeLessThanOrEqual(Math.max(600_000, intervalMs) * 1.1 + 1);
      },
    ),
  );
  const absent = [0, 1, 2, 3, 20].map((before) =>
    retryAfterMs({ header: undefined, serverNowMs: 0, intervalMs: 1000, before, random: { next: () => 0 } }),
  );
  expect(absent).toEqual([1000, 2000, 4000, 8000, 600_000]);
});

test('an access token is dated by its own times, on the platform’s clock', async () => {
  const clockSkewMs = 3 * HOUR_MS;
  const iat = (NOW_MS + clockSkewMs) / 1000;
  const accessToken = await jwt({ iat, exp: iat + 3600 });
  const refreshToken = await jwt({ exp: iat + 30 * 86_400 });
  expect(datedPair({ accessToken, refreshToken, expiresIn: '5m', nowMs: NOW_MS, clockSkewMs })).toEqual({
    accessToken,
    refreshToken,
    accessIssuedAtMs: iat * 1000,
    accessExpiresAtMs: iat * 1000 + HOUR_MS,
    refreshExpiresAtMs: iat * 1000 + 30 * 24 * HOUR_MS,
    clockSkewMs,
  });
});

test('times that cannot be true fall back to the lifetime, then to expiresIn, then to nothing', async () => {
  const issued = { refreshToken: 'opaque', expiresIn: '1h', nowMs: NOW_MS, clockSkewMs: 0 };
  const expiry = (accessToken: string, expiresIn: string | null = '1h') =>
    datedPair({ ...issued, accessToken, expiresIn }).accessExpiresAtMs;
  const past = NOW_MS / 1000 - 86_400;
  expect(expiry(await jwt({ iat: past, exp: past + 600 }))).toBe(NOW_MS + 600_000);
  expect(expiry(await jwt({ exp: past }))).toBe(NOW_MS + HOUR_MS);
  expect(expiry(await jwt({ sub: 'x' }), '15m')).toBe(NOW_MS + 900_000);
  expect(expiry('opaque', '1h')).toBe(NOW_MS + HOUR_MS);
  expect(expiry('opaque', 'an hour')).toBe(null);
  expect(expiry(await jwt({ exp: NOW_MS + HOUR_MS }))).toBe(NOW_MS + HOUR_MS);
  expect(datedPair({ ...issued, accessToken: 'opaque' }).refreshExpiresAtMs).toBe(null);
});

test('of a pair that was handed in only its own times count', async () => {
  const past = NOW_MS / 1000 - 86_400;
  const pair = handedInPair({ refreshToken: 'r', accessToken: await jwt({ iat: past, exp: past + 3600 }) });
  expect(pair.accessExpiresAtMs).toBe(past * 1000 + HOUR_MS);
  const held: TokenPair = { ...pair, generation: 1, savedAtMs: 0, lockedOut: null };
  expect(accessRestMs(held, NOW_MS)).toBeLessThan(0);
  expect(accessRestMs({ ...held, accessToken: null }, NOW_MS)).toBe(0);
  expect(accessRestMs({ ...held, accessExpiresAtMs: null }, NOW_MS)).toBe(Number.POSITIVE_INFINITY);
  expect(accessLifeMs(held)).toBe(HOUR_MS);
  expect(isDue(held, past * 1000 + HOUR_MS / 2, 0.5)).toBe(true);
  expect(isDue(held, past * 1000 + HOUR_MS / 2 - 1, 0.5)).toBe(false);
  expect(isDue({ ...held, accessExpiresAtMs: null }, NOW_MS, 0.5)).toBe(false);
});

test('each status has its code', () => {
  const codes = [200, 204, 302, 400, 404, 409, 422, 500, 503].map((status) =>
    codeOf(() => expectSuccess(answer(status, '{"message":"no"}'))),
  );
  expect(codes).toEqual([
    'none',
    'none',
    'platform-garbled',
    'platform-refused',
    'platform-refused',
    'platform-refused',
    'platform-refused',
    'platform-failed',
    'platform-failed',
  ]);
});

test('an envelope gives its data, or says what is wrong', () => {
  expect(readData(answer(200, '{"success":true,"message":"ok","data":{"a":1}}'))).toEqual({ a: 1 });
  expect(readData(answer(200, '{"data":null}'))).toBe(null);
  expect(readData(answer(200, '{"success":true}'))).toBe(undefined);
  for (const body of ['', '[]', '<html></html>', '{"success":true', '{"odd":1}', '"text"', '\u0000']) {
    expect(
      codeOf(() => readData(answer(200, body))),
      body,
    ).toBe('platform-garbled');
  }
  expect(codeOf(() => readData(answer(200, '{"success":false,"message":"no"}')))).toBe('platform-refused');
  // A name in another encoding is reported, and not stored with replaced letters.
  const latin = { ...answer(200, ''), bytes: Buffer.from('{"data":{"name":"Ñuñoa"}}', 'latin1') };
  expect(codeOf(() => readData(latin))).toBe('platform-garbled');
});

test('a refusal is told in the platform’s words, short and without what was secret', () => {
  const told = (body: string) => {
    try {
      expectSuccess({ ...answer(400, body), secrets: ['s3cret'] });
    } catch (error) {
      return (error as Error).message;
    }
    return '';
  };
  expect(told('{"message":"bad  secret\\ns3cret!"}')).toBe('bad secret [secret]!');
  expect(told('{"message":["a","b"]}')).toBe('a; b');
  expect(told('<html>')).toContain('could not be read: no JSON (HTTP 400');
  expect(told(JSON.stringify({ error: 'x'.repeat(5000) }))).toHaveLength(300);
  // A refused batch may repeat all its items.
  expect(told(JSON.stringify({ items: Array(100).fill('y'.repeat(1_000)), message: 'bad item' }))).toBe(
    'bad item',
  );
});

test('what a batch answer says of an item is short, on one line and without what was secret', () => {
  const said = (message: unknown) => {
    const data = { updated: 0, total: 1, errors: [{ index: 0, message }] };
    const sent = answer(200, JSON.stringify({ success: true, data }));
    return readBatchData({ ...sent, secrets: ['s3cret'] }).errors[0]?.message;
  };
  expect(said('no  s3cret\u001b[31m\nhere')).toBe('no [secret] [31m here');
  expect(said(['s3cret'])).toBe('["[secret]"]');
  expect(said(`${'x'.repeat(298)}s3cret`)).toBe(`${'x'.repeat(298)}[s`);
  expect(said('\0')).toBe('The platform gives no reason.');
  const odd = { ...answer(200, 'no', { 'content-type': 'Bearer s3cret' }), secrets: ['s3cret'] };
  expect(() => readBatchData(odd)).toThrow('Bearer [secret]');
});

test('an answer to a single change says that it was taken, or leaves it open', () => {
  expect(readSingle(answer(200, '{"success":true,"data":{}}'))).toBe('applied');
  expect(readSingle(answer(200, '{"success":"maybe","data":{}}'))).toBe('unsaid');
  expect(readSingle(answer(200, '{"data":{}}'))).toBe('unsaid');
  expect(codeOf(() => readSingle(answer(200, '{"success":0}')))).toBe('platform-refused');
});

test('JSON-like is judged by the ends alone', () => {
  const json = { 'content-type': 'application/json' };
  for (const body of ['[]', '{}', ' \n{"a":1}\r\n', '\ufeff[1]']) {
    expect(
      codeOf(() => expectJsonLike(answer(200, body, json))),
      body,
    ).toBe('none');
  }
  for (const body of ['', ' ', '{', '[1', '{"a":1]', '<html>', 'null']) {
    expect(
      codeOf(() => expectJsonLike(answer(200, body, json))),
      body,
    ).toBe('platform-garbled');
  }
  expect(
    codeOf(() => expectJsonLike(answer(200, '{}', { 'content-type': 'text/html; charset=utf-8' }))),
  ).toBe('platform-garbled');
  expect(codeOf(() => expectJsonLike(answer(200, '{}', { 'content-type': 'text/plain' })))).toBe('none');
});
