/** Tests src/catalog/cross-branch.ts. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { LeasedSweep, sweepAll } from '../../src/catalog/sweep.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { tempState } from '../platform/temp-state.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';

const BRANCHES = Array.from({ length: 6 }, (_, i) => ({ subsidiaryId: `s${i}`, externalId: `B${i}` }));
const PAGE = 10;

let directory: string;
let mirror: Mirror;
let stores: MirrorStores;
let clock: FakeClock;
/** Products of the platform, with their stocks by branch. */
let shelf: Map<string, Record<string, number>>;
let calls: string[];
/** Returns the part of a product's `stocks` that a branch's list shows. */
let shows: (branch: string, stocks: Record<string, number>) => Record<string, number>;
/** Changes a product's skus as the platform has them. */
let edit: (id: string, skus: ProductRecord['children']) => ProductRecord['children'];
let isPartial: (id: string) => boolean;

beforeEach(() => {
  clock = new FakeClock();
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-cover-'));
  mirror = openMirror({ path: freshMirror(directory), clock });
  stores = new MirrorStores({ mirror, branches: BRANCHES, clock });
  // Each branch sells all 35 products.
  shelf = new Map(Array.from({ length: 35 }, (_, n) => [`p${n}`, inAll(n)]));
  calls = [];
  shows = (_branch, stocks) => stocks;
  edit = (_id, skus) => skus;
  isPartial = () => false;
});
afterEach(async () => {
  await mirror.close();
  rmSync(directory, { recursive: true, force: true });
});

const inAll = (qty: number) => Object.fromEntries(BRANCHES.map(({ subsidiaryId }) => [subsidiaryId, qty]));
const record = (id: string, stocks: Record<string, number>): ProductRecord => {
  const named = Object.entries(stocks).map(([branch, qty]) => [branch, [`${id}-${branch}`, qty]] as const);
  const whole = product(id, id, [{ sku: id.slice(1), stocks: Object.fromEntries(named) as never }]);
  const content = { ...whole, children: edit(id, whole.children) };
  return { ...content, raw: JSON.stringify(content), ...(isPartial(id) && { isPartial: true }) };
};

async function sweep(refused: readonly string[] = [], isHub = false) {
  calls = [];
  const run = new LeasedSweep({
    platform: {
      async productList(query, options) {
        options?.onSend?.();
        await clock.advance(1_000);
        const branch = 'subsidiaryId' in query ? (query.subsidiaryId ?? '') : '';
        calls.push(`${branch} ${query.order} ${query.page}`);
        if (refused.includes(branch)) throw new TillsyncError('platform-refused', 'Subsidiary not found.');
        const listed = [...shelf].filter(([, stocks]) => branch in stocks);
        if (query.order === 'desc') listed.reverse();
        const start = (query.page - 1) * query.limit;
        const docs = listed.slice(start, start + query.limit);
        const totalPages = Math.ceil(listed.length / query.limit);
        return {
          docs: docs.map(([id, stocks]) => record(id, shows(branch, stocks))),
          unreadable: [],
          totalDocs: listed.length,
          limit: query.limit,
          page: query.page,
          totalPages,
          hasNextPage: query.page < totalPages,
        };
      },
      productGet: async (query) => {
        const sku = 'sku' in query ? (query.sku ?? '') : '';
        calls.push(`get ${sku}`);
        const records = [...shelf].map(([id, stocks]) => record(id, stocks));
        return records.find(({ children }) => children.some((child) => child.sku === sku)) ?? null;
      },
    },
    stores,
    clock,
    leases: tempState(clock).leases,
    quarantine: async () => {},
    alarms: { note() {} },
    isHub,
    pageSize: PAGE,
  });
  const freshness = { report() {}, ok() {} };
  return await sweepAll({ sweep: run, branches: BRANCHES, freshness }, {});
}

const rows = (sql: string) => mirror.read((db) => db.prepare(sql).raw().all());
/** Returns the branches whose lists were read completely, and not only one page. */
const whole = () => calls.filter((call) => call.endsWith('asc 1')).map((call) => call.split(' ')[0]);

/** Checks that the mirror has every stock of the platform and the listings of each branch. */
function expectMirrored() {
  const stocks = [...shelf].flatMap(([id, of]) =>
    Object.entries(of).map(([branch, qty]) => [id.slice(1), branch, qty]),
  );
  expect(rows('SELECT sku, subsidiary_id, qty FROM stocks ORDER BY sku, subsidiary_id')).toEqual(
    stocks.sort(),
  );
  const listed = [...shelf].flatMap(([id, of]) => Object.keys(of).map((branch) => [branch, id]));
  expect(rows('SELECT branch, product_id FROM _branch_products ORDER BY branch, product_id')).toEqual(
    listed.sort(),
  );
}

