import { describe, expect, it } from 'vitest';
import { PLATFORMS } from '../../outbox/stock-model.ts';
import { Interleavings } from './interleavings.ts';

/** All at once is some hundred thousand states for each kind of platform: `TILLSYNC_WHOLE=1`. */
const WITHOUT =
  process.env.TILLSYNC_WHOLE === '1'
    ? [[]]
    : [
        ['place B', 'cancel B', 'crash'],
        ['begin to sweep', 'edit A', 'lose the answer'],
      ];

describe.each(PLATFORMS)('a platform that %s', (kind) => {
  it.each(WITHOUT.map((without) => ({ without })))(
    'has what is wanted, in whatever order things happen, but for $without',
    {
      timeout: 7_200_000,
    },
    ({ without }) => {
      const { states, fault } = new Interleavings(kind, without).explore();
      console.info(`${kind}: ${states} states`);
      expect(fault).toBeNull();
      expect(states).toBeGreaterThan(1_000);
    },
  );
});
