import { execFileSync } from 'node:child_process';
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { benchAnswer, benchOrder, inDirectory } from './mirror-samples.ts';

const PIPELINE = new URL('mirror-pipeline.ts', import.meta.url).pathname;
const PAGE = 100;

/** Measures the first mirroring of a large answer against the bare pipeline, and then the same answer again. */
export async function measureImport({ quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const orders = quick ? 10_000 : 100_000;
  const rounds = 3;
  const bareMs: number[] = [];
  const firstMs: number[] = [];
  const againMs: number[] = [];
  const writtenBytes: number[] = [];
  await inDirectory(async (directory) => {
    const pages = join(directory, 'pages.ndjson');
    writePages(pages, orders);
    for (let round = 1; round <= rounds; round++) {
      progress(`mirroring ${orders} orders, bare and whole, ${round} of ${rounds}`);
      const path = join(directory, `round-${round}`, 'mirror.db');
      const mirror = openMirror({ path, clock: systemClock });
      const empty = join(directory, `bare-${round}`, 'mirror.db');
      await openMirror({ path: empty, clock: systemClock }).close();
      bareMs.push(Number(execFileSync(process.execPath, [PIPELINE, pages, empty])));
      firstMs.push(await timeImport(mirror, orders));
      const before = marks(path);
      againMs.push(await timeImport(mirror, orders));
      writtenBytes.push(marks(path) === before ? 0 : 1 + mirror.walBytes());
      await mirror.close();
    }
  });
  const bare = median(bareMs);
  const first = median(firstMs);
  const again = median(againMs);
  return [
    {
      name: 'first mirroring against the bare pipeline (parse, compare, insert into the same schema)',
      ratio: median(bareMs.map((ms, i) => ms / (firstMs[i] as number))),
      bound: '>= 0.7',
      detail: `${perSecond(orders, first)} orders/s, bare ${perSecond(orders, bare)}; ${orders} orders, ${rounds} rounds`,
    },
    {
      name: 'the same answer again, as a share of the first time',
      ratio: again / first,
      bound: '<= 0.34',
      detail: `${perSecond(orders, again)} orders/s`,
    },
    {
      name: 'bytes written by the same answer again',
      ratio: Math.max(...writtenBytes),
      bound: '<= 0',
      detail: 'size and time of change of the database and its log',
    },
  ];
}

async function timeImport(mirror: Mirror, orders: number): Promise<number> {
  const body = benchAnswer(orders);
  const startMs = performance.now();
  await mirror.importAnswer(body, {
    observedAtMs: Date.UTC(2026, 5, 1),
    asOfSeq: mirror.orders.newestSeq(),
    asOfHeldId: 0,
  });
  return performance.now() - startMs;
}

function writePages(path: string, orders: number): void {
  const pages: string[] = [];
  for (let at = 0; at < orders; at += PAGE) {
    pages.push(JSON.stringify(Array.from({ length: PAGE }, (_, i) => benchOrder(at + i))));
  }
  writeFileSync(path, `${pages.join('\n')}\n`);
}

function marks(path: string): string {
  return [path, `${path}-wal`].map((file) => `${statSync(file).size} ${statSync(file).mtimeMs}`).join();
}

function perSecond(count: number, ms: number): number {
  return Math.round((count / ms) * 1000);
}
