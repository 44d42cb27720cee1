import { expect, it } from 'vitest';
import type { SubmittedChange } from '../../src/outbox/intake/change.ts';
import { storeRig } from '../support/store-rig.ts';

it('a branch that hands over its whole stock keeps neither another branch nor what is sold out waiting', async () => {
  const rig = storeRig({
    platform: { seed: { products: 700 } },
    config: (same) => ({ ...same, stock: { ...same.stock, holdBackUnbooked: false } }),
  });
  const daemon = await rig.daemon();
  const { outbox, stores } = daemon.services;
  const { control } = rig.sandbox;
  /** Lets time pass, second by second, until `isSo`; fails after `maxS` seconds. */
  const passUntil = async (what: string, isSo: () => boolean, maxS: number) => {
    for (let second = 0; !isSo(); second++) {
      if (second >= maxS) throw new Error(`not within ${maxS} s: ${what}`);
      await rig.clock.advance(1_000);
    }
  };
  await passUntil('the catalogue is swept', () => stores.read(({ lookup }) => lookup.isComplete), 120);
  // Only the first branch's list was read to its end, because its records contain the stocks of the other branches too.
  const lists = control.calls('product.list').length;
  // A stock without a mapping in its branch cannot be sent.
  const stocks = control
    .products()
    .flatMap(({ children }) => children)
    .flatMap(({ sku, stocks, integrations }) => {
      const mapped = new Set(integrations.map(({ subsidiaryId }) => subsidiaryId));
      const own = stocks.filter(({ subsidiaryId }) => mapped.has(subsidiaryId));
      return own.map(({ subsidiaryId }) => ({ sku: String(sku), subsidiaryId }));
    });
  const branches = new Set(stocks.map(({ subsidiaryId }) => subsidiaryId)).size;
  expect([branches, lists]).toEqual([3, 700 / 100 + 2]);

  const counts = (branch: string, qty: number, most: number): SubmittedChange[] =>
    stocks
      .filter(({ subsidiaryId }) => subsidiaryId === branch)
      .slice(0, most)
      .map(({ sku, subsidiaryId }) => ({ kind: 'stock', change: { sku, subsidiaryId, qty } }));
  const rush = counts('sub-1', 901, 1_000);
  expect(rush.length).toBeGreaterThan(500);
  await rig.run(outbox.submitMany(rush, 'cli'));
  await rig.run(outbox.submit([...counts('sub-2', 902, 5), ...counts('sub-3', 0, 1)], 'cli'));
  const isIdle = () => outbox.counts().pending + outbox.counts().sending === 0;
  await passUntil('nothing waits any more', isIdle, 120);

  const sent = stores.read(({ db }) =>
    db
      .prepare<[], { at: string; handedAt: string; branch: string; state: string }>(
        'SELECT settled_at AS at, created_at AS handedAt, subsidiary_id AS branch, state FROM _outbox WHERE attempts > 0 ORDER BY settled_at',
      )
      .all(),
  );
  expect(sent).toHaveLength(rush.length + 6);
  const calls = [...new Set(sent.map(({ at }) => at))];
  const lastOf = (branch: string) => calls.indexOf(sent.findLast((each) => each.branch === branch)?.at ?? '');
  expect(sent.every(({ state }) => state === 'done')).toBe(true);
  expect(calls.length).toBeGreaterThanOrEqual(5);
  const handedAt = sent.find(({ branch }) => branch === 'sub-3')?.handedAt ?? '';
  const leftBefore = calls.filter((at) => at <= handedAt).length;
  expect(leftBefore).toBeLessThan(calls.length / 2);
  // One call may have been running when the changes were submitted.
  expect(lastOf('sub-3')).toBeLessThanOrEqual(leftBefore + 1);
  expect(lastOf('sub-2')).toBeLessThanOrEqual(leftBefore + 1);
  expect(lastOf('sub-1')).toBe(calls.length - 1);
  expect(control.violations()).toEqual([]);
});
