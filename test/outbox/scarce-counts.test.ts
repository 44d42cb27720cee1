/** Tests src/outbox/ledger/stock-ledger.ts. */

import { describe, expect, it } from 'vitest';
import type { Config } from '../../src/config/config-type.ts';
import { storeRig } from '../support/store-rig.ts';

const MINUTE_MS = 60_000;
const SKU = 1001;

/** Makes a store without callbacks whose POS has counted four pieces of a product; its next poll is minutes away. */
async function store(stock: Partial<Config['stock']> = {}, limits: Partial<Config['limits']> = {}) {
  const rig = storeRig({
    lookEveryMs: 30_000,
    config: (same) => ({
      ...same,
      webhook: { ...same.webhook, enabled: false },
      orders: { ...same.orders, poll: '*/5 * * * *' },
      stock: { ...same.stock, holdBackUnbooked: 'auto', ...stock },
      limits: { ...same.limits, ...limits },
    }),
  });
  const { control } = rig.sandbox;
  const daemon = await rig.daemon();
  await rig.clock.advance(MINUTE_MS);
  const onPlatform = () => control.stockOf(SKU, 'sub-1');
  const count = async (qty: number) => {
    const change = { sku: String(SKU), subsidiaryId: 'sub-1', qty };
    const [taken] = await daemon.services.outbox.submit([{ kind: 'stock', change }], 'http');
    await rig.clock.advance(5_000);
    return daemon.services.outbox.get(taken?.changeId ?? 0);
  };
  await count(4);
  // From here the next poll is at least four minutes away.
  await rig.clock.advance(5 * MINUTE_MS - (rig.clock.nowMs() % (5 * MINUTE_MS)) + 20_000);
  const sell = (qty: number) =>
    control.createOrder({ subsidiaryId: 'sub-1', items: [{ sku: SKU, qty }] }).internalOrderId;
  const looks = () => control.calls('product.get').length;
  const sweep = () =>
    rig.run(daemon.services.catalogSweep.sweep({ subsidiaryId: 'sub-1', externalId: 'B1' }));
  /** Changes the quantity as a person does in the company's panel. */
  const edit = (qty: number) => {
    const children = control.products().flatMap((product) => product.children);
    const stocks = children.find(({ sku }) => sku === SKU)?.stocks ?? [];
    for (const stock of stocks) if (stock.subsidiaryId === 'sub-1') stock.qty = qty;
  };
  return { rig, daemon, control, onPlatform, count, sell, looks, sweep, edit };
}

