/** Tests src/outbox/push-loop.ts. */

import { describe, expect, it } from 'vitest';
import type { FreshnessState } from '../../src/core/alarm.ts';
import { type ErrorCode, TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Answer, BatchItem } from '../../src/outbox/change.ts';
import { PushFreshness, PushLoop } from '../../src/outbox/push-loop.ts';
import type { MirrorStores } from '../../src/outbox/repositories.ts';
import type { BatchAnswer, StockChangeItem } from '../../src/platform/schemas.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';

const MINUTE_MS = 60_000;
const DOWN = new TillsyncError('platform-failed', 'HTTP 500.');

/** Makes a sender with a queue in memory and a platform that accepts everything by default. */
function setUp(how: { lingerMs?: number } = {}) {
  const clock = new FakeClock();
  const waiting: (BatchItem & { urgent?: boolean })[] = [];
  const calls: { atMs: number; qtys: number[] }[] = [];
  const settled: Answer[] = [];
  const told: (FreshnessState | 'answered')[] = [];
  const trouble: { call?: TillsyncError; settle?: number } = {};
  const polled: { atMs: number | null } = { atMs: null };
  const status: { now: 'sends' | 'elsewhere' | 'locked-out' } = { now: 'sends' };
  const underWay = new Map<number, BatchItem[]>();
  const startMs = clock.monotonicMs();
  const send = (items: StockChangeItem[]) => {
    calls.push({ atMs: clock.monotonicMs() - startMs, qtys: items.map(({ qty }) => qty) });
    if (trouble.call) return Promise.reject(trouble.call);
    const answer: BatchAnswer = { updated: items.length, total: items.length, errors: [] };
    return Promise.resolve(answer);
  };
  class LoopInMemory extends PushLoop {
    override outlook() {
      return { waiting: waiting.length, urgent: waiting.some(({ urgent }) => urgent) };
    }
    override async claim(max: number) {
      const items = waiting.splice(0, max);
      underWay.set(calls.length, items);
      return { callId: items.length === 0 ? null : calls.length, items, toLook: [] };
    }
    override async settle(callId: number, answers: readonly Answer[]) {
      if ((trouble.settle ?? 0) > 0) {
        trouble.settle = (trouble.settle ?? 0) - 1;
        throw new TillsyncError('storage-full', 'The disk is full.');
      }
      settled.push(...answers);
      const again = answers.filter(({ state }) => state === 'retry').map(({ changeId }) => changeId);
      waiting.unshift(...(underWay.get(callId) ?? []).filter(({ changeId }) => again.includes(changeId)));
      const done = answers.length - again.length;
      return { done, rejected: 0, waiting: again.length, superseded: 0, ignored: 0 };
    }
  }
  const loop = new LoopInMemory({
    kind: 'stock',
    stores: {} as MirrorStores,
    rules: { skipUnchanged: true, holdBack: false },
    hasBranches: true,
    lastPollOkMs: () => polled.atMs,
    platform: {
      productStockBatch: send,
      productStockPut: async (item) => {
        await send([item]);
        return 'applied';
      },
      productBatch: () => Promise.reject(new Error('not stock')),
      productPut: () => Promise.reject(new Error('not stock')),
      productGet: () => Promise.resolve(null),
      delayMs: () => Promise.resolve(0),
    },
    status: () => status.now,
    freshness: new PushFreshness({
      ok: () => void told.push('answered'),
      report: (_subject, state) => void told.push(state),
    }),
    clock,
    random: seededRandom(1),
    log: silentLog,
    lingerMs: how.lingerMs ?? 250,
    beat() {},
  });
  const put = (qty: number, more: object = {}) => {
    waiting.push({
      changeId: qty,
      target: `${qty}`,
      body: { externalId: `E${qty}`, qty },
      attempts: 0,
      ...more,
    });
    loop.wake();
  };
  const controller = new AbortController();
  const ended = loop.run(controller.signal);
  const stop = async () => {
    controller.abort();
    await clock.advance(20_000);
    await ended;
  };
  return { clock, waiting, calls, settled, told, trouble, polled, status, put, stop };
}

