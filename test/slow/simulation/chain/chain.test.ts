import { describe, expect, it } from 'vitest';
import { SEED } from '../../../support/seed.ts';
import { simulateChain } from './chain-days.ts';

/**
 * Runs as many seeds as fit into `TILLSYNC_CHAIN_SECONDS` (default 60), or `TILLSYNC_SEEDS` of them if only that is
 * set. `TILLSYNC_SEED` is the first seed.
 */
const { TILLSYNC_CHAIN_SECONDS, TILLSYNC_SEEDS } = process.env;
const SECONDS = Number(TILLSYNC_CHAIN_SECONDS ?? 60);
const isTimed = TILLSYNC_CHAIN_SECONDS !== undefined || TILLSYNC_SEEDS === undefined;
const COUNT = isTimed ? Number.POSITIVE_INFINITY : Number(TILLSYNC_SEEDS);
const SHOWN_MAX = 5;

describe('a company of three branches, with what goes wrong in its days', () => {
  it('ends with nothing lost, doubled or in the wrong place', { timeout: 86_400_000 }, async () => {
    const beganMs = performance.now();
    const isOver = () => COUNT === Number.POSITIVE_INFINITY && performance.now() - beganMs > SECONDS * 1_000;
    const failed: string[] = [];
    let done = 0;
    while (done < COUNT && !isOver() && failed.length < SHOWN_MAX) {
      const seed = SEED + done;
      const { faults, steps } = await simulateChain(seed).catch((error: Error) => ({
        faults: [error.stack ?? error.message],
        steps: [] as string[],
      }));
      if (faults.length > 0) {
        failed.push(`TILLSYNC_SEED=${seed} TILLSYNC_SEEDS=1\n${faults.join('\n')}\n${steps.join(', ')}`);
      }
      done += 1;
    }
    const seconds = (performance.now() - beganMs) / 1_000;
    console.log(`chain: ${done} seeds from ${SEED} in ${seconds.toFixed(0)} s`);
    expect(failed.join('\n\n')).toBe('');
  });
});
