/** Tests src/catalog/product-rows.ts, src/catalog/catalog-store.ts and src/catalog/product.ts. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { branchDirectory } from '../../src/catalog/product.ts';
import { CatalogQueries } from '../../src/catalog/product-rows.ts';
import { InventoryIndex } from '../../src/outbox/intake/inventory-index.ts';
import { resolveStock } from '../../src/outbox/intake/resolve.ts';
import { type ProductRecord, readProduct } from '../../src/platform/schemas.ts';
import { BRANCHES, outgoing, product, SEND_ALL } from '../outbox/outbox-fixture.ts';
import { runsOf } from '../support/seed.ts';

const TEA = product('p1', 'Tea', [
  { sku: '10', price: 1000, stocks: { s1: ['A', 5], s2: ['A', 7] } },
  { sku: '11', price: 2000, stocks: { s1: ['B', 3] } },
]);
const CAKE = product('p2', 'Cake', [{ sku: '20', stocks: { s2: ['C', 1] } }]);
const [S1, S2] = BRANCHES as [(typeof BRANCHES)[number], (typeof BRANCHES)[number]];

function rows(out: ReturnType<typeof outgoing>) {
  return ['products', 'skus', 'stocks', 'integrations'].map((table) => {
    const list = out.db.prepare(`SELECT * FROM ${table}`).raw().all() as unknown[][];
    return list.map((row) => JSON.stringify(row)).sort();
  });
}

/** Returns the record with only the entries that the list of one branch would have. */
function listedIn(record: ProductRecord, subsidiaryId: string): ProductRecord {
  const children = record.children
    .filter((child) => child.stocks.some((stock) => stock.subsidiaryId === subsidiaryId))
    .map((child) => ({
      ...child,
      stocks: child.stocks.filter((stock) => stock.subsidiaryId === subsidiaryId),
      integrations: child.integrations.filter((each) => each.subsidiaryId === subsidiaryId),
    }));
  const content = {
    id: record.id,
    name: record.name,
    category: record.category,
    show: record.show,
    children,
  };
  return { ...content, raw: JSON.stringify(content) };
}

