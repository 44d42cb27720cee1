import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../../support/shared-config.ts';

/**
 * `npm run test:crash` kills the daemon and cuts its power again and again. The power cuts need gcc. `TILLSYNC_ROUNDS`
 * is the number of kills (default 40); a fifth as many power cuts follow. `TILLSYNC_UPGRADES` is the number of stores
 * that are upgraded and taken back (default 2). `TILLSYNC_SEED` is the seed; `TILLSYNC_POINTS` selects the kill points
 * whose names contain this text.
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
