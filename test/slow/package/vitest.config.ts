import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../../support/shared-config.ts';

/** `npm run test:package` runs as root on a Debian machine, after `npm run package`. */
export default defineConfig({
  test: {
    ...shared,
    include: ['test/slow/package/*.test.ts'],
    pool: 'forks',
    // Runs two test files at once, because each has its own machine, which mostly waits for its services.
    maxWorkers: 2,
    testTimeout: limitMs(180_000),
    hookTimeout: limitMs(180_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
