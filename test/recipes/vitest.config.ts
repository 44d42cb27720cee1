import { defineConfig } from 'vitest/config';

/** `npm run test:recipes`: what the docs link, with the compilers and proxies of this machine. */
export default defineConfig({
  test: {
    include: ['test/recipes/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
