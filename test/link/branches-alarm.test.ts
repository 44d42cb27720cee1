/** Tests src/daemon/feed-branches.ts. */

import { expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { feedBranches } from '../../src/daemon/feed-branches.ts';
import type { Cause, ExaminedBranch } from '../../src/link/branch-status.ts';
import { branchesAlarm } from '../../src/link/branches-alarm.ts';
import { type Chain, openChain } from './chain-rig.ts';

const MINUTE_MS = 60_000;

const alarm = ({ hub }: Chain) =>
  hub.services.mirror.health.raised().find(({ key }) => key === 'hub.branches');

it('hub.branches: a silent branch is told after three minutes, red once orders wait ten, and ends with its hello', async () => {
  const chain = await openChain();
  const { clock, hub, branches } = chain;
  await chain.settle();
  await hub.hub.check();
  expect(alarm(chain)).toBeUndefined();
  const at = new Date(clock.nowMs()).toISOString();
  const lost = `It was heard last at ${at} and did not say that it stops: its line, its power or its tillsync failed.`;

  await clock.advance(2 * MINUTE_MS);
  await branches[1].follower.hello();
  await hub.hub.check();
  expect(alarm(chain)).toBeUndefined();

  await clock.advance(MINUTE_MS);
  await branches[1].follower.hello();
  await hub.hub.check();
  expect(alarm(chain)).toMatchObject({ level: 'amber', message: `B1: Nothing is heard of it. ${lost}` });

  await hub.order(1, 'B1');
  await clock.advance(10 * MINUTE_MS);
  await branches[1].follower.hello();
  await hub.hub.check();
  expect(alarm(chain)).toMatchObject({
    level: 'red',
    message: `B1: Nothing is heard of it. ${lost} What the hub has for it waits.`,
  });

  await chain.settle();
  await hub.hub.check();
  expect(alarm(chain)).toBeUndefined();
});

const NOW_MS = Date.parse('2026-03-02T12:00:00.000Z');
const at = (agoMs: number) => new Date(NOW_MS - agoMs).toISOString();

function examined(
  branch: string,
  causes: Cause[],
  found: Partial<ExaminedBranch['found']> = {},
): ExaminedBranch {
  return {
    found: {
      branch,
      status: 'joined',
      joinedAt: at(60 * MINUTE_MS),
      expiresAt: null,
      seenAt: at(0),
      behind: 0,
      behindSince: null,
      waiting: 0,
      oldestWaitingAt: null,
      rejected: 0,
      held: 0,
      quarantined: 0,
      version: '0',
      ...found,
    },
    causes,
  };
}

const cause = (level: Cause['level'], reason: Cause['reason'], message: string): Cause => ({
  level,
  reason,
  message,
  command: null,
});

const told = (branches: ExaminedBranch[], more: { areOrdersStale?: boolean; connectedAtMs?: number } = {}) =>
  branchesAlarm({ branches, areOrdersStale: false, connectedAtMs: 0, nowMs: NOW_MS, ...more });

it('hub.branches: names the red ones first, and five at most', () => {
  const branches = ['B1', 'B2', 'B3', 'B4', 'B5', 'B6', 'B7'].map((name) =>
    examined(name, [cause(name === 'B7' ? 'red' : 'amber', 'outbox.rejected', 'Refused.')]),
  );
  expect(told(branches)).toEqual({
    level: 'red',
    message: 'B7: Refused. B1: Refused. B2: Refused. B3: Refused. B4: Refused. +2',
  });
});

it('hub.branches: changes that wait at a branch for ten minutes are red', () => {
  expect(told([examined('B1', [], { oldestWaitingAt: at(10 * MINUTE_MS - 1) })])).toBeNull();
  expect(told([examined('B1', [], { oldestWaitingAt: at(10 * MINUTE_MS) })])).toEqual({
    level: 'red',
    message: 'B1: Its changes wait there for the hub.',
  });
});

it('hub.branches: says nothing that the hub says by itself, nor of branches that could not be heard yet', () => {
  const held = examined('B1', [cause('amber', 'outbox.held', 'Held.')]);
  const stale = examined('B2', [cause('red', 'orders.stale', 'Stale.')]);
  expect(told([held])).toBeNull();
  expect(told([held, stale], { areOrdersStale: true })).toBeNull();
  expect(told([stale])).toEqual({ level: 'red', message: 'B2: Stale.' });
  const silent = examined('B3', [cause('red', 'absent', 'Silent.')], { seenAt: at(30 * MINUTE_MS) });
  expect(told([silent], { connectedAtMs: NOW_MS - 2 * MINUTE_MS })).toBeNull();
  expect(told([silent], { connectedAtMs: NOW_MS - 3 * MINUTE_MS })).toMatchObject({ level: 'red' });
});

it('hub.branches: watched = false of a branch takes it out', () => {
  const read = readConfig({
    file: 'hub.toml',
    env: {},
    text: `[platform]
      base_url = "http://platform.test"
      [storage]
      directory = "/tmp/hub"
      [[branches]]
      subsidiary_id = "sub-1"
      external_id = "B1"
      watched = false
      [[branches]]
      external_id = "B2"`,
  });
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  const watched = feedBranches(read.config, {
    named: (all) => all.map(({ name }) => ({ branch: name, name })),
  }).map(({ name, isWatched }) => [name, isWatched]);
  expect(watched).toEqual([
    ['B1', false],
    ['B2', true],
  ]);
});
