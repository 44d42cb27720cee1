import type { MirroredOrder } from '../../src/orders/merging/mirrored-order.ts';
import type { OutboxEntry } from '../../src/outbox/intake/change.ts';

const NO_TEXTS = [
  'storeExternalId',
  'websiteId',
  'name',
  'channel',
  'createdAt',
  'deliveryType',
  'deliveryTime',
  'scheduledFor',
  'addressAddress',
  'addressStreetNumber',
  'addressStreetAddress',
  'addressCountry',
  'addressState',
  'addressCity',
  'addressZipCode',
  'addressPhoneNumber',
  'addressDetails',
  'customerFirstName',
  'customerLastName',
  'customerEmail',
  'customerPhoneNumber',
  'code',
  'amountToPay',
  'amount',
  'deliveryFee',
  'couponDiscount',
  'isScheduled',
  'addressLat',
  'addressLng',
] as const;

export function sampleOrder(orderId: string, seq: number, status: string): MirroredOrder {
  const nothing = Object.fromEntries(NO_TEXTS.map((field) => [field, null]));
  const item = {
    productExternalId: 'A1',
    productName: 'Agua',
    quantity: 2,
    comment: null,
    unitPrice: 1000,
    baseUnitPrice: 1000,
    productPrice: '2000',
    productBasePrice: 2000,
    sku: '1001',
    productId: 'p1',
    matchedBy: 'external_id',
    modifiers: [
      {
        name: 'Sauce',
        shortName: null,
        description: '[]',
        optionId: 'o1',
        optionExternalId: null,
        optionName: 'Hot',
        optionPrice: 200,
        quantity: 1,
        modifierExternalId: null,
      },
    ],
  };
  return {
    ...nothing,
    orderId,
    seq,
    status,
    updatedAt: '2026-01-15T12:00:00.000Z',
    items: [item],
  } as unknown as MirroredOrder;
}

export function sampleChange(changeId: number, state: OutboxEntry['state'] = 'pending'): OutboxEntry {
  return {
    changeId,
    kind: 'stock',
    target: `sku:${changeId}@s1`,
    body: { externalId: `E${changeId}`, qty: 1 },
    state,
    attempts: 0,
    message: null,
    createdAt: '2026-01-15T12:00:00.000Z',
    settledAt: null,
    heldGuard: null,
    source: 'http',
    origin: 'http 127.0.0.1',
    reference: null,
    countedAt: null,
    replaced: 0,
    supersededBy: null,
    settledSeq: null,
  };
}
