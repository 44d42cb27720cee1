import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { compareOrders, DemoPos, type MirroredRow } from '../../src/demo/demo-pos.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';

type Snapshot = Parameters<typeof compareOrders>[0][number];

const ORDER = {
  internalOrderId: 'o1',
  code: 7,
  status: 'pending',
  amountToPay: 1_990,
  deliveryFee: 0,
  items: [{ amount: 2 }, { amount: 1 }],
} as Snapshot;
const ROW: MirroredRow = {
  order_id: 'o1',
  code: 7,
  status: 'pending',
  amount_to_pay: 1_990,
  delivery_fee: 0,
  lines: 2,
  pieces: 3,
};

it('compareOrders finds nothing where both sides have the same', () => {
  expect(compareOrders([ORDER], [ROW])).toEqual({ atPlatform: 1, inMirror: 1, equal: 1, differences: [] });
});

it('compareOrders names what differs first, and what only one side has', () => {
  const [lost, stray] = [
    { ...ORDER, internalOrderId: 'o2', code: 8 },
    { ...ROW, order_id: 'o3' },
  ];
  const compared = compareOrders([ORDER, lost], [{ ...ROW, pieces: 4 }, stray]);
  expect(compared).toEqual({
    atPlatform: 2,
    inMirror: 2,
    equal: 0,
    differences: [
      'order #7 (o1) has number of pieces 3 there and 4 here',
      'order #8 (o2) is not in the mirror',
      'order o3 is in the mirror alone',
    ],
  });
});

it('DemoPos says what the local API answered to a hand-over that it refused', async () => {
  const order = { orderId: 'o1', status: 'pending', storeExternalId: 'B1', items: [] };
  const server = createServer((request, response) => {
    if (request.method === 'GET') response.end(JSON.stringify({ events: [{ order }], next: 1 }));
    else response.writeHead(500).end('the disk is full');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const localUrl = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const pos = new DemoPos({ localUrl, key: 'k', clock: new FakeClock(), random: seededRandom(1) });
  await expect(pos.close()).rejects.toThrow('The local API answered 500: the disk is full');
});
