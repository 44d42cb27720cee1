import { openServices, type Services } from '../../src/app/services.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import type { CatalogProduct } from '../../src/sandbox/catalog.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, SECRET } from '../support/workplace.ts';
import type { BenchOptions, BenchResult } from './bench-result.ts';

const PAGE_SIZE = 100;
const BRANCHES = [
  { subsidiaryId: 'sub-1', externalId: 'B1' },
  { subsidiaryId: 'sub-2', externalId: 'B2' },
];

/**
 * Sweeps the catalogue of two branches twice. Measures calls per page of the catalogue, and what the second sweep
 * writes: products, and pages of the write-ahead log.
 */
export async function measureSweep(options: BenchOptions): Promise<BenchResult[]> {
  const products = options.quick ? 1_950 : 9_950;
  const place = await openWorkplace(31, {
    limits: { ...FAST, requestsPerWindow: 100_000 },
    seed: { branches: BRANCHES, products },
  });
  const { config, refreshToken, sandbox } = place;
  const services = await openServices({
    config: { ...config, branches: BRANCHES, catalog: { ...config.catalog, pageSize: PAGE_SIZE } },
    secrets: { refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(31),
    log: silentLog,
  });
  try {
    options.progress(`the catalogue of two branches with ${products} products`);
    const pages = BRANCHES.map((branch) =>
      Math.ceil(listedIn(sandbox.control.products(), branch.subsidiaryId) / PAGE_SIZE),
    );
    const first = await sweepAll(services);
    emptyLog(services);
    const second = await sweepAll(services);
    const calls = sandbox.control.calls('product.list').length;
    const fewest = 2 * pages.reduce((sum, each) => sum + each);
    return [
      {
        name: 'sweeps: calls / pages of the catalogue',
        ratio: calls / fewest,
        bound: '<= 1',
        detail: `${calls} calls for two sweeps of ${pages.join(' and ')} pages, ${first.written} products written first`,
      },
      {
        name: 'an unchanged sweep: products written',
        ratio: second.written,
        bound: '<= 0',
        detail: `of ${second.products}`,
      },
      {
        name: 'an unchanged sweep: pages written to the log for each branch',
        ratio: pagesInLog(services) / BRANCHES.length,
        bound: '<= 1',
        detail: 'the one page says when the branch was swept',
      },
    ];
  } finally {
    await services.close();
    await place.close();
  }
}

const FAST = { endpointIntervalMs: 5, ordersIntervalMs: 400, windowMs: 300_000, ordersPerWindow: 2_000 };

/** Returns the number of products that the platform lists for a branch. */
function listedIn(products: CatalogProduct[], subsidiaryId: string): number {
  const isThere = (entry: { subsidiaryId: string }) => entry.subsidiaryId === subsidiaryId;
  return products.filter(({ children }) =>
    children.some((sku) => sku.stocks.some(isThere) || sku.integrations.some(isThere)),
  ).length;
}

async function sweepAll(services: Services): Promise<{ written: number; products: number }> {
  const total = { written: 0, products: 0 };
  for (const branch of services.branches) {
    const report = await services.catalogSweep.sweep(branch);
    total.written += report.written;
    total.products += report.products;
  }
  return total;
}

function emptyLog(services: Services): void {
  services.stores.read(({ db }) => db.pragma('wal_checkpoint(TRUNCATE)'));
  if (services.mirror.walBytes() !== 0) throw new Error('The log could not be emptied.');
}

/** Returns the number of pages in the write-ahead log, which has a header of 32 bytes, and one of 24 for each page. */
function pagesInLog(services: Services): number {
  const pageBytes = services.stores.read(({ db }) => Number(db.pragma('page_size', { simple: true })));
  return Math.max(0, services.mirror.walBytes() - 32) / (pageBytes + 24);
}
