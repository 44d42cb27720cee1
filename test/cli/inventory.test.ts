/** Tests src/app/inventory.ts, src/outbox/intake/full-inventory-plan.ts and src/outbox/intake/inventory-index.ts. */

import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';
import { commandsAt } from './invoke.ts';

const SKU = 1001;
let place: Workplace;
let at: ReturnType<typeof commandsAt>;

beforeEach(async () => {
  place = await openWorkplace(23);
  at = commandsAt(place);
  expect((await at.run(['sync', 'catalog'])).code).toBe(0);
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
  await run(['order', 'ack', internalOrderId]);
  await run(['sync', 'catalog']);
  await send(41);
  expect(onPlatform()).toBe(8);
  await set(8);
  await send(42);
  // The order may still be edited, so its steps stay. Its refund must not raise the count of 8, which the POS handed
  // over after it had booked the order.
  const mirror = new Database(path.join(place.storage, 'mirror.db'), { readonly: true });
  expect(mirror.prepare('SELECT order_id FROM _ledger_orders').pluck().all()).toEqual([internalOrderId]);
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
    await run(['sync', 'catalog']);
    expect(onPlatform()).toBe(counted - ordered);
    await set(...line);
    // The platform does not add back the pieces of the refund. The safety stock has the last count sent again.
    control.changeOrder(internalOrderId, { status: 'refund' });
    await run(['sync', 'orders']);
    await run(['sync', 'catalog']);
    await run(['stock', 'safety', String(SKU), '1']);
    await run(['push', 'stock', '-', '--wait'], '[{"sku":1003,"subsidiaryId":"sub-1","qty":41}]');
    expect(onPlatform()).toBe(offered);
  },
);

describe('an inventory that says when it was counted', () => {
  const ago = (hours: number) => new Date(Date.now() - hours * 3_600_000).toISOString();

  test('does not set to zero what it lacks and what was counted later', async () => {
    const fresh = JSON.stringify([
      { externalId: 'A-1001-1', subsidiaryId: 'sub-1', qty: 37, counted_at: ago(5) },
    ]);
    await run(['push', 'stock', '-', '--wait'], fresh);
    const late = await at.json([...FULL, '--missing', 'zero', '--wait', '--counted-at', ago(10)], csv());
    expect(late).toMatchObject({ code: 3, document: { inventory: { missing: 1 } } });
    expect(late.stdout).toContain('Not sent: counted at ');
    expect(onPlatform()).toBe(37);
    await run([...FULL, '--missing', 'zero', '--wait', '--counted-at', ago(2)], csv());
    expect(onPlatform()).toBe(0);
  });

  test('adds rows up with the time of the oldest, in whatever form and zone it is', async () => {
    const inShop = new Date(Date.parse(ago(5)) - 3 * 3_600_000).toISOString().replace('T', ' ').slice(0, 19);
    const later = inShop.replace(/(\d{4})-(\d\d)-(\d\d)/, '$3/$2/$1');
    const first = ago(10);
    for (const time of [inShop, later]) {
      const file = `externalId,subsidiaryId,qty,counted_at\nA-1001-1,sub-1,4,${first}\nA-1001-1,sub-1,3,${time}\n`;
      const { code, document } = await at.json(['push', 'stock', '-', '--rows', 'sum', '--wait'], file);
      expect([code, document.problems]).toEqual([0, []]);
      const { document: list } = await at.json(['outbox', 'list', '--limit', '1']);
      expect(list[0] ?? list.changes?.[0]).toMatchObject({ body: { qty: 7 }, countedAt: first });
    }
  });

  test('is refused by name at the preview too, if its time is none', async () => {
    const file = 'externalId,subsidiaryId,qty,counted_at\nA-1001-1,sub-1,4,yesterday\n';
    const told = await at.run(['push', 'stock', '-', '--dry-run'], file);
    expect(told.stdout + told.stderr).toContain('counted_at "yesterday" is no time.');
    expect(told.stdout).not.toContain('would be sent');
  });
});

