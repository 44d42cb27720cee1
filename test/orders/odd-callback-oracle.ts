import { ODD_TIMES } from './odd-callbacks.ts';

/**
 * Computes what a POS must find of a callback, from the platform's document and docs/pos.md alone. It calls no code of
 * the product.
 */

type Sent = Record<string, unknown>;
export type Row = Record<string, unknown>;

/** What the mirror has of a callback, and which faults were reported. */
export interface Found {
  /** Row of `orders`, by column; undefined if there is none. */
  order: Row | undefined;
  lines: readonly Row[];
  modifiers: readonly Row[];
  /** Why the order is incomplete, as the mirror reports it; empty if the mirror reports nothing. */
  reasons: string;
  isStray: boolean;
  payloadInQuarantine: boolean;
}

const STATUSES = [
  ...['pending', 'payment-pending', 'payment-approved', 'payment-canceled', 'picker-pending', 'inProcess'],
  ...['ready', 'routed', 'dispatched', 'cancel', 'refund', 'shippingError'],
];

const isObject = (value: unknown): value is Sent =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isNothing = (value: unknown) => value === undefined || value === null;
const isEmpty = (value: unknown) => typeof value === 'string' && value.trim() === '';
/** Returns whether the value has no content, so that nothing of it can be lost. */
const isHollow = (value: unknown): boolean => {
  if (isNothing(value) || isEmpty(value)) return true;
  return typeof value === 'object' && Object.values(value as object).every(isHollow);
};

/** A value that the mirror may have. `told` is true if tillsync must then report the field. */
type Way = { is: unknown; told?: boolean };

/**
 * Returns the allowed values for an unreadable value, each with a report: NULL and, if `mayKeep`, the known value. For
 * an empty or missing value, returns the known value without a report.
 */
function unread(value: unknown, known: unknown, mayKeep: boolean): Way[] {
  if (isNothing(value) || isEmpty(value)) return [{ is: known }];
  return mayKeep
    ? [
        { is: null, told: true },
        { is: known, told: true },
      ]
    : [{ is: null, told: true }];
}

function asText(value: string): string {
  return value.replace(/\0/g, '\uFFFD').replace(/[\uD800-\uDFFF]/gu, '\uFFFD');
}

function text(value: unknown, known: unknown): Way[] {
  if (typeof value === 'string') return [{ is: asText(value) }];
  if (typeof value === 'number') return [{ is: String(value) }, { is: known, told: true }];
  return unread(value, known, true);
}

function key(value: unknown, known: unknown): Way[] {
  if (typeof value === 'string' && !isEmpty(value)) return [{ is: asText(value).trim() }];
  return isEmpty(value) ? [{ is: known }] : text(value, known);
}

function status(value: unknown, known: unknown): Way[] {
  // If the status is sent as an object, its `name` is the status.
  if (isObject(value) && typeof value.name === 'string') return status(value.name, known);
  if (typeof value !== 'string' || isEmpty(value)) return key(value, known);
  const trimmed = asText(value).trim();
  const named = STATUSES.find((each) => each.toLowerCase() === trimmed.toLowerCase());
  // A word that the document does not name replaces none that it does.
  return [{ is: named ?? (STATUSES.includes(String(known)) ? known : trimmed) }];
}

function delivery(value: unknown, known: unknown): Way[] {
  const word = typeof value === 'string' ? value.trim().toLowerCase() : '';
  if (word === 'pickup' || word === 'delivery') return [{ is: word }];
  const ways = text(value, known);
  // An unknown delivery type may keep its surrounding blanks, or count as not sent.
  return typeof value === 'string' ? [...ways, { is: asText(value).trim() }, { is: known }] : ways;
}

function amount(value: unknown, known: unknown): Way[] {
  if (typeof value === 'number' && Number.isFinite(value)) return [{ is: value }];
  if (typeof value === 'string' && /^\s*-?\d{1,300}(\.\d+)?\s*$/.test(value)) return [{ is: Number(value) }];
  return unread(value, known, false);
}

function coordinate(value: unknown, known: unknown): Way[] {
  return [...amount(value, known), ...unread(value, known, true)];
}

