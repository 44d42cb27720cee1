import { afterEach, beforeEach, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { commandsAt } from '../cli/invoke.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
let daemon: Daemon;

beforeEach(async () => {
  place = await openWorkplace(37);
  daemon = await startDaemon({
    config: place.config,
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
  });
  await until('the catalogue is swept', () => daemon.services.stores.read(({ lookup }) => lookup.isComplete));
});
afterEach(async () => {
  await daemon.stop();
  await place.close();
});

it('a count that the shop has given up is forgotten, and the next one is obeyed', async () => {
  const at = commandsAt(place);
  const target = { sku: '1002', subsidiaryId: 'sub-1' };
  const has = (qty: number) =>
    until(`the platform has ${qty}`, () => place.sandbox.control.stockOf(1002, 'sub-1') === qty);
  const count = (qty: number) =>
    daemon.services.outbox.submit([{ kind: 'stock', change: { ...target, qty } }], 'http');
  /** Edits the quantity in the company panel. */
  const edited = (qty: number) => {
    const { control } = place.sandbox;
    const product = structuredClone(
      control.products().find(({ children }) => children.some(({ sku }) => sku === 1002)),
    );
    if (!product) expect.fail('no such product');
    for (const each of product.children.flatMap(({ sku, stocks }) => (sku === 1002 ? stocks : []))) {
      if (each.subsidiaryId === 'sub-1') each.qty = qty;
    }
    control.putProduct(product);
  };
  /** Compares the counts with the platform's quantities as the daemon would do two minutes later. */
  const compare = () =>
    daemon.services.stores.write(({ differences }) => {
      differences.keep(differences.part(systemClock.nowMs() + 120_000));
      return differences.list(9).map(({ platformQty, countedQty }) => [platformQty, countedQty]);
    });
  await count(10);
  await has(10);
  edited(500);
  expect((await at.run(['sync', 'catalog'])).code).toBe(0);
  expect(await compare()).toEqual([[500, 10]]);

  const preview = await at.json(['stock', 'forget', '--all-differing', '--branch', 'sub-1', '--dry-run']);
  const stocks = [{ ...target, counted: 10, wanted: 10, platform: 500 }];
  expect(preview.document).toEqual({ stocks, left: 0 });
  expect(await compare()).toEqual([[500, 10]]);
  const done = await at.run(['stock', 'forget', '--all-differing']);
  expect(done).toMatchObject({ code: 0 });
  expect(done.stderr).toContain('1 count forgotten: what the platform has stands.');
  expect(await compare()).toEqual([]);
  expect((await at.run(['audit'])).stdout).toContain('counted 10, the platform has 500');
  expect(place.sandbox.control.stockOf(1002, 'sub-1')).toBe(500);

  expect((await at.run(['stock', 'forget', '--all-differing'])).code).toBe(1);
  expect((await at.run(['stock', 'forget', '--sku', '1002'])).code).toBe(1);
  for (const wrong of [[], ['--sku', '1002', '--all-differing']]) {
    expect((await at.run(['stock', 'forget', ...wrong])).code, wrong.join(' ')).toBe(2);
  }
  await count(11);
  await has(11);
});
