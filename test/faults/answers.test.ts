import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { request } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, until, type Workplace } from '../support/workplace.ts';
import {
  type FaultPlaceOptions,
  integrityOf,
  lastOk,
  openFaultPlace,
  rowsOf,
} from './support/fault-place.ts';
import { faultyDisk } from './support/faulty-disk.ts';

interface Shelf {
  productId: string;
  sku: number;
  externalId: string;
  qty: number;
}

let place: Workplace;
afterEach(() => place.close());

async function open(options: FaultPlaceOptions = {}): Promise<DaemonProcess> {
  place = await openFaultPlace(options);
  return run();
}

async function run(): Promise<DaemonProcess> {
  const daemon = await place.run();
  await until('the catalogue is swept', () => lastOk(place, 'catalog.sweep') !== null, 30_000);
  return daemon;
}

/** Returns one stock of each product in the first branch, each with its own quantity. */
const shelves = (): Shelf[] =>
  place.sandbox.control.products().flatMap(({ id, children: [child] }, n) => {
    const { productIdPosA, productCodePosB, extId } =
      child?.integrations.find((each) => each.subsidiaryId === 'sub-1') ?? {};
    const externalId = productIdPosA ?? productCodePosB ?? extId;
    return child && externalId ? [{ productId: id, sku: child.sku, externalId, qty: 1_000 + n }] : [];
  });

async function handOver({ localUrl }: DaemonProcess, items: readonly Shelf[]): Promise<void> {
  const { statusCode, body } = await request(`${localUrl}/v1/stock`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(items.map(({ externalId, qty }) => ({ externalId, qty, subsidiaryId: 'sub-1' }))),
  });
  await body.dump();
  expect(statusCode).toBeLessThan(300);
}

const outbox = (state: string) =>
  rowsOf<{ body: string; message: string }>(
    place,
    `SELECT body, message FROM outbox WHERE state = '${state}'`,
  );
const idle = () =>
  until('nothing waits', () => outbox('pending').length + outbox('sending').length === 0, 30_000);
const wrong = (items: readonly Shelf[]) =>
  items.filter(({ sku, qty }) => place.sandbox.control.stockOf(sku, 'sub-1') !== qty);

describe('a batch', () => {
  it('that meets a 401 on its way costs one refresh and arrives whole', async () => {
    const first = await open({ sandbox: { seed: { products: 280 } } });
    await first.end('SIGTERM');
    const daemon = await run();
    const { control } = place.sandbox;
    const before = control.calls('token.refresh').length;
    const items = shelves();
    expect(items.length).toBeGreaterThan(200);
    const sent = () => control.calls('product.stock.batch').length;
    await handOver(daemon, items);
    await until('the first call left', () => sent() >= 1);
    control.expireAccessTokens();
    await idle();
    expect(wrong(items)).toEqual([]);
    expect(control.calls().filter(({ status }) => status === 401).length).toBeGreaterThan(0);
    expect(control.calls('token.refresh').length).toBe(before + 1);
    expect(control.deadRefreshUses()).toEqual([]);
    expect(control.violations()).toEqual([]);
  });

  it('that was applied with its answer lost is sent again with the same values', async () => {
    const daemon = await open();
    const { control } = place.sandbox;
    const items = shelves().slice(0, 40);
    control.setFault({ kind: 'drop', endpoint: 'product.stock.batch', when: 'after', times: 1 });
    await handOver(daemon, items);
    await until('it was applied', () => wrong(items).length === 0);
    expect(outbox('done')).toEqual([]);
    await idle();
    expect(wrong(items)).toEqual([]);
    expect(control.calls('product.stock.batch').map(({ status, items: count }) => [status, count])).toEqual([
      ['dropped', 40],
      [200, 40],
    ]);
    expect(outbox('done')).toHaveLength(40);
  });

  it('of a hundred of which 37 are refused brings 63 and names the others', async () => {
    const daemon = await open({ sandbox: { seed: { products: 150 } } });
    const { control } = place.sandbox;
    const items = shelves().slice(0, 100);
    expect(items).toHaveLength(100);
    const bad = items.filter((_, n) => n % 8 < 3).slice(0, 37);
    expect(bad).toHaveLength(37);
    for (const { productId } of bad) control.removeProduct(productId);
    await handOver(daemon, items);
    await idle();
    const good = items.filter((item) => !bad.includes(item));
    expect(wrong(good)).toEqual([]);
    expect(outbox('done')).toHaveLength(63);
    const refused = outbox('rejected').map(({ body, message }) => [
      JSON.parse(body).externalId,
      message !== '',
    ]);
    expect(refused.toSorted()).toEqual(bad.map(({ externalId }) => [externalId, true]).toSorted());
    expect(control.calls('product.stock.batch')).toHaveLength(1);
  });

  it('that is under way when the end is asked for is seen through, and not sent again', async () => {
    const daemon = await open();
    const { control } = place.sandbox;
    const items = shelves().slice(0, 40);
    control.setFault({ kind: 'slow-body', endpoint: 'product.stock.batch', delayMs: 1_500, times: 1 });
    await handOver(daemon, items);
    await until('the platform has it', () => control.calls('product.stock.batch').length === 1);
    const askedMs = performance.now();
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(performance.now() - askedMs).toBeLessThan(limitMs(10_000));
    expect(outbox('done')).toHaveLength(40);
    await run();
    await systemClock.sleep(500);
    expect(control.calls('product.stock.batch')).toHaveLength(1);
    expect(wrong(items)).toEqual([]);
  });
});

