/** Tests src/orders/field-aliases.ts. */

import { describe, expect, it } from 'vitest';
import { scanRecords } from '../../src/core/json-records.ts';
import { compileSpellings } from '../../src/orders/field-aliases.ts';
import { chooseOrderList } from '../../src/orders/order-reader.ts';

const spellings = compileSpellings();

function choose(answer: unknown, listPath = ''): string | undefined {
  const bytes = new TextEncoder().encode(JSON.stringify(answer));
  return chooseOrderList(bytes, scanRecords(bytes), { listPath, spellings })?.path;
}

const order = { _id: 'a', status: 'ready', code: 3, total: 5, createdAt: 'x' };
const branch = { id: 'b', name: 'North' };

describe('choosing the list of orders', () => {
  it.each([
    [[order], ''],
    [{ data: [order] }, 'data'],
    [{ success: true, data: { docs: [order], totalDocs: 1 } }, 'data.docs'],
    [{ data: { orders: [{ order }] } }, 'data.orders'],
    [{ pedidos: [order], branches: [branch] }, 'pedidos'],
    [{ data: [branch], orders: [order] }, 'orders'],
    [{ orders: [null, {}, order] }, 'orders'],
    [[], ''],
    [{ data: [] }, 'data'],
    [{ success: true, data: { docs: [] }, errors: [] }, 'data.docs'],
    [{ pedidos: [] }, 'pedidos'],
    [{ orders: [], branches: [branch] }, 'orders'],
  ])('in %j', (answer, path) => {
    expect(choose(answer)).toBe(path);
  });

  it.each([
    {},
    { data: null },
    { data: {} },
    { errors: [] },
    { orders: [{ foo: 1 }] },
    { orders: [{ foo: 1 }], data: [] },
    { branches: [branch] },
    { branches: [{ ...branch, status: 'open', createdAt: 'x' }] },
    { success: false, data: [] },
    'x',
  ])('finds none in %j', (answer) => {
    expect(choose(answer)).toBeUndefined();
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
