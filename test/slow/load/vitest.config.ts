import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../../support/shared-config.ts';

/**
 * `npm run test:load`: ten times the busiest store, while a POS reads all the time. `TILLSYNC_LOAD_SECONDS` (default
 * 30; 600 is the full run, whose memory is judged more strictly), `TILLSYNC_SEED`.
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
