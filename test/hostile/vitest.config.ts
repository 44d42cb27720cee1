import { defineConfig } from 'vitest/config';
import { limitMs, withProcesses } from '../support/shared-config.ts';

/** `npm run test:hostile` lets clients of the local API and strangers try to stop the daemon. */
export default defineConfig({
  test: {
    ...withProcesses,
    include: ['test/hostile/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: limitMs(60_000),
    hookTimeout: limitMs(60_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
