import type { BenchOptions, BenchResult } from './bench-result.ts';
import { measureCallbacks } from './mirror-callbacks.ts';
import { measureImport } from './mirror-import.ts';
import { measureReaders } from './mirror-readers.ts';

export { measureCallbacks, measureImport, measureReaders };

export const expectedSeconds = { quick: 20, full: 260 };

export async function run(options: BenchOptions): Promise<BenchResult[]> {
  return [
    ...(await measureImport(options)),
    ...(await measureCallbacks(options)),
    ...(await measureReaders(options)),
  ];
}
