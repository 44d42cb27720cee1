import { systemClock } from '../../src/core/system-clock.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { until } from '../support/workplace.ts';
import type { BenchOptions, BenchResult } from './bench-result.ts';
import { INTERVAL_MS, type OutgoingPlace } from './outgoing-place.ts';

const PER_CALL = 100;

/**
 * Sends distinct changes to a strict platform. Measures the number of calls, and how close they are to the platform's
 * rate.
 */
export async function measurePace(
  place: OutgoingPlace,
  count: number,
  options: BenchOptions,
): Promise<BenchResult[]> {
  options.progress(`${count} distinct stock changes, one call a second`);
  const before = place.stockCalls().length;
  const targets = place.targets.slice(0, count);
  if (targets.length < count) throw new Error(`Only ${targets.length} targets`);
  await place.post(targets.map(({ externalId }) => ({ externalId, qty: 501 })));
  const endMs = await place.settled(count * 20 + 30_000);
  const calls = place.stockCalls().slice(before);
  const violations = place.sandbox.control.violations().length;
  const wrong = targets.filter((target) => place.qtyOf(target) !== 501).length;
  const tookMs = endMs - (calls[0]?.arrivedMs ?? Number.NaN);
  const idealMs = (count / PER_CALL - 1) * INTERVAL_MS;
  return [
    {
      name: `${count} stock changes: calls / the fewest possible`,
      ratio: calls.length / (count / PER_CALL),
      bound: '<= 1',
      detail: `${calls.length} calls, ${wrong} targets with another value`,
    },
    {
      name: 'calls that broke a limit of the platform',
      ratio: violations,
      bound: '<= 0',
      detail: 'strict, no slack, 0 to 50 ms of jittered latency',
    },
    {
      name: `${count} stock changes: time / intervals between the calls`,
      ratio: wrong === 0 ? tookMs / idealMs : null,
      bound: '<= 1.10',
      detail: `${(tookMs / 1000).toFixed(1)} s from the first arrival to the last answer on the disk`,
    },
  ];
}

/** Measures how long a count of 0 waits that is handed over behind a long queue. */
export async function measureUrgent(
  place: OutgoingPlace,
  count: number,
  options: BenchOptions,
): Promise<BenchResult> {
  const tries = options.quick ? 3 : 10;
  options.progress(`sold out behind ${count} others, ${tries} times`);
  const random = seededRandom(7);
  const waiting = place.targets.slice(0, count);
  await place.post(waiting.map(({ externalId }) => ({ externalId, qty: 502 })));
  const tookMs: number[] = [];
  for (let n = 1; n <= tries; n++) {
    await systemClock.sleep(INTERVAL_MS * (0.5 + random.next()));
    // The target waits at the end of the queue already, with another quantity.
    const target = waiting.at(-n);
    if (!target) throw new Error('unreachable');
    const beganMs = performance.now();
    await place.post([{ externalId: target.externalId, qty: 0 }]);
    await until('it is sold out', () => place.qtyOf(target) === 0, 60_000);
    tookMs.push(performance.now() - beganMs);
  }
  const { pending } = place.daemon.services.outbox.counts();
  if (pending < PER_CALL) throw new Error('The line was not long enough to be waited behind.');
  for (const { changeId } of place.daemon.services.outbox.list({ state: 'pending', limit: count })) {
    // A change sent in the meantime cannot be dropped, and is settled with its call.
    await place.daemon.services.outbox.discard(changeId, 'cli bench').catch(() => undefined);
  }
  await place.settled(60_000);
  return {
    name: `sold out behind ${count} others: worst time to the platform / interval`,
    ratio: Math.max(...tookMs) / INTERVAL_MS,
    bound: '<= 2',
    detail: `ms: ${tookMs.map(Math.round).join(' ')}; ${pending} still waited then`,
  };
}
