import type { SendRules } from '../../src/outbox/sending/dispatch.ts';
import { outgoing, SEND_ALL } from './outbox-fixture.ts';
import { TEA } from './swept-outbox.ts';

export const HOLDING: SendRules = { ...SEND_ALL, holdBack: true };

/** Makes a store that has a catalogue and holds back. */
export function holding(): ReturnType<typeof outgoing> {
  const out = outgoing();
  out.sweep([TEA]);
  out.reservations.begin(true);
  return out;
}

/** Sends everything that waits in one call, settles its changes with `state`, and returns the quantities sent. */
export function send(
  out: ReturnType<typeof outgoing>,
  state: 'done' | 'rejected' | 'retry' = 'done',
  rules = HOLDING,
): unknown[] {
  const { callId, items } = out.dispatcher.claim('stock', 100, rules);
  const outcomes = items.map(({ changeId }) => ({ changeId, state, message: 'No.' }));
  if (callId !== null) out.dispatcher.settle(callId, outcomes);
  return items.map(({ body }) => 'qty' in body && body.qty);
}

/** Returns, in the platform's form, the time of an order that was placed `secondsAgo` seconds ago. */
export function placed(out: ReturnType<typeof outgoing>, secondsAgo: number): { createdAt: string } {
  return { createdAt: new Date(out.clock.nowMs() - secondsAgo * 1_000).toISOString() };
}
