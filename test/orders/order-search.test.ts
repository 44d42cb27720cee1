import { expect, it } from 'vitest';
import { findPeople, readWho } from '../../src/orders/merging/person.ts';
import { searchOrders } from '../../src/orders/reading/order-queries.ts';
import { OBSERVED_MS, observation, openTestMirror, sampleNotification } from './open-test-mirror.ts';

type OrderSearch = Parameters<typeof searchOrders>[1];

const MINUTE_MS = 60_000;
const at = (minutes: number) => new Date(OBSERVED_MS + minutes * MINUTE_MS).toISOString();

async function mirrorOf(orders: Record<string, unknown>[]) {
  const { mirror } = openTestMirror();
  for (const [n, fields] of orders.entries()) {
    const sent = sampleNotification(n + 1, { createdAt: at(n), ...fields });
    await mirror.save([{ kind: 'order', observation: observation('webhook', sent) }]);
  }
  const codes = (search: Partial<OrderSearch>) =>
    mirror.read((db) => searchOrders(db, { limit: 10, ...search }, OBSERVED_MS)).map(({ code }) => code);
  return { mirror, codes };
}

it('finds orders by code, customer, address and item, the newest first', async () => {
  const user = { firstName: 'Ana', lastName: 'Soto', email: 'ana@example.com', phoneNumber: '+56911112222' };
  const item = { product: { externalId: 'E-7', name: 'Torta vegana' }, amount: 1, comment: 'sin nueces' };
  const { codes } = await mirrorOf([
    { user },
    { items: [item] },
    { user: { ...user, firstName: 'Eva' } },
    { code: 40 },
  ]);
  expect(codes({ text: 'soto' })).toEqual([3, 1]);
  expect(codes({ text: 'ANA SO' })).toEqual([1]);
  expect(codes({ text: '11112222' })).toEqual([3, 1]);
  expect(codes({ text: 'torta' })).toEqual([2]);
  expect(codes({ text: 'E-7' })).toEqual([2]);
  expect(codes({ text: 'nueces' })).toEqual([2]);
  expect([codes({ text: '40' }), codes({ text: '#40' })]).toEqual([[40], [40]]);
  // A code is found only if it is typed completely, and special characters are searched for as plain text.
  expect(codes({ text: '#4' })).toEqual([]);
  expect(codes({ text: '%' })).toEqual([]);
});

it.each([
  'ñandú',
  'ÑANDÚ',
  'nandu',
  'n\u0303andu\u0301',
  'alvarez',
  'JOSE ALVAREZ',
  '+56912345678',
  '912345678',
  '9 1234-5678',
  'AV. NUNOA',
  'nandu@EXAMPLE.com',
])('finds %s in every search that looks there', async (typed) => {
  const user = {
    firstName: 'José',
    lastName: 'Álvarez',
    email: 'ñandú@example.com',
    phoneNumber: '+56 9 1234 5678',
  };
  const item = { product: { externalId: 'E-7', name: 'Pluma de Ñandú' }, amount: 1 };
  const { mirror, codes } = await mirrorOf([
    { user, items: [item], address: { address: 'Av. Ñuñoa 12' } },
    {
      user: { firstName: 'Ana', lastName: 'Soto', email: 'ana@example.com', phoneNumber: '+56 9 8765 4321' },
    },
  ]);
  const listed = (filter: object) => mirror.orders.list({ limit: 9, ...filter }).map(({ code }) => code);
  expect([codes({ text: typed }), listed({ text: typed })]).toEqual([[1], [1]]);
  const isOfCustomer = !typed.startsWith('AV.');
  expect(listed({ customer: typed })).toEqual(isOfCustomer ? [1] : []);
  if (!isOfCustomer || (!typed.includes('@') && !/alvarez|\d/i.test(typed))) return;
  const { people } = mirror.read((db) => findPeople(db, readWho(typed)));
  expect(people.flatMap(({ orders }) => orders.map(({ code }) => code))).toEqual([1]);
});

it('finds those of a day, and no more than are asked for', async () => {
  const { codes } = await mirrorOf([{}, {}, {}, {}]);
  const created = { from: at(1), before: at(3) };
  expect(codes({ created })).toEqual([3, 2]);
  expect(codes({ created, text: '2' })).toContain(2);
  expect(codes({ created, text: '#4' })).toEqual([]);
  expect(codes({ limit: 3 })).toEqual([4, 3, 2]);
});

it('tells of each whether the POS took it', async () => {
  const { mirror } = await mirrorOf([{}]);
  const internalOrderId = String(sampleNotification(1).internalOrderId);
  await mirror.write((db) =>
    db
      .prepare("INSERT INTO _order_acks (order_id, branch, acked_at, source) VALUES (?, '', ?, 'http')")
      .run(internalOrderId, at(9)),
  );
  const [order] = mirror.read((db) => searchOrders(db, { limit: 1 }, OBSERVED_MS));
  expect(order).toMatchObject({ code: 1, acknowledgedAt: at(9), waitingSince: null });
  expect(mirror.orders.acknowledgement(internalOrderId)).toEqual({ at: at(9), source: 'http', without: [] });
  expect(mirror.orders.acknowledgement('nobody')).toBeNull();
});
