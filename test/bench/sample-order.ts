import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { readOrder } from '../../src/orders/merging/order-reader.ts';

const spellings = compileSpellings();

/** Reads notifications as the daemon does. */
export const readSample = (value: unknown) => readOrder(value, spellings);

/** Makes a notification as in the platform's document, of about 1.9 kB with three items, one of them with modifiers. */
export function sampleOrder(
  orderId: string,
  code: number,
  status = 'picker-pending',
  createdAt = '2026-01-15T12:34:56.789Z',
): string {
  return JSON.stringify({
    store: { externalId: 'B1' },
    internalOrderId: orderId,
    status,
    code,
    websiteId: '64b0c2f19a3e5d0012ab34cd',
    name: `#${code} - Ana Pérez González - delivery - Web`,
    createdAt,
    deliveryType: 'delivery',
    amountToPay: 21980,
    amount: 18990,
    deliveryFee: 2990,
    couponDiscount: 0,
    deliveryTime: '2026-01-15T13:20:00.000Z',
    isScheduled: false,
    address: {
      lat: -33.4372,
      lng: -70.6506,
      address: 'Av. Providencia 1234, Providencia, Santiago, Chile',
      streetNumber: '1234',
      streetAddress: 'Av. Providencia',
      country: 'Chile',
      state: 'Región Metropolitana',
      city: 'Santiago',
      zipCode: '7500000',
      phoneNumber: '+56911112222',
      details: 'Depto 56, timbre 3, dejar con conserje',
    },
    user: {
      firstName: 'Ana',
      lastName: 'Pérez González',
      email: 'ana.perez@example.com',
      phoneNumber: '+56911112222',
    },
    items: [
      item('PROD-001', 'Hamburguesa doble con queso', 2, 5990, []),
      item(null, 'Papas fritas grandes', 1, 3490, [
        {
          externalId: null,
          name: 'Salsas',
          shortName: 'Salsas',
          description: [],
          countById: { m1: 2, m2: 1 },
          countByExternalId: { 'MOD-1': 2, 'MOD-2': 1 },
          options: [
            { optionId: 'm1', externalId: 'MOD-1', name: 'Ketchup', price: 0 },
            { optionId: 'm2', externalId: 'MOD-2', name: 'Mayonesa', price: 300 },
          ],
        },
      ]),
      item('PROD-017', 'Bebida cola 500 ml', 2, 1760, []),
    ],
  });
}

function item(externalId: string | null, name: string, amount: number, price: number, modifiers: object[]) {
  return {
    product: { externalId, name },
    amount,
    comment: '',
    unitPrice: price,
    baseUnitPrice: price,
    productPrice: price * amount,
    productBasePrice: price * amount,
    modifiers,
  };
}
