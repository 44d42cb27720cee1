import { drawInt, seededRandom } from '../../src/sandbox/draws.ts';
import { sampleNotification } from '../support/order-samples.ts';

/**
 * Makes callbacks that the document does not describe, from a correct one. Each family changes one thing; a case
 * combines one to three families.
 */

type Random = ReturnType<typeof seededRandom>;
type Sent = Record<string, unknown>;

/** Draws an element of a list; undefined in the list stands for a missing field. */
function drawFrom<T>(random: Random, list: readonly T[]): T {
  return list[drawInt(random, 0, list.length - 1)] as T;
}

export interface OddCallback {
  /** Names of the families, for the person who reads a failure. */
  title: string;
  /** A correct earlier callback of the same order; undefined if the order is new. */
  before: string | undefined;
  raw: string;
}

export const SHOP_TIMEZONE = 'America/Santiago';
/**
 * Times as sent, each with the time in UTC, or null if it is no time. In January, the shop's clock is three hours
 * behind UTC.
 */
export const ODD_TIMES: readonly (readonly [sent: unknown, utc: string | null])[] = [
  ['2026-01-15T08:30:00', '2026-01-15T11:30:00.000Z'],
  ['2026-01-15 08:30', '2026-01-15T11:30:00.000Z'],
  ['15/01/2026 08:30', '2026-01-15T11:30:00.000Z'],
  ['15-01-2026 08:30:15', '2026-01-15T11:30:15.000Z'],
  ['2026-01-15T08:30:00-03:00', '2026-01-15T11:30:00.000Z'],
  ['2026-01-15T13:30:00+0200', '2026-01-15T11:30:00.000Z'],
  ['2026-01-15T11:30:00Z', '2026-01-15T11:30:00.000Z'],
  [' 2026-01-15T11:30:00.000Z ', '2026-01-15T11:30:00.000Z'],
  [1768476600, '2026-01-15T11:30:00.000Z'],
  [1768476600000, '2026-01-15T11:30:00.000Z'],
  ['1768476600000', '2026-01-15T11:30:00.000Z'],
  ['9999-12-31T23:59:59.000Z', '9999-12-31T23:59:59.000Z'],
  ['2026-01-15', null],
  ['15/01/2026', null],
  ['01/31/2026 08:30', null],
  ['2026-02-31T08:30:00Z', null],
  ['2026-01-15T25:00:00Z', null],
  ['soon', null],
  ['today at 8', null],
  [0, null],
  [-1, null],
  [true, null],
  [{}, null],
  [['2026-01-15T11:30:00Z'], null],
  [{ date: '2026-01-15T11:30:00Z' }, null],
  ['2026-01-15T11:30:00Z'.repeat(9), null],
];

/** Marks a token that is written into the JSON as it is, because JSON.stringify cannot write it. */
const bare = (token: string) => `@bare:${token}`;

const ODD_AMOUNTS: readonly unknown[] = [
  ...['5990,55', '1.990,50', '$5990', '12.990', 'NaN', 'Infinity', 'abc', '', '  ', '1e5', '0x10', '5990.50'],
  ...[' 12.5 ', '-3', '+5', '.5', '9'.repeat(400), '1 990', '5990\0', '\uFF15'],
  ...[-5990, 0, 1e21, 0.1, true, false, null, {}, [], [5990], { value: 5990 }, { $numberDecimal: '5990.50' }],
  ...[bare('1e400'), bare('-0'), bare('9007199254740993'), bare('5990.10')],
];
const ODD_VALUES: readonly unknown[] = [
  ...[null, '', ' ', 'x', '0', 0, 7, -1, 1.5, true, false, {}, [], [null], ['x'], { a: 1 }, [[]], '\0'],
  ...['\uD800', 'a\0b', 'Ñandú ☕ 👩‍🍳', '\u202Eabc', 'x'.repeat(5000), "'; DROP TABLE _orders; --"],
];
const NOT_OBJECTS: readonly unknown[] = [null, 'x', '', 3, 0, true, false, []];

const line = (random: Random): Sent => {
  const pieces = drawInt(random, 1, 4);
  return {
    product: { externalId: `P${drawInt(random, 1, 9)}`, name: `Product ${drawInt(random, 1, 9)}` },
    amount: pieces,
    comment: '',
    unitPrice: 1000,
    baseUnitPrice: 1100,
    productPrice: 1000 * pieces,
    productBasePrice: 1100 * pieces,
    modifiers: [],
  };
};

