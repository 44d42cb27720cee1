/** Tests src/page/state.ts. */

import { describe, expect, it } from 'vitest';
import type { BoardOrder } from '../../src/orders/merging/mirrored-order.ts';
import { ORDER_STATUSES } from '../../src/orders/merging/order.ts';
import type { Branch } from '../../src/page/api.ts';
import {
  boardOf,
  branchesShown,
  byStage,
  isLate,
  NO_BOARD,
  stageOf,
  unseenOrders,
} from '../../src/page/state.ts';
import { sampleOrder } from '../api/api-samples.ts';

const sample = (orderId: string, seq: number, status: string): BoardOrder => ({
  ...sampleOrder(orderId, seq, status),
  isScheduled: false,
  acknowledgedAt: null,
  waitingSince: null,
});

describe('the board', () => {
  it('marks what changed while it was looked at', () => {
    const first = boardOf([sample('a', 3, 'pending'), sample('b', 4, 'ready')], NO_BOARD);
    expect(first.fresh.size).toBe(0);
    const next = boardOf([sample('a', 5, 'ready'), sample('b', 4, 'ready'), sample('c', 6, 'ready')], first);
    expect([...next.fresh]).toEqual(['a', 'c']);
    expect(boardOf([sample('a', 1, 'ready')], boardOf([], NO_BOARD)).fresh.size).toBe(1);
  });
});

describe('the branches that somebody looks for', () => {
  const branch = (name: string, level: Branch['level'], message = ''): Branch => ({
    branch: name,
    status: 'joined',
    level,
    reason: null,
    message,
    command: null,
    commandAt: 'hub',
    joinedAt: null,
    expiresAt: null,
    seenAt: null,
    behind: 0,
    behindSince: null,
    waiting: 0,
    oldestWaitingAt: null,
    rejected: 0,
    held: 0,
    quarantined: 0,
    version: null,
  });
  const all = [
    branch('Mall-2', 'red', 'Nothing is heard of it.'),
    branch('mall-1', 'green'),
    branch('B3', 'green'),
  ];
  const found = (text: string, level: Branch['level'] | null = null) =>
    branchesShown({ all, text, level, isWhole: false }, ({ message }) => message).map(({ branch }) => branch);

  it('are found by a part of their name, by what is told of them, and by their level', () => {
    expect(found('')).toEqual(['Mall-2', 'mall-1', 'B3']);
    expect(found(' mall')).toEqual(['Mall-2', 'mall-1']);
    expect(found('HEARD')).toEqual(['Mall-2']);
    expect(found('mall', 'green')).toEqual(['mall-1']);
    expect(branchesShown({ all: null, text: '', level: null, isWhole: false }, () => '')).toEqual([]);
  });

  it('are late only with what they did not have for a minute', () => {
    const nowMs = Date.parse('2026-03-01T12:00:00.000Z');
    const since = (behindSince: string | null) => isLate({ ...branch('B1', 'green'), behindSince }, nowMs);
    expect(since(null)).toBe(false);
    expect(since('2026-03-01T11:59:30.000Z')).toBe(false);
    expect(since('2026-03-01T11:58:30.000Z')).toBe(true);
  });
});

describe('the orders that are new', () => {
  const seen = (...ids: string[]) => new Set(ids);
  const unseen = (orders: BoardOrder[], ids = seen()) =>
    unseenOrders(orders, ids).map(({ orderId }) => orderId);

  it('call until somebody has seen them, the POS took them, or they are begun', () => {
    const order = sample('a', 1, 'picker-pending');
    expect(unseen([order])).toEqual(['a']);
    expect(unseen([order], seen('a'))).toEqual([]);
    expect(unseen([{ ...order, acknowledgedAt: '2026-01-15T12:00:00.000Z' }])).toEqual([]);
    for (const status of ORDER_STATUSES) {
      expect(unseen([sample('a', 1, status)]).length, status).toBe(stageOf(status) === 'new' ? 1 : 0);
    }
  });

  it('call also when they are for later, the oldest first', () => {
    const later = {
      ...sample('b', 2, 'picker-pending'),
      isScheduled: true,
      createdAt: '2026-01-02T00:00:00.000Z',
    };
    const first = { ...sample('a', 3, 'picker-pending'), createdAt: '2026-01-01T00:00:00.000Z' };
    expect(unseen([later, first])).toEqual(['a', 'b']);
  });
});

describe('the stages', () => {
  it('have a place for every status of the platform, and for those it may invent', () => {
    expect(Object.fromEntries(ORDER_STATUSES.map((status) => [status, stageOf(status)]))).toEqual({
      pending: 'payment',
      'payment-pending': 'payment',
      'payment-approved': 'new',
      'payment-canceled': 'ended',
      'picker-pending': 'new',
      inProcess: 'preparing',
      ready: 'ready',
      routed: 'underway',
      dispatched: 'ended',
      cancel: 'ended',
      refund: 'ended',
      shippingError: 'underway',
    });
    expect([stageOf(null), stageOf('toString'), stageOf('lost in space')]).toEqual(['new', 'new', 'new']);
  });

  it('show first what waits longest for the POS, then the newest', () => {
    const order = (
      orderId: string,
      seq: number,
      createdAt: string | null,
      waitingSince: string | null = null,
    ) => ({
      ...sample(orderId, seq, 'ready'),
      createdAt,
      waitingSince,
    });
    const { ready } = byStage([
      order('old', 9, '2026-01-01T00:00:00.000Z'),
      order('unknown', 8, null),
      order('waits', 2, '2026-01-02T00:00:00.000Z', '2026-01-02T00:00:00.000Z'),
      order('new', 1, '2026-01-02T00:00:00.000Z'),
      order('longest', 3, '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z'),
    ]);
    expect(ready.map(({ orderId }) => orderId)).toEqual(['longest', 'waits', 'new', 'old', 'unknown']);
  });

  it('keep apart what is for later and nobody has begun, the next one first', () => {
    const order = (
      orderId: string,
      status: string,
      isScheduled: boolean | null,
      scheduledFor: string | null,
    ) => ({
      ...sample(orderId, 1, status),
      isScheduled,
      scheduledFor,
    });
    const stages = byStage([
      order('now', 'picker-pending', false, '2026-01-01T00:00:00.000Z'),
      order('late', 'picker-pending', true, '2026-01-03T00:00:00.000Z'),
      order('soon', 'payment-approved', null, '2026-01-02T00:00:00.000Z'),
      order('some day', 'picker-pending', true, null),
      order('begun', 'inProcess', true, '2026-01-02T00:00:00.000Z'),
      order('unpaid', 'pending', true, '2026-01-02T00:00:00.000Z'),
    ]);
    expect(stages.scheduled.map(({ orderId }) => orderId)).toEqual(['soon', 'late', 'some day']);
    expect([stages.new, stages.preparing, stages.payment].map((some) => some[0]?.orderId)).toEqual([
      ...['now', 'begun', 'unpaid'],
    ]);
  });
});
