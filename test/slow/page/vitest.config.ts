import { defineConfig } from 'vitest/config';

/** `npm run test:page`: in a real Chromium (`apt-get install -y chromium`, or its path in CHROMIUM). */
export default defineConfig({
  test: {
    include: ['test/slow/page/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 15_000 } },
  },
});
