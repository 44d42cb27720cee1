/** Tests src/outbox/sending/known-values.ts. */

import { expect, it } from 'vitest';
import { storeRig } from '../support/store-rig.ts';

const MINUTE_MS = 60_000;
const SKU = 1001;

it('a price is sent though the catalogue had it, unless the platform said or took it in the last minutes', async () => {
  const rig = storeRig({
    config: (same) => ({ ...same, stock: { ...same.stock, trustForMs: 2 * MINUTE_MS } }),
  });
  const daemon = await rig.daemon();
  await rig.clock.advance(MINUTE_MS);
  const sold = () => {
    const skus = rig.sandbox.control.products().flatMap(({ children }) => children);
    const found = skus.find(({ sku }) => sku === SKU);
    if (!found) throw new Error(`There is no SKU ${SKU}.`);
    return found;
  };
  const { price } = sold();
  const handOver = async () => {
    const change = { sku: String(SKU), price };
    const [taken] = await daemon.services.outbox.submit([{ kind: 'product', change }], 'http');
    await rig.clock.advance(5_000);
    return daemon.services.outbox.get(taken?.changeId ?? 0);
  };
  expect(await handOver()).toMatchObject({ state: 'done', attempts: 0 });
  await rig.clock.advance(5 * MINUTE_MS);
  sold().price = 10;
  expect(await handOver()).toMatchObject({ state: 'done', attempts: 1 });
  expect(sold().price).toBe(price);
  expect(await handOver()).toMatchObject({ state: 'done', attempts: 0 });
});
