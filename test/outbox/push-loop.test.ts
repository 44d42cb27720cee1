/** Tests src/outbox/sending/push-loop.ts. */

import type Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import type { FreshnessState } from '../../src/core/alarm.ts';
import { type ErrorCode, TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { PushFreshness, PushLoop } from '../../src/outbox/sending/push-loop.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import type { BatchAnswer, StockChangeItem } from '../../src/platform/schemas.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { outgoing, product, tempMirror } from './outbox-fixture.ts';

const MINUTE_MS = 60_000;
const DOWN = new TillsyncError('platform-failed', 'HTTP 500.');

const BRANCH = { subsidiaryId: 's1', externalId: 'B1' };

/**
 * Makes a sender on a mirror, with a platform that accepts everything by default. `numbers` are those of the products:
 * E7 has the number 7, and a stock of 9000 at the platform.
 */
function setUp(how: { lingerMs?: number; numbers?: readonly number[] } = {}) {
  const db = tempMirror();
  const out = outgoing(db, [BRANCH]);
  const { clock } = out;
  const { numbers = [...Array(120).keys()] } = how;
  out.sweep(
    numbers.map((n) => product(`p${n}`, `P${n}`, [{ sku: `${n}`, stocks: { s1: [`E${n}`, 9_000] } }])),
  );
  const calls: { atMs: number; qtys: number[] }[] = [];
  const told: (FreshnessState | 'answered')[] = [];
  const trouble: { call?: TillsyncError; settle?: number } = {};
  const polled: { atMs: number | null } = { atMs: null };
  const status: { now: 'sends' | 'elsewhere' | 'locked-out' } = { now: 'sends' };
  const startMs = clock.monotonicMs();
  let isAnswered = false;
  const send = (items: StockChangeItem[]) => {
    calls.push({ atMs: clock.monotonicMs() - startMs, qtys: items.map(({ qty }) => qty) });
    if (trouble.call) return Promise.reject(trouble.call);
    isAnswered = true;
    const answer: BatchAnswer = { updated: items.length, total: items.length, errors: [] };
    return Promise.resolve(answer);
  };
  const mirror = {
    read: <T>(action: (at: Database.Database) => T) => action(db),
    async write<T>(action: (at: Database.Database) => T): Promise<T> {
      // The disk fails when the outcomes of a call are written.
      if (isAnswered && (trouble.settle ?? 0) > 0) {
        trouble.settle = (trouble.settle ?? 0) - 1;
        throw new TillsyncError('storage-full', 'The disk is full.');
      }
      isAnswered = false;
      return db.transaction(() => action(db)).immediate();
    },
    writeDerived: <T>(action: (at: Database.Database) => T): Promise<T> => mirror.write(action),
  };
  const loop = new PushLoop({
    kind: 'stock',
    stores: new MirrorStores({ mirror, branches: [BRANCH], clock }),
    rules: { skipUnchanged: true, holdBack: false, trustMs: 600_000, platformDeducts: true },
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
  const put = (qty: number) => {
    const [{ state, message } = { state: '', message: '' }] = out.accept('stock', [
      { externalId: `E${qty}`, qty },
    ]);
    if (state !== 'pending') throw new Error(`E${qty} is ${state}: ${message}`);
    loop.wake();
  };
  const changes = (...states: string[]) =>
    db
      .prepare<[string], number>(
        'SELECT change_id FROM outbox WHERE state IN (SELECT value FROM json_each(?)) ORDER BY change_id',
      )
      .pluck()
      .all(JSON.stringify(states));
  const waiting = () => changes('pending', 'sending');
  const dropAll = () => {
    for (const changeId of waiting()) out.admin.discard(changeId);
  };
  const controller = new AbortController();
  const ended = loop.run(controller.signal);
  const stop = async () => {
    controller.abort();
    await clock.advance(20_000);
    await ended;
  };
  return { clock, calls, changes, waiting, dropAll, told, trouble, polled, status, put, stop };
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
    put(0);
    await clock.advance(1);
    expect(calls[1]?.qtys).toEqual([0, 3]);
    for (let qty = 10; qty < 110; qty++) put(qty);
    await clock.advance(1);
    expect(calls[2]?.qtys).toHaveLength(100);
    await stop();
  });

  it('rests longer and longer in an outage, whatever is handed over, and keeps everything', async () => {
    const numbers = Array.from({ length: 3_600 }, (_, i) => 1_000 + i);
    const { clock, waiting, calls, trouble, put, stop } = setUp({ numbers });
    trouble.call = DOWN;
    for (const number of numbers) {
      put(number);
      await clock.advance(1_000);
    }
    // A try is a batch that fails, and from the third one on a single change by the other endpoint.
    const tries = new Set(calls.map(({ atMs }) => atMs)).size;
    expect(tries).toBeLessThan(30);
    expect(calls.length).toBeLessThanOrEqual(2 * tries);
    expect(waiting()).toHaveLength(3_600);
    delete trouble.call;
    await clock.advance(400_000);
    expect(waiting()).toEqual([]);
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
    const { clock, calls, changes, waiting, trouble, put, stop } = setUp();
    trouble.settle = 5;
    put(7);
    await clock.advance(60_000);
    expect(changes('done')).toHaveLength(1);
    expect(waiting()).toEqual([]);
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
    const { clock, waiting, dropAll, told, trouble, status, put, stop } = setUp();
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
    dropAll();
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
    expect(waiting()).toHaveLength(1);
    await stop();
  });

  it('is silent while another process sends', async () => {
    const { clock, waiting, calls, told, status, put, stop } = setUp();
    status.now = 'elsewhere';
    put(1);
    await clock.advance(60_000);
    expect([calls, told, waiting().length]).toEqual([[], [], 1]);
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
