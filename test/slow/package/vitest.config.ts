import { defineConfig } from 'vitest/config';

/** `npm run test:package`: as root on a Debian machine, after `npm run package`. */
export default defineConfig({
  test: {
    include: ['test/slow/package/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
});
