import { describe, expect, it } from 'vitest';
import { BUILT_IN_STRATEGIES } from '../../bench/oversell/built-in-strategies.ts';
import { playDay } from '../../bench/oversell/play-day.ts';
import { DAY, type ShopDay, shopDay } from '../../bench/oversell/shop-day.ts';
import type { DayOutcome } from '../../bench/oversell/shop-floor.ts';
import { playDaemonDay } from './daemon-day.ts';

/** `TILLSYNC_SHOP_DAYS=10` plays ten days, by callbacks and by polling. */
const DAYS = Number(process.env.TILLSYNC_SHOP_DAYS ?? 1);
/** Busy days, with long waits until staff book, so that many last pieces are wanted twice. */
const SETTINGS = { ...DAY, customers: 220, bookingS: 1_200 };
const SEED = 3;
const FIGURES = ['orders', 'sold', 'atsale', 'outside', 'conflict', 'lost'] as const;

/**
 * Allowed difference of a figure from the model. About 0.05 orders a day arrive in the two seconds in which a count
 * of the same product is on its way; each may end otherwise, and so change what is offered to the next customer.
 */
const DIFFERENCE_MAX = Math.ceil(0.2 * DAYS);

describe(`the real daemon on ${DAYS} shop days`, () => {
  it.each([
    ['callback', 'tillsync'],
    ['poll', 'tillsync by polling, with looks'],
  ] as const)('oversell: sells as the bench says, hearing by %s', async (hears, name) => {
    const total = { push: zero(), model: zero(), daemon: zero() };
    for (let n = 0; n < DAYS; n++) {
      // A plain push shows that the days are hard enough: already on the first one it sells pieces that are not free.
      const day = shopDay({ ...SETTINGS, hears }, SEED, 1 + n);
      add(total.push, await playModelDay(day, 'push each change'));
      add(total.model, await playModelDay(day, name));
      add(total.daemon, await playDaemonDay(day, hears));
    }
    console.log(`${DAYS} days by ${hears}:`, JSON.stringify(total));
    expect(total.push.outside).toBeGreaterThan(0);
    expect(total.daemon.outside).toBe(0);
    expect(total.daemon.sold).toBeGreaterThan(DAYS * 25);
    for (const figure of FIGURES)
      expect(Math.abs(total.daemon[figure] - total.model[figure]), figure).toBeLessThanOrEqual(
        figure === 'outside' ? 0 : DIFFERENCE_MAX,
      );
    // The daemon lets a count wait for the acknowledgement that follows, so it needs fewer calls.
    expect(total.daemon.calls).toBeLessThan(total.model.calls);
  });
});

async function playModelDay(day: ShopDay, name: string): Promise<DayOutcome> {
  const strategy = BUILT_IN_STRATEGIES.find((each) => each.name === name);
  if (!strategy) throw new Error(name);
  return playDay(day, await strategy.create());
}

function zero(): DayOutcome {
  return { orders: 0, sold: 0, atsale: 0, outside: 0, conflict: 0, lost: 0, calls: 0 };
}

function add(sum: DayOutcome, day: DayOutcome): void {
  for (const figure of [...FIGURES, 'calls'] as const) sum[figure] += day[figure];
}
