import { hasNatsServer } from '../support/nats-server.ts';
import { type BenchOptions, type BenchResult, leftOut } from './bench-result.ts';
import { measureLive } from './hub-live.ts';
import { measureQueue } from './hub-queue.ts';

export const expectedSeconds = { quick: 60, full: 1_100 };

/** Measures a hub with many branches: its throughput, and how fairly its queue serves the branches. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const live = hasNatsServer
    ? await measureLive(options)
    : [{ name: 'a hub and its branches over nats-server', bound: '<= 1', ...leftOut('nats-server') }];
  // The queue is left out if a number of branches is given, because it does not depend on how many are connected.
  return options.branches === undefined ? [...live, ...(await measureQueue(options))] : live;
}
