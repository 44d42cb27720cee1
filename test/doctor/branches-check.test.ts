import { expect, test } from 'vitest';
import type { BranchStatus } from '../../src/link/branch-status.ts';
import { branchesOutcome } from '../../src/support/doctor/hub.ts';

const JOINED: BranchStatus = {
  branch: 'B1',
  status: 'joined',
  level: 'green',
  reason: null,
  message: '',
  command: null,
  commandAt: 'hub',
  joinedAt: '2026-03-01T00:00:00.000Z',
  expiresAt: null,
  seenAt: '2026-03-01T12:00:00.000Z',
  behind: 0,
  behindSince: null,
  waiting: 0,
  oldestWaitingAt: null,
  rejected: 0,
  held: 0,
  quarantined: 0,
  version: '1',
};
const INVITED: BranchStatus = { ...JOINED, branch: 'B9', level: 'never-joined', joinedAt: null };

test('branches that are in order are counted, and those that have not joined are named as such', () => {
  expect(branchesOutcome([JOINED, INVITED])).toMatchObject({
    level: 'ok',
    message: '1 branch in order. Not joined yet: 1.',
  });
  expect(branchesOutcome([INVITED])).toMatchObject({
    level: 'skipped',
    remedy: expect.stringContaining('branch invite NAME'),
  });
});

test('a branch that is not in order is named with what to type, and of many only a few', () => {
  const lost = (n: number): BranchStatus => ({
    ...JOINED,
    branch: `B${n}`,
    level: 'red',
    reason: 'absent',
    message: 'Nothing is heard of it.',
    command: 'sudo tillsync doctor',
    commandAt: 'branch',
  });
  const one = branchesOutcome([lost(2), JOINED]);
  expect(one).toMatchObject({
    level: 'warn',
    message: '1 of 2 branches are not in order. B2: Nothing is heard of it.',
  });
  expect(one.remedy).toMatch(/^At branch B2: sudo tillsync doctor\. All: .*branch list$/);
  expect(branchesOutcome(Array.from({ length: 8 }, (_, i) => lost(i))).message).toMatch(
    /B4: .* And 3 more\.$/,
  );
});