describe('a sweep', () => {
  it('that finds nothing new writes nothing but its own end', () => {
    for (const view of [(record: ProductRecord) => record, listedIn]) {
      const out = outgoing();
      const sweep = () => {
        let written = 0;
        for (const branch of BRANCHES) {
          const mark = out.store.readMark();
          const records = [TEA, CAKE].map((record) => view(record, branch.subsidiaryId));
          written += out.store.applyPage(branch, records, mark).written;
          out.store.completeSweep({ branch, mark, startedAtMs: 0, pages: 1, seen: new Set(['p1', 'p2']) });
        }
        return written;
      };
      expect(sweep()).toBe(4);
      const before = rows(out);
      const changes = () => out.db.prepare('SELECT total_changes()').pluck().get() as number;
      const total = changes();
      expect(sweep()).toBe(0);
      expect(changes() - total).toBe(BRANCHES.length);
      expect(rows(out)).toEqual(before);
      expect(before[2]).toHaveLength(4);
    }
  });

  it('marks what vanished only when no branch lists it any more, and takes it back', () => {
    const out = outgoing();
    out.sweep([TEA, CAKE]);
    const end = (branch: typeof S1, ids: string[]) =>
      out.store.completeSweep({
        branch,
        mark: out.store.readMark(),
        startedAtMs: 0,
        pages: 1,
        seen: new Set(ids),
      });
    expect(out.store.unlisted(S1, new Set(['p1']))).toEqual([{ productId: 'p2', sku: '20' }]);
    expect(end(S1, ['p1']).vanished).toBe(0);
    expect(out.catalog.productOf('20')).toBe('p2');
    expect(end(S2, ['p1']).vanished).toBe(1);
    expect(out.catalog.productOf('20')).toBeUndefined();
    expect(out.catalog.byExternalId('C')).toEqual([]);
    out.sweep([TEA, CAKE]);
    expect(out.catalog.byExternalId('C')).toHaveLength(1);
  });

  it('keeps most of all products, though no branch lacks most of its own', () => {
    const out = outgoing();
    const listed = (ids: string) => [...ids].map((id) => product(id, id, [{ sku: `1${id}`, stocks: {} }]));
    const all = { s1: 'abcde', s2: 'cdefg' };
    for (const [branch, ids] of [
      [S1, all.s1],
      [S2, all.s2],
    ] as const)
      out.store.applyPage(branch, listed(ids), out.store.readMark());
    const vanishing = { of: out.store.size(), vanished: 0 };
    const end = (branch: typeof S1, ids: string, scheduledMs?: number) =>
      out.store.completeSweep({
        branch,
        mark: out.store.readMark(),
        startedAtMs: 0,
        pages: 1,
        seen: new Set(ids),
        scheduledMs,
        vanishing,
      });
    expect(end(S1, 'cde')).toEqual({ vanished: 2, doubted: 0 });
    expect(end(S2, 'cde')).toEqual({ vanished: 0, doubted: 2 });
    expect(out.catalog.productOf('1f')).toBe('f');
    expect(end(S2, 'cde', out.clock.nowMs() + 1)).toEqual({ vanished: 2, doubted: 0 });
  });

  it('forgets what a branch listed that is configured no more', () => {
    const out = outgoing();
    out.sweep([TEA]);
    out.store.applyPage(S2, [listedIn(CAKE, 's2')], out.store.readMark());
    out.store.keepOnly([S1, S2]);
    expect(out.catalog.byExternalId('C')).toHaveLength(1);
    out.store.keepOnly([S1]);
    expect(out.store.sizes()).toEqual(new Map([['s1', 1]]));
    expect(out.catalog.byExternalId('C')).toEqual([]);
    // Branch s1 still lists TEA, whose mappings are kept.
    expect(out.catalog.byExternalId('A')).toHaveLength(2);
    expect(out.store.unlisted(S2, new Set())).toEqual([]);
  });

  it('takes over every change, and what a branch no longer says', () => {
    const out = outgoing();
    out.sweep([TEA, CAKE]);
    const changed = product('p1', 'Green tea', [{ sku: '10', price: 900, stocks: { s1: ['A2', 5] } }]);
    out.sweep([listedIn(changed, 's1')]);
    const [tea] = new CatalogQueries(out.db).products({ sku: '10', limit: 1 });
    expect(tea).toMatchObject({ name: 'Green tea', skus: [{ sku: '10', price: 900 }] });
    expect(out.catalog.byExternalId('A').map((each) => each.subsidiaryId)).toEqual([]);
  });

  it('never undoes a push that came after it had asked', () => {
    const out = outgoing();
    out.sweep([TEA]);
    const asked = out.store.readMark();
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    const { callId, items } = out.dispatcher.claim('stock', 9, SEND_ALL);
    out.dispatcher.settle(callId ?? 0, [{ changeId: items[0]?.changeId ?? 0, state: 'done' }]);
    const stale = product(
      'p1',
      'Tea!',
      TEA.children.map((child) => ({
        sku: child.sku,
        price: 1,
        stocks: child.sku === '10' ? { s1: ['A', 6], s2: ['A', 7] } : { s1: ['B', 3] },
      })),
    );
    out.store.applyPage(S1, [stale], asked);
    const qty = out.db.prepare('SELECT qty FROM stocks ORDER BY sku, subsidiary_id').pluck();
    expect(qty.all()).toEqual([6, 7, 9]);
    out.store.applyPage(S1, [stale], out.store.readMark());
    expect(qty.all()).toEqual([6, 7, 3]);
  });

  it('ends with the rows of the last records, however they changed before', () => {
    const shelf = fc.record({
      sku: fc.constantFrom('10', '11', '12'),
      price: fc.nat(3),
      stocks: fc.dictionary(
        fc.constantFrom('s1', 's2'),
        fc.tuple(fc.constantFrom('A', 'B'), fc.nat(3)).map(([id, qty]): [string, number] => [id, qty]),
      ),
    });
    const records = fc
      .tuple(
        fc.uniqueArray(shelf, { selector: (each) => each.sku, maxLength: 3 }),
        fc.constantFrom('x', 'y'),
        fc.nat(3),
      )
      .map(([shelves, name, split]) => {
        // A sku may move from one product to the other.
        const plain = shelves.map((each) => ({ ...each, stocks: { ...each.stocks } }));
        return [product('p1', name, plain.slice(0, split)), product('p2', name, plain.slice(split))];
      });
    const out = outgoing();
    out.db.pragma('synchronous = OFF');
    fc.assert(
      fc.property(fc.array(records, { minLength: 1, maxLength: 4 }), (versions) => {
        for (const version of versions) out.sweep(version);
        const last = versions.at(-1) as ProductRecord[];
        const products = new CatalogQueries(out.db).products({ limit: 9 });
        const expected = last.map((record) => ({
          name: record.name,
          skus: record.children.map((child) => [child.sku, child.price, sorted(child.stocks)]).sort(),
        }));
        expect(
          products.map(({ name, skus }) => ({
            name,
            skus: skus.map((sku) => [sku.sku, sku.price, sorted(sku.stocks)]).sort(),
          })),
        ).toEqual(expected);
        const mappings = last.flatMap((record) =>
          record.children.flatMap((child) =>
            child.integrations.map((each) => `${child.sku}@${each.subsidiaryId}=${each.extId}`),
          ),
        );
        const mirrored = ['A', 'B'].flatMap((id) => out.catalog.byExternalId(id));
        expect(mirrored.map((each) => `${each.sku}@${each.subsidiaryId}=${each.externalId}`).sort()).toEqual(
          mappings.sort(),
        );
      }),
      { numRuns: runsOf(60) },
    );
  });
});

function sorted(stocks: { subsidiaryId: string; qty: unknown }[]) {
  return stocks.map(({ subsidiaryId, qty }) => `${subsidiaryId}:${String(qty)}`).sort();
}

