import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../../support/shared-config.ts';

/**
 * `npm run test:crash`: kills and power cuts, again and again. `TILLSYNC_ROUNDS` (default 40; a fifth of them power
 * cuts, in addition), `TILLSYNC_SEED`, `TILLSYNC_POINTS` (only points whose name has this text). Needs gcc for the
 * power cuts.
 */
export default defineConfig({
  test: {
    ...shared,
    include: ['test/slow/crash/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: limitMs(7_200_000),
    hookTimeout: limitMs(60_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
