import { expect, it } from 'vitest';
import { SEED } from '../../support/seed.ts';
import { calmDays } from './calm.ts';

/** Simulates `TILLSYNC_CALM_DAYS` days in runs of five days each. `TILLSYNC_SEED` is the seed of the first run. */
const DAYS = Number(process.env.TILLSYNC_CALM_DAYS ?? 3);
const RUN_DAYS = Math.min(DAYS, 5);
const SEEDS = Array.from({ length: Math.ceil(DAYS / RUN_DAYS) }, (_, i) => SEED + i);

it.each(SEEDS)('ordinary days of a store are told to nobody (TILLSYNC_SEED=%i)', async (seed) => {
  const { told, red, troubles, orders } = await calmDays(seed, RUN_DAYS);
  console.log(`seed ${seed}: ${orders} orders in ${RUN_DAYS} days`, JSON.stringify({ troubles, told, red }));
  expect(orders).toBeGreaterThan(RUN_DAYS * 20);
  expect(Object.keys(troubles).length).toBeGreaterThan(RUN_DAYS / 2);
  expect({ told, red }).toEqual({ told: [], red: [] });
});
