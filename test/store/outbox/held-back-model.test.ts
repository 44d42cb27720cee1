import fc from 'fast-check';
import { expect, it } from 'vitest';
import { seededRandom } from '../../support/fake-clock.ts';
import { HeldBackModel } from './held-back-model.ts';

const STEPS = 60;
/** A correction or two for each stock; more would be a quarrel without end. */
const LAST_CALLS_MAX = 3;
const RUNS = Number(process.env.TILLSYNC_RUNS ?? 20);

/** `TILLSYNC_RUNS` makes it longer. */
it('the platform ends with each last count less what is sold and not part of it', {
  timeout: 60_000 + RUNS * 2_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(), async (seed) => {
      const model = new HeldBackModel(seededRandom(seed));
      for (let step = 0; step < STEPS; step++) await model.act();
      const { got, wanted, calls } = await model.end();
      expect(got, model.steps.join('\n')).toEqual(wanted);
      expect(calls, model.steps.join('\n')).toBeLessThanOrEqual(LAST_CALLS_MAX);
    }),
    { numRuns: RUNS, endOnFailure: true },
  );
});
