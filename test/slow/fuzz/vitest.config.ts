import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../../support/shared-config.ts';

/**
 * `npm run test:fuzz`: hostile input of every kind, about a minute. `TILLSYNC_SEED=random` makes another
 * run (each prints its seed), `TILLSYNC_FUZZ_RUNS` multiplies the rounds (default 1).
 *
 * Each of these, put into a copy of the sources, is found:
 *   callbacks: a doubled secret is let in; so is one in another case; bytes that are no UTF-8 are patched; a whole number
 *   loses digits as a text; an amount is parsed; what is unreadable is not quarantined
 *   files: a value of any depth throws; trailing text is told piece by piece; a line with too many cells is taken
 *   configuration: a table where a size belongs throws
 *   local API and inbox: one bad item refuses its neighbours; ids of 64 bits are rounded; two keys of bytes are one
 *   platform: bytes of a poll are patched; a product that a page left out is gone; a rotation keeps the old token
 *   changes: an answer without a clear success is taken for one; a refusal to show a product refuses the change; a
 *   description that nobody can see is taken for applied; an index counts against the ids beside it; a false total is
 *   let pass; another product's name confirms a change; a message repeats the token; a retry overrules a newer word
 */
export default defineConfig({
  test: {
    ...shared,
    include: ['test/slow/fuzz/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: limitMs(3_600_000),
    hookTimeout: limitMs(60_000),
    expect: { poll: { timeout: limitMs(1_000) } },
  },
});