describe('the sender', () => {
  it('waits a little for company, not at all for a full call or when something is sold out', async () => {
    const { clock, calls, put, stop } = setUp({ lingerMs: 10_000 });
    put(1);
    await clock.advance(4_000);
    put(2);
    await clock.advance(5_000);
    expect(calls).toEqual([]);
    await clock.advance(1_500);
    expect(calls.map(({ qtys }) => qtys)).toEqual([[1, 2]]);
    put(3);
    await clock.advance(100);
    put(0, { urgent: true });
    await clock.advance(1);
    expect(calls[1]?.qtys).toEqual([3, 0]);
    for (let qty = 10; qty < 110; qty++) put(qty);
    await clock.advance(1);
    expect(calls[2]?.qtys).toHaveLength(100);
    await stop();
  });

  it('rests longer and longer in an outage, whatever is handed over, and keeps everything', async () => {
    const { clock, waiting, calls, trouble, put, stop } = setUp();
    trouble.call = DOWN;
    for (let i = 0; i < 3_600; i++) {
      put(1_000 + i);
      await clock.advance(1_000);
    }
    expect(calls.length).toBeLessThan(30);
    expect(waiting).toHaveLength(3_600);
    delete trouble.call;
    await clock.advance(400_000);
    expect(waiting).toEqual([]);
    await stop();
  });

  it('tries often once orders are fetched, if the failure may end at any moment', async () => {
    /** Returns the pauses between calls in the ten minutes after a good poll. */
    const pausesOf = async (code: ErrorCode, failedBeforeMs: number) => {
      const { clock, calls, trouble, polled, put, stop } = setUp();
      trouble.call = new TillsyncError(code, 'No.');
      put(1);
      await clock.advance(failedBeforeMs);
      const before = calls.length;
      polled.atMs = clock.nowMs();
      await clock.advance(10 * MINUTE_MS);
      await stop();
      const at = calls
        .map(({ atMs }) => atMs)
        .filter((_, i, all) => i === 0 || (all[i] ?? 0) > (all[i - 1] ?? 0) + 1);
      return at.slice(before).map((atMs, i) => atMs - (at[before - 1 + i] ?? 0));
    };
    for (const code of ['platform-failed', 'platform-unreachable', 'platform-garbled'] as const) {
      const soon = await pausesOf(code, MINUTE_MS);
      // The pauses take ten to twenty seconds in the first minutes, and in the end a tenth of the eleven minutes of
      // failures.
      expect(Math.max(...soon.slice(1, 12))).toBeLessThanOrEqual(30_000);
      expect(Math.min(...soon)).toBeGreaterThanOrEqual(10_000);
      expect(Math.max(...soon)).toBeLessThanOrEqual(67_000);
      const late = await pausesOf(code, 10 * MINUTE_MS);
      expect(Math.min(...late.slice(1))).toBeGreaterThanOrEqual(60_000);
      expect(Math.max(...late.slice(1))).toBeLessThanOrEqual(121_000);
    }
    for (const code of ['rate-limited', 'blocked', 'forbidden', 'unauthorized'] as const)
      expect((await pausesOf(code, 10 * MINUTE_MS)).length).toBeLessThan(5);
  });

  it('writes what a call brought as soon as the disk takes it, and sends it no second time', async () => {
    const { clock, calls, settled, trouble, put, stop } = setUp();
    trouble.settle = 5;
    put(7);
    await clock.advance(60_000);
    expect(settled).toMatchObject([{ changeId: 7, state: 'done' }]);
    expect(calls).toHaveLength(1);
    await stop();
  });

  it('ends in time while the disk takes nothing', async () => {
    const { clock, trouble, put, stop } = setUp();
    trouble.settle = 100_000;
    put(7);
    await clock.advance(5_000);
    await stop();
    expect(trouble.settle).toBeGreaterThan(99_980);
  });

  it('tells how it fares: failing, well again, well when what failed is gone, and who is waited for', async () => {
    const { clock, waiting, told, trouble, status, put, stop } = setUp();
    trouble.call = DOWN;
    put(1);
    await clock.advance(1_000);
    expect(told).toEqual(['failing']);
    delete trouble.call;
    await clock.advance(20_000);
    expect(told.slice(1)).toEqual(['answered']);
    trouble.call = DOWN;
    put(2);
    await clock.advance(1_000);
    waiting.length = 0;
    await clock.advance(20_000);
    expect(told.slice(2)).toEqual(['failing', 'ok']);
    status.now = 'locked-out';
    await clock.advance(20_000);
    expect(told.slice(4)).toEqual([]);
    put(3);
    await clock.advance(60_000);
    expect(told.slice(4)).toEqual(['locked-out']);
    status.now = 'elsewhere';
    await clock.advance(60_000);
    expect(waiting).toHaveLength(1);
    await stop();
  });

  it('is silent while another process sends', async () => {
    const { clock, waiting, calls, told, status, put, stop } = setUp();
    status.now = 'elsewhere';
    put(1);
    await clock.advance(60_000);
    expect([calls, told, waiting.length]).toEqual([[], [], 1]);
    await stop();
  });
});

describe('how sending fares', () => {
  it('is not well while one kind of changes is in trouble', () => {
    const told: string[] = [];
    const freshness = new PushFreshness({
      ok: () => void told.push('ok'),
      report: (_subject, state) => void told.push(state),
    });
    freshness.failed('stock', DOWN);
    freshness.answered('product');
    freshness.idle('product');
    expect(told).toEqual(['failing']);
    freshness.answered('stock');
    expect(told).toEqual(['failing', 'ok']);
  });
});
