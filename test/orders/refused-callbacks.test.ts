/** Tests src/orders/receiving/callback-log.ts. */

import { beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import {
  type Callback,
  CallbackLog,
  type KeptCallback,
  RefusedCallbacks,
} from '../../src/orders/receiving/callback-log.ts';
import { tempState } from '../platform/temp-state.ts';
import { FakeClock } from '../support/fake-clock.ts';

const GOOD: Callback = {
  atMs: 0,
  status: 200,
  fault: null,
  orderId: 'o1',
  code: 7,
  orderStatus: 'ready',
  from: '10.0.0.1',
  isProbe: false,
};
const REFUSED: Callback = {
  ...GOOD,
  status: 401,
  fault: 'secret-wrong',
  orderId: null,
  code: null,
  orderStatus: null,
};
const LARGE: Callback = { ...REFUSED, status: 413, fault: 'too-large' };
const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

let clock: FakeClock;
beforeEach(() => {
  clock = new FakeClock();
});

describe('RefusedCallbacks', () => {
  const watch = (before: KeptCallback[] = []) =>
    new RefusedCallbacks({ bodyLimitBytes: 1_048_576, clock, before });

  it('tells a shop with five orders an hour, and not of the odd one a day', async () => {
    const refused = watch();
    for (let hour = 0; hour < 4; hour++) {
      refused.answered(REFUSED);
      await clock.advance(61 * MINUTE_MS);
    }
    expect(refused.trouble()).toBeNull();
    for (let i = 0; i < 3; i++) {
      await clock.advance(12 * MINUTE_MS);
      refused.answered({ ...REFUSED, from: '203.0.113.7' });
    }
    expect(refused.trouble()).toMatch(/another secret.*401.*203\.0\.113\.7/);
    // In a quiet hour fewer callbacks arrive, but their secret is still wrong, so the trouble does not end.
    await clock.advance(120 * MINUTE_MS);
    refused.answered(REFUSED);
    expect(refused.trouble()).toContain('another secret');
    await clock.advance(DAY_MS);
    expect(refused.trouble()).toBeNull();
    refused.answered(REFUSED);
    expect(refused.trouble()).toBeNull();
  });

  it.each<[string, Partial<Callback>]>([
    ['its own tries', { isProbe: true }],
    ['strangers who try addresses', { fault: 'no-callback' }],
  ])('does not count %s', (_who, more) => {
    const refused = watch();
    for (let i = 0; i < 50; i++) refused.answered({ ...REFUSED, ...more });
    expect(refused.trouble()).toBeNull();
  });

  it('says which cause it is; a good one proves the secret and nothing of the size', async () => {
    const refused = watch();
    for (let i = 0; i < 3; i++) refused.answered({ ...REFUSED, fault: 'secret-missing' });
    expect(refused.trouble()).toContain('no secret');
    refused.answered(GOOD);
    expect(refused.trouble()).toBeNull();
    for (let i = 0; i < 3; i++) refused.answered(LARGE);
    expect(refused.trouble()).toContain('webhook.body_limit');
    refused.answered(GOOD);
    expect(refused.trouble()).not.toBeNull();
    await clock.advance(DAY_MS);
    expect(refused.trouble()).toBeNull();
  });

  it('goes on after a restart with those that were kept', async () => {
    const kept = (callback: Callback, minutesAgo: number, count = 1): KeptCallback => ({
      ...callback,
      atMs: clock.nowMs() - minutesAgo * MINUTE_MS,
      ...{ id: 1, count },
    });
    expect(watch([kept(REFUSED, 40, 9)]).trouble()).toContain('another secret');
    expect(watch([kept(REFUSED, 40, 2)]).trouble()).toBeNull();
    expect(watch([kept(REFUSED, 40, 9), kept(GOOD, 30)]).trouble()).toBeNull();
    expect(watch([kept(REFUSED, 24 * 60, 9)]).trouble()).toBeNull();
  });
});

describe('CallbackLog', () => {
  function log() {
    const { callbacks } = tempState(clock);
    let writes = 0;
    const store = {
      ...callbacks,
      list: (after: number, limit: number) => callbacks.list(after, limit),
      keep(lines: Parameters<typeof callbacks.keep>[0]) {
        writes += 1;
        return callbacks.keep(lines);
      },
    };
    const { signal } = new AbortController();
    return { store, log: new CallbackLog({ store, clock, log: silentLog, signal }), writes: () => writes };
  }

  it('makes few writes and few lines of a flood of refused ones, and loses no good one to it', async () => {
    const { log: kept, store, writes } = log();
    kept.note({ ...GOOD, atMs: clock.nowMs() });
    for (let s = 0; s < 20; s++) {
      for (let i = 0; i < 500; i++) kept.note({ ...REFUSED, atMs: clock.nowMs() });
      await clock.advance(1_000);
    }
    await clock.advance(5_000);
    expect(writes()).toBeLessThanOrEqual(11);
    expect(store.list(0, 1_000)).toMatchObject([
      { orderId: 'o1', code: 7 },
      { status: 401, count: 10_000 },
    ]);
  });

  it('keeps the last thousand', async () => {
    const { log: kept, store } = log();
    for (let i = 0; i < 1_500; i++) {
      kept.note({ ...GOOD, code: i });
      if (i % 100 === 0) await clock.advance(2_500);
    }
    kept.flush();
    const list = store.list(0, 5_000);
    expect([list.length, list[0]?.code, list.at(-1)?.code]).toEqual([1_000, 500, 1_499]);
    expect(store.list(list.at(-2)?.id ?? 0, 10).map(({ code }) => code)).toEqual([1_499]);
  });
});
