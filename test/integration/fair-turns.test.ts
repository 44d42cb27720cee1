import { expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { startDaemon } from '../../src/daemon/daemon.ts';
import type { HandedOver } from '../../src/outbox/change.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, QUICK_LIMITS, SECRET, until } from '../support/workplace.ts';

it('a branch that hands over its whole stock keeps neither another branch nor what is sold out waiting', async () => {
  const place = await openWorkplace(17, {
    seed: { products: 700 },
    limits: { ...QUICK_LIMITS, endpointIntervalMs: 200 },
  });
  onTestFinished(() => place.close());
  const daemon = await startDaemon({
    config: place.config,
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
  });
  onTestFinished(() => daemon.stop());
  const { outbox, stores } = daemon.parts;
  await until('the catalogue is swept', () => stores.read(({ lookup }) => lookup.isComplete));
  const { control } = place.sandbox;
  // Of the other branches no list was read whole: the records of the first one tell their stocks too.
  const lists = control.calls('product.list').length;
  const stocks = control
    .products()
    .flatMap(({ children }) => children)
    .flatMap(({ sku, stocks }) => stocks.map(({ subsidiaryId }) => ({ sku: String(sku), subsidiaryId })));
  const branches = new Set(stocks.map(({ subsidiaryId }) => subsidiaryId)).size;
  expect([branches, lists]).toEqual([3, Math.ceil(700 / place.config.catalog.pageSize) + 2]);

  const counts = (branch: string, qty: number, most: number): HandedOver[] =>
    stocks
      .filter(({ subsidiaryId }) => subsidiaryId === branch)
      .slice(0, most)
      .map(({ sku, subsidiaryId }) => ({ kind: 'stock', change: { sku, subsidiaryId, qty } }));
  const rush = counts('sub-1', 901, 1_000);
  expect(rush.length).toBeGreaterThan(500);
  await outbox.takeMany(rush, 'cli');
  await outbox.take([...counts('sub-2', 902, 5), ...counts('sub-3', 0, 1)], 'cli');
  const isIdle = () => outbox.counts().pending + outbox.counts().sending === 0;
  await until('nothing waits any more', isIdle, 60_000);

  const sent = stores.read(({ db }) =>
    db
      .prepare<[], { at: string; branch: string; state: string }>(
        'SELECT settled_at AS at, subsidiary_id AS branch, state FROM outbox WHERE attempts > 0 ORDER BY settled_at',
      )
      .all(),
  );
  const calls = [...new Set(sent.map(({ at }) => at))];
  const lastOf = (branch: string) => calls.indexOf(sent.findLast((each) => each.branch === branch)?.at ?? '');
  expect(sent.every(({ state }) => state === 'done')).toBe(true);
  expect(calls.length).toBeGreaterThanOrEqual(5);
  // One call may have been under way, or on its way, when they were handed over.
  expect(lastOf('sub-3')).toBeLessThanOrEqual(2);
  expect(lastOf('sub-2')).toBeLessThanOrEqual(2);
  expect(lastOf('sub-1')).toBe(calls.length - 1);
  expect(control.violations()).toEqual([]);
}, 120_000);
