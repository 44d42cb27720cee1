import fc from 'fast-check';

/** The seed of this run, from `TILLSYNC_SEED` (see run-settings.ts). */
export const SEED = Number(process.env.TILLSYNC_SEED);

fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: SEED });
