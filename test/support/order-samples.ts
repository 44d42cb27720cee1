/** Makes an order as in the platform's document; the same number always gives the same order. */
export function sampleNotification(
  number: number,
  changes: Record<string, unknown> = {},
): Record<string, unknown> {
  return {
    store: { externalId: 'B1' },
    internalOrderId: `65a1${String(number).padStart(20, '0')}`,
    status: 'pending',
    code: number,
    websiteId: 'company-1',
    name: `#${number} - Ana Núñez - delivery - Web`,
    createdAt: '2026-01-10T12:00:00.000Z',
    deliveryType: 'delivery',
    amountToPay: 15990,
    amount: 12990,
    deliveryFee: 3000,
    couponDiscount: 0,
    deliveryTime: '2026-01-10T13:00:00.000Z',
    isScheduled: false,
    address: {
      lat: -33.4372,
      lng: -70.6506,
      address: 'Av. Uno 742, Santiago',
      streetNumber: '742',
      streetAddress: 'Av. Uno',
      country: 'Chile',
      state: 'RM',
      city: 'Santiago',
      zipCode: '8320000',
      phoneNumber: '+56911111111',
      details: 'depto 12',
    },
    user: { firstName: 'Ana', lastName: 'Núñez', email: 'ana@example.com', phoneNumber: '+56922222222' },
    items: [sampleItem('P1', 2), sampleItem('P2', 1), sampleCombo()],
    ...changes,
  };
}

function sampleItem(externalId: string, amount: number): Record<string, unknown> {
  return {
    product: { externalId, name: `Product ${externalId}` },
    amount,
    comment: '',
    unitPrice: 2500.5,
    baseUnitPrice: 3000,
    productPrice: 2500.5 * amount,
    productBasePrice: 3000 * amount,
    modifiers: [],
  };
}

function sampleCombo(): Record<string, unknown> {
  return {
    product: { externalId: null, name: 'Combo' },
    amount: 1,
    comment: 'no onions',
    unitPrice: 5000,
    baseUnitPrice: 6000,
    productPrice: 5500,
    productBasePrice: 6500,
    modifiers: [
      {
        externalId: null,
        name: 'Sauces',
        shortName: 'Sc',
        description: ['pick two'],
        countById: { m1: 2, m2: 1 },
        countByExternalId: { E1: 2, E2: 1 },
        options: [
          { optionId: 'm1', externalId: 'E1', name: 'Garlic', price: 300 },
          { optionId: 'm2', externalId: 'E2', name: 'Hot', price: 200 },
        ],
      },
      {
        externalId: null,
        name: 'Gift wrap',
        shortName: 'Gw',
        description: [],
        countById: { g: 1 },
        countByExternalId: {},
        options: [],
      },
    ],
  };
}
