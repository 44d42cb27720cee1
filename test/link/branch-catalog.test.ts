import { describe, expect, it } from 'vitest';
import { unmappedSkus } from '../../src/catalog/unmapped.ts';
import type { DownMessage } from '../../src/link/link.ts';
import { ProductReads } from '../../src/outbox/sending/product-reads.ts';
import type { CallOptions } from '../../src/platform/platform.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';
import { invoke, unreachedEnv } from '../cli/invoke.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { type BranchStore, type Chain, openChain } from './chain-rig.ts';

const TEA = product('p1', 'Tea', [
  { sku: '10', price: 1000, stocks: { 'sub-1': ['A', 5], 'sub-2': ['A', 7] } },
  { sku: '11', price: 2000, stocks: { 'sub-1': ['B', 3] } },
]);
const CAKE = product('p2', 'Cake', [{ sku: '20', stocks: { 'sub-2': ['C', 1] } }]);
const BREAD = product('p3', 'Bread', [{ sku: '30', stocks: { 'sub-1': ['D', 0], 'sub-2': ['E', 9] } }]);

/** Columns that a POS reads and that do not depend on time, by table. */
const SEEN = {
  products: `SELECT product_id, name, category, show, vanished_at IS NOT NULL AS vanished FROM products ORDER BY 1`,
  skus: `SELECT sku, product_id, barcode, price, with_discount, discount, show FROM skus ORDER BY 1`,
  stocks: `SELECT sku, subsidiary_id, qty, show FROM stocks ORDER BY 1, 2`,
  integrations: `SELECT sku, subsidiary_id, product_id_pos_a, product_code_pos_b, ext_id FROM integrations
    ORDER BY 1, 2, 5`,
};

function seen(store: BranchStore) {
  return Object.fromEntries(Object.entries(SEEN).map(([name, sql]) => [name, store.rows(sql)]));
}

/** Returns the platform's list for one branch: the products that the branch sells, with the stocks of all branches. */
function listOf(records: readonly ProductRecord[], subsidiaryId: string): ProductRecord[] {
  return records.filter(({ children }) =>
    children.some(({ stocks }) => stocks.some((stock) => stock.subsidiaryId === subsidiaryId)),
  );
}

/** Returns the record with only one branch's stocks, as a store without a hub would have it. */
function ownOf(record: ProductRecord, subsidiaryId: string): ProductRecord {
  const children = record.children.map((child) => ({
    ...child,
    stocks: child.stocks.filter((each) => each.subsidiaryId === subsidiaryId),
    integrations: child.integrations.filter((each) => each.subsidiaryId === subsidiaryId),
  }));
  return { ...record, children };
}

/** Checks that each branch has the same catalogue as a store without a hub that reads the same lists. */
async function expectLikeSingle({ branches }: Chain, records: readonly ProductRecord[]): Promise<void> {
  const { outgoing } = await import('../outbox/outbox-fixture.ts');
  for (const [i, store] of branches.entries()) {
    const branch = { subsidiaryId: `sub-${i + 1}`, externalId: store.name };
    const single = outgoing(undefined, [branch]);
    const list = listOf(records, branch.subsidiaryId).map((record) => ownOf(record, branch.subsidiaryId));
    single.store.applyPage(branch, list, single.store.readMark());
    const expected = Object.entries(SEEN).map(([name, sql]) => [name, single.db.prepare(sql).all()]);
    expect(seen(store)).toEqual(Object.fromEntries(expected));
  }
}

const CATALOG = "SELECT branch, n FROM _feed WHERE kind = 'catalog' ORDER BY feed_id";

