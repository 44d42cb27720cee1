import { describe, expect, it } from 'vitest';
import { productFieldNews } from '../../src/catalog/catalog-store.ts';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Transport, TransportAnswer } from '../../src/platform/transport.ts';
import { FreezableClock, storeRig, type Tamper } from '../support/store-rig.ts';

type TransportRequest = Parameters<Transport['send']>[0];

const BRANCH = { subsidiaryId: 'sub-1', externalId: 'B1' };
const SKU = '1001';

const isList = (request: TransportRequest) => request.path.startsWith('/product/list');
const isAsked = (request: TransportRequest) => /^\/product\?/.test(request.path);

const rigOfOneBranch = () =>
  storeRig({
    config: (same) => ({
      ...same,
      branches: [BRANCH],
      stock: { ...same.stock, holdBackUnbooked: false, skipUnchanged: false },
    }),
  });
type Rig = ReturnType<typeof rigOfOneBranch>;

const qtyOf = (rig: Rig) =>
  rig.rows<{ qty: number }>('SELECT qty FROM stocks WHERE sku = ? AND subsidiary_id = ?', SKU, 'sub-1')[0]
    ?.qty;

/** Returns the page without one product, like a page of a list that shifted while it was read. */
function without(answer: TransportAnswer, productId: string): TransportAnswer {
  const body = JSON.parse(Buffer.from(answer.bytes).toString());
  const docs = body.data.docs.filter(({ id }: { id: string }) => id !== productId);
  const data = { ...body.data, docs, totalDocs: body.data.totalDocs - 1 };
  return { ...answer, bytes: Buffer.from(JSON.stringify({ ...body, data })) };
}

const productOf = (rig: Rig, sku: string) =>
  rig.sandbox.control.products().find(({ children }) => children.some((child) => String(child.sku) === sku));

describe('reading the catalogue', () => {
  /**
   * Sends a count of 3 while the answer that `isHeldUp` selects is delayed. Returns the quantity in the mirror
   * afterwards.
   */
  async function countMeanwhile(isHeldUp: (request: TransportRequest) => boolean, tamper: Tamper) {
    const rig = rigOfOneBranch();
    let isOn = false;
    const running: { daemon?: Daemon } = {};
    running.daemon = await rig.daemon(async (request, pass) => {
      if (!isOn) return pass();
      const answer = await tamper(request, pass);
      if (!isHeldUp(request)) return answer;
      isOn = false;
      const change = { sku: SKU, subsidiaryId: 'sub-1', qty: 3 };
      await running.daemon?.services.outbox.submit([{ kind: 'stock', change }], 'http');
      await rig.clock.sleep(5_000);
      return answer;
    });
    await rig.clock.advance(20_000);
    expect(qtyOf(rig)).not.toBe(3);
    isOn = true;
    await rig.run(running.daemon.services.catalogSweep.sweep(BRANCH));
    expect(rig.sandbox.control.stockOf(Number(SKU), 'sub-1')).toBe(3);
    return qtyOf(rig);
  }

  it('does not undo a count that was sent while a page was on its way', async () => {
    expect(await countMeanwhile(isList, (_, pass) => pass())).toBe(3);
  });

  it('does not undo a count that was sent while a single product was on its way', async () => {
    let missing = '';
    const tamper: Tamper = async (request, pass) => {
      const answer = await pass();
      if (!isList(request)) return answer;
      const body = JSON.parse(Buffer.from(answer.bytes).toString());
      missing ||= body.data.docs.find(({ children }: { children: { sku: number }[] }) =>
        children.some(({ sku }) => String(sku) === SKU),
      ).id;
      return without(answer, missing);
    };
    expect(await countMeanwhile(isAsked, tamper)).toBe(3);
  });

  it('that fails is told of, tried again within minutes, and told of no more once it is whole', async () => {
    const rig = rigOfOneBranch();
    const down = rig.sandbox.control.setFault({ kind: 'status', status: 500, endpoint: 'product.list' });
    await rig.daemon();
    const failures = () =>
      rig.rows<{ code: string | null }>(
        "SELECT failure_code AS code FROM freshness WHERE subject = 'catalog.sweep'",
      );
    await rig.clock.advance(600_000);
    expect(failures()).toEqual([{ code: 'platform-failed' }]);
    const tries = rig.sandbox.control.calls('product.list').length;
    expect(tries).toBeGreaterThanOrEqual(4);
    expect(tries).toBeLessThan(15);
    rig.sandbox.control.clearFaults(down);
    await rig.clock.advance(300_000);
    expect(failures()).toEqual([{ code: null }]);
    expect(qtyOf(rig)).toEqual(expect.any(Number));
  });

  it('that fails is not tried each second because products are asked for that nobody knows', async () => {
    const rig = rigOfOneBranch();
    const daemon = await rig.daemon();
    await rig.clock.advance(3_600_000);
    rig.sandbox.control.setFault({ kind: 'status', status: 500, endpoint: 'product.list' });
    const before = rig.sandbox.control.calls('product.list').length;
    const unknown = Array.from({ length: 110 }, (_, i) => ({
      kind: 'stock' as const,
      change: { externalId: `NEW-${i}`, qty: 1 },
    }));
    await daemon.services.outbox.submitMany(unknown, 'http');
    await rig.clock.advance(900_000);
    const tries = rig.sandbox.control.calls('product.list').length - before;
    expect(tries).toBeGreaterThanOrEqual(3);
    expect(tries).toBeLessThan(15);
  });

  it('that was overtaken while it stood still does not bring back what was', async () => {
    const rig = rigOfOneBranch();
    const clock = new FreezableClock(rig.clock);
    const still = await rig.services(async (request, pass) => {
      const answer = await pass();
      if (isList(request)) await clock.frozen();
      return answer;
    }, clock);
    const other = await rig.services();
    const late = still.catalogSweep.sweep(BRANCH).catch((error) => error.code);
    await rig.clock.advance(610_000);
    const product = structuredClone(productOf(rig, SKU));
    if (!product) throw new Error('no such product');
    for (const child of product.children) for (const stock of child.stocks) stock.qty = 77;
    rig.sandbox.control.putProduct(product);
    await rig.run(other.catalogSweep.sweep(BRANCH));
    clock.thaw();
    expect(await rig.run(late)).toBe('lease-lost');
    expect(qtyOf(rig)).toBe(77);
  });

  it('that was overtaken before its end takes nothing for vanished', async () => {
    const rig = rigOfOneBranch();
    const clock = new FreezableClock(rig.clock);
    const gone = productOf(rig, SKU);
    if (!gone) throw new Error('no such product');
    const still = await rig.services(async (request, pass) => {
      const answer = await pass();
      if (isAsked(request)) await clock.frozen();
      return answer;
    }, clock);
    const other = await rig.services();
    await rig.run(other.catalogSweep.sweep(BRANCH));
    rig.sandbox.control.removeProduct(gone.id);
    const late = still.catalogSweep.sweep(BRANCH).catch((error) => error.code);
    await rig.clock.advance(610_000);
    rig.sandbox.control.putProduct(gone);
    await rig.run(other.catalogSweep.sweep(BRANCH));
    clock.thaw();
    expect(await rig.run(late)).toBe('lease-lost');
    expect(rig.rows('SELECT 1 FROM products WHERE vanished_at IS NOT NULL')).toEqual([]);
  });
});

