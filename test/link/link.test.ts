import { expect, it } from 'vitest';
import { HELLO } from '../../src/link/link.ts';

// Hub and branches are upgraded one after the other, so each must accept messages of other versions.
it('a hello names at most a hundred orders whose customer was removed, and a hundred epochs', () => {
  const hello = { instance: 'i', isStart: true, epoch: null, mark: 0, wantsSnapshot: false, line: 'l' };
  const takes = (more: object) =>
    HELLO.safeParse({ ...hello, waiting: 0, oldestWaitingAt: null, version: '1', ...more }).success;
  const ids = Array.from({ length: 101 }, (_, n) => `o${n}`);
  expect(takes({ forgotten: ids.slice(1), left: ids.slice(1) })).toBe(true);
  expect(takes({ forgotten: ids })).toBe(false);
  expect(takes({ left: ids })).toBe(false);
});
