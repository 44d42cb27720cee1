import { defineConfig } from 'vitest/config';
import { limitMs, shared } from './test/support/shared-config.ts';

export default defineConfig({
  test: {
    ...shared,
    include: ['test/**/*.test.ts'],
    exclude: [
      'test/integration/**',
      'test/slow/**',
      'test/faults/*.test.ts',
      'test/hostile/**',
      'test/recipes/**',
      'test/bench/**',
    ],
    tags: [
      {
        name: 'bulk',
        description: 'Thousands of rows, a measure, or seconds of real time: npm run test:bulk.',
      },
    ],
    globalSetup: ['test/support/fast-files.ts'],
    pool: 'forks',
    // V8's guard of compiled code loses count of its pages when threads come and go, and ends the process for it.
    execArgv: ['--no-memory-protection-keys'],
    // A process for each of 140 files would take a third of the time.
    isolate: false,
    // For two cores: many tests wait for a process or the disk.
    maxWorkers: 4,
    // Only a test that hangs takes as long, on a busy machine too.
    testTimeout: limitMs(60_000),
    hookTimeout: limitMs(60_000),
    expect: { poll: { timeout: limitMs(20_000) } },
  },
});
