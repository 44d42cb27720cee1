import type { MirroredOrder } from './mirrored-order.ts';

/** Of an order what is seen at a glance. */
export type BoardOrder = Pick<
  MirroredOrder,
  | 'orderId'
  | 'seq'
  | 'code'
  | 'status'
  | 'storeExternalId'
  | 'customerFirstName'
  | 'customerLastName'
  | 'deliveryType'
  | 'amountToPay'
  | 'createdAt'
  | 'updatedAt'
>;
