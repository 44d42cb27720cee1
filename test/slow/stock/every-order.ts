import { expect, it } from 'vitest';
import type { PlatformKind } from '../../outbox/stock-model.ts';
import { viewFault } from '../../outbox/stock-view.ts';
import { Interleavings, PARTS } from './interleavings.ts';

/**
 * Tries some hundred thousand states: all in one test with `TILLSYNC_WHOLE=1`, else in parts. With
 * `TILLSYNC_WORLDS=half` each part runs with one kind of platform, and one part with two kinds. Each kind has its own
 * file, so that the kinds run on several cores.
 */
export function tryEveryOrder(kind: PlatformKind): void {
  const parts = process.env.TILLSYNC_WHOLE === '1' ? [[]] : PARTS;
  const tried = parts.filter((without, part) => {
    // Without a cancellation nothing is given back, so `takes-off-and-gives-back` would equal `takes-off`.
    const hasCancellation = !without.includes('cancel B');
    if (kind === 'takes-off-and-gives-back') return hasCancellation;
    if (process.env.TILLSYNC_WORLDS !== 'half') return true;
    return kind === 'takes-off' ? !hasCancellation : part === 1;
  });
  it.each(tried.map((without) => ({ without })))(
    `a platform that ${kind} has what is wanted, in whatever order things happen, but for $without`,
    { timeout: 7_200_000 },
    ({ without }) => {
      const beganMs = performance.now();
      const { states, fault } = new Interleavings(kind, without, viewFault).explore();
      console.info(`${kind}: ${states} states in ${((performance.now() - beganMs) / 1000).toFixed(0)} s`);
      expect(fault).toBeNull();
      expect(states).toBeGreaterThan(1_000);
    },
  );
}
