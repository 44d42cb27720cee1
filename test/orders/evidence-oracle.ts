/**
 * A platform that knows an order's truth and says it well or badly, and what docs/pos.md, "Who is believed", says of
 * each word. It shares no code with the merge. What is said under a guessed name has a mark, unless it is the truth by
 * chance.
 */

type Sent = Record<string, unknown>;

/** Fields of the mirror: how the document names each, and a name under which it would be a guess. */
const FIELDS = {
  amountToPay: { named: 'amountToPay', guessed: 'total', isAmount: true },
  amount: { named: 'amount', guessed: 'subTotal', isAmount: true },
  deliveryFee: { named: 'deliveryFee', guessed: 'shippingCost', isAmount: true },
  // `rebate` is not the document's name. The configuration gives it, see CONFIGURED.
  couponDiscount: { named: 'rebate', guessed: 'couponAmount', isAmount: true },
  deliveryType: { named: 'deliveryType', guessed: 'orderType', isAmount: false },
  storeExternalId: { named: 'store.externalId', guessed: 'storeId', isAmount: false },
  customerFirstName: { named: 'user.firstName', guessed: 'client.name', isAmount: false },
  customerPhoneNumber: { named: 'user.phoneNumber', guessed: 'client.phone', isAmount: false },
  addressCity: { named: 'address.city', guessed: 'shippingAddress.commune', isAmount: false },
} as const;

export type Field = keyof typeof FIELDS;
export const FIELD_NAMES = Object.keys(FIELDS) as Field[];
export const CONFIGURED = {
  spellings: { couponDiscount: ['rebate'] },
  statuses: { Lista: 'ready' as const },
};

export const EMPTY_LIST_NAMES =
  'items products orderItems lines lineItems orderLines orderProducts details'.split(' ');

export interface Line {
  key: string;
  amount: number;
  price: number;
  comment: string;
  option: string;
}

/** What is true of an order from one moment on. */
export interface Version {
  status: string;
  values: Record<Field, string | number>;
  lines: Line[];
}

export type Says = 'named' | 'guessed' | 'guessedRight' | 'blank' | 'absent';
export type SaysStatus = 'named' | 'otherName' | 'mapped' | 'foreign' | 'number' | 'absent';
export type SaysLines = 'named' | 'brief' | 'guessed' | 'titles' | 'empty' | 'absent';

/** How the platform says an order. */
export interface Form {
  fields: Record<Field, Says>;
  status: SaysStatus;
  lines: SaysLines;
  emptyName: string;
}

/** How well something is known. A lighter one never replaces a heavier one. */
const NOTHING = 0;
const POLL_GUESS = 1;
const CALLBACK_GUESS = 2;
export const DOCUMENTED = 3;

const MARKS = {
  poll: { amount: 0.25, text: '~poll', weight: POLL_GUESS },
  webhook: { amount: 0.75, text: '~callback', weight: CALLBACK_GUESS },
};
type Source = keyof typeof MARKS;

/** Returns how well a part of a line is known, by its mark. */
export function weightOf(value: string | number | null | undefined): number {
  if (value === null || value === undefined) return NOTHING;
  for (const { amount, text, weight } of Object.values(MARKS)) {
    if (typeof value === 'number' ? Math.abs(value % 1) === amount : value.endsWith(text)) return weight;
  }
  return DOCUMENTED;
}

function guess(field: Field, source: Source, { values }: Version): string | number {
  const { amount, text } = MARKS[source];
  return FIELDS[field].isAmount ? Number(values[field]) + amount : `${values[field]}${text}`;
}

export interface Known {
  value: string | number | null;
  weight: number;
}

/** What the platform said, and by which names it said it. */
export interface Said {
  source: Source;
  sent: Sent;
  text: string;
  values: Partial<Record<Field, Known>>;
  /** The status of the document that was said; null for another word, undefined for none. */
  status: string | null | undefined;
  lines: SaysLines;
  version: Version;
}

function put(sent: Sent, path: string, value: unknown): void {
  const [name = '', inside] = path.split('.');
  if (inside === undefined) sent[name] = value;
  else sent[name] = { ...(sent[name] as Sent), [inside]: value };
}

