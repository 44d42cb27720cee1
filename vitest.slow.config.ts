import { defineConfig } from 'vitest/config';
import { limitMs, withProcesses } from './test/support/shared-config.ts';

/** The slower tiers, each a command of its own: real processes and users, and simulated days. */
export default defineConfig({
  test: {
    ...withProcesses,
    include: ['test/integration/**/*.test.ts', 'test/slow/{simulation,stock}/**/*.test.ts'],
    pool: 'forks',
    // Much of it waits for processes.
    maxWorkers: 3,
    // Answers of half a megabyte die young; with V8's own size most of them are moved about first.
    execArgv: ['--max-semi-space-size=64'],
    testTimeout: limitMs(600_000),
    hookTimeout: limitMs(600_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
