import { defineConfig } from 'vitest/config';

/** The slower tiers, each a command of its own: real processes and users, and simulated days. */
export default defineConfig({
  test: {
    include: ['test/integration/**/*.test.ts', 'test/slow/simulation/**/*.test.ts'],
    pool: 'forks',
    testTimeout: 600_000,
    hookTimeout: 600_000,
  },
});
