import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openState } from '../../src/app/state.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { openWorkplace, type Workplace } from '../support/workplace.ts';
import { commandsAt, invoke } from './invoke.ts';

let place: Workplace;
let at: ReturnType<typeof commandsAt>;

beforeAll(async () => {
  place = await openWorkplace(31);
  at = commandsAt(place);
});
afterAll(async () => {
  expect(place.sandbox.control.violations()).toEqual([]);
  await place.close();
});

describe('sync catalog', () => {
  test('reads every branch, also when two begin at once', async () => {
    const [one, two] = await Promise.all([at.run(['sync', 'catalog']), at.json(['sync', 'catalog'])]);
    expect(one.code).toBe(0);
    expect(one.stdout).toMatch(/^sub-1: 60 products on 1 page, \d+ new or changed\.\nB2: 60 products/);
    expect(two).toMatchObject({ code: 0, document: { branches: [{ products: 60 }, { products: 60 }] } });
    expect(one.stderr).toContain('products of sub-1: 60 of 60');
  });

  test('waits while another process reads, and says so', async () => {
    const state = openState({ path: path.join(place.storage, 'state.db'), clock: systemClock });
    const before = place.sandbox.control.calls('product.list').length;
    const fence = state.leases.acquire('catalog.sweep', 60_000);
    const waiting = await invoke(['sync', 'catalog'], {
      env: place.env,
      signalWhen: { text: 'another process is reading the catalogue', signal: 'SIGINT' },
    });
    state.leases.release('catalog.sweep', fence ?? 0);
    state.close();
    expect(waiting).toMatchObject({ code: 130, stdout: '' });
    expect(place.sandbox.control.calls('product.list').length).toBe(before);
  });

  test('reads one branch by either id, and no other', async () => {
    const { document } = await at.json(['sync', 'catalog', '--branch', 'B2']);
    expect(document.branches).toMatchObject([{ branch: { externalId: 'B2' }, written: 0, vanished: 0 }]);
    const unknown = await at.run(['sync', 'catalog', '--branch', 'B9']);
    expect(unknown).toMatchObject({ code: 2, stdout: '' });
    expect(unknown.stderr).toContain('Configured are: sub-1, B2.');
  });
});

describe('product show', () => {
  test('finds a product by any of its names', async () => {
    const { document } = await at.json(['product', 'show', '--sku', '1001']);
    const [{ productId }] = document.products;
    for (const words of [['--external-id', 'A-1001-2'], [productId], ['1001'], ['A-1001-2']]) {
      expect((await at.json(['product', 'show', ...words])).document, `${words}`).toEqual(document);
    }
    const text = await at.run(['product', 'show', productId]);
    expect(text.stdout).toMatch(/1001 +sub-1 +\d+ +true +A-1001-1\n/);
  });

  test('names one product, and one that is there', async () => {
    expect((await at.run(['product', 'show'])).code).toBe(2);
    expect((await at.run(['product', 'show', 'x', '--sku', '1'])).code).toBe(2);
    const none = await at.json(['product', 'show', '--external-id', 'nothing']);
    expect(none).toMatchObject({ code: 1, document: { error: { code: 'not-found' } } });
    expect((await at.run(['product', 'show', '--sku', '999', '--live'])).code).toBe(1);
  });

  test('asks the platform with --live, and tells what the mirror has differently', async () => {
    const [product] = place.sandbox.control.products();
    if (!product) throw new Error('The sandbox has no products.');
    const same = await at.run(['product', 'show', product.id, '--live']);
    expect(same.stderr).toContain('The mirror has the same.');
    place.sandbox.control.putProduct({ ...product, name: 'Renamed' });
    const { document } = await at.json(['product', 'show', product.id, '--live']);
    expect(document.differences).toMatchObject([
      { field: 'name', platform: 'Renamed', mirror: product.name },
    ]);
    expect(document.live.raw.name).toBe('Renamed');
    expect((await at.json(['product', 'show', product.id])).document.products[0].name).toBe(product.name);
    place.sandbox.control.putProduct(product);
  });
});

