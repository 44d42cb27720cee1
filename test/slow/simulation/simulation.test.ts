import { describe, expect, it } from 'vitest';
import { SEED } from '../../support/seed.ts';
import { simulate } from './simulate.ts';

/**
 * `TILLSYNC_SIMULATED_DAYS` sets the days of each run, such as 30 for a month, `TILLSYNC_SEEDS` the number of
 * seeds, and `TILLSYNC_SEED` the first of them.
 */
const DAYS = Number(process.env.TILLSYNC_SIMULATED_DAYS ?? 2);
const COUNT = Number(process.env.TILLSYNC_SEEDS ?? 8);
const SEEDS = Array.from({ length: COUNT }, (_, i) => SEED + i);
const TIMEOUT_MS = Math.max(600_000, DAYS * 60_000);
const LEAK_BYTES_MAX = 16 * 1024 * 1024;

describe(`a store of ${DAYS} simulated days, with what goes wrong in them`, () => {
  const title = 'ends equal on both sides, with no rule broken (TILLSYNC_SEED=%i)';
  it.each(SEEDS)(title, { timeout: TIMEOUT_MS }, async (seed) => {
    const { faults, orders, words, nights, grownBytes, overruns, ...told } = await simulate(seed, DAYS);
    console.log(
      `seed ${seed}: ${orders} orders in ${DAYS} days, ${words} words, ${nights} nights`,
      JSON.stringify(told),
    );
    expect(faults).toEqual([]);
    expect(orders).toBeGreaterThan(DAYS * 20);
    expect(words).toBeGreaterThan(DAYS * 5);
    // A night on which something is still on its way is not compared.
    expect(nights).toBeGreaterThan(DAYS / 4 - 1);
    expect(grownBytes ?? 0).toBeLessThan(LEAK_BYTES_MAX);
    expect(overruns).toBe(0);
  });

  it('is the same again from the same seed, and another from another', async () => {
    const [first, again, other] = [
      await simulate(SEED, 0.5),
      await simulate(SEED, 0.5),
      await simulate(SEED + 1, 0.5),
    ];
    expect(again).toEqual(first);
    expect(other.digest).not.toBe(first.digest);
  });
});
