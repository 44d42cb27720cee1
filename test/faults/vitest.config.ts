import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../support/shared-config.ts';

/** `npm run test:faults`: real faults against real processes. Needs root, gcc, tmpfs and loop devices. */
export default defineConfig({
  test: {
    ...shared,
    include: ['test/faults/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    // Tests that mostly wait, such as those of told.test.ts, run side by side.
    maxConcurrency: 12,
    testTimeout: limitMs(60_000),
    hookTimeout: limitMs(30_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
