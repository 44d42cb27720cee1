import { availableParallelism } from 'node:os';
import { performance } from 'node:perf_hooks';

const SEED_MAX = 2 ** 31 - 1;
const SLOW_MAX = 100;
/** Duration of the loop of `measureSlowness` on two idle cores. */
const USUAL_LOOP_MS = 120;
const USUAL_CORES = 2;

/** Reads `TILLSYNC_SEED`: by default always the same seed, with "random" a new one. */
export function readSeed(text: string | undefined, draw = Math.random): number {
  if (text === undefined || text === '') return 1;
  if (text === 'random') return Math.floor(draw() * SEED_MAX);
  const seed = Number(text);
  if (/^\d+$/.test(text) && seed <= SEED_MAX) return seed;
  throw new RangeError(
    `TILLSYNC_SEED: found ${text}; allowed: a whole number from 0 to ${SEED_MAX}, or "random".`,
  );
}

/** Reads `TILLSYNC_SLOW`: the factor for the tests' time limits; by default it is measured. */
export function readSlowness(text: string | undefined, measure = measureSlowness): number {
  if (text === undefined || text === '') return measure();
  const factor = Number(text);
  if (factor >= 1 && factor <= SLOW_MAX) return factor;
  throw new RangeError(`TILLSYNC_SLOW: found ${text}; allowed: a number from 1 to ${SLOW_MAX}.`);
}

/**
 * Returns by what factor this machine is slower than an idle one with two cores, at least 1. Times a loop, and doubles
 * the result on a single core.
 */
function measureSlowness(): number {
  const began = performance.now();
  let x = 1;
  for (let i = 0; i < 60_000_000; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
  }
  const cores = Math.max(1, USUAL_CORES / availableParallelism());
  const slowness = ((performance.now() - began) / USUAL_LOOP_MS) * cores;
  return Math.min(SLOW_MAX, Math.max(1, Math.ceil(slowness * 10) / 10));
}
