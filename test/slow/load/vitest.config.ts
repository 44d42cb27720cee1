import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../../support/shared-config.ts';

/**
 * `npm run test:load` runs ten times the load of the busiest store while a POS reads. `TILLSYNC_LOAD_SECONDS` is the
 * duration (default 30, full run 600; from 300 on, memory is judged strictly), `TILLSYNC_SEED` the seed.
 */
export default defineConfig({
  test: {
    ...shared,
    include: ['test/slow/load/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: limitMs(7_200_000),
    hookTimeout: limitMs(120_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
