import { defineConfig } from 'vitest/config';
import { limitMs, shared } from '../../support/shared-config.ts';

/**
 * `npm run test:fuzz` tests hostile input of every kind, for about a minute. `TILLSYNC_SEED=random` makes another run
 * (each run prints its seed), `TILLSYNC_FUZZ_RUNS` is a factor for the number of rounds (default 1).
 *
 * The tests find each of these faults when it is put into a copy of the sources:
 *   callbacks: a secret given twice is accepted; a secret in another case is accepted; invalid UTF-8 is replaced, not
 *   refused; a whole number in quotes loses digits; an amount is parsed; an unreadable callback is not quarantined
 *   files: deep nesting throws; text after the end is reported several times; a line with too many cells is accepted
 *   configuration: a table in place of a size throws
 *   local API and inbox: one bad item gets its neighbours refused; ids of 64 bits are rounded; two different
 *   change keys of raw bytes count as one
 *   platform: invalid UTF-8 of a poll is replaced; a product missing from one page vanishes; a rotation keeps the old
 *   token
 *   changes: an answer without clear success counts as success; a refusal to show a product refuses the whole change;
 *   a description that cannot be read counts as applied; an index outweighs the id beside it; a false total is
 *   accepted; another product's name confirms a change; a message repeats the token; a retry overwrites a newer change
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
