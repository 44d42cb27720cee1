import { expect, test } from 'vitest';
import { FakeClock } from '../support/fake-clock.ts';
import { tempState } from './temp-state.ts';

const pair = (refreshToken: string) => ({
  refreshToken,
  accessToken: null,
  accessExpiresAtMs: 10,
  accessIssuedAtMs: 5,
  refreshExpiresAtMs: 20,
  clockSkewMs: -3,
});

test('a pair comes back as it was saved, with a rising generation', () => {
  const clock = new FakeClock();
  const { tokens, path } = tempState(clock);
  expect(tokens.read()).toBe(null);
  expect(tokens.save(pair('a'), 0)).toBe(true);
  expect(tokens.read()).toEqual({ ...pair('a'), generation: 1, savedAtMs: clock.nowMs(), lockedOut: null });
  expect(tokens.save(pair('b'), 0)).toBe(false);
  expect(tokens.save(pair('b'), 1)).toBe(true);
  expect(tokens.save(pair('c'), 1)).toBe(false);
  const other = tempState(clock, path);
  expect(other.tokens.read()).toMatchObject({ refreshToken: 'b', generation: 2 });
  expect(other.tokens.save(pair('d'), null)).toBe(true);
  expect(tokens.read()).toMatchObject({ refreshToken: 'd', generation: 3 });
});

test('an intent stays until a pair is saved or it is dropped', () => {
  const clock = new FakeClock();
  const { tokens } = tempState(clock);
  tokens.save(pair('a'), 0);
  tokens.writeIntent(1);
  expect(tokens.readIntent()).toEqual({ generation: 1, startedAtMs: clock.nowMs() });
  tokens.clearIntent(1);
  expect(tokens.readIntent()).toBe(null);
  tokens.writeIntent(1);
  tokens.save(pair('b'), 1);
  expect(tokens.readIntent()).toBe(null);
  tokens.writeIntent(1);
  expect(tokens.readIntent()).toBe(null);
});

test('a lock-out belongs to its generation and ends with a new pair', () => {
  const { tokens } = tempState(new FakeClock());
  tokens.save(pair('a'), 0);
  tokens.markLockedOut(2, { atMs: 7, cause: 'refused', refusals: 1, refusedAtMs: 7 });
  expect(tokens.read()?.lockedOut).toBe(null);
  tokens.markLockedOut(1, { atMs: 7, cause: 'reply-lost', refusals: 1, refusedAtMs: 7 });
  expect(tokens.read()?.lockedOut).toEqual({ atMs: 7, cause: 'reply-lost', refusals: 1, refusedAtMs: 7 });
  tokens.save(pair('b'), null);
  expect(tokens.read()?.lockedOut).toBe(null);
});

test('handed-in tokens are known again by a fingerprint alone', () => {
  const { tokens } = tempState(new FakeClock());
  tokens.save(pair('first-by-hand'), 0, 'first-by-hand');
  tokens.save(pair('rotated'), 1);
  tokens.save(pair('second-by-hand'), null, 'second-by-hand');
  tokens.save(pair('rotated-again'), 3);
  tokens.markLockedOut(4, { atMs: 7, cause: 'refused', refusals: 1, refusedAtMs: 7 });
  tokens.save(pair('third-by-hand'), 4, 'third-by-hand');
  expect(
    ['first-by-hand', 'second-by-hand', 'third-by-hand', 'rotated', 'new'].map((token) =>
      tokens.wasHandedIn(token),
    ),
  ).toEqual([true, true, true, false, false]);
});

test('one process has the refresh lease at a time; a reboot frees it', () => {
  const clock = new FakeClock();
  const first = tempState(clock);
  const second = tempState(clock, first.path);
  const fence = first.tokens.acquireLease(1000) as number;
  expect(second.tokens.acquireLease(1000)).toBe(undefined);
  first.tokens.releaseLease(fence);
  const next = second.tokens.acquireLease(1000) as number;
  expect(next).toBeGreaterThan(fence);
  first.tokens.releaseLease(fence);
  expect(first.tokens.acquireLease(1000)).toBe(undefined);
  clock.reboot(5000, 10);
  expect(first.tokens.acquireLease(1000)).toBeGreaterThan(next);
});
