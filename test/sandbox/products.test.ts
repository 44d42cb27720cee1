/** Tests src/sandbox/catalog.ts and src/sandbox/endpoints.ts. */

import { describe, expect, it } from 'vitest';
import type { CatalogProduct } from '../../src/sandbox/catalog.ts';
import { LIMITS, type Rig, rig } from './fixture.ts';

async function sweep(at: Rig, query: string): Promise<{ id: string }[]> {
  const found: { id: string }[] = [];
  for (let page = 1; ; page++) {
    const { data } = (await at.later('GET', `/product/list?${query}&page=${page}`)).json;
    found.push(...data.docs);
    if (!data.hasNextPage) return found;
  }
}

describe('GET /product', () => {
  it('finds by sku and by each of the three mapping fields, and is null for an unknown one', async () => {
    const { later } = await rig();
    const bySku = (await later('GET', '/product?sku=1001')).json;
    expect(bySku.data).toMatchObject({ children: [{ sku: 1001, stocks: expect.any(Array) }] });
    expect(Object.keys(bySku.data)).toEqual(['id', 'name', 'category', 'show', 'children']);
    expect((await later('GET', '/product?externalId=A-1001-2')).json.data.id).toBe(bySku.data.id);
    expect((await later('GET', '/product?externalId=E-1002')).json.data.children[0].sku).toBe(1002);
    expect((await later('GET', '/product?externalId=B-1003-1')).json.data.children[0].sku).toBe(1003);
    expect((await later('GET', '/product?externalId=nope')).json).toEqual({
      success: true,
      message: 'OK',
      data: null,
    });
    expect((await later('GET', '/product?sku=1')).json.data).toBeNull();
    expect((await later('GET', '/product')).status).toBe(400);
  });
});

describe('GET /product/list', () => {
  it('pages through a branch, twenty at a time, newest first, named either way', async () => {
    const at = await rig();
    const first = (await at.call('GET', '/product/list?subsidiaryId=sub-1')).json.data;
    expect(first).toMatchObject({
      totalDocs: 60,
      limit: 20,
      page: 1,
      totalPages: 3,
      hasNextPage: true,
      hasPrevPage: false,
    });
    const all = await sweep(at, 'externalId=B1');
    expect(all.slice(0, 20)).toEqual(first.docs);
    const newestFirst = at.sandbox.control.products().sort((a, b) => b.createdAtMs - a.createdAtMs);
    expect(all.map((product) => product.id)).toEqual(newestFirst.map((product) => product.id));
    const oldestFirst = await sweep(at, 'subsidiaryId=sub-1&order=asc&orderBy=CreatedDate&limit=7');
    expect(oldestFirst).toEqual([...all].reverse());
    const byName = await sweep(at, 'subsidiaryId=sub-1&order=asc&orderBy=name&limit=50');
    const names = byName.map((product) => (product as unknown as CatalogProduct).name);
    expect(names).toEqual([...names].sort());
  });

  it('silently caps the limit when told to', async () => {
    const { call } = await rig({ maxPageSize: 15 });
    const { data } = (await call('GET', '/product/list?subsidiaryId=sub-1&limit=100')).json;
    expect(data.docs).toHaveLength(15);
    expect(data).toMatchObject({ limit: 15, totalPages: 4 });
  });

  it('wants exactly one name of a branch that exists', async () => {
    const { later } = await rig();
    expect((await later('GET', '/product/list')).status).toBe(400);
    expect((await later('GET', '/product/list?subsidiaryId=sub-1&externalId=B1')).status).toBe(400);
    expect((await later('GET', '/product/list?subsidiaryId=nope')).json.success).toBe(false);
    expect((await later('GET', '/product/list?subsidiaryId=sub-1&limit=0')).status).toBe(400);
  });

  it('shifts its pages when a product comes or goes meanwhile', async () => {
    const at = await rig();
    const page = async (n: number) =>
      (await at.later('GET', `/product/list?subsidiaryId=sub-1&page=${n}`)).json.data.docs as {
        id: string;
      }[];
    const first = await page(1);
    const [model] = at.sandbox.control.products() as [CatalogProduct];
    const [child] = model.children;
    at.sandbox.control.putProduct({
      ...model,
      id: 'new',
      createdAtMs: at.clock.nowMs(),
      children: [{ ...child!, sku: 9001, integrations: [] }],
    });
    expect((await page(2))[0]).toEqual(first.at(-1));
    at.sandbox.control.removeProduct('new');
    expect((await page(2))[0]).not.toEqual(first.at(-1));
    expect((await at.later('GET', '/product?sku=9001')).json.data).toBeNull();
  });
});