const modifier = (changes: Sent = {}): Sent => ({
  externalId: null,
  name: 'Sauces',
  shortName: 'Sc',
  description: [],
  countById: { m1: 2, m2: 1 },
  countByExternalId: { E1: 2, E2: 1 },
  options: [
    { optionId: 'm1', externalId: 'E1', name: 'Garlic', price: 300 },
    { optionId: 'm2', externalId: 'E2', name: 'Hot', price: 200 },
  ],
  ...changes,
});

const linesOf = (sent: Sent): unknown[] => (Array.isArray(sent.items) ? sent.items : []);
const firstLine = (sent: Sent): Sent => {
  const found = linesOf(sent).find(
    (each) => typeof each === 'object' && each !== null && !Array.isArray(each),
  );
  return (found ?? {}) as Sent;
};
const partOf = (sent: Sent, name: string): Sent => {
  const part = sent[name];
  return typeof part === 'object' && part !== null && !Array.isArray(part) ? (part as Sent) : {};
};

const AMOUNTS = ['amountToPay', 'amount', 'deliveryFee', 'couponDiscount'];
const TIMES = ['createdAt', 'deliveryTime'];
const LINE_AMOUNTS = ['amount', 'unitPrice', 'baseUnitPrice', 'productPrice', 'productBasePrice'];
const USER = ['firstName', 'lastName', 'email', 'phoneNumber'];
const ADDRESS = [
  ...['lat', 'lng', 'address', 'streetNumber', 'streetAddress', 'country', 'state', 'city', 'zipCode'],
  ...['phoneNumber', 'details'],
];
const DOCUMENTED = [
  ...['store', 'status', 'code', 'websiteId', 'name', 'createdAt', 'deliveryType', 'amountToPay', 'amount'],
  ...['deliveryFee', 'couponDiscount', 'deliveryTime', 'isScheduled', 'address', 'user', 'items'],
];

type Family = (sent: Sent, random: Random) => void;

