import fc from 'fast-check';

/** The seed of this run, from `TILLSYNC_SEED` (see run-settings.ts). */
export const SEED = Number(process.env.TILLSYNC_SEED);

/**
 * Returns the number of runs of a slow property test: a quarter of `all` by default, and at least `all` with
 * `TILLSYNC_RUNS`, as in `npm run test:walks`.
 */
export function runsOf(all: number): number {
  const walks = process.env.TILLSYNC_RUNS;
  return walks === undefined ? Math.ceil(all / 4) : Math.max(all, Number(walks));
}

fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: SEED });
