import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../../support/shared-config.ts';

/** `npm run test:page` needs a real Chromium: `apt-get install -y chromium`, or its path in CHROMIUM. */
export default defineConfig({
  test: {
    ...shared,
    include: ['test/slow/page/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: limitMs(60_000),
    hookTimeout: limitMs(60_000),
    expect: { poll: { timeout: limitMs(15_000) } },
  },
});
