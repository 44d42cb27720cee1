/** Tests src/app/inventory.ts, src/outbox/full-inventory-plan.ts and src/outbox/inventory-index.ts. */

import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';
import { commandsAt } from './invoke.ts';

const SKU = 1001;
let place: Workplace;
let at: ReturnType<typeof commandsAt>;

beforeEach(async () => {
  place = await openWorkplace(23);
  at = commandsAt(place);
  expect((await at.run(['sync', 'products'])).code).toBe(0);
});
afterEach(async () => {
  expect(place.sandbox.control.violations()).toEqual([]);
  await place.close();
});

const FULL = ['push', 'stock', '-', '--full', '--branch', 'sub-1'];
const onPlatform = (sku = SKU) => place.sandbox.control.stockOf(sku, 'sub-1');
const productOf = (sku: number) => {
  const found = place.sandbox.control.products().find(({ children }) => children[0]?.sku === sku);
  if (!found) throw new Error(`no product ${sku}`);
  return structuredClone(found);
};

/** Returns a CSV line for each stock of branch sub-1 as the platform has it, except for the stock of `SKU`. */
function others(): string[] {
  return place.sandbox.control
    .products()
    .flatMap(({ children }) => children)
    .flatMap(({ sku, stocks, integrations }) => {
      const ids = integrations.find(({ subsidiaryId }) => subsidiaryId === 'sub-1');
      const externalId = ids?.extId ?? ids?.productIdPosA ?? ids?.productCodePosB;
      const stock = stocks.find(({ subsidiaryId }) => subsidiaryId === 'sub-1');
      return externalId == null || !stock || sku === SKU ? [] : [`${externalId},${stock.qty}`];
    });
}
const csv = (...lines: string[]) => ['externalId,qty', ...others(), ...lines].join('\n');
/** Runs a command that must succeed. */
async function run(words: string[], input?: string): Promise<void> {
  const result = await at.run(words, input);
  expect(result.code, result.stdout + result.stderr).toBe(0);
}
const ofTill = (count: number, qty: number) => Array.from({ length: count }, (_, i) => `TILL-${i},${qty}`);

test('articles that only the till knows are passed over and told, and hold up no real one', async () => {
  at = commandsAt({ env: { ...place.env, TILLSYNC_GUARD_ZERO_ITEMS_MAX: '3' } });
  const text = csv('A-1001-1,0', ...ofTill(25, 0));
  const told = await at.run([...FULL, '--dry-run'], text);
  expect(told.code).toBe(0);
  expect(told.stdout).toMatch(
    /Passed over 25 lines for what the catalogue does not have: TILL-0, .*TILL-19, …\n/,
  );
  expect(onPlatform()).not.toBe(0);
  for (const night of [1, 2]) {
    const { code, document } = await at.json([...FULL, '--wait'], text);
    expect({ code, ...document }, `night ${night}`).toMatchObject({
      code: 0,
      held: 0,
      rejected: 0,
      problems: [],
      inventory: { unknown: 25, unclear: 0, catalogFault: null },
    });
    expect(onPlatform()).toBe(0);
  }
  for (const state of ['held', 'rejected']) {
    expect((await at.json(['outbox', 'list', '--state', state])).document.changes).toEqual([]);
  }
});

test('what is new at the platform arrives, and is not missing under the id that it had', async () => {
  const named = productOf(SKU);
  for (const ids of named.children[0]?.integrations ?? []) {
    if (ids.subsidiaryId === 'sub-1') ids.productIdPosA = 'TILL-A2';
  }
  const made = productOf(SKU);
  made.id = 'made-since';
  for (const sku of made.children) {
    sku.sku += 90_000;
    for (const ids of sku.integrations)
      Object.assign(ids, { extId: `NEW-${ids.subsidiaryId}`, productIdPosA: null });
  }
  place.sandbox.control.putProduct(named);
  place.sandbox.control.putProduct(made);
  const text = csv('TILL-A2,7', ...ofTill(2, 4)).replace(/^NEW-sub-1,.*$/m, 'NEW-sub-1,9');
  const { code, document } = await at.json([...FULL, '--missing', 'zero', '--wait'], text);
  expect({ code, ...document }).toMatchObject({ code: 0, inventory: { unknown: 2, missing: 0 } });
  expect([onPlatform(), onPlatform(SKU + 90_000)]).toEqual([7, 9]);
});

