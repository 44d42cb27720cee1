import path from 'node:path';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import { BENCH_BRANCH, benchProducts } from './catalog-samples.ts';

/** Opens the mirror as the daemon does, with a swept catalogue of `products`. */
export async function openBenchStores(directory: string, products: number) {
  const mirror = openMirror({ path: path.join(directory, 'mirror.db'), clock: systemClock });
  const stores = new MirrorStores({ mirror, branches: [BENCH_BRANCH], clock: systemClock });
  const records = benchProducts(products);
  for (let at = 0; at < records.length; at += 1_000) {
    await stores.write(({ catalog }) =>
      catalog.applyPage(BENCH_BRANCH, records.slice(at, at + 1_000), catalog.readMark()),
    );
  }
  await stores.write(({ catalog }) =>
    catalog.completeSweep({
      branch: BENCH_BRANCH,
      mark: catalog.readMark(),
      startedAtMs: systemClock.nowMs(),
      pages: Math.ceil(products / 1_000),
      seen: new Set(records.map(({ id }) => id)),
    }),
  );
  return { mirror, stores };
}
