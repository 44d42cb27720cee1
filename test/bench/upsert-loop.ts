import { bareUpserts } from './bare-upserts.ts';
import { openBenchStores } from './bench-stores.ts';

/**
 * Does the minimum work of accepting changes: one prepared upsert for each, in transactions of tillsync's size, into
 * the outbox of a real mirror. All targets are known beforehand.
 * node upsert-loop.ts DIRECTORY PRODUCTS PER_REQUEST PER_COMMIT
 * Prints JSON: milliseconds per request, first with all new targets, then with all once more.
 */
const [directory = '', products = '', perRequest = '', perCommit = ''] = process.argv.slice(2);
const { mirror } = await openBenchStores(directory, Number(products));
const upserts = bareUpserts(directory);

const times: number[] = [];
for (let round = 1; round <= 2; round++) {
  for (let from = 0; from < Number(products); from += Number(perRequest)) {
    const beganMs = performance.now();
    for (let at = from; at < from + Number(perRequest); at += Number(perCommit)) {
      upserts.take(at, at + Number(perCommit), round);
    }
    times.push(performance.now() - beganMs);
  }
}
process.stdout.write(JSON.stringify(times));
upserts.close();
await mirror.close();
