import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { measureAccepting } from './accept-changes.ts';
import type { BenchOptions, BenchResult } from './bench-result.ts';
import { measureInventory } from './full-inventory.ts';
import { openOutgoingPlace } from './outgoing-place.ts';
import { measureCoalescing } from './push-coalesce.ts';
import { measurePace, measureUrgent } from './push-pace.ts';
import { measureSweep } from './sweep-cost.ts';

export const expectedSeconds = { quick: 50, full: 520 };

/** Measures how stock changes are sent and catalogues are read, with a strict platform in this process. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-outgoing-'));
  try {
    return [
      ...(await measureAccepting(directory, options)),
      ...(await measureSweep(options)),
      ...(await measureSending(directory, options)),
      ...(await measureCoalescing(options)),
    ];
  } finally {
    rmSync(directory, { recursive: true });
  }
}

async function measureSending(directory: string, options: BenchOptions): Promise<BenchResult[]> {
  const changes = options.quick ? 1_000 : 10_000;
  const products = options.quick ? 1_600 : 38_500;
  const place = await openOutgoingPlace({ seed: 21, products });
  try {
    return [
      ...(await measurePace(place, changes, options)),
      await measureUrgent(place, changes, options),
      ...(await measureInventory(directory, place, options)),
    ];
  } finally {
    await place.close();
  }
}