function whole(value: unknown, known: unknown): Way[] {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return [{ is: value }];
  if (typeof value === 'string' && /^#?\d{1,15}$/.test(value))
    return [{ is: Number(value.replace('#', '')) }];
  if (typeof value === 'string' && /^\s*#?\d{1,15}\s*$/.test(value))
    return [{ is: Number(value.replace('#', '')) }, { is: known, told: true }];
  return unread(value, known, true);
}

function flag(value: unknown, known: unknown): Way[] {
  if ([true, 'true', 1, '1'].includes(value as never)) return [{ is: 1 }];
  if ([false, 'false', 0, '0'].includes(value as never)) return [{ is: 0 }];
  return [...unread(value, known, true), ...(value === 'TRUE' ? [{ is: 1 }] : [])];
}

function time(value: unknown, known: unknown): Way[] {
  if (isNothing(value) || isEmpty(value)) return [{ is: known }];
  const plain = typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(value);
  const odd = ODD_TIMES.find(([sent]) => JSON.stringify(sent) === JSON.stringify(value));
  const utc = odd ? odd[1] : plain ? value : null;
  return [utc === null ? { is: null, told: true } : { is: utc }];
}

type Rule = (value: unknown, known: unknown) => Way[];
type Spec = readonly (readonly [name: string, column: string, rule: Rule])[];

const PLAIN: Spec = [
  ['status', 'status', status],
  ['code', 'code', whole],
  ['websiteId', 'website_id', key],
  ['name', 'name', text],
  ['createdAt', 'created_at', time],
  ['deliveryType', 'delivery_type', delivery],
  ['amountToPay', 'amount_to_pay', amount],
  ['amount', 'amount', amount],
  ['deliveryFee', 'delivery_fee', amount],
  ['couponDiscount', 'coupon_discount', amount],
  ['deliveryTime', 'delivery_time', time],
  ['isScheduled', 'is_scheduled', flag],
];
const ADDRESS: Spec = [
  ['lat', 'address_lat', coordinate],
  ['lng', 'address_lng', coordinate],
  ['address', 'address_address', text],
  ['streetNumber', 'address_street_number', text],
  ['streetAddress', 'address_street_address', text],
  ['country', 'address_country', text],
  ['state', 'address_state', text],
  ['city', 'address_city', text],
  ['zipCode', 'address_zip_code', text],
  ['phoneNumber', 'address_phone_number', text],
  ['details', 'address_details', text],
];
const USER: Spec = [
  ['firstName', 'customer_first_name', text],
  ['lastName', 'customer_last_name', text],
  ['email', 'customer_email', text],
  ['phoneNumber', 'customer_phone_number', text],
];
const LINE: Spec = [
  ['amount', 'quantity', amount],
  ['comment', 'comment', text],
  ['unitPrice', 'unit_price', amount],
  ['baseUnitPrice', 'base_unit_price', amount],
  ['productPrice', 'product_price', amount],
  ['productBasePrice', 'product_base_price', amount],
];

/** Checks that the mirror and the reports agree with the callback. Each sentence in `breaches` is one disagreement. */
export class Verdict {
  readonly breaches: string[] = [];
  readonly #found: Found;
  readonly #known: Found | undefined;
  /** True if all unreadable parts are named. Above five parts, the report leaves out the rest. */
  readonly #namesAll: boolean;
  #isTold = true;

  constructor(sent: unknown, found: Found, known: Found | undefined) {
    this.#found = found;
    this.#known = known;
    this.#namesAll = !found.reasons.includes(', …');
    if (isObject(sent)) this.#order(sent);
  }

  #order(sent: Sent): void {
    const { order, payloadInQuarantine } = this.#found;
    if (order === undefined) {
      if (!payloadInQuarantine) this.breaches.push('neither an order nor its text in quarantine');
      if (hasPlainId(sent.internalOrderId)) this.breaches.push('the id can be read, and there is no order');
      return;
    }
    // Nobody prepares an ended order, so tillsync need not report its unreadable fields; the payload has them.
    this.#isTold = !['dispatched', 'cancel', 'refund', 'payment-canceled'].includes(String(order.status));
    this.#fields(sent, PLAIN, '', order, this.#known?.order);
    if (order.status === null) this.#mustTell('status', 'there is none');
    if (order.created_at === null) this.#mustTell('creat', 'there is no time');
    this.#store(sent.store, order);
    this.#part(sent.user, USER, 'customer', order);
    if (order.delivery_type === 'pickup') {
      for (const [, column] of ADDRESS)
        if (order[column] !== null) this.breaches.push(`a pickup has ${column}: ${show(order[column])}`);
    } else if (typeof sent.address === 'string' || typeof sent.address === 'number') {
      const told = sent.address === '' || order.address_address === asText(String(sent.address));
      if (!told) this.#mustTell('address', `${show(sent.address)} is gone`);
    } else this.#part(sent.address, ADDRESS, 'address', order);
    this.#schedule(sent, order);
    this.#lines(sent.items);
  }

  #part(value: unknown, spec: Spec, word: string, order: Row): void {
    if (!isObject(value) && !isHollow(value)) this.#mustTell(word, `${show(value)} is gone`);
    this.#fields(isObject(value) ? value : {}, spec, word, order, this.#known?.order);
  }

  #fields(sent: Sent, spec: Spec, word: string, row: Row, known: Row | undefined): void {
    for (const [name, column, rule] of spec) {
      const value = Object.hasOwn(sent, name) ? sent[name] : undefined;
      this.#field(column, value, rule(value, known?.[column] ?? null), row[column], word);
    }
  }

  #field(column: string, value: unknown, ways: readonly Way[], found: unknown, word: string): void {
    const fitting = ways.filter(({ is }) => is === found || (is === 0 && found === 0));
    if (fitting.length === 0) {
      this.breaches.push(
        `${column} of ${show(value)} is ${show(found)}, not ${show(ways.map(({ is }) => is))}`,
      );
    } else if (fitting.every(({ told }) => told === true)) {
      this.#mustTell(word === '' ? camel(column) : word, `${column} of ${show(value)} is ${show(found)}`);
    }
  }

  #mustTell(word: string, what: string): void {
    if (!this.#isTold) return;
    const { reasons } = this.#found;
    const isNamed = this.#namesAll ? reasons.toLowerCase().includes(word.toLowerCase()) : reasons !== '';
    if (!isNamed) this.breaches.push(`not told (${word}): ${what}; told is ${show(reasons)}`);
  }

  #store(store: unknown, order: Row): void {
    const value = isObject(store) ? store.externalId : store;
    const known = this.#known?.order?.store_external_id ?? null;
    const ways = key(value, known);
    if (ways.some(({ is, told }) => is === order.store_external_id && told !== true && is !== null)) return;
    if (order.store_external_id !== null && order.store_external_id !== known)
      this.breaches.push(`the store of ${show(store)} is ${show(order.store_external_id)}`);
    else if (order.store_external_id === null && this.#isTold && !this.#found.isStray)
      this.breaches.push(`an order without a store is told nowhere: ${show(store)}`);
    else if (order.store_external_id !== null && !isHollow(store)) this.#mustTell('store', show(store));
  }

  /** Checks the scheduled time. The document does not name its field, so a time under another name may be used. */
  #schedule({ scheduledDate, when }: Sent, order: Row): void {
    const due = order.scheduled_for;
    if (order.is_scheduled !== 1) return;
    const known: unknown = this.#known?.order?.scheduled_for ?? null;
    const [way] = isNothing(scheduledDate) ? [] : time(scheduledDate, null);
    const named = way?.is ?? null;
    const other = when === undefined ? null : '2026-01-16T11:30:00.000Z';
    // Without a creation time, no value can be recognised as later than the creation, so NULL is right too.
    const right: unknown[] = [
      named ?? other ?? known,
      ...(named === null && order.created_at === null ? [null] : []),
    ];
    if (!right.includes(due)) this.breaches.push(`scheduled for ${show(right)} is ${show(due)}`);
    const isUnread = named === null && !isNothing(scheduledDate) && !isEmpty(scheduledDate);
    if (due === null || (isUnread && other !== null))
      this.#mustTell('schedule', `for ${show(scheduledDate)} is ${show(due)}`);
  }

  #lines(items: unknown): void {
    const { lines } = this.#found;
    const list = listOf(items);
    if (list === undefined) {
      const before = this.#known?.lines.length ?? 0;
      if (lines.length !== before && lines.length !== 1)
        this.breaches.push(`${lines.length} lines where none can be read`);
      if (!this.#known || !isHollow(items)) this.#mustTell('item', `items ${show(items)}`);
      return;
    }
    if (list.length === 0) this.#mustTell('item', 'there are none');
    if (lines.length !== list.length) {
      this.breaches.push(`${lines.length} lines of ${list.length}`);
      return;
    }
    for (const [index, item] of list.entries()) this.#line(item, lines[index] as Row, `item ${index + 1}`);
  }

  #line(item: unknown, row: Row, word: string): void {
    if (!isObject(item)) {
      if (row.product_name !== null) this.breaches.push(`${word} is ${show(item)} and has a name`);
      this.#mustTell(word, show(item));
      return;
    }
    this.#fields(item, LINE, word, row, undefined);
    if (row.quantity === null || Number(row.quantity) < 0) this.#mustTell(word, 'its quantity');
    const { product } = item;
    if (isObject(product)) {
      this.#field('product_name', product.name, text(product.name, null), row.product_name, word);
      this.#field(
        'product_external_id',
        product.externalId,
        key(product.externalId, null),
        row.product_external_id,
        word,
      );
    } else if (!isHollow(product) && row.product_name !== asText(String(product)))
      this.#mustTell(word, `product ${show(product)}`);
    const isNameless = isNothing(row.product_name) || isEmpty(row.product_name);
    if (isNameless && row.product_external_id === null) this.#mustTell(word, 'it names no product');
    this.#modifiers(item.modifiers, Number(row.line), word);
  }

  #modifiers(modifiers: unknown, line: number, word: string): void {
    const rows = this.#found.modifiers.filter((row) => row.line === line);
    const list = listOf(modifiers);
    if (list === undefined) {
      if (!isHollow(modifiers)) this.#mustTell(word, `modifiers ${show(modifiers)}`);
      return;
    }
    for (const modifier of list) {
      if (!isObject(modifier)) this.#mustTell(word, `a modifier ${show(modifier)}`);
      else this.#modifier(modifier, rows, word);
    }
  }

  /** Checks a modifier: each option has a row, and each count has a row or is reported. */
  #modifier(modifier: Sent, rows: readonly Row[], word: string): void {
    for (const [name, column] of [
      ['name', 'name'],
      ['shortName', 'short_name'],
    ] as const) {
      const ways = text(modifier[name], null);
      const fits = rows.some((row) => ways.some(({ is, told }) => is === row[column] && told !== true));
      if (!fits) this.#mustTell(word, `${name} of a modifier: ${show(modifier[name])}`);
    }
    const options = listOf(modifier.options);
    if (options === undefined && !isHollow(modifier.options))
      this.#mustTell(word, `options ${show(modifier.options)}`);
    const counts = [modifier.countById, modifier.countByExternalId];
    for (const map of counts) {
      if (!isObject(map) && !isHollow(map)) this.#mustTell(word, `counts ${show(map)}`);
      if (!isObject(map)) continue;
      for (const count of Object.values(map))
        if (amount(count, null).every(({ is }) => is === null))
          this.#mustTell(word, `a count ${show(count)}`);
    }
    for (const option of options ?? []) {
      if (!isObject(option)) {
        this.#mustTell(word, `an option ${show(option)}`);
        continue;
      }
      const row = rows.find((each) => fitsOption(option, each));
      if (row === undefined) {
        this.#mustTell(word, `an option ${show(option)}`);
        continue;
      }
      const pieces = countOf(counts[0], option.optionId) ?? countOf(counts[1], option.externalId);
      if (pieces !== undefined && row.quantity !== pieces)
        this.breaches.push(`${word}: option ${show(option)} has ${show(row.quantity)}, not ${pieces}`);
    }
    if ((options ?? []).length > 0) return;
    const sums = counts.map((map) => (isObject(map) ? sumOf(Object.values(map)) : 0));
    const mirrored = sumOf(rows.filter((row) => row.option_name === null).map((row) => row.quantity));
    if (Math.max(...sums) > 0 && !sums.includes(mirrored))
      this.breaches.push(`${word}: ${mirrored} pieces of modifiers, not ${show(sums)}`);
  }
}

