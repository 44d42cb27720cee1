import { defineConfig } from 'vitest/config';

/**
 * `npm run test:load`: ten times the busiest store, while a POS reads all the time. `TILLSYNC_LOAD_SECONDS` (default
 * 30; 600 is the full run, whose memory is judged more strictly), `TILLSYNC_SEED`.
 */
export default defineConfig({
  test: {
    include: ['test/slow/load/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 7_200_000,
    hookTimeout: 120_000,
  },
});
