import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { benchAnswer, benchEntry, inDirectory } from './mirror-samples.ts';

const READER = new URL('mirror-reader-process.ts', import.meta.url).pathname;
const WRITES_PER_SECOND = 500;
/** Orders that arrive within this time share a commit, as in the receiver. */
const GROUP_MS = 20;

type Figures = [latest: [p50: number, p99: number], changed: [p50: number, p99: number]];

/** Measures queries of a POS in another process, with and without a steady writer. */
export async function measureReaders({ quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const orders = quick ? 10_000 : 100_000;
  const rounds = quick ? 1 : 4;
  const forMs = quick ? 3_000 : 8_000;
  const alone: Figures[] = [];
  const beside: Figures[] = [];
  await inDirectory(async (directory) => {
    const path = join(directory, 'data', 'mirror.db');
    const mirror = openMirror({ path, clock: systemClock });
    await mirror.importAnswer(benchAnswer(orders), {
      observedAtMs: Date.UTC(2026, 5, 1),
      asOfSeq: 0,
      asOfHeldId: 0,
    });
    for (let round = 1; round <= rounds; round++) {
      progress(`POS queries beside ${WRITES_PER_SECOND} orders/s, ${round} of ${rounds}`);
      alone.push(await read(path, forMs));
      const stop = new AbortController();
      const writing = write(mirror, orders + round * 1_000_000, stop.signal);
      beside.push(await read(path, forMs));
      stop.abort();
      await writing;
    }
    await mirror.close();
  });
  return (['latest 50 orders with items', 'changed since seq (100)'] as const).map((name, query) => {
    const figure = (runs: Figures[], which: 0 | 1) =>
      median(runs.map((run) => (run[query] as Figures[0])[which]));
    const [p50, p99, p50Alone, p99Alone] = [
      figure(beside, 0),
      figure(beside, 1),
      figure(alone, 0),
      figure(alone, 1),
    ];
    return {
      name: `POS query beside ${WRITES_PER_SECOND} orders/s: ${name}, p99 against no writer`,
      ratio: p99 / p99Alone,
      bound: '<= 3',
      detail: `p50/p99 ${p50.toFixed(2)}/${p99.toFixed(2)} ms, alone ${p50Alone.toFixed(2)}/${p99Alone.toFixed(2)} ms`,
    };
  });
}

async function read(path: string, forMs: number): Promise<Figures> {
  const { stdout } = await promisify(execFile)(process.execPath, [READER, path, String(forMs)]);
  return JSON.parse(stdout) as Figures;
}

async function write(mirror: Mirror, first: number, signal: AbortSignal): Promise<void> {
  const perGroup = (WRITES_PER_SECOND * GROUP_MS) / 1000;
  const startMs = performance.now();
  for (let group = 0; !signal.aborted; group++) {
    const entries = Array.from({ length: perGroup }, (_, i) => benchEntry(first + group * perGroup + i));
    await mirror.save(entries);
    await systemClock.sleep(Math.max(0, startMs + (group + 1) * GROUP_MS - performance.now()), signal);
  }
}
