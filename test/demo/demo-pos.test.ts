import { expect, it } from 'vitest';
import { compareOrders, type MirroredRow } from '../../src/demo/demo-pos.ts';

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
