import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import type { SubmittedChange } from '../../src/outbox/intake/change.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
let daemon: Daemon;

async function start(): Promise<void> {
  daemon = await startDaemon({
    config: place.config,
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
  });
}

const swept = () =>
  until('the catalogue is swept', () => daemon.services.stores.read(({ lookup }) => lookup.isComplete));
const idle = () =>
  until('nothing waits any more', () => {
    const { pending, sending, needsRead } = daemon.services.outbox.counts();
    return pending + sending + needsRead === 0;
  });
const stock = (externalId: string, qty: number, more: object = {}): SubmittedChange => ({
  kind: 'stock',
  change: { externalId, qty, ...more },
});

beforeEach(async () => {
  place = await openWorkplace(11);
});
afterEach(async () => {
  await daemon.stop();
  await place.close();
});

describe('stock and price changes', () => {
  it('reach the platform in batches, last word first for none, sold out first', async () => {
    await start();
    await swept();
    const { control } = place.sandbox;
    const [first] = await daemon.services.outbox.submit([stock('A-1001-1', 7)], 'cli');
    expect(first?.state).toBe('pending');
    await daemon.services.outbox.submit(
      [
        stock('A-1001-1', 5),
        stock('B-1003-1', 0),
        { kind: 'product', change: { sku: '1001', price: 4321 } },
        { kind: 'product', change: { externalId: 'A-1001-1', name: 'New name' } },
      ],
      'cli',
    );
    await idle();
    expect(control.stockOf(1001, 'sub-1')).toBe(5);
    expect(control.stockOf(1003, 'sub-1')).toBe(0);
    const product = control.products().find(({ children }) => children.some(({ sku }) => sku === 1001));
    expect(product?.name).toBe('New name');
    expect(product?.children.find(({ sku }) => sku === 1001)?.price).toBe(4321);
    expect(control.calls('product.batch').length + control.calls('product.put').length).toBe(1);
    expect(control.violations()).toEqual([]);
  });

  it('say why an item did not arrive, and let its neighbours go', async () => {
    await start();
    await swept();
    const answers = await daemon.services.outbox.submit(
      [stock('A-1001-1', 3), stock('E-1002', 4), stock('no-such-product', 1), stock('B-1003-1', 2)],
      'cli',
    );
    await idle();
    expect(answers.map(({ state }) => state).slice(0, 2)).toEqual(['pending', 'rejected']);
    expect(answers[1]?.candidates.length).toBeGreaterThan(1);
    const states = answers.map(({ changeId }) => daemon.services.outbox.get(changeId)?.state);
    expect(states).toEqual(['done', 'rejected', 'rejected', 'done']);
    expect(place.sandbox.control.stockOf(1003, 'sub-1')).toBe(2);
  });

  it(
    'end equal after failing, dropped, garbled and refused calls',
    async () => {
      await start();
      await swept();
      const { control } = place.sandbox;
      const random = seededRandom(5);
      const wanted = new Map<string, number>();
      const targets = control
        .products()
        .flatMap(({ children }) => children)
        .flatMap(({ sku, stocks, integrations }) =>
          integrations
            .filter(
              ({ subsidiaryId, extId, productIdPosA }) =>
                stocks.some((entry) => entry.subsidiaryId === subsidiaryId) &&
                (extId ?? productIdPosA) !== null,
            )
            .map(({ subsidiaryId, extId, productIdPosA }) => ({
              sku: Number(sku),
              subsidiaryId,
              externalId: String(extId ?? productIdPosA),
            })),
        );
      expect(targets.length).toBeGreaterThan(50);
      control.setFault({ kind: 'status', endpoint: 'product.stock.batch', times: 1 });
      control.setFault({ kind: 'drop', endpoint: 'product.stock.batch', when: 'after', times: 1, skip: 1 });
      control.setFault({ kind: 'html', endpoint: 'product.stock.batch', times: 1, skip: 2 });
      control.setFault({ kind: 'truncated-json', endpoint: 'product.stock.batch', times: 1, skip: 3 });
      for (let round = 0; round < 5; round++) {
        const items = targets.map(({ sku, subsidiaryId, externalId }) => {
          const qty = 1 + Math.floor(random.next() * 500);
          wanted.set(`${sku}@${subsidiaryId}`, qty);
          return stock(externalId, qty, { subsidiaryId });
        });
        await daemon.services.outbox.submit(items, 'cli');
        await systemClock.sleep(100);
      }
      await until(
        'all is sent',
        () => {
          const { pending, sending } = daemon.services.outbox.counts();
          return pending + sending === 0;
        },
        60_000,
      );
      const different = [...wanted].filter(([key, qty]) => {
        const [sku, subsidiaryId] = key.split('@');
        return control.stockOf(Number(sku), subsidiaryId as string) !== qty;
      });
      expect(different).toEqual([]);
      expect(control.violations()).toEqual([]);
    },
    limitMs(90_000),
  );

  it('wait out a stop and a start', async () => {
    await start();
    await swept();
    place.sandbox.control.setFault({ kind: 'status', endpoint: 'product.stock.put' });
    place.sandbox.control.setFault({ kind: 'status', endpoint: 'product.stock.batch' });
    await daemon.services.outbox.submit([stock('A-1001-1', 9)], 'cli');
    await systemClock.sleep(300);
    await daemon.stop();
    place.sandbox.control.clearFaults();
    await start();
    await idle();
    expect(place.sandbox.control.stockOf(1001, 'sub-1')).toBe(9);
  });
});
