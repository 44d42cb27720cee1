import { FullRunReporter } from './full-run-reporter.ts';
import { readSeed, readSlowness } from './run-settings.ts';

/** Worker processes inherit both variables, so that all tests of a run have one seed and one time factor. */
try {
  process.env.TILLSYNC_SEED = String(readSeed(process.env.TILLSYNC_SEED));
  process.env.TILLSYNC_SLOW = String(readSlowness(process.env.TILLSYNC_SLOW));
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
  process.exit(2);
}

/** Scales a test's time limit to this machine; the given one is for an idle machine with two cores. */
export const limitMs = (quietMs: number): number => Math.round(quietMs * Number(process.env.TILLSYNC_SLOW));

/** Settings of every tier's Vitest configuration. */
export const shared = {
  // Node itself loads the tests, as it loads the program, because Vite's runner takes a third more CPU time.
  experimental: { viteModuleRunner: false, nodeLoader: false },
  setupFiles: ['seed.ts', 'api-key.ts'].map((name) => `${import.meta.dirname}/${name}`),
  reporters: ['default', new FullRunReporter()],
};

/** Settings of the tiers that start the program as separate processes, which run the bundle as in the package. */
export const withProcesses = {
  ...shared,
  globalSetup: [`${import.meta.dirname}/bundled-program.ts`],
};