describe('an unknown id that is nearly that of a stock which the file lacks', () => {
  const renamed = async (externalId: string) => {
    const named = productOf(SKU);
    for (const ids of named.children[0]?.integrations ?? [])
      if (ids.subsidiaryId === 'sub-1') ids.extId = externalId;
    place.sandbox.control.putProduct(named);
    await run(['sync', 'catalog']);
  };

  test.each([
    ['abc-7', 'ABC-7'],
    ['0042', '42'],
    ['42', '0042'],
    ['caf\u00e9', 'cafe\u0301'],
    ['Pi\u00f1a 1', 'PINA1'],
    ['\uff11\uff12', '12'],
    ['x1', 'x\u200b1'],
  ])('is named, and that stock stays as it is: %j and %j', async (real, typed) => {
    await renamed(real);
    const before = onPlatform();
    expect(before).toBeGreaterThan(0);
    const result = await at.json([...FULL, '--missing', 'zero', '--wait'], csv(`${typed},3`));
    expect(result).toMatchObject({
      code: 3,
      document: { problems: [{ state: 'rejected', code: 'twin', message: expect.stringContaining(real) }] },
    });
    expect(result.document.inventory).toMatchObject({ unknown: 0, unclear: 0, missing: 0 });
    expect(onPlatform()).toBe(before);
  });

  test('is another one where a letter differs from a digit', async () => {
    await renamed('O42');
    const result = await at.json([...FULL, '--missing', 'zero', '--wait'], csv('042,3'));
    expect(result).toMatchObject({ code: 0, document: { inventory: { unknown: 1, missing: 1 } } });
    expect(onPlatform()).toBe(0);
  });

  test('is named in the refusal without --full, too', async () => {
    await renamed('abc-7');
    const { code, stderr } = await at.run(['push', 'stock', '-', '--wait'], 'externalId,qty\nABC-7,3\n');
    expect({ code, stderr }).toMatchObject({ code: 3 });
    expect(stderr).toContain('similar id: abc-7 (sku 1001 in sub-1)');
    const price = await at.run(['push', 'products', '-', '--wait'], 'externalId,price\nABC-7,3\n');
    expect(price.stderr).toContain('similar id: abc-7 (sku 1001 in sub-1)');
  });
});

test('two rows of one article are refused or added up, in a whole inventory as in a part', async () => {
  const before = onPlatform();
  const twice = csv('A-1001-1,4', 'A-1001-1,3');
  const refused = await at.json([...FULL, '--missing', 'zero', '--wait'], twice);
  expect(refused).toMatchObject({
    code: 3,
    document: {
      problems: [{ code: 'same-article', message: expect.stringContaining('use --rows sum') }, {}],
      inventory: { missing: 0 },
    },
  });
  expect(onPlatform()).toBe(before);
  const sum = await at.json([...FULL, '--wait', '--rows', 'sum'], twice);
  expect(sum).toMatchObject({ code: 0, document: { addedUp: 1, problems: [] } });
  expect(onPlatform()).toBe(7);
  const part = ['push', 'stock', '-'];
  const few = 'externalId,sku,qty\nA-1001-1,,1\n,1001,2\nB-1003-1,,5\n';
  const preview = await at.json([...part, '--dry-run', '--branch', 'sub-1'], few);
  expect(preview).toMatchObject({ code: 3, document: { rejected: 0, problems: [{}, {}] } });
  expect(await at.run([...part, '--wait', '--rows', 'sum', '--branch', 'sub-1'], few)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('Added 1 row to other rows of the same article.'),
  });
  expect(onPlatform()).toBe(3);
});

test('the products of a branch are listed as the platform has them, in the order that is asked for', async () => {
  const list = ['product', 'list', '--live', '--branch', 'sub-1'];
  const { code, document } = await at.json([...list, '--order', 'asc', '--order-by', 'CreatedDate']);
  expect(code).toBe(0);
  const ids = document.products.map(({ id, _id }: { id?: string; _id?: string }) => id ?? _id);
  expect(ids.length).toBe(document.totalDocs);
  expect(new Set(ids).size).toBe(ids.length);
  const newest = await at.json(list);
  expect(newest.document).toMatchObject({ order: 'desc', orderBy: 'CreatedDate' });
  expect(newest.document.products.map(({ id, _id }: { id?: string; _id?: string }) => id ?? _id)).toEqual(
    ids.toReversed(),
  );
  expect((await at.run(list)).stdout).toMatch(/PRODUCT +NAME +SHOW +SKU/);
  expect((await at.run(['product', 'list', '--branch', 'sub-1'])).code).toBe(2);
});
