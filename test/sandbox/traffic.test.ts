import { describe, expect, it } from 'vitest';
import type { OrderSnapshot } from '../../src/sandbox/orders.ts';
import { createSandbox } from '../../src/sandbox/sandbox.ts';
import { runTraffic, type TrafficSummary, UNRELIABLE_WEBHOOK } from '../../src/sandbox/traffic.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';
import { LIMITS } from './fixture.ts';

async function traffic(seed: number, minutes = 10) {
  const clock = new FakeClock();
  const random = seededRandom(seed);
  const got: string[] = [];
  const sandbox = createSandbox({
    clock,
    random,
    limits: LIMITS,
    seed: { orders: 10 },
    webhookTransport: async ({ body }) => {
      const order: OrderSnapshot = JSON.parse(body);
      got.push(`${order.code} ${order.status}`);
      return 200;
    },
  });
  sandbox.control.setWebhook({ callbackUrl: 'http://127.0.0.1:9/', secret: '', active: true });
  sandbox.control.setWebhookBehaviour(UNRELIABLE_WEBHOOK);
  const stop = new AbortController();
  const run = runTraffic({ clock, random, control: sandbox.control, signal: stop.signal });
  await clock.advance(minutes * 60_000);
  stop.abort();
  const summary: TrafficSummary = await run;
  await clock.advance(60_000);
  await sandbox.control.settled();
  await sandbox.close();
  return { summary, got, control: sandbox.control };
}

describe('traffic', () => {
  it('keeps a shop busy with everything that can befall an order', async () => {
    const { summary, got, control } = await traffic(1);
    expect(control.orders()).toHaveLength(10 + summary.created);
    expect(summary.created).toBeGreaterThan(200);
    expect(summary.advanced).toBeGreaterThan(300);
    for (const count of Object.values(summary)) expect(count).toBeGreaterThan(5);
    const outcomes = new Set(control.deliveries().map((delivery) => delivery.outcome));
    expect([...outcomes].sort()).toEqual(['confirmed', 'dropped', 'hidden', 'off']);
    expect(got.length).toBeGreaterThan(new Set(got).size);
  });

  it('does the same again from the same seed, and something else from another', async () => {
    const [first, again, other] = [await traffic(5, 3), await traffic(5, 3), await traffic(6, 3)];
    expect(again.got).toEqual(first.got);
    expect(again.control.orders()).toEqual(first.control.orders());
    expect(other.got).not.toEqual(first.got);
  });
});