describe('fields of products', () => {
  const HOUR_MS = 3_600_000;

  /** Returns a tamper that applies `change` to each product of a list's answer. */
  const changed =
    (change: (product: Record<string, unknown>) => void): Tamper =>
    async (request, pass) => {
      const answer = await pass();
      if (!isList(request)) return answer;
      const body = JSON.parse(Buffer.from(answer.bytes).toString());
      for (const each of body.data.docs) change(each);
      return { ...answer, bytes: Buffer.from(JSON.stringify(body)) };
    };

  it('that the platform sends newly or no longer are named for a day, and those of the first day are not', async () => {
    const rig = rigOfOneBranch();
    let tamper: Tamper = (_request, pass) => pass();
    const services = await rig.services((request, pass) => tamper(request, pass));
    const sweep = () => rig.run(services.catalogSweep.sweep(BRANCH));
    const news = () => services.mirror.read((db) => productFieldNews(db, rig.clock.nowMs()));
    await sweep();
    expect(news()).toEqual({ added: [], gone: [] });
    await rig.clock.advance(25 * HOUR_MS);
    await sweep();
    expect(news()).toEqual({ added: [], gone: [] });
    tamper = changed((product) => {
      product.origin = { country: 'CL' };
      product.name2 = product.name;
      delete product.show;
    });
    await sweep();
    expect(news()).toEqual({ added: ['name2', 'origin'], gone: ['show'] });
    // A field that returns is no longer reported as missing.
    tamper = changed((product) => Object.assign(product, { origin: { country: 'PE' } }));
    await sweep();
    expect(news()).toEqual({ added: ['name2', 'origin'], gone: ['name2'] });
    await rig.clock.advance(25 * HOUR_MS);
    expect(news()).toEqual({ added: [], gone: [] });
  });

  it('that few products have are no news', async () => {
    const rig = rigOfOneBranch();
    let isOn = false;
    const services = await rig.services((request, pass) =>
      isOn
        ? changed((product) => {
            if (String(product.id).endsWith('1')) product.origin = 'CL';
          })(request, pass)
        : pass(),
    );
    await rig.run(services.catalogSweep.sweep(BRANCH));
    await rig.clock.advance(25 * HOUR_MS);
    isOn = true;
    await rig.run(services.catalogSweep.sweep(BRANCH));
    expect(services.mirror.read((db) => productFieldNews(db, rig.clock.nowMs()))).toEqual({
      added: [],
      gone: [],
    });
  });
});
