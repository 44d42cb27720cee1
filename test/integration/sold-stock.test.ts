import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

const SKU = 1001;
let place: Workplace;
let daemon: Daemon;

beforeEach(async () => {
  place = await openWorkplace(31);
  daemon = await startDaemon({
    config: {
      ...place.config,
      stock: { ...place.config.stock, holdBackUnbooked: true },
    },
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
  });
  await until('the catalogue is swept', () => daemon.services.stores.read(({ lookup }) => lookup.isComplete));
  await count(1);
  expect(onPlatform()).toBe(1);
});
afterEach(async () => {
  await daemon.stop();
  await place.close();
});

/** Hands over a count of the product in sub-1, and resolves when no change waits any more. */
async function count(qty: number): Promise<void> {
  const { outbox } = daemon.services;
  await outbox.submit([{ kind: 'stock', change: { externalId: 'A-1001-1', qty } }], 'http');
  await settled();
}
const settled = () =>
  until('nothing waits', () => {
    const { pending, sending } = daemon.services.outbox.counts();
    return pending + sending === 0;
  });
const onPlatform = () => place.sandbox.control.stockOf(SKU, 'sub-1');
const sell = (qty: number, how: { hidden?: boolean } = {}) =>
  place.sandbox.control.createOrder({ subsidiaryId: 'sub-1', items: [{ sku: SKU, qty }] }, how)
    .internalOrderId;
const known = (orderId: string) =>
  until('the order is here', () => daemon.services.mirror.orders.get(orderId) !== undefined);
const acknowledge = (orderId: string) => daemon.services.outbox.acknowledge([orderId], 'http');
const stockCalls = () => {
  const { control } = place.sandbox;
  return control.calls('product.stock.batch').length + control.calls('product.stock.put').length;
};

describe('an order that sells the last piece', () => {
  it('is not undone by counts that were made without it, until the POS has booked it', async () => {
    const orderId = sell(1);
    await known(orderId);
    expect(onPlatform()).toBe(0);
    await count(1);
    expect(onPlatform()).toBe(0);
    await count(3);
    expect(onPlatform()).toBe(2);
    await count(2);
    await acknowledge(orderId);
    await until('what was booked is sold again', () => onPlatform() === 2);
    expect(place.sandbox.control.oversells()).toEqual([]);
  });

  it('is not undone for long by a count that left before tillsync heard of it', async () => {
    const orderId = sell(1, { hidden: true });
    expect(onPlatform()).toBe(0);
    await count(2);
    await known(orderId);
    await until('the platform is right again', () => onPlatform() === 1);
    const calls = stockCalls();
    await systemClock.sleep(1_500);
    expect(stockCalls()).toBe(calls);
    await acknowledge(orderId);
    await count(5);
    expect(onPlatform()).toBe(5);
  });

  it('costs one call at most when it came so soon after the count that clocks cannot tell which was first', async () => {
    await count(4);
    await systemClock.sleep(1_100);
    const calls = stockCalls();
    const orderId = sell(1);
    await known(orderId);
    await systemClock.sleep(1_500);
    expect(onPlatform()).toBe(3);
    expect(stockCalls()).toBeLessThanOrEqual(calls + 1);
  });

  it('gives its piece back when it is cancelled after a count without it', async () => {
    const orderId = sell(1, { hidden: true });
    await count(2);
    await known(orderId);
    await until('the platform is right again', () => onPlatform() === 1);
    place.sandbox.control.changeOrder(orderId, { status: 'cancel' });
    await until('the piece is back', () => onPlatform() === 2);
  });
});