describe('a death in the middle', () => {
  it('of a sweep takes nothing for read and nothing for gone; the next one reads all', async () => {
    const options = {
      sandbox: { seed: { products: 300 } },
      config: [[/\[\[branches\]\]/, '[catalog]\npage_size = 20\n[[branches]]']],
    };
    place = await openFaultPlace(options as FaultPlaceOptions);
    const { control } = place.sandbox;
    const daemon = await place.run();
    await until('some pages are read', () => control.calls('product.list').length >= 5);
    await daemon.end('SIGKILL');
    expect(lastOk(place, 'catalog.sweep')).toBeNull();
    expect(rowsOf(place, 'SELECT product_id FROM products').length).toBeLessThan(300);
    await run();
    const there = rowsOf(place, 'SELECT product_id FROM products WHERE vanished_at IS NULL');
    expect(there).toHaveLength(300);
    expect(control.violations()).toEqual([]);
    expect(integrityOf(place)).toBe('ok');
  });

  it('of an answer does not count as a poll; the next one brings what is missing', async () => {
    place = await openFaultPlace();
    const { control } = place.sandbox;
    const disk = faultyDisk(place);
    for (let i = 0; i < 3_000; i++) control.createOrder({}, { hidden: true });
    disk.begin('sync-slow', '15 mirror.db');
    const count = () => rowsOf<{ n: number }>(place, 'SELECT count(*) AS n FROM orders')[0]?.n ?? 0;
    const daemon = await place.run();
    await until('some orders are here', () => count() > 0);
    await daemon.end('SIGKILL');
    const kept = count();
    expect(kept).toBeLessThan(3_000);
    expect(lastOk(place, 'orders.poll')).toBeNull();
    disk.end('sync-slow');
    await place.run();
    await until('the poll is done', () => lastOk(place, 'orders.poll') !== null, 30_000);
    expect(place.differences()).toEqual([]);
    expect(rowsOf(place, 'SELECT DISTINCT order_id FROM order_events')).toHaveLength(3_000);
  });
});

describe('a platform that is not one', () => {
  it('answers a page with 200: nothing is mirrored, it is told, and asked no more often than allowed', async () => {
    const daemon = await open({ poll: '* * * * * *' });
    const { control } = place.sandbox;
    control.createOrder({}, { hidden: true });
    await until('it is here', () => place.differences().length === 0 && place.mirrorRows().length === 1);
    control.setFault({ kind: 'html' });
    const [order] = control.orders();
    control.changeOrder(order?.internalOrderId as string, { status: 'ready' });
    const state = () =>
      rowsOf<{ state: string }>(place, "SELECT state FROM freshness WHERE subject = 'orders.poll'")[0]?.state;
    await until('it is told', () => state() === 'failing');
    const calls = control.calls().length;
    await systemClock.sleep(3_000);
    expect(control.calls().length - calls).toBeLessThanOrEqual(5);
    expect(place.mirrorRows().map(({ status }) => status)).toEqual([order?.status]);
    control.clearFaults();
    await until('it healed by itself', () => place.differences().length === 0);
    expect(control.violations()).toEqual([]);
    expect(await daemon.end('SIGTERM')).toBe(0);
  });

  it('has no name or a certificate of somebody else: nothing is sent to it, and a command says so', async () => {
    let asked = 0;
    const pem = (name: string) => readFileSync(path.join(import.meta.dirname, '../orders', name));
    const stranger = createServer(
      { cert: pem('tls-cert.pem'), key: pem('tls-key.pem') },
      (_request, response) => {
        asked += 1;
        response.end('{"success":true,"data":{}}');
      },
    );
    await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve));
    const { port } = stranger.address() as AddressInfo;
    place = await openFaultPlace();
    const places = [
      ['http://name.invalid', /was not found/],
      [`https://127.0.0.1:${port}`, /certificate/],
    ] as const;
    for (const [url, why] of places) {
      place.env.TILLSYNC_PLATFORM_BASE_URL = url;
      const { code, stdout, stderr } = await place.command('sync', 'orders');
      expect(code, url).toBe(1);
      expect(stdout + stderr).toMatch(why);
      expect(place.mirrorRows()).toEqual([]);
    }
    stranger.close();
    expect(asked).toBe(0);
    expect(place.sandbox.control.calls()).toEqual([]);
  });
});
