/** Tests src/orders/receiving/answer-import.ts. */

import { describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { OrderPoll } from '../../src/orders/receiving/order-poll.ts';
import type { Wait } from '../../src/platform/platform.ts';
import { FakeClock } from '../support/fake-clock.ts';

const INTERVAL_MS = 120_000;

/** Makes a shop whose processes share a lease and an interval, as they do through state.db. */
function shop() {
  const clock = new FakeClock();
  const shared = { allowedAtMs: 0, reason: 'interval' as Wait['reason'], held: false };
  const order: string[] = [];
  const poller = (name: string) =>
    new OrderPoll({
      platform: {
        async orderAll(_query, how) {
          how?.onSend?.();
          order.push(name);
          shared.allowedAtMs = clock.monotonicMs() + INTERVAL_MS;
          return { body: Buffer.from('[]') };
        },
      },
      mirror: {
        importAnswer: async () => ({
          listFound: true,
          records: 0,
          created: 0,
          changed: 0,
          confirmed: 0,
          superseded: 0,
          repeated: 0,
          unreadLists: [],
          unlisted: [],
          unreadable: 0,
          createdIds: [],
          morePages: false,
          mayBeCut: false,
          codes: null,
        }),
        orders: { newestSeq: () => 0, newestHeldId: () => 0, oldestOpenMs: () => null, openDays: () => [] },
        listed: { watched: () => [], settle: async () => [] },
        polls: { lastAskedMs: () => null, raisedReach: () => 0, note: async () => {} },
        health: { ok() {}, report() {}, note() {} },
      },
      platformSkewMs: () => undefined,
      leases: {
        acquire() {
          if (shared.held) return undefined;
          shared.held = true;
          return 1;
        },
        renew: () => true,
        release() {
          shared.held = false;
        },
      },
      nextWait() {
        const waitMs = shared.allowedAtMs - clock.monotonicMs();
        return waitMs > 0 ? { endpoint: 'order.all', reason: shared.reason, waitMs } : undefined;
      },
      clock,
      log: silentLog,
      settings: { timezone: 'UTC', lookbackDays: 1, wideDays: 30, pageParameter: '' },
    });
  return { clock, shared, order, poller };
}

describe('OrderPoll', () => {
  it('tells why it waits, also beside a process that waits to poll itself', async () => {
    const { clock, shared, order, poller } = shop();
    shared.allowedAtMs = clock.monotonicMs() + 72_000;
    const daemon = poller('daemon').poll({ giveWayMs: 500 });
    await clock.advance(1_000);
    const waits: Wait[] = [];
    const command = poller('command').poll({ onWait: (wait) => void waits.push(wait) });
    await clock.advance(0);
    expect(waits).toEqual([{ endpoint: 'order.all', reason: 'interval', waitMs: 71_000 }]);
    await clock.advance(71_000);
    await command;
    expect(order).toEqual(['command']);
    await clock.advance(INTERVAL_MS + 1_000);
    await daemon;
    expect(order).toEqual(['command', 'daemon']);
  });

  it('says that another poll is under way while it has the lease', async () => {
    const { clock, shared, poller } = shop();
    shared.held = true;
    const waits: Wait[] = [];
    const poll = poller('command').poll({ onWait: (wait) => void waits.push(wait) });
    await clock.advance(0);
    expect(waits[0]?.reason).toBe('in-flight');
    shared.held = false;
    await clock.advance(1_000);
    await poll;
  });

  it('leaves a block to the call, and a wait at once when it is stopped', async () => {
    const { clock, shared, order, poller } = shop();
    shared.allowedAtMs = clock.monotonicMs() + 3_600_000;
    const stop = new AbortController();
    const waiting = poller('stopped').poll({ signal: stop.signal });
    const told = expect(waiting).rejects.toMatchObject({ code: 'aborted' });
    await clock.advance(1_000);
    stop.abort();
    await told;
    expect(shared.held).toBe(false);
    shared.reason = 'blocked';
    await poller('blocked').poll();
    expect(order).toEqual(['blocked']);
    expect(clock.sleeping).toBe(0);
  });
});