describe('a sweep of branches whose records carry the stocks of all', () => {
  it('reads one list whole, and of each other branch one page', async () => {
    const reports = await sweep();
    expect(whole()).toEqual(['s0']);
    expect(calls).toHaveLength(4 + 5);
    expect(reports.map(({ branch, products, pages }) => [branch.subsidiaryId, products, pages])).toEqual(
      BRANCHES.map(({ subsidiaryId }, i) => [subsidiaryId, 35, i === 0 ? 4 : 1]),
    );
    expectMirrored();
    expect(stores.read(({ lookup }) => lookup.isComplete)).toBe(true);
  });

  it('says of each branch since when its values are known: since the list that told them was read', async () => {
    const startedMs = clock.nowMs();
    await sweep();
    const known = rows(
      'SELECT branch, completed_ms - ?, as_of_seq FROM _sweeps'.replace('?', String(startedMs)),
    );
    expect(known).toEqual(BRANCHES.map(({ subsidiaryId }) => [subsidiaryId, 4_000, 0]));
  });

  it('goes on behind a branch whose id the platform does not have any more, keeps what was read of it, and names it', async () => {
    await sweep();
    const before = rows("SELECT * FROM _branch_products WHERE branch = 's2' ORDER BY product_id");
    shelf.set('p35', inAll(35));
    await expect(sweep(['s2'])).rejects.toMatchObject({
      code: 'platform-refused',
      message: expect.stringMatching(
        /products of [^,]*s2: Subsidiary not found\. What was read of them before is kept/,
      ),
      hint: 'Correct the ids in [[branches]]; a branch that is no more goes out of it.',
    });
    await expect(sweep(['s2'], true)).rejects.toMatchObject({
      hint: expect.stringContaining('branch close NAME'),
    });
    expect(rows("SELECT * FROM _branch_products WHERE branch = 's2' ORDER BY product_id")).toEqual(before);
    const others = rows(
      "SELECT DISTINCT branch FROM _branch_products WHERE product_id = 'p35' ORDER BY branch",
    );
    expect(others.flat()).toEqual(
      BRANCHES.map(({ subsidiaryId }) => subsidiaryId)
        .filter((id) => id !== 's2')
        .sort(),
    );
  });

  it('gives up where the platform refuses one list after the other', async () => {
    await expect(sweep(BRANCHES.map(({ subsidiaryId }) => subsidiaryId))).rejects.toMatchObject({
      message: 'Subsidiary not found.',
    });
    expect(calls).toHaveLength(3);
  });

  it('ends without the branches that are configured no more', async () => {
    await sweep();
    await mirror.write((db) => db.exec("UPDATE _branch_products SET branch = 's9' WHERE branch = 's3'"));
    await mirror.write((db) => db.exec("UPDATE _sweeps SET branch = 's9' WHERE branch = 's3'"));
    await sweep();
    expect(rows('SELECT branch FROM _sweeps')).toEqual(BRANCHES.map(({ subsidiaryId }) => [subsidiaryId]));
    expectMirrored();
  });

  it('lets no product vanish while branches with new ids in the configuration are read', async () => {
    await sweep();
    await mirror.write((db) => db.exec("UPDATE _branch_products SET branch = 'ext:' || branch"));
    const vanished: unknown[] = [];
    shows = (_branch, stocks) => {
      vanished.push(...rows('SELECT product_id FROM products WHERE vanished_at IS NOT NULL'));
      return stocks;
    };
    await sweep();
    expect(vanished).toEqual([]);
    expectMirrored();
  });

  it('finds new products of one branch, and those that are gone', async () => {
    await sweep();
    shelf.set('p90', { s3: 4 });
    shelf.delete('p7');
    const reports = await sweep();
    expect(whole()).toEqual(['s0']);
    expect(reports.map(({ vanished }) => vanished).reduce((a, b) => a + b)).toBe(1);
    expectMirroredBut('p7');
  });

  it('reads a branch whole too that lists more than the others say of it', async () => {
    for (let n = 100; n < 130; n++) shelf.set(`p${n}`, { s3: 1 });
    await sweep();
    expect(whole()).toEqual(['s0', 's3']);
    expectMirrored();
    await sweep();
    expect(whole()).toEqual(['s3']);
    expectMirrored();
  });

  it('takes the quantities that sales have moved meanwhile, and reads whole where many differ', async () => {
    await sweep();
    shows = (branch, stocks) => (branch === 's5' ? { ...stocks, s5: (stocks.s5 ?? 0) + 1 } : stocks);
    await sweep();
    expect(whole()).toEqual(['s0', 's5']);
    expect(rows("SELECT DISTINCT qty - CAST(sku AS INTEGER) FROM stocks WHERE subsidiary_id = 's5'")).toEqual(
      [[1]],
    );
  });
});

