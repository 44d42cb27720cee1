/** Tests src/orders/receiving/order-lists.ts. */

import { describe, expect, it } from 'vitest';
import { recordText, scanRecords, speaksOfMorePages } from '../../src/core/json-records.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { chooseOrders } from '../../src/orders/receiving/order-lists.ts';

const spellings = compileSpellings();

function found(answer: unknown, listPath = '') {
  const bytes = new TextEncoder().encode(JSON.stringify(answer));
  const scanned = scanRecords(bytes);
  const chosen = chooseOrders(bytes, scanned, { listPath, spellings });
  if (!chosen) return undefined;
  const { list, unread } = chosen;
  const records = Array.from({ length: list.length }, (_, i) => JSON.parse(recordText(bytes, list, i)));
  const ids = records.map((record) => record?._id ?? record?.id ?? record?.order?._id);
  return { path: list.path, ids, unread, morePages: speaksOfMorePages(scanned.hints, list.length) };
}
const choose = (answer: unknown, listPath = '') => found(answer, listPath)?.path;
const read = (answer: unknown) => found(answer)?.ids.sort();

const order = { _id: 'a', status: 'ready', code: 3, total: 5, createdAt: 'x' };
const named = (_id: string) => ({ ...order, _id, items: [{ product: 'x', amount: 1, price: 5 }] });
const [a, b, c] = [named('a'), named('b'), named('c')];
const branch = { id: 'b', name: 'North' };
const payment = {
  _id: 'p',
  orderId: 'a',
  status: 'approved',
  total: 5,
  createdAt: 'x',
  method: 'card',
  token: 't',
};

