/** Tests src/cli/event-feed.ts. */

import { expect, test } from 'vitest';
import { eventLine, feed } from '../../src/cli/event-feed.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import type { OrderEvent } from '../../src/orders/merging/order.ts';
import { FakeClock } from '../support/fake-clock.ts';

function event(seq: number): OrderEvent {
  const observedAt = '2026-01-02T03:04:05.000Z';
  return { seq, orderId: `o-${seq}`, status: 'ready', previousStatus: null, source: 'poll', observedAt };
}

function setup(count: number) {
  const events = Array.from({ length: count }, (_, i) => event(i + 1));
  const stop = new AbortController();
  const clock = new FakeClock();
  const mirror = {
    orders: {
      eventsAfter: (seq: number, limit: number) => events.filter((each) => each.seq > seq).slice(0, limit),
    },
  };
  return { events, stop, clock, mirror, base: { mirror, clock, signal: stop.signal } };
}

test('gives every event after a seq, beyond one page', async () => {
  const { base } = setup(1203);
  const seen: number[] = [];
  for await (const { seq } of feed({ ...base, after: 1, follow: false })) seen.push(seq);
  expect(seen).toEqual(Array.from({ length: 1202 }, (_, i) => i + 2));
});

test('follows what is written later, until the signal', async () => {
  const { base, clock, events, stop } = setup(1);
  const seen: number[] = [];
  const done = (async () => {
    for await (const { seq } of feed({ ...base, after: 0, follow: true })) seen.push(seq);
  })();
  await clock.advance(1000);
  events.push(event(2), event(3));
  await clock.advance(250);
  expect(seen).toEqual([1, 2, 3]);
  stop.abort();
  await done;
});

test('waits for a mirror that is busy', async () => {
  const { base, clock, mirror } = setup(1);
  let refusals = 2;
  const busy = {
    orders: {
      eventsAfter: (seq: number, limit: number) => {
        if (refusals-- > 0) throw new TillsyncError('storage-busy', 'Busy.');
        return mirror.orders.eventsAfter(seq, limit);
      },
    },
  };
  const seen: number[] = [];
  const done = (async () => {
    for await (const { seq } of feed({ ...base, mirror: busy, after: 0, follow: false })) seen.push(seq);
  })();
  await clock.advance(1000);
  await done;
  expect(seen).toEqual([1]);
});

test('a line tells the change', () => {
  expect(eventLine({ ...event(7), previousStatus: 'inProcess' })).toBe(
    '7  2026-01-02T03:04:05.000Z  poll     o-7  inProcess -> ready',
  );
});