test('what is counted anew while the catalogue is read stays', { tags: ['bulk'] }, async () => {
  const { control } = place.sandbox;
  control.setFault({ kind: 'slow-body', endpoint: 'product.list', delayMs: 1_500, times: 1 });
  const before = control.calls('product.list').length;
  const pushing = at.json([...FULL, '--missing', 'zero', '--wait'], csv('A-1001-1,5', ...ofTill(1, 1)));
  await until('the catalogue is being read', () => control.calls('product.list').length > before);
  await at.run(['push', 'stock', '-', '--branch', 'sub-1'], '[{"externalId":"A-1001-1","qty":3}]');
  expect(await pushing).toMatchObject({ code: 0, document: { inventory: { unknown: 1 } } });
  await at.run(['push', 'stock', '-', '--branch', 'sub-1', '--wait'], '[{"externalId":"B-1003-1","qty":3}]');
  expect(onPlatform()).toBe(3);
});

test('while the catalogue cannot be read, what is known arrives and nothing goes to zero', async () => {
  place.sandbox.control.setFault({ kind: 'status', endpoint: 'product.list' });
  const [first = '', ...rest] = others();
  const lines = [...rest, `${first.split(',')[0]},77`, ...ofTill(2, 4)];
  const text = ['externalId,qty', ...lines].join('\n');
  const before = onPlatform();
  const result = await at.run([...FULL, '--missing', 'zero', '--wait'], text);
  expect(result.code).toBe(3);
  expect(result.stdout).toMatch(/the catalogue could not be read first: .+/);
  expect(result.stdout).toContain('keep their quantity all the same');
  expect(onPlatform()).toBe(before);
  expect((await at.json(['outbox', 'list', '--limit', '1'])).document.changes).toMatchObject([
    { state: 'done', body: { qty: 77 } },
  ]);
});

test('a count that says what orders have left is known all the same when one of them is paid back', {
  tags: ['bulk'],
}, async () => {
  at = commandsAt({ env: { ...place.env, TILLSYNC_STOCK_HOLD_BACK_UNBOOKED: 'true' } });
  const { control } = place.sandbox;
  /** Hands over a count of another sku, because stocks that orders moved are sent with the next change. */
  const send = (qty: number) =>
    run(['push', 'stock', '-', '--wait'], `[{"sku":1003,"subsidiaryId":"sub-1","qty":${qty}}]`);
  const set = (qty: number) => run([...FULL, '--wait'], csv(`A-1001-1,${qty}`));
  await set(10);
  const { internalOrderId } = control.createOrder({ subsidiaryId: 'sub-1', items: [{ sku: SKU, qty: 2 }] });
  await run(['sync', 'orders']);
  await run(['feed', 'ack', internalOrderId]);
  await run(['sync', 'products']);
  await send(41);
  expect(onPlatform()).toBe(8);
  await set(8);
  await send(42);
  // The order may still be edited, so its steps stay. Its refund must not raise the count of 8, which the POS handed
  // over after it had booked the order.
  const mirror = new Database(path.join(place.storage, 'mirror.db'), { readonly: true });
  expect(mirror.prepare('SELECT order_id FROM ledger_orders').pluck().all()).toEqual([internalOrderId]);
  mirror.close();
  control.changeOrder(internalOrderId, { status: 'refund' });
  await run(['sync', 'orders']);
  await send(43);
  expect(onPlatform()).toBe(8);
});

test.each([
  { counted: 10, ordered: 2, next: 'is counted as 8', line: ['A-1001-1,8'], offered: 7 },
  { counted: 2, ordered: 2, next: 'is missing from the file', line: [], offered: 0 },
])(
  'without hold-back too, what orders left of $counted is the last count when it $next',
  {
    tags: ['bulk'],
  },
  async ({ counted, ordered, line, offered }) => {
    const { control } = place.sandbox;
    const set = (...lines: string[]) => run([...FULL, '--missing', 'zero', '--wait'], csv(...lines));
    await set(`A-1001-1,${counted}`);
    const items = [{ sku: SKU, qty: ordered }];
    const { internalOrderId } = control.createOrder({ subsidiaryId: 'sub-1', items });
    await run(['sync', 'orders']);
    await run(['sync', 'products']);
    expect(onPlatform()).toBe(counted - ordered);
    await set(...line);
    // The platform does not add back the pieces of the refund. The safety stock has the last count sent again.
    control.changeOrder(internalOrderId, { status: 'refund' });
    await run(['sync', 'orders']);
    await run(['sync', 'products']);
    await run(['stock', 'safety', String(SKU), '1']);
    await run(['push', 'stock', '-', '--wait'], '[{"sku":1003,"subsidiaryId":"sub-1","qty":41}]');
    expect(onPlatform()).toBe(offered);
  },
);