describe('the last pieces, where orders come by polls alone', () => {
  it('are not offered again while the platform has sold them in an order not heard of yet', async () => {
    const { rig, daemon, onPlatform, count, sell, looks } = await store();
    const orderId = sell(2);
    expect(onPlatform()).toBe(2);
    expect(await count(3)).toMatchObject({
      state: 'done',
      message: expect.stringMatching(
        /2 that the platform has sold in an order not heard of yet|has this value already/,
      ),
    });
    expect(looks()).toBe(1);
    expect(onPlatform()).toBe(1);
    await rig.clock.advance(12 * MINUTE_MS);
    expect(daemon.services.mirror.orders.get(orderId)).toBeDefined();
    expect(onPlatform()).toBe(1);
    expect(rig.rows('SELECT 1 FROM _stock_notes WHERE looked_ms IS NOT NULL')).toEqual([]);
  });

  it('are offered again once a poll has brought no such order', { tags: ['bulk'] }, async () => {
    const { rig, onPlatform, count, edit } = await store();
    edit(2);
    await count(3);
    expect(onPlatform()).toBe(1);
    await rig.clock.advance(12 * MINUTE_MS);
    expect(onPlatform()).toBe(3);
  });

  it('are sold twice without a look', { tags: ['bulk'] }, async () => {
    const { onPlatform, count, sell, looks } = await store({ lookBelow: 0 });
    sell(2);
    await count(3);
    expect(looks()).toBe(0);
    expect(onPlatform()).toBe(3);
  });

  it('leave as counted, less the safety stock, where the platform refuses to show them', {
    tags: ['bulk'],
  }, async () => {
    const { onPlatform, count, control } = await store({ safety: 1 });
    control.setFault({ kind: 'status', endpoint: 'product.get', status: 400 });
    expect(await count(3)).toMatchObject({
      state: 'done',
      message: expect.stringContaining('The platform did not show the stock before.'),
    });
    expect(onPlatform()).toBe(2);
  });

  it('need no look where there are more of them, or none', { tags: ['bulk'] }, async () => {
    const { onPlatform, count, looks } = await store();
    await count(4);
    await count(0);
    expect(looks()).toBe(0);
    expect(onPlatform()).toBe(0);
  });

  it('are read and sent while other counts leave all the time', async () => {
    const { rig, daemon, onPlatform, looks } = await store({}, { endpointIntervalMs: 1_000 });
    const submit = async (sku: number, qty: number) => {
      const change = { sku: String(sku), subsidiaryId: 'sub-1', qty };
      const [taken] = await daemon.services.outbox.submit([{ kind: 'stock', change }], 'http');
      return taken?.changeId ?? 0;
    };
    const before = looks();
    await submit(1002, 60);
    const scarce = [await submit(SKU, 3), await submit(1003, 2)];
    for (let step = 0; step < 240; step++) {
      await submit(1002, 4 + (step % 50));
      await rig.clock.advance(500);
    }
    for (const changeId of scarce) {
      expect(daemon.services.outbox.get(changeId)).toMatchObject({ state: 'done' });
    }
    expect(onPlatform()).toBe(3);
    expect(looks() - before).toBe(2);
  });

  it.each([
    ['alone', false],
    ['while other counts leave all the time', true],
  ])('leave without looks where a whole inventory is scarce, %s', { tags: ['bulk'] }, async (_, isBusy) => {
    const { rig, daemon, control, looks, sweep } = await store({}, { endpointIntervalMs: 1_000 });
    const template = control.products()[0]!;
    for (let i = 0; i < 40; i++) {
      const integrations = [
        { subsidiaryId: 'sub-1', productIdPosA: null, productCodePosB: null, extId: `MANY-${i}` },
      ];
      const child = { ...template.children[0]!, sku: 5_000 + i, integrations };
      control.putProduct({ ...template, id: `many-${i}`, children: [child] } as typeof template);
    }
    await sweep();
    const items = Array.from({ length: 40 }, (_, i) => ({
      kind: 'stock' as const,
      change: { sku: String(5_000 + i), subsidiaryId: 'sub-1', qty: 2 },
    }));
    const waiting = () =>
      rig.rows("SELECT 1 FROM _outbox WHERE state = 'pending' AND target LIKE 'sku:50%'").length;
    const other = (qty: number) =>
      daemon.services.outbox.submit(
        [{ kind: 'stock', change: { sku: '1002', subsidiaryId: 'sub-1', qty } }],
        'http',
      );
    const before = looks();
    if (isBusy) await other(70);
    await daemon.services.outbox.submit(items, 'http');
    for (let step = 0; step < 120; step++) {
      if (isBusy && step < 110) await other(4 + step);
      await rig.clock.advance(500);
      if (step === 20) expect(waiting()).toBe(0);
    }
    expect(looks() - before).toBe(0);
    expect(daemon.services.outbox.counts()).toMatchObject({ pending: 0, sending: 0, rejected: 0 });
  });
});

describe('a stock that was edited in the panel', () => {
  it('is told by the daemon, and ends when the two agree', async () => {
    const { rig, daemon, count, sweep, edit } = await store();
    await count(12);
    edit(500);
    await sweep();
    await rig.clock.advance(7 * MINUTE_MS);
    const told = () => daemon.services.mirror.health.raised().filter(({ key }) => key === 'stock.differs');
    expect(told()).toMatchObject([{ message: expect.stringContaining('1001 B1 500 ≠ 12') }]);
    edit(12);
    await sweep();
    await rig.clock.advance(2 * MINUTE_MS);
    expect(told()).toEqual([]);
  });

  it('is sent again where the configuration says so', { tags: ['bulk'] }, async () => {
    const { rig, daemon, count, sweep, edit, onPlatform } = await store({ onDifference: 'send' });
    const before = await count(12);
    edit(500);
    await sweep();
    await rig.clock.advance(7 * MINUTE_MS);
    expect(onPlatform()).toBe(12);
    expect(daemon.services.outbox.get(before!.changeId)?.message).toBe(
      'Sent again as 12: the platform had 500, the POS counted 12.',
    );
  });
});
