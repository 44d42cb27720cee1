import { describe, expect, it } from 'vitest';
import { ORDER_STATUSES } from '../../src/orders/order.ts';
import { applyEvents, boardOf, byStage, stageOf } from '../../src/page/state.ts';
import { sampleOrder } from '../api/api-samples.ts';

const event = (orderId: string, seq: number, status: string) => ({
  seq,
  orderId,
  status,
  previousStatus: null,
  source: 'webhook' as const,
  observedAt: '2026-01-15T12:00:00.000Z',
  order: sampleOrder(orderId, seq, status),
});
const statuses = (board: ReturnType<typeof boardOf>) =>
  [...board.orders.values()].map(({ orderId, status }) => `${orderId} ${status}`);

describe('the board', () => {
  it('takes in what is new, and marks it', () => {
    const before = boardOf([sampleOrder('a', 3, 'pending')]);
    const after = applyEvents(before, [event('a', 4, 'ready'), event('b', 5, 'pending')]);
    expect(statuses(after)).toEqual(['a ready', 'b pending']);
    expect([...after.fresh]).toEqual(['a', 'b']);
    expect(statuses(before)).toEqual(['a pending']);
  });

  it('lets an event that it has already change nothing', () => {
    const after = applyEvents(boardOf([sampleOrder('a', 7, 'ready')]), [event('a', 6, 'inProcess')]);
    expect(statuses(after)).toEqual(['a ready']);
    expect(after.fresh.size).toBe(0);
  });

  it('takes away what is no longer kept', () => {
    const gone = { ...event('a', 9, 'ready'), order: null };
    expect(applyEvents(boardOf([sampleOrder('a', 1, 'ready')]), [gone]).orders.size).toBe(0);
  });

  it('keeps the last thirty that ended, and every other', () => {
    const open = Array.from({ length: 40 }, (_, i) => event(`o${i}`, i + 1, 'ready'));
    const ended = Array.from({ length: 40 }, (_, i) => event(`e${i}`, i + 100, 'dispatched'));
    const stages = byStage(applyEvents(boardOf([]), [...open, ...ended]).orders.values());
    expect(stages.ready).toHaveLength(40);
    expect(stages.ended.map(({ seq }) => seq)).toEqual(Array.from({ length: 30 }, (_, i) => 139 - i));
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

  it('show the newest first', () => {
    const order = (orderId: string, seq: number, createdAt: string | null) => ({
      ...sampleOrder(orderId, seq, 'ready'),
      createdAt,
    });
    const { ready } = byStage([
      order('old', 9, '2026-01-01T00:00:00.000Z'),
      order('unknown', 8, null),
      order('new', 1, '2026-01-02T00:00:00.000Z'),
    ]);
    expect(ready.map(({ orderId }) => orderId)).toEqual(['new', 'old', 'unknown']);
  });
});
