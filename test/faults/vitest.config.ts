import { defineConfig } from 'vitest/config';
import { limitMs, withProcesses } from '../support/shared-config.ts';

/** `npm run test:faults` causes real faults in real processes. It needs root, gcc, tmpfs and loop devices. */
export default defineConfig({
  test: {
    ...withProcesses,
    include: ['test/faults/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    // Tests that mostly wait, as in told.test.ts, run at the same time.
    maxConcurrency: 12,
    testTimeout: limitMs(60_000),
    hookTimeout: limitMs(30_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
