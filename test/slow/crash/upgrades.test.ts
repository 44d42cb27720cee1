import { afterAll, beforeAll, expect, it } from 'vitest';
import { SEED } from '../../support/seed.ts';
import { buildProgram, LATER } from './daemon-life.ts';
import { upgradeThereAndBack, type Versions } from './upgrade-store.ts';

/** Number of stores, each with its own seed; `TILLSYNC_SEED` is the first seed. */
const COUNT = Number(process.env.TILLSYNC_UPGRADES ?? 2);

let versions: Versions;
beforeAll(async () => {
  versions = { now: await buildProgram(), later: await buildProgram(LATER) };
});
afterAll(() => {
  versions.now.remove();
  versions.later.remove();
});

it.each(Array.from({ length: COUNT }, (_, i) => SEED + i))(
  'now, later, back and later again lose and double nothing (TILLSYNC_SEED=%i)',
  async (seed) => {
    const { faults, confirmed, reads, kills } = await upgradeThereAndBack(seed, versions);
    process.stdout.write(
      `upgrade (seed ${seed}): ${confirmed} callbacks acknowledged, ${reads} reads, ${kills} kills\n`,
    );
    expect(faults).toEqual([]);
    expect(confirmed).toBeGreaterThanOrEqual(20);
    expect(reads).toBeGreaterThan(20);
  },
);