/** Changes that each make a documented notification odd in one way. */
const FAMILIES: Readonly<Record<string, Family>> = {
  'items of another type': (sent, random) => {
    sent.items = drawFrom(random, [null, 'x', '', 7, 0, true, {}, [], '[]', { a: 'x', b: 1 }]);
  },
  'items missing': (sent) => {
    delete sent.items;
  },
  'items as a map': (sent, random) => {
    sent.items = { 0: line(random), 1: line(random), 2: line(random) };
  },
  'items as a map with an odd one': (sent, random) => {
    sent.items = { a: line(random), b: drawFrom(random, NOT_OBJECTS), c: line(random) };
  },
  'items as a list in a list': (sent, random) => {
    sent.items = [[line(random), line(random)]];
  },
  'items as JSON text': (sent, random) => {
    sent.items = JSON.stringify([line(random)]);
  },
  'a single line in place of a list': (sent, random) => {
    sent.items = line(random);
  },
  'one of three lines no object': (sent, random) => {
    const lines: unknown[] = [line(random), line(random), line(random)];
    lines[drawInt(random, 0, 2)] = drawFrom(random, NOT_OBJECTS);
    sent.items = lines;
  },
  'a line without anything': (sent, random) => {
    sent.items = [line(random), {}, line(random)];
  },
  'the same line twice': (sent, random) => {
    const twin = line(random);
    sent.items = [twin, line(random), twin];
  },
  '500 lines': (sent, random) => {
    sent.items = Array.from({ length: 500 }, () => line(random));
  },
  'a product of another type': (sent, random) => {
    firstLine(sent).product = drawFrom(random, ODD_VALUES);
  },
  'a product without a name': (sent) => {
    firstLine(sent).product = { externalId: 'P1' };
  },
  'a product with an odd name': (sent, random) => {
    firstLine(sent).product = { externalId: 'P1', name: drawFrom(random, ODD_VALUES) };
  },
  'a product with an odd id': (sent, random) => {
    firstLine(sent).product = { externalId: drawFrom(random, ODD_VALUES), name: 'Pizza' };
  },
  'an odd quantity': (sent, random) => {
    firstLine(sent).amount = drawFrom(random, ODD_AMOUNTS);
  },
  'an odd price of a line': (sent, random) => {
    firstLine(sent)[drawFrom(random, LINE_AMOUNTS)] = drawFrom(random, ODD_AMOUNTS);
  },
  'an odd comment': (sent, random) => {
    firstLine(sent).comment = drawFrom(random, ODD_VALUES);
  },
  'modifiers of another type': (sent, random) => {
    firstLine(sent).modifiers = drawFrom(random, [null, {}, 'x', '', 7, true, [null], ['x'], [7], [[]]]);
  },
  'modifiers as a map': (sent) => {
    firstLine(sent).modifiers = { a: modifier(), b: modifier({ name: 'Extras' }) };
  },
  'counts without options': (sent, random) => {
    firstLine(sent).modifiers = [modifier({ options: drawFrom(random, [undefined, null, []]) })];
  },
  'counts of an odd type': (sent, random) => {
    const odd = drawFrom(random, [
      null,
      'x',
      7,
      true,
      [2, 1],
      { m1: '2x' },
      { m1: null },
      { m1: '2' },
      { m1: {} },
    ]);
    firstLine(sent).modifiers = [modifier({ countById: odd, countByExternalId: {} })];
  },
  'an odd count by the external id': (sent, random) => {
    const odd = drawFrom(random, ['x', 7, ['x'], { E1: '2,5', E2: 1 }, { E1: true, E2: 1 }]);
    firstLine(sent).modifiers = [modifier({ countById: {}, countByExternalId: odd })];
  },
  'options of an odd type': (sent, random) => {
    const odd = drawFrom(random, ['x', 7, true, {}, [null], ['x'], [7, { optionId: 'm1', name: 'Garlic' }]]);
    firstLine(sent).modifiers = [modifier({ options: odd })];
  },
  'options without ids': (sent) => {
    firstLine(sent).modifiers = [
      modifier({ countById: {}, countByExternalId: {}, options: [{ name: 'Garlic' }, { name: 'Hot' }] }),
    ];
  },
  'an option without anything': (sent, random) => {
    const odd = drawFrom(random, [{}, { price: 300 }, { name: null, optionId: '' }]);
    firstLine(sent).modifiers = [modifier({ options: [{ optionId: 'm1', name: 'Garlic' }, odd] })];
  },
  'an odd field of a modifier': (sent, random) => {
    const name = drawFrom(random, ['name', 'shortName', 'externalId', 'description']);
    firstLine(sent).modifiers = [modifier({ [name]: drawFrom(random, ODD_VALUES) })];
  },
  'an odd field of an option': (sent, random) => {
    const name = drawFrom(random, ['optionId', 'externalId', 'name', 'price']);
    const option = { optionId: 'm1', externalId: 'E1', name: 'Garlic', price: 300 };
    const odd = { ...option, [name]: drawFrom(random, ODD_VALUES) };
    firstLine(sent).modifiers = [modifier({ options: [odd] })];
  },
  'an odd amount': (sent, random) => {
    sent[drawFrom(random, AMOUNTS)] = drawFrom(random, ODD_AMOUNTS);
  },
  'another odd amount': (sent, random) => {
    sent[drawFrom(random, AMOUNTS)] = drawFrom(random, ODD_AMOUNTS);
  },
  'odd amounts everywhere': (sent, random) => {
    for (const name of AMOUNTS) sent[name] = drawFrom(random, ODD_AMOUNTS);
  },
  'an odd time': (sent, random) => {
    sent[drawFrom(random, TIMES)] = drawFrom(random, ODD_TIMES)[0];
  },
  'another odd time': (sent, random) => {
    sent[drawFrom(random, TIMES)] = drawFrom(random, ODD_TIMES)[0];
  },
  'no time': (sent, random) => {
    sent[drawFrom(random, TIMES)] = drawFrom(random, [null, '', ' ', undefined]);
  },
  'an odd status': (sent, random) => {
    sent.status = drawFrom(random, [null, '', ' ', undefined, 4, true, {}, [], ['ready'], { name: 'ready' }]);
  },
  'a status in other letters': (sent, random) => {
    sent.status = drawFrom(random, [
      ' Ready ',
      'READY',
      'inprocess',
      'INPROCESS',
      'Picker-Pending\n',
      'Routed',
    ]);
  },
  'an unknown status': (sent, random) => {
    sent.status = drawFrom(random, ['teleported', ' on hold ', 'Listo', '☕', 'x'.repeat(300), 'a\0b']);
  },
  'an odd store': (sent, random) => {
    sent.store = drawFrom(random, ODD_VALUES);
  },
  'an odd id of the store': (sent, random) => {
    sent.store = { externalId: drawFrom(random, ODD_VALUES) };
  },
  'no store': (sent) => {
    delete sent.store;
  },
  'a pickup with an address': (sent, random) => {
    sent.deliveryType = drawFrom(random, ['pickup', 'Pickup ', 'PICKUP']);
  },
  'a delivery without an address': (sent, random) => {
    sent.address = drawFrom(random, [undefined, null, {}]);
  },
  'an address of another type': (sent, random) => {
    sent.address = drawFrom(random, ODD_VALUES);
  },
  'an odd field of the address': (sent, random) => {
    partOf(sent, 'address')[drawFrom(random, ADDRESS)] = drawFrom(random, ODD_VALUES);
  },
  'an odd way of delivery': (sent, random) => {
    sent.deliveryType = drawFrom(random, [null, '', 'drone', 7, true, {}, ['pickup'], undefined]);
  },
  'a user of another type': (sent, random) => {
    sent.user = drawFrom(random, ODD_VALUES);
  },
  'no user': (sent) => {
    delete sent.user;
  },
  'an odd field of the user': (sent, random) => {
    partOf(sent, 'user')[drawFrom(random, USER)] = drawFrom(random, ODD_VALUES);
  },
  'an odd code': (sent, random) => {
    const odd = [
      '17',
      '#17',
      ' 17 ',
      'A-17',
      1.5,
      -3,
      true,
      null,
      {},
      [17],
      bare('9007199254740993'),
      bare('1e400'),
    ];
    sent.code = drawFrom(random, odd);
  },
  'an odd name or company': (sent, random) => {
    sent[drawFrom(random, ['name', 'websiteId'])] = drawFrom(random, ODD_VALUES);
  },
  'an odd flag of scheduling': (sent, random) => {
    sent.isScheduled = drawFrom(random, ['true', 'false', '1', '', 1, 0, 2, 'yes', 'TRUE', null, {}, []]);
  },
  'scheduled without a time': (sent, random) => {
    sent.isScheduled = drawFrom(random, [true, 'true', 1]);
  },
  'scheduled for an odd time': (sent, random) => {
    sent.isScheduled = true;
    sent.scheduledDate = drawFrom(random, ODD_TIMES)[0];
  },
  'scheduled under an unknown name': (sent) => {
    sent.isScheduled = true;
    sent.when = '2026-01-16T11:30:00Z';
  },
  'fields that nobody knows': (sent, random) => {
    sent.meta = { order: { id: 'other', items: [1, 2], status: 'cancel' }, deep: [[[{ a: [{}] }]]] };
    Object.assign(sent, { constructor: { status: 'cancel' }, toString: 1 });
    sent[`x${drawInt(random, 1, 99)}`] = drawFrom(random, ODD_VALUES);
    firstLine(sent).meta = { amount: 99, product: { name: 'other' } };
  },
  'another type of a documented field': (sent, random) => {
    sent[drawFrom(random, DOCUMENTED)] = drawFrom(random, ODD_VALUES);
  },
  'other types of many fields': (sent, random) => {
    for (const name of DOCUMENTED) if (random.next() < 0.4) sent[name] = drawFrom(random, ODD_VALUES);
  },
  'all fields null but the id': (sent) => {
    for (const name of DOCUMENTED) sent[name] = null;
  },
  'the id alone': (sent) => {
    for (const name of DOCUMENTED) delete sent[name];
  },
  'an odd id': (sent, random) => {
    const id = String(sent.internalOrderId);
    const odd = [
      ...[null, '', ' ', true, {}, [], [id], { $oid: id }, 1.5, `${id}\0`, `${id}\uD800`, bare('1e400')],
      ...[
        id.padEnd(200, 'x'),
        id.padEnd(201, 'x'),
        ` ${id} `,
        Number(id.slice(-5)) + 1,
        `Ñ☕${id}`,
        undefined,
      ],
      bare(`9007199254${id.slice(-8)}`),
    ];
    sent.internalOrderId = drawFrom(random, odd);
  },
};

const NAMES = Object.keys(FAMILIES);

/** Makes a case. It depends only on the seed and the number, not on which other cases run. */
export function oddCallback(seed: number, number: number): OddCallback {
  const random = seededRandom(seed * 100_003 + number);
  const changes = { createdAt: '2026-01-15T11:00:00.000Z', deliveryTime: '2026-01-15T12:00:00.000Z' };
  const good = sampleNotification(number, { ...changes, status: 'payment-approved' });
  const hasBefore = random.next() < 0.35;
  const sent: Sent = structuredClone(good);
  if (hasBefore) sent.status = 'picker-pending';
  const titles = [NAMES[number % NAMES.length] as string];
  const more = random.next();
  if (more > 0.5) titles.push(drawFrom(random, NAMES));
  if (more > 0.8) titles.push(drawFrom(random, NAMES));
  for (const title of titles) FAMILIES[title]?.(sent, random);
  return {
    title: `case ${number}: ${titles.join(' + ')}${hasBefore ? ', after a good one' : ''}`,
    before: hasBefore ? JSON.stringify(good) : undefined,
    raw: JSON.stringify(sent).replace(/"@bare:([^"]+)"/g, '$1'),
  };
}