describe('PUT /product', () => {
  it('changes the price of the SKU and name, description and visibility of the product', async () => {
    const { later, sandbox } = await rig();
    const put = await later('PUT', '/product', {
      sku: 1001,
      price: 77,
      name: 'New',
      description: 'x',
      show: false,
    });
    expect(put.json).toEqual({ success: true, message: 'OK', data: {} });
    await later('PUT', '/product', { externalId: 'A-1001-3', description: '' });
    expect(sandbox.control.products()[0]).toMatchObject({
      name: 'New',
      description: '',
      show: false,
      children: [{ sku: 1001, price: 77 }],
    });
  });

  it('refuses an unknown product in the envelope, with the status that is set', async () => {
    const { later, sandbox } = await rig();
    const unknown = await later('PUT', '/product', { sku: 1, price: 5 });
    expect(unknown).toMatchObject({ status: 200, json: { success: false } });
    sandbox.control.configure({ refusalStatus: 404, validationStatus: 422 });
    expect((await later('PUT', '/product', { sku: 1, price: 5 })).status).toBe(404);
    expect((await later('PUT', '/product', { sku: 1001 })).status).toBe(422);
  });

  it.each([
    ['nothing to change', { sku: 1001 }],
    ['no product', { price: 5 }],
    ['a price in words', { sku: 1001, price: '5' }],
    ['no JSON', '{"sku":'],
  ])('answers 400 to %s', async (_what, body) => {
    const { call } = await rig();
    expect((await call('PUT', '/product', body)).status).toBe(400);
  });
});

describe('PUT /product/stock', () => {
  it('takes the branch from the id, and leaves the visibility alone unless it is sent', async () => {
    const { later, sandbox } = await rig();
    expect((await later('PUT', '/product/stock', { externalId: 'A-1001-2', qty: 3 })).json.success).toBe(
      true,
    );
    await later('PUT', '/product/stock', { externalId: 'A-1001-3', qty: 0, show: false });
    const stocks = sandbox.control.products()[0]?.children[0]?.stocks;
    expect(stocks).toMatchObject([
      { subsidiaryId: 'sub-1' },
      { subsidiaryId: 'sub-2', qty: 3, show: true },
      { subsidiaryId: 'sub-3', qty: 0, show: false },
    ]);
    expect(stocks?.[0]?.qty).toBeGreaterThan(3);
  });

  it('wants the branch named when the id is in several, by either of its names', async () => {
    const { later, sandbox } = await rig();
    const put = async (more: object) =>
      (await later('PUT', '/product/stock', { externalId: 'E-1002', qty: 9, ...more })).json.success;
    const before = ['sub-1', 'sub-2', 'sub-3'].map((branch) => sandbox.control.stockOf(1002, branch));
    expect(await put({})).toBe(false);
    expect(['sub-1', 'sub-2', 'sub-3'].map((branch) => sandbox.control.stockOf(1002, branch))).toEqual(
      before,
    );
    expect(await put({ subsidiaryExternalId: 'B2' })).toBe(true);
    expect(await put({ subsidiaryId: 'sub-3' })).toBe(true);
    expect(['sub-1', 'sub-2', 'sub-3'].map((branch) => sandbox.control.stockOf(1002, branch))).toEqual([
      before[0],
      9,
      9,
    ]);
    expect(await put({ subsidiaryId: 'nope' })).toBe(false);
    expect(await put({ subsidiaryId: 'sub-1', subsidiaryExternalId: 'B2' })).toBe(false);
  });

  it('refuses unknown products, branches where it is not mapped, and never makes a stock entry', async () => {
    const { later, sandbox } = await rig();
    const put = async (body: object) => (await later('PUT', '/product/stock', { qty: 4, ...body })).json;
    expect(await put({ externalId: 'nope' })).toMatchObject({ success: false });
    expect(await put({ externalId: 'A-1001-2', subsidiaryId: 'sub-1' })).toMatchObject({ success: false });
    const bare = sandbox.control
      .products()
      .flatMap((product) => product.children)
      .find((sku) => sku.stocks.length === 2 && sku.integrations[2]?.productIdPosA);
    const externalId = bare?.integrations[2]?.productIdPosA;
    expect(await put({ externalId })).toMatchObject({ success: false });
    expect(bare?.stocks).toHaveLength(2);
    expect((await later('PUT', '/product/stock', { sku: 1001, qty: 4 })).status).toBe(400);
  });
});

