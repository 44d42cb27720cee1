import type { BenchOptions, BenchResult } from './bench-result.ts';
import { measureLive } from './hub-live.ts';
import { measureQueue } from './hub-queue.ts';

export const expectedSeconds = { quick: 150, full: 1_100 };

/** A hub with 500 branches: what it carries, and how its queue serves them. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  return [...(await measureLive(options)), ...(await measureQueue(options))];
}
