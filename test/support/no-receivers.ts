import type { LocalApiOptions } from '../../src/api/api.ts';

/** Receivers of a local API whose test tries none of them. */
export const NO_RECEIVERS: LocalApiOptions['receivers'] = {
  testAlarms: async () => [],
  testHook: async ({ hook }) => {
    throw new Error(`No test of hook ${hook} was expected.`);
  },
};
