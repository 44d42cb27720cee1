import { join } from 'node:path';
import { openMirror } from '../../src/app/mirror.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { GroupCommit } from '../../src/orders/receiving/group-commit.ts';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { benchAnswer, benchEntry, inDirectory, percentile } from './mirror-samples.ts';

const PER_SECOND = 200;
const INTERVAL_MS = 1000 / PER_SECOND;
/** About the size of a notification, which counts only for the limit of waiting ones. */
const ENTRY_BYTES = 2_000;

/**
 * Measures callbacks at a steady rate, from the time each is due until it is on the disk, while a large answer is
 * mirrored.
 */
export async function measureCallbacks({ quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const orders = quick ? 10_000 : 100_000;
  const rounds = quick ? 1 : 3;
  const idle: number[][] = [];
  const busy: number[][] = [];
  await inDirectory(async (directory) => {
    for (let round = 1; round <= rounds; round++) {
      progress(`callbacks beside an import of ${orders} orders, ${round} of ${rounds}`);
      const mirror = openMirror({ path: join(directory, `round-${round}`, 'mirror.db'), clock: systemClock });
      const body = benchAnswer(orders);
      await deliver(mirror, 1_000_000, (elapsedMs) => elapsedMs < 500);
      idle.push(await deliver(mirror, 2_000_000, (elapsedMs) => elapsedMs < (quick ? 3_000 : 8_000)));
      let importing = true;
      const run = mirror
        .importAnswer(body, {
          observedAtMs: Date.UTC(2026, 5, 1),
          asOfSeq: mirror.orders.newestSeq(),
          asOfHeldId: 0,
        })
        .finally(() => {
          importing = false;
        });
      busy.push(await deliver(mirror, 3_000_000, () => importing));
      await run;
      await mirror.close();
    }
  });
  const p99 = (runs: number[][]) => median(runs.map((latencies) => percentile(latencies, 0.99)));
  const p50 = (runs: number[][]) => median(runs.map((latencies) => percentile(latencies, 0.5)));
  return [
    {
      name: `callbacks at ${PER_SECOND}/s during an import, p99 against idle`,
      ratio: p99(busy) / p99(idle),
      bound: '<= 4',
      detail: `p50/p99 ${p50(busy).toFixed(2)}/${p99(busy).toFixed(2)} ms, idle ${p50(idle).toFixed(2)}/${p99(idle).toFixed(2)} ms; ${busy.flat().length} callbacks`,
    },
  ];
}

/**
 * Returns the latencies of callbacks in milliseconds. The callbacks overlap, as if there were many senders, and are
 * stored together as the receiver does it.
 */
async function deliver(
  mirror: Mirror,
  first: number,
  more: (elapsedMs: number) => boolean,
): Promise<number[]> {
  const commits = new GroupCommit({ sink: mirror, clock: systemClock, log: silentLog });
  const latencies: number[] = [];
  const running: Promise<void>[] = [];
  const startMs = performance.now();
  for (let i = 0; more(performance.now() - startMs); i++) {
    const entry = benchEntry(first + i);
    const dueMs = startMs + i * INTERVAL_MS;
    await systemClock.sleep(Math.max(0, dueMs - performance.now()));
    // A timer may fire a little early, and then the latency begins when it fires. A delay by a busy thread is included.
    const sentMs = Math.min(dueMs, performance.now());
    running.push(commits.add(entry, ENTRY_BYTES).then(() => void latencies.push(performance.now() - sentMs)));
  }
  await Promise.all(running);
  return latencies;
}
