import { defineConfig } from 'vitest/config';
import { limitMs, withProcesses } from '../support/shared-config.ts';

/**
 * Attacks that SECURITY.md promises to hold, and whose tests are where the attacked part has its other tests. Those that
 * take minutes are not repeated here; SECURITY.md names them.
 */
const ELSEWHERE = [
  'test/api/{access,connections}.test.ts',
  'test/cli/{backup-origin,csv}.test.ts',
  'test/doctor/{bundle,redact}.test.ts',
  'test/health/health-store.test.ts',
  'test/integration/{local-access,pos-user}.test.ts',
  'test/orders/receiver-life.test.ts',
  'test/outbox/hostile-rows.test.ts',
];

/** `npm run test:hostile` lets users of the machine, clients of the local API and strangers try to stop or to rob the daemon. */
export default defineConfig({
  test: {
    ...withProcesses,
    include: ['test/hostile/*.test.ts', ...ELSEWHERE],
    pool: 'forks',
    fileParallelism: false,
    tags: [{ name: 'bulk', description: 'Not among the everyday tests.' }],
    testTimeout: limitMs(60_000),
    hookTimeout: limitMs(60_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
