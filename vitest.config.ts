import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [
      'test/integration/**',
      'test/slow/**',
      'test/faults/*.test.ts',
      'test/recipes/**',
      'test/bench/**',
    ],
    pool: 'forks',
    // V8's guard of compiled code loses count of its pages when threads come and go, and ends the process for it.
    execArgv: ['--no-memory-protection-keys'],
    // A process for each of 140 files would take a third of the time.
    isolate: false,
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
});