/** Says a version of the order in a form. */
export function say(orderId: string, createdAt: string, source: Source, version: Version, form: Form): Said {
  const sent: Sent = source === 'webhook' ? { internalOrderId: orderId, createdAt } : { _id: orderId };
  const values: Said['values'] = {};
  for (const field of FIELD_NAMES) {
    const { named, guessed } = FIELDS[field];
    const how = form.fields[field];
    if (how === 'blank') put(sent, named, null);
    if (how === 'blank' || how === 'absent') continue;
    const value = how === 'guessed' ? guess(field, source, version) : version.values[field];
    put(sent, how === 'named' ? named : guessed, value);
    values[field] = { value, weight: how === 'named' ? DOCUMENTED : MARKS[source].weight };
  }
  const said = saidStatus(version.status, form.status);
  if (said) sent[said.name] = said.word;
  const list = listOf(version.lines, form, source);
  if (list) sent[list.name] = list.lines;
  const text = JSON.stringify(sent);
  return { source, sent, text, values, status: said?.means, lines: form.lines, version };
}

function saidStatus(status: string, how: SaysStatus) {
  if (how === 'absent') return undefined;
  if (how === 'foreign') return { name: 'status', word: `ESTADO ${status}`, means: null };
  if (how === 'number') return { name: 'orderStatus', word: 7, means: null };
  if (how === 'mapped' && status === 'ready') return { name: 'status', word: ' LISTA', means: status };
  return { name: how === 'otherName' ? 'currentStatus' : 'status', word: status, means: status };
}

function listOf(lines: Line[], { lines: how, emptyName }: Form, source: Source) {
  const mark = MARKS[source];
  if (how === 'absent') return undefined;
  if (how === 'empty') return { name: emptyName, lines: [] };
  if (how === 'guessed')
    return {
      name: 'products',
      lines: lines.map(({ key }) => ({ productName: `${key}${mark.text}`, qty: 70 })),
    };
  if (how === 'titles') {
    const titles = lines.map(({ key, amount, price, comment, option }) => ({
      // In a callback one value in place of the object "product" means what the document means.
      [source === 'poll' ? 'product' : 'title']: `Product ${key}`,
      ...{ amount, price: price + mark.amount, note: `${comment}${mark.text}` },
      extras: [{ title: `${option}${mark.text}` }],
    }));
    return { name: 'items', lines: titles };
  }
  const named = lines.map(({ key, amount, price, comment, option }) => ({
    product: { externalId: key, name: `Product ${key}` },
    amount,
    ...(how === 'named' && { comment, productBasePrice: price, modifiers: [{ name: option }] }),
  }));
  return { name: 'items', lines: named };
}

/** States of an order in the order of its life, as the table of docs/pos.md has them. */
const LIFE = [
  ...['pending', 'payment-pending', 'payment-approved', 'picker-pending', 'inProcess', 'ready', 'routed'],
  ...['shippingError', 'dispatched'],
];
const OVER = ['cancel', 'payment-canceled', 'refund'];
export const STATUSES = [...LIFE, ...OVER];

const isOver = (status: string) => OVER.includes(status);
export const isStatus = (status: string | null): status is string =>
  status !== null && STATUSES.includes(status);

/** Returns whether a callback with a status of the document waits; the second table of "Who is believed". */
export function waits(known: string | null, said: string, isOlderThanADay: boolean): boolean {
  if (!isStatus(known)) return said === 'payment-canceled' && isOlderThanADay;
  if (isOver(known)) return !isOver(said) || (known === 'refund' && said !== 'refund');
  if (!isOver(said)) return LIFE.indexOf(said) < LIFE.indexOf(known);
  if (known === 'dispatched') return true;
  if (said !== 'payment-canceled') return false;
  return isOlderThanADay || LIFE.indexOf(known) >= LIFE.indexOf('payment-approved');
}

/**
 * Returns whether a callback that would wait is believed, because polls are silent and the callback that waits before
 * it says the same of an order that is known otherwise.
 */
export function goesOnFrom(known: string | null, before: string | null | undefined, said: string): boolean {
  if (!isStatus(known) || before == null || !isStatus(before) || before === said) return false;
  if (isOver(said) === isOver(known) || isOver(before) !== isOver(said)) return false;
  return isOver(said) ? before !== 'refund' : LIFE.indexOf(said) > LIFE.indexOf(before);
}
