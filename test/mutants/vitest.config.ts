import { mergeConfig } from 'vitest/config';
import everyday from '../../vitest.config.ts';

/** The everyday tests, with `reached.ts`, which records the lines that each test runs. */
export default mergeConfig(everyday, {
  root: `${import.meta.dirname}/../..`,
  test: { setupFiles: [`${import.meta.dirname}/reached.ts`] },
});