describe('choosing the list of orders', () => {
  it.each([
    [[order], ''],
    [{ data: [order] }, 'data'],
    [{ success: true, data: { docs: [order], totalDocs: 1 } }, 'data.docs'],
    [{ data: { orders: [{ order }] } }, 'data.orders'],
    [{ pedidos: [order], branches: [branch] }, 'pedidos'],
    [{ data: [branch], orders: [order] }, 'orders'],
    [{ data: [branch], pedidos: [order] }, 'pedidos'],
    [{ orders: [null, {}, order] }, 'orders'],
    [[], ''],
    [{ data: [] }, 'data'],
    [{ success: true, data: { docs: [] }, errors: [] }, 'data.docs'],
    [{ pedidos: [] }, 'pedidos'],
    [{ orders: [], branches: [branch] }, 'orders'],
    [{ orders: [{ id: 'a', total: 5 }], branches: [branch] }, 'orders'],
  ])('in %j', (answer, path) => {
    expect(choose(answer)).toBe(path);
  });

  it.each([
    {},
    { errors: [] },
    { orders: [{ foo: 1 }] },
    { orders: [{ foo: 1 }], data: [] },
    { branches: [branch] },
    { branches: [{ ...branch, status: 'open', createdAt: 'x' }] },
    { success: false, data: [] },
    { success: false, data: null },
    { success: true, data: { news: 'moved' } },
    { success: true, data: 'none' },
    { success: true, data: { totalDocs: 5 } },
    { success: true, data: null, error: 'no such day' },
    { message: 'Bad gateway' },
    'x',
  ])('finds none in %j', (answer) => {
    expect(choose(answer)).toBeUndefined();
  });

  it.each([
    { success: true, data: null },
    { success: true, message: 'There are no orders.', data: null },
    { success: true },
    { success: true, data: {} },
    { success: true, data: { orders: null } },
    { success: true, data: { docs: null, totalDocs: 0, page: 1, totalPages: 0, hasNextPage: false } },
    { success: true, data: { startDate: '2026-11-27', total: 0 } },
    { data: null },
    { data: {} },
    { orders: null },
    { pending: [], ready: [] },
    { success: true, data: { pending: [], ready: null } },
    { success: true, errors: [] },
  ])('takes %j for no orders', (answer) => {
    expect(found(answer)).toMatchObject({ ids: [], unread: [] });
  });

  it.each([
    ['by day', { data: { '2026-11-27': [a], '2026-11-28': [b, c] } }],
    ['by status', { pending: [a], ready: [b, c], cancelled: [] }],
    ['of two names', { orders: [a], data: { scheduled: [b, c] } }],
    [
      'in pages',
      [
        { page: 1, docs: [a] },
        { page: 2, docs: [b, c] },
      ],
    ],
    [
      'in days with ids',
      {
        data: [
          { _id: '2026-11-27', count: 1, orders: [a] },
          { _id: 'x', count: 2, orders: [b, c] },
        ],
      },
    ],
    [
      'in days of branches',
      { days: [{ branches: [{ id: 'B1', orders: [a] }] }, { branches: [{ id: 'B2', orders: [b, c] }] }] },
    ],
    ['in lists of lists', [[a], [b, c]]],
    ['in lists of a branch', { data: { B1: { items: [a] }, B2: { items: [b, c] } } }],
    ['under their ids', { orders: { a, b, c } }],
    ['under days and ids', { data: { '2026-11-27': { a }, '2026-11-28': { b, c } } }],
    ['in wrappers', { data: { new: [{ order: a }], old: [{ order: b }, { order: c }] } }],
  ])('reads every list of orders %s', (_how, answer) => {
    expect(read(answer)).toEqual(['a', 'b', 'c']);
    expect(found(answer)?.unread.filter((each) => each.mayBeOrders)).toEqual([]);
  });

  it('reads each order of several lists, though it is in more than one', () => {
    expect(read({ all: [a, b], ready: [b] })).toEqual(['a', 'b', 'b']);
  });

  it('leaves other records that have as much as an order, and says which lists may be orders', () => {
    expect(found({ orders: [a], payments: [payment] })).toMatchObject({
      ids: ['a'],
      unread: [{ path: 'payments', records: 1, mayBeOrders: true }],
    });
    expect(found({ orders: [a], branches: [branch, branch] })).toMatchObject({
      ids: ['a'],
      unread: [{ path: 'branches', records: 2, mayBeOrders: false }],
    });
    expect(found({ orders: [], payments: [payment] })).toMatchObject({
      ids: [],
      unread: [{ path: 'payments', mayBeOrders: true }],
    });
  });

  it('says of a list of short records that it may be orders, by a status of the document', () => {
    const short = { _id: 'd', companyOrderNumber: 4, status: 'cancel' };
    expect(found({ active: [a, b], cancelled: [short] })).toMatchObject({
      ids: ['a', 'b'],
      unread: [{ path: 'cancelled', records: 1, mayBeOrders: true }],
    });
    expect(
      found({ orders: [a], cancelled: [{ _id: 'd', status: 'cancel', reason: 'x' }] })?.unread,
    ).toMatchObject([{ mayBeOrders: true }]);
    expect(found({ orders: [a], cashiers: [{ _id: 'd', status: 'active' }] })?.unread).toMatchObject([
      { mayBeOrders: false },
    ]);
  });

  it('leaves records without lines beside orders with lines, however much they are alike', () => {
    const paid = { _id: 'p', orderId: 'a', status: 'paid', total: 60, createdAt: 'x' };
    const customer = { _id: 'c1', status: 'active', total: 5, createdAt: 'x' };
    expect(found({ payments: [paid], orders: [a, b] })).toMatchObject({
      ids: ['a', 'b'],
      unread: [{ path: 'payments', records: 1, mayBeOrders: true }],
    });
    expect(found({ orders: [a], customers: [customer] })).toMatchObject({
      ids: ['a'],
      unread: [{ path: 'customers', records: 1, mayBeOrders: true }],
    });
  });

  it('reads the list with the best name first', () => {
    const early = { ...order, status: 'paid' };
    expect(found({ archive: [early, early], orders: [order] })?.path).toBe('orders, archive');
  });

  it('reads the orders of a branch that looks like an order itself', () => {
    const open = { _id: 'b1', name: 'North', status: 'open', total: 1, createdAt: 'x' };
    expect(read({ data: [{ ...open, orders: [a, b] }] })).toEqual(['a', 'b']);
    expect(
      read({
        data: [
          { ...open, orders: [] },
          { ...open, pedidos: [a] },
        ],
      }),
    ).toEqual(['a']);
  });

  it('takes no parcels of an order for orders', () => {
    expect(read({ orders: [{ ...order, parcels: [b, c] }] })).toEqual(['a']);
    expect(read({ data: [{ ...order, notes: [{ id: 'n', status: 'x', code: 1, total: 2 }] }] })).toEqual([
      'a',
    ]);
  });

  it('takes no lines for orders', () => {
    const lines = [{ id: 'l', code: 7, status: 'ok', total: 5 }];
    expect(read({ orders: [{ id: 'a', total: 5, lines }] })).toEqual(['a']);
    expect(read({ orders: { a: { ...a, items: lines }, b: { ...b, items: lines } } })).toEqual(['a', 'b']);
  });

  it('says what is nested too deeply to be read', () => {
    const deep = { one: { two: { three: { four: { five: { six: { orders: [b] } } } } } } };
    expect(found({ orders: [a], ...deep })).toMatchObject({
      ids: ['a'],
      unread: [{ path: 'one.two.three.four.five.six', records: null, mayBeOrders: true }],
    });
    expect(choose(deep)).toBeUndefined();
  });

  it('knows of further pages of one of several lists, and takes the last page of a list for its end', () => {
    const docs = (hasNextPage: boolean) => ({ docs: [a], hasNextPage });
    expect(found({ B1: docs(false), B2: docs(true) })?.morePages).toBe(true);
    expect(found({ B1: docs(false), B2: docs(false) })?.morePages).toBe(false);
    const page = (number: number) => ({ docs: [a], page: number, totalPages: 2, hasNextPage: number < 2 });
    expect(found([page(1), page(2)])?.morePages).toBe(false);
    expect(found([page(1)])?.morePages).toBe(true);
  });

  it('takes the configured path first, and the known names when it is not there', () => {
    const answer = { data: [order], archive: { old: [branch] } };
    expect(choose(answer, 'archive.old')).toBe('archive.old');
    expect(choose(answer, '$.archive.old')).toBe('archive.old');
    expect(choose(answer, 'nowhere')).toBe('data');
    expect(choose([order], 'root')).toBe('');
  });

  it('finds the one readable record among many', () => {
    expect(choose({ orders: Array.from({ length: 500 }, (_, i) => (i % 25 === 0 ? order : {})) })).toBe(
      'orders',
    );
  });
});