describe('a product read by itself', () => {
  it('speaks for every branch, and is not written twice', () => {
    const out = outgoing();
    out.sweep([TEA]);
    const mark = out.store.readMark();
    expect(out.store.applyRead(TEA, mark)).toBe(false);
    const less = product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 4] } }]);
    expect(out.store.applyRead(less, mark)).toBe(true);
    expect(out.catalog.mappingsOf('10').map((each) => each.subsidiaryId)).toEqual(['s1']);
    expect(out.catalog.mappingsOf('11')).toEqual([]);
    // The digests of both branches were deleted, so the next sweep reads the record again.
    expect(out.store.applyPage(S1, [TEA], mark).written).toBe(1);
  });
});

describe('the catalogue', () => {
  it('is complete when every configured branch was swept', () => {
    const out = outgoing();
    expect(out.catalog.isComplete).toBe(false);
    const mark = out.store.readMark();
    out.store.completeSweep({ branch: S1, mark, startedAtMs: 0, pages: 1, seen: new Set() });
    expect(out.catalog.isComplete).toBe(false);
    out.store.completeSweep({ branch: S2, mark, startedAtMs: 0, pages: 1, seen: new Set() });
    expect(out.catalog.isComplete).toBe(true);
  });

  it.each([
    ['1001.50', 1001.5, 'real'],
    [' 1990 ', 1990, 'integer'],
    ['0', 0, 'integer'],
    ['-3', -3, 'integer'],
    [0.1, 0.1, 'real'],
    [1990, 1990, 'integer'],
    ['1.990,00', null, 'null'],
    ['5990,55', null, 'null'],
    ['', null, 'null'],
    ['1e5', null, 'null'],
    [null, null, 'null'],
    [[7], null, 'null'],
  ])('stores the number %j as %j, as in orders', (sent, stored, type) => {
    const out = outgoing();
    const stock = { subsidiaryId: 's1', qty: sent, show: true };
    const sku = { sku: '010', price: sent, discount: sent, withDiscount: sent, stocks: [stock] };
    const read = readProduct({ id: 'p1', name: 'Tea', children: [sku] });
    out.sweep([read?.record as ProductRecord]);
    for (const column of ['price', 'discount', 'with_discount', 'qty']) {
      const sql = `SELECT ${column}, typeof(${column}), sku, typeof(sku) FROM skus JOIN stocks USING (sku)`;
      expect([column, out.db.prepare(sql).raw().get()]).toEqual([column, [stored, type, '010', 'text']]);
    }
    const payload = out.db.prepare("SELECT payload -> '$.children[0].price' FROM products").pluck().get();
    expect(payload).toBe(JSON.stringify(sent));
  });

  it('is found by text, sku, any externalId and branch, page by page', () => {
    const out = outgoing();
    out.sweep([TEA, CAKE]);
    const queries = new CatalogQueries(out.db);
    const ids = (filter: object) => queries.products({ limit: 9, ...filter }).map((each) => each.productId);
    expect(ids({ text: 'TEA' })).toEqual(['p1']);
    expect(ids({ text: 'C' })).toEqual(['p2']);
    expect([ids({ text: 'TÉA' }), ids({ text: 'c\u200b' }), ids({ text: ' 20 ' })]).toEqual([
      ['p1'],
      ['p2'],
      ['p2'],
    ]);
    expect(ids({ sku: '11' })).toEqual(['p1']);
    expect(ids({ externalId: 'A', subsidiaryId: 's2' })).toEqual(['p1']);
    expect(ids({ subsidiaryId: 's3' })).toEqual([]);
    expect(ids({ limit: 1 })).toEqual(['p1']);
    expect(ids({ after: 'p1' })).toEqual(['p2']);
    expect(queries.counts()).toEqual({ products: 2, vanished: 0 });
  });

  it('names the same targets for a whole inventory as for single changes', () => {
    const out = outgoing();
    const shared = product('p3', 'Shared', [
      { sku: '30', stocks: { s1: ['X', 1] } },
      { sku: '31', stocks: { s1: ['X', 2] } },
    ]);
    out.sweep([TEA, CAKE, shared]);
    const branches = branchDirectory(BRANCHES);
    const index = new InventoryIndex({ db: out.db, branches });
    expect(index.stocks.get('sku:11@s1')).toMatchObject({ qty: 3, show: true });
    expect(index.stocks.size).toBe(6);
    for (const externalId of ['A', 'B', 'C', 'X', 'Z']) {
      for (const place of [
        {},
        { subsidiaryId: 's1' },
        { subsidiaryExternalId: 'B2' },
        { subsidiaryExternalId: 'B9' },
      ]) {
        const change = { externalId, qty: 1, ...place };
        const key = index.keyOf(change);
        const resolution = resolveStock(change, { catalog: out.catalog, branches, alreadyRead: true });
        if (key !== undefined) expect(resolution).toMatchObject({ state: 'resolved', target: { key } });
      }
    }
    expect(index.keyOf({ externalId: 'B', qty: 1 })).toBe('sku:11@s1');
  });
});