describe('a branch that is confirmed by one page loses', () => {
  type Skus = ProductRecord['children'];
  const unmapped = (skus: Skus, branch: string): Skus =>
    skus.map((child) => ({
      ...child,
      integrations: child.integrations.filter(({ subsidiaryId }) => subsidiaryId !== branch),
    }));
  /** Adds sku `0x` to p1, before its other sku, in every branch. */
  const withSecond = (id: string, [child, ...rest]: Skus): Skus =>
    child && id === 'p1'
      ? [{ ...child, sku: '0x' }, child, ...rest]
      : [child, ...rest].filter((each) => !!each);
  const asked = () => calls.filter((call) => call.startsWith('get'));

  it('the mapping of a product that keeps its stock, when another product gets the externalId', async () => {
    await sweep();
    edit = (id, skus) => {
      if (id === 'p1') return unmapped(skus, 's3');
      const moved = { subsidiaryId: 's3', productIdPosA: null, productCodePosB: null, extId: 'p1-s3' };
      return id === 'p2'
        ? unmapped(skus, 's3').map((child) => ({ ...child, integrations: [...child.integrations, moved] }))
        : skus;
    };
    await sweep();
    expect(rows("SELECT sku FROM integrations WHERE ext_id = 'p1-s3' AND subsidiary_id = 's3'")).toEqual([
      ['2'],
    ]);
    expect(whole()).toEqual(['s0']);
    expect(asked()).toEqual(['get 1']);
    await sweep();
    expect(asked()).toEqual([]);
  });

  it('a sku that the product has no more in any branch, for one call and not one for each branch', async () => {
    edit = withSecond;
    await sweep();
    expect(rows("SELECT count(*) FROM stocks WHERE sku = '0x'")).toEqual([[6]]);
    edit = (_id, skus) => skus;
    await sweep();
    expect(rows("SELECT sku FROM skus WHERE sku = '0x'")).toEqual([]);
    expectMirrored();
    expect(whole()).toEqual(['s0']);
    expect(asked()).toEqual(['get 1']);
  });

  it('a mapping that came by mistake and was taken back', async () => {
    const before = (id: string, skus: Skus) => (id === 'p34' ? unmapped(skus, 's3') : skus);
    edit = before;
    await sweep();
    // The page of the newest products no longer shows p34.
    for (let n = 50; n < 60; n++) shelf.set(`p${n}`, inAll(n));
    edit = (_id, skus) => skus;
    await sweep();
    edit = before;
    await sweep();
    expect(rows("SELECT sku FROM integrations WHERE ext_id = 'p34-s3'")).toEqual([]);
  });

  it('more than are asked for one by one, so its list is read whole once', async () => {
    await sweep();
    edit = (_id, skus) => unmapped(skus, 's3');
    await sweep();
    expect(whole()).toEqual(['s0', 's3']);
    expect(rows("SELECT sku FROM integrations WHERE subsidiary_id = 's3'")).toEqual([]);
    await sweep();
    expect(whole()).toEqual(['s0']);
    expect(asked()).toEqual([]);
  });

  it('nothing by a record that is readable in part, and is not read whole for it each night', async () => {
    edit = withSecond;
    await sweep();
    edit = (_id, skus) => skus;
    isPartial = (id) => id === 'p1';
    await sweep();
    expect(rows("SELECT count(*) FROM stocks WHERE sku = '0x'")).toEqual([[6]]);
    expect(whole()).toEqual(['s0']);
    expect(asked()).toEqual([]);
  });
});

function expectMirroredBut(gone: string) {
  expect(rows('SELECT product_id FROM products WHERE vanished_at NOT NULL')).toEqual([[gone]]);
  const listed = [...shelf].flatMap(([id, of]) => Object.keys(of).map((branch) => [branch, id]));
  expect(rows('SELECT branch, product_id FROM _branch_products ORDER BY branch, product_id')).toEqual(
    listed.sort(),
  );
}

describe('a sweep of branches whose records carry', () => {
  it('their own stocks alone reads every list, with no call more', async () => {
    shows = (branch, stocks) => ({ [branch]: stocks[branch] ?? 0 });
    await sweep();
    expect(calls).toHaveLength(6 * 4);
    expectMirrored();
  });

  it('less of other branches than their own lists do, reads those whole', async () => {
    shows = (branch, stocks) => {
      const { s5, ...others } = stocks;
      return branch === 's5' ? stocks : (others as Record<string, number>);
    };
    await sweep();
    expect(whole()).toEqual(['s0', 's5']);
    expectMirrored();
  });
});
