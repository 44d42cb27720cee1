import { describe, expect, it } from 'vitest';
import { runTraffic, UNRELIABLE_WEBHOOK } from '../../../src/sandbox/traffic.ts';
import { SimulatedStore } from './simulated-store.ts';

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const HOURS = Number(process.env.TILLSYNC_SIMULATED_HOURS ?? 24);
const FIRST_SEED = Number(process.env.TILLSYNC_SEED ?? 1 + Math.floor((Date.now() / 86_400_000) % 1000) * 10);
const SEEDS = Array.from({ length: Number(process.env.TILLSYNC_SEEDS ?? 2) }, (_, i) => FIRST_SEED + i);

/** One day of a store: orders all the time, and every hour something that goes wrong. */
async function simulate(seed: number): Promise<SimulatedStore> {
  const store = new SimulatedStore(seed);
  const { clock, random, sandbox, network } = store;
  const { control } = sandbox;
  await store.open();
  await clock.advance(5 * MINUTE_MS);
  control.setWebhookBehaviour({ ...UNRELIABLE_WEBHOOK, reorderMs: 60_000, delayMs: [200, 120_000] });
  const shop = new AbortController();
  const trading = runTraffic({
    clock,
    random,
    control,
    signal: shop.signal,
    plan: { orderEveryMs: 4 * MINUTE_MS, stepEveryMs: MINUTE_MS, hidden: 0.1, silentChange: 0.1 },
  });
  for (let hour = 0; hour < HOURS; hour++) {
    const mishap = Math.floor(random.next() * 7);
    const lengthMs = (1 + random.next() * 20) * MINUTE_MS;
    if (mishap === 0) network.isDown = true;
    if (mishap === 1) clock.jumpWall((random.next() < 0.5 ? -1 : 1) * HOUR_MS);
    if (mishap === 2) await store.shut();
    if (mishap === 3) control.setFault({ kind: 'status', status: 503, probability: 0.7 });
    if (mishap === 4) control.setFault({ kind: 'html', probability: 0.3 });
    if (mishap === 5) control.setFault({ kind: 'drop', when: 'after', endpoint: 'order.all', times: 3 });
    await clock.advance(lengthMs);
    network.isDown = false;
    control.clearFaults();
    if (mishap === 2) await store.open();
    await clock.advance(HOUR_MS - lengthMs);
  }
  shop.abort();
  await trading;
  control.setWebhookBehaviour({ drop: 0, duplicate: 0, reorder: 0, delay: 0 });
  await clock.advance(70 * MINUTE_MS);
  return store;
}

describe(`a simulated store of ${HOURS} hours`, () => {
  it.each(SEEDS)(
    'ends equal, with no rule broken (TILLSYNC_SEED=%i)',
    async (seed) => {
      const store = await simulate(seed);
      const { control } = store.sandbox;
      try {
        expect(control.orders().length).toBeGreaterThan(HOURS * 5);
        expect(store.differences()).toEqual([]);
        expect(control.violations()).toEqual([]);
        expect(control.deadRefreshUses()).toEqual([]);
        // Two polls an hour may fall to a mishap; more than one in two minutes never happens.
        expect(control.calls('order.all').length).toBeLessThanOrEqual(HOURS * 30 + 45);
        const states = store.daemon.parts.mirror
          .freshness()
          .map(({ subject, state }) => `${subject} ${state}`);
        expect(states).toContain('orders.poll ok');
      } finally {
        await store.shut();
        store.remove();
      }
    },
    600_000,
  );
});
