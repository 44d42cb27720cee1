/** Tests src/platform/rate-budget.ts. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Endpoint, PlatformLimits } from '../../src/platform/platform.ts';
import type { SlotTicket } from '../../src/platform/rate-budget.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { tempState } from './temp-state.ts';

const limits: PlatformLimits = {
  endpointIntervalMs: 10,
  ordersIntervalMs: 40,
  windowMs: 1000,
  requestsPerWindow: 12,
  ordersPerWindow: 4,
};
const HOLD_MS = 60;
const intervalMsOf = (name: Endpoint, { ordersIntervalMs, endpointIntervalMs }: PlatformLimits) =>
  name === 'order.all' ? ordersIntervalMs : endpointIntervalMs;

const endpoint = fc.constantFrom<Endpoint>('order.all', 'product.list', 'product.batch', 'token.refresh');
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('call' as const), endpoint, process: fc.nat(2) }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.integer({ min: 0, max: 60 }) }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('answer' as const), nth: fc.nat(5) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('die' as const), nth: fc.nat(5) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('jump' as const), ms: fc.integer({ min: -1e9, max: 1e9 }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('reboot' as const), downMs: fc.integer({ min: 0, max: 500 }) }),
  },
);

type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

interface Call {
  endpoint: Endpoint;
  /** Start and end in real time, which goes on across boots. The platform may see the call at any moment in between. */
  sentMs: number;
  endMs: number;
}

/** Runs the steps on a real state.db shared by three processes, and returns every call that was allowed. */
async function run(steps: Step[]): Promise<Call[]> {
  const clock = new FakeClock();
  const first = tempState(clock);
  const ledgers = [first, tempState(clock, first.path), tempState(clock, first.path)];
  const calls: Call[] = [];
  let underWay: { call: Call; ticket: SlotTicket }[] = [];
  let realMs = 0;
  for (const each of steps) {
    if (each.do === 'call') {
      const grant = ledgers[each.process]!.ledger.acquire(each.endpoint, limits, HOLD_MS);
      if (!grant.granted) continue;
      const call = { endpoint: each.endpoint, sentMs: realMs, endMs: realMs + HOLD_MS };
      calls.push(call);
      underWay.push({ call, ticket: grant.ticket });
    } else if (each.do === 'pass') {
      // No call lasts longer than the hold of its slot, because the timeout ends it.
      await clock.advance(each.ms);
      realMs += each.ms;
      for (const { call, ticket } of underWay.filter(({ call }) => realMs >= call.endMs)) {
        call.endMs = Math.min(call.endMs, realMs);
        first.ledger.settle(ticket);
      }
      underWay = underWay.filter(({ call }) => realMs < call.endMs);
    } else if (each.do === 'answer' || each.do === 'die') {
      const [ended] = underWay.splice(each.nth % Math.max(1, underWay.length), 1);
      if (ended) ended.call.endMs = realMs;
      if (ended && each.do === 'answer') first.ledger.settle(ended.ticket, 'answered');
    } else if (each.do === 'jump') {
      clock.jumpWall(each.ms);
    } else {
      clock.reboot(each.downMs);
      realMs += each.downMs;
      for (const { call } of underWay) call.endMs = realMs - each.downMs;
      underWay = [];
    }
  }
  for (const state of ledgers) state.close();
  return calls;
}

const RUNS = Number(process.env.TILLSYNC_RUNS ?? 8);

test('no schedule of calls, crashes, clock jumps and reboots breaks a limit', async () => {
  let granted = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 150, maxLength: 300, size: 'max' }), async (steps) => {
      const calls = await run(steps);
      granted += calls.length;
      for (const name of ['order.all', 'product.list', 'product.batch', 'token.refresh'] as const) {
        const slot = calls.filter((call) => call.endpoint === name);
        for (const [i, call] of slot.entries()) {
          const before = slot[i - 1];
          if (before) expect(call.sentMs - before.endMs).toBeGreaterThanOrEqual(intervalMsOf(name, limits));
        }
      }
      // In the worst case, all of these calls arrive within one window that ends when `last` is sent.
      for (const last of calls) {
        const within = calls.filter(
          (call) => call.sentMs <= last.sentMs && call.endMs > last.sentMs - limits.windowMs,
        );
        expect(within.length).toBeLessThanOrEqual(limits.requestsPerWindow);
        const orders = within.filter((call) => call.endpoint === 'order.all');
        expect(orders.length).toBeLessThanOrEqual(limits.ordersPerWindow);
      }
    }),
    { numRuns: RUNS, seed: 20260115 },
  );
  expect(granted).toBeGreaterThan(10 * RUNS);
});
