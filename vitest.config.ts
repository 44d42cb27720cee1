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
    // A process for each of 140 files would take a third of the time.
    isolate: false,
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
});
