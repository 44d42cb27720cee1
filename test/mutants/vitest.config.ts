import { mergeConfig } from 'vitest/config';
import everyday from '../../vitest.config.ts';

/** The everyday tests, which record what they run through: `reached.ts`. */
export default mergeConfig(everyday, {
  root: `${import.meta.dirname}/../..`,
  test: { setupFiles: [`${import.meta.dirname}/reached.ts`] },
});
