/** Tests src/orders/merging/placed-lines.ts. */

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { sqlOf } from '../../src/db/sqlite.ts';
import { channelOf } from '../../src/orders/merging/placed-lines.ts';
import { benchEntry } from '../bench/mirror-samples.ts';
import { order, outgoing, product } from './outbox-fixture.ts';

type Outgoing = ReturnType<typeof outgoing>;

const TEA = product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['A-11', 9], s2: ['E-11', 9] } }]);
const PIZZA = product('p2', 'Pizza', [{ sku: '21', stocks: { s1: ['A-21', 9] } }]);
const SHIRT = product('p3', 'Shirt', [
  { sku: '31', stocks: { s1: ['A-31', 9] } },
  { sku: '32', stocks: { s1: ['A-32', 9] } },
]);
/** Each branch's POS numbers its products from 1, so an id means another product in each branch. */
const ONES = [
  product('p4', 'Salt', [{ sku: '41', stocks: { s1: ['1', 9] } }]),
  product('p5', 'Sugar', [{ sku: '51', stocks: { s2: ['1', 9] } }]),
];

const lines = ({ db }: Outgoing, orderId = 'o1') =>
  sqlOf(db)
    .rows<Record<string, string | null>>(
      'SELECT sku, product_id AS productId, matched_by AS by FROM order_items WHERE order_id = ? ORDER BY line',
      orderId,
    )
    .map(({ sku, productId, by }) => [sku, productId, by]);

const NONE = [null, null, null];

it('places a line by its id, else by the name of its product', () => {
  const out = outgoing();
  out.sweep([TEA, PIZZA, SHIRT]);
  order(out, 'o1', 'B1', [
    ['A-11', 1, 'Anything'],
    ['E-11', 1],
    [null, 1, 'Pizza'],
    ['gone', 1, 'Tea'],
    [null, 1, 'Shirt'],
    [null, 1, 'Soup'],
    [null, 1],
  ]);
  expect(lines(out)).toEqual([
    ['11', 'p1', 'external_id'],
    ['11', 'p1', 'external_id'],
    ['21', 'p2', 'name'],
    ['11', 'p1', 'name'],
    [null, 'p3', 'name'],
    NONE,
    NONE,
  ]);
});

it('takes a name that two products have, and a product that is gone, for none', () => {
  const out = outgoing();
  out.sweep([TEA, product('p9', 'Tea', [{ sku: '91', stocks: { s1: ['A-91', 9] } }]), PIZZA]);
  out.sweep([TEA, product('p9', 'Tea', [{ sku: '91', stocks: { s1: ['A-91', 9] } }])]);
  order(out, 'o1', 'B1', [
    [null, 1, 'Tea'],
    [null, 1, 'Pizza'],
  ]);
  expect(lines(out)).toEqual([NONE, NONE]);
});

it('tells by its branch which of several articles an id is, once the ledger has heard of the order', () => {
  const out = outgoing();
  out.sweep(ONES);
  order(out, 'o1', 'B1', [['1', 1]]);
  order(out, 'o2', 'B2', [['1', 1]]);
  order(out, 'o3', 'nobody', [['1', 1]]);
  expect(lines(out)).toEqual([NONE]);
  out.reservations.begin(true);
  for (const id of ['o1', 'o2', 'o3'])
    order(out, id, id === 'o1' ? 'B1' : id === 'o2' ? 'B2' : '?', [['1', 2]]);
  out.dispatcher.catchUp({ holdBack: true });
  expect(lines(out)).toEqual([['41', 'p4', 'external_id']]);
  expect(lines(out, 'o2')).toEqual([['51', 'p5', 'external_id']]);
  expect(lines(out, 'o3')).toEqual([NONE]);
});

it('places a line later, when a product in the mirror gets the id of the line', () => {
  const out = outgoing();
  out.sweep([TEA]);
  out.dispatcher.catchUp({ holdBack: true });
  order(out, 'o1', 'B1', [['A-late', 1]]);
  out.dispatcher.catchUp({ holdBack: true });
  expect(lines(out)).toEqual([NONE]);
  out.sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['A-late', 9], s2: ['E-11', 9] } }])]);
  out.dispatcher.catchUp({ holdBack: true });
  expect(lines(out)).toEqual([['11', 'p1', 'external_id']]);
});

it('places a line later, when its product comes into the mirror, and keeps it when the product goes', () => {
  const out = outgoing();
  out.sweep([PIZZA]);
  out.dispatcher.catchUp({ holdBack: true });
  order(out, 'o1', 'B1', [
    ['A-11', 1, 'Tea'],
    [null, 1, 'Pizza'],
  ]);
  out.dispatcher.catchUp({ holdBack: true });
  expect(lines(out)).toEqual([NONE, ['21', 'p2', 'name']]);
  out.sweep([PIZZA, TEA]);
  out.dispatcher.catchUp({ holdBack: true });
  expect(lines(out)).toEqual([
    ['11', 'p1', 'external_id'],
    ['21', 'p2', 'name'],
  ]);
  out.sweep([]);
  order(
    out,
    'o1',
    'B1',
    [
      ['A-11', 1, 'Tea'],
      [null, 1, 'Pizza'],
    ],
    'ready',
  );
  out.dispatcher.catchUp({ holdBack: true });
  expect(lines(out)).toEqual([
    ['11', 'p1', 'external_id'],
    ['21', 'p2', 'name'],
  ]);
});

it('places lines of one hand-over alike, and finds a product that came before the next one', async () => {
  const mirror = openMirror({
    path: join(mkdtempSync(join(tmpdir(), 'tillsync-places-')), 'mirror.db'),
    clock: systemClock,
  });
  const keep = (...numbers: number[]) => mirror.save(numbers.map((number) => benchEntry(number)));
  await keep(1, 2);
  await mirror.write((db) =>
    sqlOf(db).run(
      "INSERT INTO integrations (sku, subsidiary_id, ext_id, product_id) VALUES ('1', 's', 'P1', 'p')",
    ),
  );
  await keep(3, 4);
  const sql = "SELECT sku FROM order_items WHERE product_external_id = 'P1' ORDER BY order_id";
  expect(mirror.read((db) => sqlOf(db).values(sql))).toEqual([null, null, '1', '1']);
  await mirror.close();
});

it.each([
  ['#1005 - Ana Soto - delivery - Web', 'Web'],
  ['#1005 - Ana - María Soto - pickup - Uber Eats', 'Uber Eats'],
  ['#7 -  - pickup - Web ', 'Web'],
  ['#7 - Ana - pickup - ', null],
  ['Ana - María - del - Carmen', null],
  ['#7 - Ana Soto', null],
  ['', null],
  [null, null],
])('channel of %s: %s', (name, channel) => {
  expect(channelOf(name)).toBe(channel);
});