describe('the catalogue of a branch', () => {
  it('is what a single store has: its products, its stocks and ids, and of no other branch', async () => {
    const chain = await openChain();
    await chain.hub.sweep([TEA, CAKE, BREAD]);
    await chain.settle();
    await expectLikeSingle(chain, [TEA, CAKE, BREAD]);
    const dearer = product('p1', 'Green tea', [
      { sku: '10', price: 1250.5, stocks: { 'sub-1': ['A2', 4], 'sub-2': ['A', 7] } },
      { sku: '12', price: 10, stocks: { 'sub-2': ['F', 2] } },
    ]);
    await chain.hub.sweep([dearer, CAKE, BREAD]);
    await chain.settle();
    await expectLikeSingle(chain, [dearer, CAKE, BREAD]);
    const everything = branchFiles(chain.branches[0]);
    expect(everything).not.toContain('sub-2');
  });

  it('names products by sku, and tells which have no id', async () => {
    const chain = await openChain();
    const NEW = product('p4', 'Juice', [{ sku: '40', stocks: { 'sub-1': ['', 2], 'sub-2': ['X', 2] } }]);
    await chain.hub.sweep([TEA, NEW]);
    await chain.settle();
    const [branch] = chain.branches;
    const { stores, mirror, branches } = branch.services;
    expect(mirror.read((db) => unmappedSkus(db, branches))).toMatchObject([{ branch: 'B1', sku: '40' }]);
    const [accepted] = await stores.write(({ intake }) =>
      intake.accept([{ kind: 'stock', change: { sku: '11', qty: 8 } }], {
        source: 'inbox',
        guards: branch.services.config.guard,
      }),
    );
    expect(accepted?.state).toBe('pending');
    await chain.settle();
    expect(chain.hub.rows('SELECT body, sku, subsidiary_id FROM _outbox')).toEqual([
      { body: '{"externalId":"B","subsidiaryId":"sub-1","qty":8}', sku: '11', subsidiary_id: 'sub-1' },
    ]);
  });

  it('costs one entry for each branch that sees a change, and a sweep that finds nothing none', async () => {
    const chain = await openChain();
    const { hub } = chain;
    await hub.sweep([TEA, CAKE, BREAD]);
    await chain.settle();
    const written = () => hub.rows<{ branch: string }>(CATALOG).map(({ branch }) => branch);
    const before = written().length;
    const news = hub.rows('SELECT * FROM _catalog_news');
    await hub.sweep([TEA, CAKE, BREAD]);
    await chain.settle();
    expect(hub.rows('SELECT * FROM _catalog_news')).toEqual(news);
    expect(written()).toHaveLength(before);

    const sold = product('p3', 'Bread', [{ sku: '30', stocks: { 'sub-1': ['D', 4], 'sub-2': ['E', 9] } }]);
    await hub.sweep([TEA, CAKE, sold]);
    await chain.settle();
    expect(written().slice(before)).toEqual(['B1']);
    await hub.sweep([{ ...TEA, name: 'Black tea', raw: '{}' }, CAKE, sold]);
    await chain.settle();
    expect(
      written()
        .slice(before + 1)
        .sort(),
    ).toEqual(['B1', 'B2']);
  });

  it('of a branch that is away waits at the hub, each product once: orders are not pushed out of the server', async () => {
    const chain = await openChain();
    const { hub, server, branches } = chain;
    await hub.sweep([TEA, CAKE, BREAD]);
    await chain.settle();
    const named = (round: number) => ({ ...TEA, name: `Tea ${round}`, raw: JSON.stringify({ round }) });
    for (let round = 0; round < 100; round++) {
      await hub.sweep([named(round), CAKE, BREAD]);
      await hub.publish();
    }
    expect(server.pending('B1')).toBe(40);
    await hub.order(1, 'B1');
    await hub.publish();
    expect(server.pending('B1')).toBe(41);
    await chain.settle();
    const name = () =>
      branches[0].rows<{ name: string }>("SELECT name FROM products WHERE product_id = 'p1'")[0]?.name;
    expect(name()).toBe('Tea 99');
    expect(branches[0].orders()).toHaveLength(1);
    // The branch is connected again, so changes arrive at once.
    await hub.sweep([named(100), CAKE, BREAD]);
    await chain.settle();
    expect(name()).toBe('Tea 100');
  });

  it('follows what a count did at the platform', async () => {
    const chain = await openChain();
    await chain.hub.sweep([TEA]);
    await chain.settle();
    await chain.hub.services.mirror.write((db) =>
      db.prepare("UPDATE _stocks SET qty = 41 WHERE sku = '11' AND subsidiary_id = 'sub-1'").run(),
    );
    await chain.settle();
    expect(chain.branches[0].rows("SELECT qty FROM stocks WHERE sku = '11'")).toEqual([{ qty: 41 }]);
  });

  it('has a product that was made a moment ago once its count made the hub read it, before any sweep', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await hub.sweep([TEA]);
    await settle();
    await branches[0].count('D', 4, 'new');
    await settle();
    const { stores } = hub.services;
    const reads = new ProductReads({
      stores,
      platform: { productGet: async () => BREAD },
      onQueued: () => {},
      clock: hub.clock,
    });
    await reads.step({ signal: new AbortController().signal } as CallOptions);
    await settle();
    await expectLikeSingle(chain, [TEA, BREAD]);
  });

  it('brings together what was counted before it came and since: the newest count counts', async () => {
    const { hub, branches, settle } = await openChain();
    await hub.sweep([TEA]);
    const [branch] = branches;
    await branch.count('A', 9, 'before');
    await branch.follower.hello();
    await hub.publish();
    await branch.follow();
    await branch.count('A', 0, 'sold out since');
    expect(branch.rows("SELECT target FROM outbox WHERE state = 'pending'")).toHaveLength(2);
    await settle();
    expect(hub.rows("SELECT target, json_extract(body, '$.qty') AS qty, state FROM outbox")).toEqual([
      { target: 'sku:10@sub-1', qty: 0, state: 'pending' },
    ]);
  });

  it('loses what its list does not have any more, though others do', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await hub.sweep([TEA, BREAD]);
    await settle();
    const elsewhere = ownOf(BREAD, 'sub-2');
    await hub.sweep([TEA, { ...elsewhere, raw: JSON.stringify(elsewhere) }]);
    await settle();
    const bread = `SELECT vanished_at IS NOT NULL AS vanished, (SELECT count(*) FROM integrations WHERE sku = '30')
      AS ids FROM products WHERE product_id = 'p3'`;
    expect(branches[0].rows(bread)).toEqual([{ vanished: 1, ids: 0 }]);
    expect(branches[1].rows(bread)).toEqual([{ vanished: 0, ids: 1 }]);
    await hub.sweep([TEA]);
    await settle();
    expect(branches[1].rows(bread)).toEqual([{ vanished: 1, ids: 0 }]);
    await hub.sweep([TEA, BREAD]);
    await settle();
    await expectLikeSingle(chain, [TEA, BREAD]);
  });

  it('takes the place of what the machine pushed and listed while it was a store without a hub', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await hub.sweep([TEA, BREAD]);
    await settle();
    const [branch] = branches;
    await branch.services.mirror.write((db) =>
      db.exec(`DELETE FROM _link; UPDATE marks SET value = 1 WHERE name = 'push';
        UPDATE _products SET pushed_mark = 1; UPDATE _skus SET pushed_mark = 1; UPDATE _stocks SET pushed_mark = 1;
        INSERT INTO _branch_products (branch, product_id, digest) SELECT 'sub-1', product_id, 'old' FROM _products`),
    );
    await branch.stop();
    await branch.start();
    const dearer = product('p1', 'Green tea', [
      { sku: '10', price: 1250.5, stocks: { 'sub-1': ['A', 4], 'sub-2': ['A', 7] } },
      { sku: '11', price: 2000, stocks: { 'sub-1': ['B', 0] } },
    ]);
    await hub.sweep([dearer, BREAD]);
    await settle();
    await expectLikeSingle(chain, [dearer, BREAD]);
    // Most products count as gone only when the next scheduled reading lacks them too.
    await hub.sweep([]);
    await settle();
    await chain.clock.advance(1_000);
    await hub.sweep([]);
    await settle();
    const gone = 'SELECT product_id FROM products WHERE vanished_at IS NOT NULL ORDER BY 1';
    expect(branch.rows(gone)).toEqual([{ product_id: 'p1' }, { product_id: 'p3' }]);
  });

  it('comes whole with a snapshot, and what was of an earlier life goes', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    const many = Array.from({ length: 130 }, (_, i) =>
      product(`m${i}`, `Many ${i}`, [{ sku: `9${i}`, stocks: { 'sub-1': [`M${i}`, i] } }]),
    );
    await hub.sweep([TEA, BREAD, ...many]);
    await settle();
    const [branch] = branches;
    await branch.stop();
    branch.loseMirror();
    await branch.start();
    await settle();
    await expectLikeSingle(chain, [TEA, BREAD, ...many]);
    // The hub starts with a new mirror, while its platform no longer has the tea.
    await hub.stop();
    hub.loseMirror();
    await hub.start();
    await hub.sweep([BREAD, ...many.slice(100)]);
    await settle();
    const there = branch.rows<{ product_id: string }>(
      'SELECT product_id FROM products WHERE vanished_at IS NULL ORDER BY 1',
    );
    expect(there.map(({ product_id }) => product_id)).toEqual(
      ['p3', ...many.slice(100).map(({ id }) => id)].sort(),
    );
  });

  it('comes in parts where products have many skus', async () => {
    const chain = await openChain();
    const { hub, settle } = chain;
    await settle();
    const large = Array.from({ length: 3 }, (_, i) => {
      const skus = Array.from({ length: 240 }, (__, k) => `${i}${String(k).padStart(3, '0')}`);
      return product(
        `large${i}`,
        `Large ${i}`,
        skus.map((sku) => ({ sku, stocks: { 'sub-1': [`L${sku}`, 1] } })),
      );
    });
    const pages = () => hub.rows("SELECT n FROM _feed WHERE branch = 'B1' AND kind = 'catalog'").length;
    const before = pages();
    await hub.sweep(large);
    await settle();
    expect(pages() - before).toBe(2);
    await expectLikeSingle(chain, large);
  });

  it('is kept in quarantine where it cannot be applied, and the hub is told', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await hub.sweep([TEA]);
    await settle();
    const [branch] = branches;
    const [place] = branch.rows<{ epoch: string; mark: number }>('SELECT epoch, mark FROM _link');
    const { epoch, mark } = place ?? { epoch: '', mark: 0 };
    const bad: DownMessage = { branch: 'B1', epoch, n: mark + 1, kind: 'catalog', body: '{"products":[{}]}' };
    await branch.follower.take([bad]);
    expect(branch.rows('SELECT source, reason FROM quarantine')).toEqual([
      { source: 'catalog', reason: `Entry ${mark + 1} of the hub (catalog) could not be applied.` },
    ]);
    expect(branch.rows('SELECT mark FROM _link')).toEqual([{ mark: mark + 1 }]);
    await branch.follower.hello();
    const [b1] = hub.services.state.hub.branches();
    expect(b1?.report).toMatchObject({ quarantined: 1 });
    await hub.hub.catchUp();
    const told = () =>
      hub.services.mirror.health.raised().find(({ key }) => key === 'hub.unapplied')?.message;
    expect(told()).toBe('Branches, and entries in the quarantine of each: B1 (1).');
    const dropped = await invoke(['quarantine', 'delete', '--all'], { env: unreachedEnv(branch.directory) });
    expect(dropped).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('(catalog) could not be applied.'),
      stderr: '1 entry deleted.\n',
    });
    await branch.follower.hello();
    await hub.hub.catchUp();
    expect(told()).toBeUndefined();
  });
});

/** Returns all rows of the catalogue in a branch's mirror, as one text. */
function branchFiles(store: BranchStore): string {
  return JSON.stringify(
    ['products', 'skus', 'stocks', 'integrations'].map((table) => store.rows(`SELECT * FROM ${table}`)),
  );
}