describe('batches', () => {
  it('apply the good items and list the bad ones by index', async () => {
    const { call, sandbox } = await rig();
    const products = [
      { sku: 1001, price: 11 },
      { sku: 1001 },
      { externalId: 'nope', price: 12 },
      null,
      { externalId: 'A-1001-1', name: 'Renamed' },
    ];
    const { json } = await call('PUT', '/product/batch', { products });
    const message = expect.stringMatching(/./);
    expect(json).toEqual({
      success: true,
      message: 'OK',
      data: {
        updated: 2,
        total: 5,
        errors: [
          { index: 1, sku: 1001, message },
          { index: 2, externalId: 'nope', message },
          { index: 3, message },
        ],
      },
    });
    expect(sandbox.control.products()[0]).toMatchObject({ name: 'Renamed', children: [{ price: 11 }] });
    expect(sandbox.control.calls()[0]?.items).toBe(5);
  });

  it('do the same for stock', async () => {
    const { call, sandbox } = await rig();
    const products = [
      { externalId: 'E-1002', qty: 1 },
      { externalId: 'E-1002', qty: 2, subsidiaryId: 'sub-1' },
      { externalId: 'A-1001-1', qty: -1, show: 'yes' },
    ];
    const { data } = (await call('PUT', '/product/stock/batch', { products })).json;
    expect(data).toMatchObject({
      updated: 1,
      total: 3,
      errors: [{ index: 0, externalId: 'E-1002' }, { index: 2 }],
    });
    expect(sandbox.control.stockOf(1002, 'sub-1')).toBe(2);
  });

  it.each(['/product/batch', '/product/stock/batch'])('%s takes 1 to 100 items', async (path) => {
    const { later } = await rig();
    const items = (count: number) => ({
      products: Array(count).fill({ externalId: 'A-1001-1', qty: 1, price: 1 }),
    });
    expect((await later('PUT', path, items(0))).status).toBe(400);
    expect((await later('PUT', path, items(101))).status).toBe(400);
    expect((await later('PUT', path, {})).status).toBe(400);
    expect((await later('PUT', path, items(100))).json.data.total).toBe(100);
  });

  it('have an interval each', async () => {
    const { call, clock } = await rig();
    const products = [{ sku: 1001, price: 11 }];
    expect((await call('PUT', '/product/batch', { products })).status).toBe(200);
    expect((await call('PUT', '/product/batch', { products })).status).toBe(429);
    expect((await call('PUT', '/product/stock/batch', { products })).status).toBe(200);
    await clock.advance(LIMITS.endpointIntervalMs);
    expect((await call('PUT', '/product/batch', { products })).status).toBe(200);
  });
});