function fitsOption(option: Sent, row: Row): boolean {
  const fits = (ways: readonly Way[], found: unknown) =>
    ways.some(({ is, told }) => is === found && told !== true);
  return (
    fits(text(option.name, null), row.option_name) &&
    fits(key(option.optionId, null), row.option_id) &&
    fits(amount(option.price, null), row.option_price)
  );
}

function countOf(map: unknown, id: unknown): number | undefined {
  const count = isObject(map) && typeof id === 'string' && Object.hasOwn(map, id) ? map[id] : undefined;
  const [way] = amount(count, null);
  return typeof way?.is === 'number' ? way.is : undefined;
}

function sumOf(values: readonly unknown[]): number {
  return values.reduce<number>((sum, value) => sum + (Number(amount(value, null)[0]?.is) || 0), 0);
}

/** Returns a list, or the values of a map of objects. An entry that is no object keeps its position. */
function listOf(value: unknown): unknown[] | undefined {
  if (Array.isArray(value)) return value;
  if (!isObject(value)) return undefined;
  const entries = Object.values(value);
  const isMap = entries.some(isObject) && entries.every((entry) => entry === null || isObject(entry));
  return isMap && !('product' in value) ? entries : undefined;
}

function hasPlainId(id: unknown): boolean {
  return typeof id === 'string' && /^[\w ]{1,200}$/.test(id) && id.trim() !== '';
}

function camel(column: string): string {
  return column.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, 160);
}
