/** Tests src/sandbox/sandbox.ts. */

import { describe, expect, it } from 'vitest';
import type { FaultSpec } from '../../src/sandbox/faults.ts';
import { createSandbox } from '../../src/sandbox/sandbox.ts';
import { FakeClock, seededRandom, settle } from '../support/fake-clock.ts';
import { LIMITS, rig } from './fixture.ts';

const GET = '/product?sku=1001';
const PUT = { sku: 1001, price: 4242 };

async function faulty(spec: FaultSpec) {
  const at = await rig({ accessTokenLifetimeMs: 24 * 3_600_000 });
  at.sandbox.control.setFault(spec);
  const price = () => at.sandbox.control.products()[0]?.children[0]?.price;
  return { ...at, price };
}

describe('faults', () => {
  it.each([500, 502, 503])('answer %i, once, and leave the work undone', async (status) => {
    const { call, later, price, sandbox } = await faulty({ kind: 'status', status, times: 1 });
    expect((await call('PUT', '/product', PUT)).status).toBe(status);
    expect(price()).not.toBe(4242);
    expect((await later('PUT', '/product', PUT)).status).toBe(200);
    expect(price()).toBe(4242);
    expect(sandbox.control.calls().map((record) => record.fault)).toEqual(['status', null]);
    expect(sandbox.control.violations()).toEqual([]);
  });

  it('can answer 500 after the work was done', async () => {
    const { call, price } = await faulty({ kind: 'status', when: 'after' });
    expect((await call('PUT', '/product', PUT)).status).toBe(500);
    expect(price()).toBe(4242);
  });

  it.each([
    [undefined, '1'],
    ['Wed, 21 Oct 2037 07:28:00 GMT', 'Wed, 21 Oct 2037 07:28:00 GMT'],
    ['999999999', '999999999'],
    [null, undefined],
  ])('answer 429 with the Retry-After %s', async (retryAfter, expected) => {
    const { call } = await faulty({
      kind: 'rate-limit',
      ...(retryAfter === undefined ? {} : { retryAfter }),
    });
    const answer = await call('GET', GET);
    expect(answer.status).toBe(429);
    expect(answer.headers['retry-after']).toBe(expected);
  });

  it('block the token for a while on every endpoint', async () => {
    const { call, later, clock, sandbox } = await faulty({ kind: 'block', times: 1, delayMs: 200_000 });
    expect((await call('GET', GET)).status).toBe(403);
    expect((await later('PUT', '/product', PUT)).status).toBe(403);
    await clock.advance(80_000);
    expect((await call('GET', GET)).status).toBe(200);
    sandbox.control.setFault({ kind: 'block', times: 1 });
    expect((await later('GET', GET)).status).toBe(403);
    sandbox.control.unblock();
    expect((await later('GET', GET)).status).toBe(200);
  });

  it('forbid one endpoint and no other', async () => {
    const { call, later } = await faulty({ kind: 'forbid', endpoint: 'product.get' });
    expect((await call('GET', GET)).status).toBe(403);
    expect((await call('PUT', '/product', PUT)).status).toBe(200);
    expect((await later('GET', GET)).status).toBe(403);
  });

  it('answer 401 to a good token', async () => {
    const { call, later } = await faulty({ kind: 'unauthorized', times: 1 });
    expect((await call('GET', GET)).status).toBe(401);
    expect((await later('GET', GET)).status).toBe(200);
  });

  it('end the connection before the work or after it', async () => {
    const { call, later, price, sandbox } = await faulty({ kind: 'drop', times: 1 });
    await expect(call('PUT', '/product', PUT)).rejects.toThrow();
    expect(price()).not.toBe(4242);
    sandbox.control.setFault({ kind: 'drop', when: 'after', times: 1 });
    await expect(later('PUT', '/product', PUT)).rejects.toThrow();
    expect(price()).toBe(4242);
    expect(sandbox.control.calls().map((record) => record.status)).toEqual(['dropped', 'dropped']);
  });

  it('lose the reply of a refresh: the old token is dead and nobody has the new one', async () => {
    const { later, tokens, sandbox } = await faulty({
      kind: 'drop',
      when: 'after',
      endpoint: 'token.refresh',
      times: 1,
    });
    const { refreshToken } = tokens;
    await expect(later('POST', '/token/refresh', { refreshToken })).rejects.toThrow();
    expect((await later('POST', '/token/refresh', { refreshToken })).status).toBe(401);
    expect(sandbox.control.deadRefreshUses()).toHaveLength(1);
  });

  it('hang until the caller gives up', async () => {
    const sandbox = createSandbox({ clock: new FakeClock(), random: seededRandom(1), limits: LIMITS });
    sandbox.control.setFault({ kind: 'hang' });
    const gone = new AbortController();
    const headers = { authorization: `Bearer ${sandbox.issueTokens().token}` };
    let ended = false;
    const answer = sandbox.handle({ method: 'GET', url: GET, headers, signal: gone.signal }).finally(() => {
      ended = true;
    });
    await settle();
    expect(ended).toBe(false);
    gone.abort();
    expect(await answer).toEqual({ kind: 'dropped' });
  });

  it('hang over HTTP, and a close of the sandbox ends it', async () => {
    const { call, sandbox } = await faulty({ kind: 'hang' });
    const answer = expect(call('GET', GET)).rejects.toThrow();
    while (sandbox.control.calls().length === 0) await settle();
    await sandbox.close();
    await answer;
  });

  it('cut the body in the middle of what was promised', async () => {
    const { call, price } = await faulty({ kind: 'cut-body' });
    await expect(call('PUT', '/product', PUT)).rejects.toThrow();
    expect(price()).toBe(4242);
  });

  it('send the body slowly, and whole', async () => {
    const { call, clock } = await faulty({ kind: 'slow-body', delayMs: 5000 });
    const startMs = clock.monotonicMs();
    let ended = false;
    const answer = call('GET', GET).finally(() => {
      ended = true;
    });
    while (!ended) await clock.advance(100);
    expect((await answer).json.data.children[0].sku).toBe(1001);
    expect(clock.monotonicMs() - startMs).toBeGreaterThanOrEqual(5000);
  });

  it.each([
    ['html', 'text/html', /^<!doctype html>/],
    ['truncated-json', 'application/json; charset=utf-8', /^\{"success":true.*[^}]$/],
    ['wrong-content-type', 'text/plain', /^\{"success":true.*\}$/],
    ['not-success', 'application/json; charset=utf-8', /^\{"success":false/],
  ] as const)('answer 200 with %s', async (kind, contentType, text) => {
    const { call } = await faulty({ kind });
    const answer = await call('GET', GET);
    expect(answer.status).toBe(200);
    expect(answer.headers['content-type']).toBe(contentType);
    expect(answer.text).toMatch(text);
  });

  it('lose one good item of a batch without a word', async () => {
    const { call, price } = await faulty({ kind: 'miscount', endpoint: 'product.batch' });
    const products = [{ sku: 1 }, PUT, { sku: 1002, price: 7 }];
    const { data } = (await call('PUT', '/product/batch', { products })).json;
    expect(data).toMatchObject({ updated: 1, total: 3, errors: [{ index: 0 }] });
    expect(price()).not.toBe(4242);
  });

  it('refuse a batch whole for one bad item, and let a good one pass', async () => {
    const { later, price } = await faulty({ kind: 'batch-refused', poison: ['E-1002'], status: 422 });
    const batch = async (...products: object[]) =>
      (await later('PUT', '/product/batch', { products })).status;
    expect(await batch(PUT, { sku: 1002 })).toBe(422);
    expect(await batch(PUT, { sku: 77, price: 1 })).toBe(422);
    expect(await batch(PUT, { externalId: 'E-1002', price: 1 })).toBe(422);
    expect(price()).not.toBe(4242);
    expect(await batch(PUT, { sku: 1002, price: 1 })).toBe(200);
    expect(price()).toBe(4242);
  });

  it('strike by chance, after some calls, n times, until cleared', async () => {
    const { later, sandbox } = await faulty({ kind: 'status', skip: 1, times: 2 });
    const statuses = async (count: number) => {
      const seen: number[] = [];
      for (let n = 0; n < count; n++) seen.push((await later('GET', GET)).status);
      return seen;
    };
    expect(await statuses(4)).toEqual([200, 500, 500, 200]);
    expect(sandbox.control.faults()).toEqual([]);
    const id = sandbox.control.setFault({ kind: 'status', probability: 0.5 });
    expect(new Set(await statuses(20))).toEqual(new Set([200, 500]));
    sandbox.control.clearFaults(id);
    expect(new Set(await statuses(10))).toEqual(new Set([200]));
  });

  it('do not hide that a limit was broken', async () => {
    const { call, sandbox } = await faulty({ kind: 'status' });
    await call('GET', GET);
    expect((await call('GET', GET)).status).toBe(429);
    expect(sandbox.control.violations()).toHaveLength(1);
  });
});
