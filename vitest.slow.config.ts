import { defineConfig } from 'vitest/config';

/** The slow tier: real packages, a real browser, simulated days. */
export default defineConfig({
  test: {
    include: ['test/slow/**/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 600_000,
    hookTimeout: 600_000,
  },
});
