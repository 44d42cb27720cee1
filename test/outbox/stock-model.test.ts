/** Tests src/outbox/ledger/stock-ledger.ts. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { seededRandom } from '../support/fake-clock.ts';
import { SEED } from '../support/seed.ts';
import { limitMs } from '../support/shared-config.ts';
import { PLATFORMS, StockModel } from './stock-model.ts';
import { viewFault } from './stock-view.ts';

const STEPS = process.env.TILLSYNC_RUNS === undefined ? 80 : 200;
const REST_EVERY = 8;
const RUNS = Number(process.env.TILLSYNC_RUNS ?? 1);

/**
 * `TILLSYNC_RUNS` sets the number of random walks for each platform, and makes them longer; `TILLSYNC_SEED` selects
 * other walks.
 */
it.each(PLATFORMS)(
  'a platform that %s ends with each last count less what is sold and not part of it',
  {
    timeout: limitMs(60_000 + RUNS * 2_000),
  },
  async (kind) => {
    await fc.assert(
      fc.asyncProperty(fc.nat(), async (seed) => {
        const model = new StockModel(seededRandom(seed), kind);
        for (let step = 1; step <= STEPS; step++) {
          await model.act();
          expect(viewFault(model.db), model.steps.join('\n')).toBeNull();
          if (step % REST_EVERY > 0) continue;
          const { got, wanted, calls } = await model.rest();
          expect(got, model.steps.join('\n')).toEqual(wanted);
          expect(calls, model.steps.join('\n')).toBeLessThanOrEqual(1);
        }
      }),
      { numRuns: RUNS, seed: SEED, endOnFailure: true },
    );
  },
);
