import { createReadStream, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { SourceLine, StockChange } from '../../src/outbox/intake/change.ts';
import { readChangeFile } from '../../src/outbox/intake/change-file.ts';
import { planInventory } from '../../src/outbox/intake/full-inventory-plan.ts';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import type { OutgoingPlace, StockTarget } from './outgoing-place.ts';

const DIFFERENT = 200;

/** Measures a whole inventory with few differences: the time to plan it, and the number of calls to the platform. */
export async function measureInventory(
  directory: string,
  place: OutgoingPlace,
  options: BenchOptions,
): Promise<BenchResult[]> {
  const { daemon } = place;
  const targets = place.targets.slice(0, options.quick ? 2_000 : 50_000);
  const file = path.join(directory, 'inventory.csv');
  const step = Math.floor(targets.length / DIFFERENT);
  const isDifferent = (n: number) => n % step === 0 && n / step < DIFFERENT;
  const line = (target: StockTarget, n: number) =>
    `${target.externalId},${(place.qtyOf(target) ?? 0) + (isDifferent(n) ? 1 : 0)}`;
  writeFileSync(file, `externalId,qty\n${targets.map(line).join('\n')}\n`);

  const rounds = options.quick ? 5 : 11;
  options.progress(`a whole inventory of ${targets.length} rows, ${rounds} times`);
  const times: { read: number; plan: number }[] = [];
  let plan: ReturnType<typeof planInventory<Line>> | undefined;
  for (let round = 0; round < rounds; round++) {
    const beganMs = performance.now();
    const lines = await read(file);
    const readMs = performance.now();
    plan = planInventory(daemon.services, lines, { subsidiaryIds: undefined, names: 'command' });
    times.push({ read: readMs - beganMs, plan: performance.now() - readMs });
  }
  if (!plan || plan.changes.length !== DIFFERENT) {
    throw new Error(`${plan?.changes.length} differences were found instead of ${DIFFERENT}.`);
  }
  const before = place.stockCalls().length;
  await daemon.services.outbox.submitMany(
    plan.changes.map(({ change }) => ({ kind: 'stock', change })),
    'cli',
  );
  await place.settled(60_000);
  const calls = place.stockCalls().length - before;
  const warm = times.slice(2);
  return [
    {
      name: `inventory of ${targets.length} rows: reading and planning / reading and parsing`,
      ratio: median(warm.map(({ read, plan }) => (read + plan) / read)),
      bound: '<= 3',
      detail:
        `read ${median(warm.map(({ read }) => read)).toFixed(0)} ms, ` +
        `planned in ${median(warm.map(({ plan }) => plan)).toFixed(0)} ms more`,
    },
    {
      name: `calls for ${DIFFERENT} differences`,
      ratio: calls,
      bound: '<= 2',
      detail: `${plan.unchanged} rows were the same and not sent`,
    },
  ];
}

type Line = SourceLine & { kind: 'stock'; change: StockChange };

async function read(file: string): Promise<Line[]> {
  const lines: Line[] = [];
  for await (const some of readChangeFile(createReadStream(file), 'stock', { format: 'csv' })) {
    for (const item of some) if ('change' in item && item.kind === 'stock') lines.push(item);
  }
  return lines;
}
