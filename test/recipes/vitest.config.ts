import { defineConfig } from 'vitest/config';
import { limitMs, withProcesses } from '../support/shared-config.ts';

/** `npm run test:recipes` tests the programs that the docs link, with this machine's compilers and proxies. */
export default defineConfig({
  test: {
    ...withProcesses,
    include: ['test/recipes/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    maxConcurrency: 8,
    testTimeout: limitMs(60_000),
    hookTimeout: limitMs(60_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
