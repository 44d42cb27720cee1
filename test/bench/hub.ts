import type { BenchOptions, BenchResult } from './bench-result.ts';
import { measureQueue } from './hub-queue.ts';

export const expectedSeconds = { quick: 30, full: 150 };

/** A hub with 500 branches. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  return await measureQueue(options);
}