describe('diff', () => {
  test('says that nothing differs, with 0', async () => {
    const order = place.sandbox.control.createOrder();
    expect((await at.run(['sync', 'orders'])).code).toBe(0);
    await at.run(['sync', 'catalog']);
    const { code, document, stderr } = await at.json(['sync', 'diff']);
    expect({ code, document }).toMatchObject({
      code: 0,
      document: {
        orders: { compared: 1, differences: [], unreadable: 0, moved: 0 },
        products: { compared: 120, differences: [] },
      },
    });
    expect(stderr).toContain('asking the platform for orders');
    expect(order.code).toBeGreaterThan(0);
  });

  test('names every difference of the catalogue with 1, and writes nothing', async () => {
    const { control } = place.sandbox;
    const [first, second, third] = control.products();
    if (!first || !second || !third) throw new Error('The sandbox has too few products.');
    const [child] = first.children;
    if (!child) throw new Error('The sandbox has a product without a sku.');
    const stocks = child.stocks.map((stock) => ({ ...stock, qty: stock.qty + 1 }));
    control.putProduct({ ...first, children: [{ ...child, price: 1, stocks }] });
    control.removeProduct(second.id);
    const children = third.children.slice(0, 1).map((each) => ({ ...each, sku: 9001, integrations: [] }));
    control.putProduct({ ...third, id: 'brand-new', name: 'Brand new', children });
    for (const round of ['first', 'second']) {
      const { code, document } = await at.json(['sync', 'diff', 'products']);
      expect({ round, code }).toEqual({ round, code: 1 });
      const found = document.products.differences.map((each: Record<string, unknown>) =>
        [each.productId, each.sku, each.subsidiaryId, each.field, each.platform].join(' '),
      );
      expect(found).toContain(`${first.id} ${child.sku}  price 1`);
      expect(found).toContain(`${first.id} ${child.sku} sub-1 qty ${stocks[0]?.qty}`);
      expect(found).toContain(`${second.id}  sub-1 product `);
      expect(found).toContain('brand-new   product Brand new');
    }
    const text = await at.run(['sync', 'diff', 'products', '--branch', 'sub-1']);
    expect(text.code).toBe(1);
    expect(text.stdout).toMatch(/^60 products: \d+ differences\.\nPRODUCT/);
  });

  test('names an order that changed, one that is new and one that is missing', async () => {
    const { control } = place.sandbox;
    const known = control.orders()[0]?.internalOrderId ?? '';
    control.changeOrder(known, { status: 'cancel' });
    const fresh = control.createOrder({}, { hidden: true });
    const { code, document } = await at.json(['sync', 'diff', 'orders']);
    expect(code).toBe(1);
    expect(document.orders.differences).toMatchObject([
      { orderId: fresh.internalOrderId, field: 'order', mirror: null },
      { orderId: known, field: 'status', platform: 'cancel' },
    ]);
    const elsewhere = await at.json(['sync', 'diff', 'orders', '--from', '2020-01-01']);
    expect(elsewhere).toMatchObject({ code: 0, document: { orders: { compared: 0, differences: [] } } });
    expect((await at.run(['sync', 'diff', 'stocks'])).code).toBe(2);
  });
});

test('sync diff orders says nothing of a customer who was forgotten', async () => {
  const orderId = place.sandbox.control.createOrder({ status: 'dispatched' }).internalOrderId;
  await at.run(['sync', 'orders']);
  const before = await at.json(['sync', 'diff', 'orders']);
  expect((await at.run(['customer', 'forget', '--order', orderId])).code).toBe(0);
  expect(await at.json(['sync', 'diff', 'orders'])).toMatchObject({
    code: 0,
    document: { orders: { compared: before.document.orders.compared, differences: [] } },
  });
});

describe('product list --unmapped', () => {
  const unmapped = (...words: string[]) => at.run(['product', 'list', '--unmapped', ...words]);

  test('lists what is shown and has none: as a table, as JSON, as a file, of one branch', async () => {
    // B2 has no subsidiary_id here, so its stocks are unknown and none of its products is listed.
    expect((await unmapped('--branch', 'B2')).stderr).toContain('Every product on sale has a POS ID.');
    const { control } = place.sandbox;
    const product = control.products().find(({ children }) => children[0]?.integrations.length === 0);
    if (!product) throw new Error('The sandbox has none.');
    control.putProduct({
      ...product,
      show: true,
      children: product.children.map((sku) => ({ ...sku, show: true })),
    });
    await at.run(['sync', 'catalog']);
    const sku = String(product.children[0]?.sku);
    const table = await unmapped();
    expect(table.stdout).toMatch(new RegExp(`^BRANCH (.*\\n)*sub-1 +${sku} `));
    const { document } = await at.json(['product', 'list', '--unmapped', '--branch', 'sub-1']);
    expect(document.products).toContainEqual(
      expect.objectContaining({ branch: 'sub-1', sku, name: product.name }),
    );
    const file = await unmapped('--csv');
    expect(file.stdout).toMatch(/branch,sku,product_id,name,category,barcode\r\n/);
    expect(file.stdout).toContain(`\r\nsub-1,${sku},`);
    expect(await unmapped('--branch', 'B9')).toMatchObject({ code: 2 });
    expect(await unmapped('--csv', '--json')).toMatchObject({ code: 2 });
    const { document: doctor } = await at.json(['doctor', '--offline', '--only', 'catalog']);
    const mapped = doctor.checks.find(({ id }: { id: string }) => id === 'catalog.mapped');
    expect(mapped).toMatchObject({ level: 'warn' });
    expect(mapped.message).toContain('2 shown products of sub-1 have no id of yours.');
  });
});
