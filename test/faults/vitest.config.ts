import { defineConfig } from 'vitest/config';

/** `npm run test:faults`: real faults against real processes. Needs root, gcc, tmpfs and loop devices. */
export default defineConfig({
  test: {
    include: ['test/faults/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 30_000,
  },
});
