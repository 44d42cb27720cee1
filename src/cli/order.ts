import { shopName } from '../app/installation.ts';
import type { ReadOnlyServices } from '../app/read-only-services.ts';
import { namedBranch } from '../catalog/product.ts';
import type { Config } from '../config/config-type.ts';
import { TillsyncError } from '../core/errors.ts';
import type { Explanation } from '../health/explain.ts';
import type { MirroredOrder, OrderItem, PlacedItem } from '../orders/merging/mirrored-order.ts';
import { type OrderHistory, orderCode } from '../orders/merging/order.ts';
import { printable } from './cli.ts';
import { choice, command, parsed, spokenFaults, whole, withReaders } from './command.ts';
import { type CsvColumns, csvText } from './csv.ts';
import { instant } from './options.ts';
import { writePayload } from './received.ts';
import { type Say, speaker } from './speech.ts';
import { fields, inCurrency, table, when, whenIn } from './table.ts';

/** Returns orders as a table for people. Times are in the company's zone. */
function orderTable(
  orders: readonly MirroredOrder[],
  { shop, orders: { timezone: timeZone } }: Config,
  due = false,
): string {
  const toPay = inCurrency('TO PAY', shop);
  return table(
    orders,
    {
      CODE: 'code',
      ORDER: 'orderId',
      STATUS: 'status',
      ...(due && { [`DUE (${timeZone})`]: (order) => when(order.scheduledFor, timeZone) }),
      [`CREATED (${timeZone})`]: (order) => when(order.createdAt, timeZone),
      DELIVERY: 'deliveryType',
      [toPay]: 'amountToPay',
      STORE: 'storeExternalId',
      CUSTOMER: (order) =>
        [order.customerFirstName, order.customerLastName].filter(Boolean).join(' ') || null,
    },
    ['CODE', toPay],
  );
}

const AMOUNTS: ReadonlySet<string> = new Set(['amountToPay', 'amount', 'deliveryFee', 'couponDiscount']);
const TIMES: ReadonlySet<string> = new Set(['createdAt', 'deliveryTime', 'scheduledFor', 'updatedAt']);

/** Returns every field of an order and its items, under the names of the mirror's columns. */
function orderDetails({ items, ...scalars }: MirroredOrder, { shop, orders: { timezone } }: Config): string {
  const shown = (name: string, value: unknown) => {
    if (AMOUNTS.has(name) && value !== null && shop.currency) return `${value} ${shop.currency}`;
    return TIMES.has(name) && typeof value === 'string' ? whenIn(value, timezone) : value;
  };
  const entries = Object.entries(scalars).map(([name, value]): [string, unknown] => [
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    shown(name, value),
  ]);
  const head = fields(Object.fromEntries(entries));
  if (items.length === 0) return `${head}\nno items\n`;
  const itemTable = table(
    items,
    {
      QUANTITY: 'quantity',
      PRODUCT: 'productExternalId',
      NAME: 'productName',
      'UNIT PRICE': 'unitPrice',
      'BASE UNIT PRICE': 'baseUnitPrice',
      PRICE: 'productPrice',
      'BASE PRICE': 'productBasePrice',
      COMMENT: 'comment',
    },
    ['QUANTITY', 'UNIT PRICE', 'BASE UNIT PRICE', 'PRICE', 'BASE PRICE'],
  );
  return `${head}\n${itemTable}${modifierTable(items)}`;
}

function modifierTable(items: readonly OrderItem[]): string {
  const rows = items.flatMap(({ productName, modifiers }) =>
    modifiers.map((each) => ({ productName, ...each })),
  );
  if (rows.length === 0) return '';
  return `\n${table(
    rows,
    {
      'MODIFIER OF': 'productName',
      NAME: 'name',
      'SHORT NAME': 'shortName',
      QUANTITY: 'quantity',
      OPTION: 'optionName',
      'OPTION ID': ({ optionExternalId, optionId }) => optionExternalId ?? optionId,
      PRICE: 'optionPrice',
      DESCRIPTION: 'description',
    },
    ['QUANTITY', 'PRICE'],
  )}`;
}

const CAME_BY = { webhook: 'callback', poll: 'poll' } as const;

/** Returns the statuses of an order, and whether a POS has acknowledged it. */
function historyText({ events, acknowledged, refused }: OrderHistory, timeZone: string): string {
  const booked =
    acknowledged === null
      ? 'No POS has acknowledged this order.'
      : `Acknowledged by the POS at ${whenIn(acknowledged.at, timeZone)}, by ${acknowledged.source}.`;
  const statuses = table(
    events,
    {
      [`HEARD (${timeZone})`]: (event) => when(event.observedAt, timeZone),
      STATUS: 'status',
      BEFORE: 'previousStatus',
      BY: ({ source }) => CAME_BY[source],
      SEQ: 'seq',
    },
    ['SEQ'],
  );
  const not =
    refused === null
      ? ''
      : `An acknowledgement was refused at ${whenIn(refused.at, timeZone)}: ${refused.message}\n`;
  return `${events.length === 0 ? '' : `\n${statuses}`}\n${booked}\n${not}`;
}

/**
 * Returns the columns of orders for a spreadsheet, under the names of the mirror's columns. Times are in the
 * company's zone.
 */
function csvColumns(config: Config): CsvColumns<MirroredOrder> {
  const shop = shopName(config);
  const { currency } = config.shop;
  const { timezone } = config.orders;
  return {
    shop: () => shop,
    code: ({ code }) => code,
    order_id: ({ orderId }) => orderId,
    status: ({ status }) => status,
    created_at: ({ createdAt }) => when(createdAt, timezone),
    store_external_id: ({ storeExternalId }) => storeExternalId,
    delivery_type: ({ deliveryType }) => deliveryType,
    scheduled_for: ({ scheduledFor }) => when(scheduledFor, timezone),
    customer_first_name: ({ customerFirstName }) => customerFirstName,
    customer_last_name: ({ customerLastName }) => customerLastName,
    customer_phone_number: ({ customerPhoneNumber }) => customerPhoneNumber,
    customer_email: ({ customerEmail }) => customerEmail,
    address_address: ({ addressAddress }) => addressAddress,
    address_details: ({ addressDetails }) => addressDetails,
    items: ({ items }) =>
      items
        .map(({ quantity, productName, productExternalId }) =>
          [quantity, productName ?? productExternalId].join(' x '),
        )
        .join(', '),
    amount: ({ amount }) => ({ amount }),
    delivery_fee: ({ deliveryFee }) => ({ amount: deliveryFee }),
    coupon_discount: ({ couponDiscount }) => ({ amount: couponDiscount }),
    amount_to_pay: ({ amountToPay }) => ({ amount: amountToPay }),
    currency: () => currency,
  };
}

/** One line of an order, which becomes one row. */
interface OrderLine {
  order: MirroredOrder;
  /** Number of the line from 1, as in the mirror; null in the only row of an order without lines. */
  line: number | null;
  item: Partial<PlacedItem>;
}

/** Yields every line of the orders. An order without lines yields one row, so that it is not lost. */
function* linesOf(orders: Iterable<MirroredOrder>): Generator<OrderLine> {
  for (const order of orders) {
    if (order.items.length === 0) yield { order, line: null, item: {} };
    for (const [i, item] of order.items.entries()) yield { order, line: i + 1, item };
  }
}

/**
 * Columns of an order line, named as the mirror's columns. Each modifier column lists the modifiers in the same order.
 */
const LINE_COLUMNS: CsvColumns<OrderLine> = {
  seq: ({ order }) => order.seq,
  line: ({ line }) => line,
  product_external_id: ({ item }) => item.productExternalId,
  sku: ({ item }) => item.sku,
  product_id: ({ item }) => item.productId,
  matched_by: ({ item }) => item.matchedBy,
  product_name: ({ item }) => item.productName,
  quantity: ({ item }) => ({ amount: item.quantity ?? null }),
  unit_price: ({ item }) => ({ amount: item.unitPrice ?? null }),
  base_unit_price: ({ item }) => ({ amount: item.baseUnitPrice ?? null }),
  product_price: ({ item }) => ({ amount: item.productPrice ?? null }),
  product_base_price: ({ item }) => ({ amount: item.productBasePrice ?? null }),
  comment: ({ item }) => item.comment,
  modifier_names: ({ item }) => item.modifiers?.map(({ name }) => name),
  modifier_option_names: ({ item }) => item.modifiers?.map(({ optionName }) => optionName),
  modifier_option_ids: ({ item }) =>
    item.modifiers?.map(({ optionExternalId, optionId }) => optionExternalId ?? optionId),
  modifier_quantities: ({ item }) => item.modifiers?.map(({ quantity }) => ({ amount: quantity })),
  modifier_prices: ({ item }) => item.modifiers?.map(({ optionPrice }) => ({ amount: optionPrice })),
};

/** Returns the columns for lines of orders in a spreadsheet. The columns of the order come first. */
function lineColumns(config: Config): CsvColumns<OrderLine> {
  const { items: _items, ...ofOrder } = csvColumns(config);
  const columns = Object.entries(ofOrder).map(([title, cell]): [string, CsvColumns<OrderLine>[string]] => [
    title,
    ({ order }) => cell(order),
  ]);
  return { ...Object.fromEntries(columns), ...LINE_COLUMNS };
}

/** Throws `feed-restarted` if the place is ahead of the feed, whose mirror is new then. */
function refuseAheadOf(newest: number, after: number): void {
  if (after <= newest) return;
  const message = `The newest event is ${newest}, so no order can have changed after ${after}.`;
  const hint = 'The mirror was made anew. Start again with --after 0; orders you know come again.';
  throw new TillsyncError('feed-restarted', message, { hint });
}

/** Number of orders that are listed without `--limit`. */
const LISTED = 20;

export const list = command({
  description: 'List orders, newest first',
  examples: [
    'order list --open',
    'order list --day 2026-03-01 --customer soto',
    'order list --unbooked --branch B1 --json',
    'order list --due',
    'order list --day 2026-03-01 --csv --decimal comma > orders.csv',
    'order list --unbooked --branch B1 --csv --lines > lines.csv',
    'order list --after 1205 --json > changed.json',
  ],
  options: {
    '--code <number>': parsed('Only orders with this number', (text) => {
      const code = orderCode(text);
      if (code !== undefined) return code;
      throw new TillsyncError('usage', `--code: found "${text}"; allowed: an order number such as 1005.`);
    }),
    '--day <day>': 'Only orders placed on this day (example: 2026-03-01)',
    '--branch <id>': 'Only orders of this branch (either ID)',
    '--customer <text>': "Only orders with this text in the customer's name, phone or e-mail",
    '--text <text>': 'Only orders with this text in number, customer, address or items',
    '--unbooked': 'Only paid orders that no POS has acknowledged',
    '--status <status>': 'Only orders with this status',
    '--open': 'Only open orders',
    '--due': 'Only open scheduled orders, next one first',
    '--after <seq>': whole('Only orders changed after this event, ordered by seq', 0),
    '--limit <n>': whole(`Orders to show at most (default: ${LISTED}; all with --unbooked or --csv)`, 1),
    '--before <time>': 'Only orders placed before this day or time (example: 2026-03-01T18:30)',
    '--csv': 'Print CSV for a spreadsheet',
    '--lines': 'With --csv: one row per order line, with IDs, quantity, prices and modifiers',
    '--decimal <sign>': choice(
      'With --csv: decimal sign; comma separates the cells by semicolons',
      ['point', 'comma'],
      'point',
    ),
  },
  run: (call) =>
    withReaders(call, async ({ mirror }, config) => {
      const { configuredBranches } = await import('../app/read-only-services.ts');
      const { status, open, due, after, code, day, branch, customer, text, unbooked, before } = call.options;
      const { csv, lines, decimal } = call.options;
      const { limit = csv || unbooked ? Number.MAX_SAFE_INTEGER : LISTED } = call.options;
      if (lines && !csv) throw new TillsyncError('usage', '--lines is of the file: give --csv too.');
      if (due && after !== undefined)
        throw new TillsyncError('usage', '--due and --after sort differently: give one.');
      const timeZone = config.orders.timezone;
      if (after !== undefined) refuseAheadOf(mirror.orders.newestSeq(), after);
      const ends = [instant('--day', day, timeZone, 'end'), instant('--before', before, timeZone)];
      const named =
        branch === undefined ? undefined : namedBranch(configuredBranches(config, mirror), branch);
      const filter = {
        limit,
        status,
        open,
        due,
        after,
        code,
        customer,
        text,
        unbooked,
        createdFrom: instant('--day', day, timeZone),
        createdBefore: ends.filter((end) => end !== undefined).sort()[0],
        stores: named && [named.subsidiaryId, named.externalId].filter((id) => id !== null),
      };
      if (csv) {
        const { eachOrder } = await import('../orders/reading/order-queries.ts');
        return {
          csv: mirror.read((db) => {
            const found = eachOrder(db, filter);
            if (lines) return csvText(linesOf(found), lineColumns(config), decimal);
            return csvText(found, csvColumns(config), decimal);
          }),
        };
      }
      const found = mirror.orders.list({ ...filter, limit: limit + 1 });
      const orders = found.slice(0, limit);
      if (orders.length === 0) return { json: { orders }, above: 'The mirror has no such orders.\n' };
      return {
        json: { orders },
        text: orderTable(orders, config, due),
        ...(found.length > limit && { below: `There are more than these ${limit}: raise --limit.\n` }),
      };
    }),
});

/**
 * Maximum number of orders that are listed if several have the same number, which is rare. A person then chooses by id.
 */
const SAME_CODE_MAX = 10;

export const show = command({
  description: 'Show an order with its history and acknowledgement',
  examples: ['order show 1005', 'order show 64f0c2a9e1 --payload'],
  argument: ['<order>', 'Order number or ID (example: 1005)'],
  options: { '--payload': 'Print only what the platform sent, unchanged' },
  run: (call) =>
    withReaders(call, ({ mirror }, config) => {
      const { cli, options, argument: word } = call;
      const { timezone } = config.orders;
      const order = namedOrder(mirror, word, timezone);
      const payload = mirror.orders.payload(order.orderId) ?? null;
      const history = mirror.orders.history(order.orderId);
      if (options.payload && !options.json) return writePayload(cli, `${payload ?? ''}\n`);
      return {
        json: { order, ...history, payload },
        text: orderDetails(order, config) + historyText(history, timezone),
      };
    }),
});

export const explain = command({
  description: 'Explain what happened to an order and what is pending',
  examples: ['order explain 1005', 'order explain 64f0c2a9e1 --json'],
  argument: ['<order>', 'Order number or ID (example: 1005)'],
  run(call) {
    const shown = withReaders(call, async ({ mirror, branches }, config) => {
      const { explainOrder } = await import('../health/explain.ts');
      const { readStores } = await import('../app/read-only-services.ts');
      const { clock } = call.cli;
      const { timezone } = config.orders;
      const { hooks } = config;
      const { orderId, code, status } = namedOrder(mirror, call.argument, timezone);
      const explanation = readStores(mirror, config, clock).read(({ db, ledger }) =>
        explainOrder(db, { orderId, hooks, branches: branches(), ledger }),
      );
      return {
        json: { orderId, code, status, ...explanation },
        text: explanationText(explanation, timezone, speaker(config, clock)),
      };
    });
    return spokenFaults(call, shown);
  },
});

/**
 * Returns the events of an order or a stock as a table, with sentences about its present state below, in the words of
 * `say`.
 */
export function explanationText({ entries, now }: Explanation, timeZone: string, say: Say): string {
  const line = table(entries, {
    [`${say('TIME')} (${timeZone})`]: ({ at }) => when(at, timeZone),
    [say('WHAT')]: ({ what }) => say(what),
  });
  return `${entries.length === 0 ? '' : `${line}\n`}${now.map((each) => `${printable(say(each))}\n`).join('')}`;
}

type OrderReads = Pick<ReadOnlyServices['mirror'], 'orders'>;

/** Returns the order that `findOrder` finds. Throws `not-found` if there is none. */
export function namedOrder(mirror: OrderReads, word: string, timeZone: string): MirroredOrder {
  const order = findOrder(mirror, word, timeZone);
  if (order !== undefined) return order;
  throw new TillsyncError('not-found', `The mirror has no order "${word}".${beside(mirror, word)}`, {
    hint: 'See those it has with: {tillsync} order list. To ask the platform again: {tillsync} sync orders --from DAY --to DAY',
  });
}

/**
 * Returns a sentence with the order numbers before and after `word`. They show whether that order is missing or has
 * not arrived yet.
 */
function beside(mirror: OrderReads, word: string): string {
  const code = orderCode(word);
  if (code === undefined) return '';
  const { before, after } = mirror.orders.codesBeside(code);
  const known = [before, after].filter((each) => each !== null);
  return known.length === 0 ? '' : ` The nearest numbers it has: ${known.join(' and ')}.`;
}

/**
 * Returns the order with this id, or the only order with this number; undefined if there is none. Throws `usage` if
 * several orders have the number.
 */
export function findOrder(mirror: OrderReads, word: string, timeZone: string): MirroredOrder | undefined {
  const byId = mirror.orders.get(word);
  const code = orderCode(word);
  if (byId !== undefined || code === undefined) return byId;
  const orders = mirror.orders.list({ code, limit: SAME_CODE_MAX });
  if (orders.length < 2) return orders[0];
  const each = orders.map(
    ({ orderId, createdAt, storeExternalId }) =>
      `  ${orderId}  ${whenIn(createdAt, timeZone) ?? '-'}  branch ${storeExternalId ?? '-'}`,
  );
  throw new TillsyncError('usage', `${orders.length} orders have the number ${code}:\n${each.join('\n')}`, {
    hint: `Name it by its id. To look at one: {tillsync} order show ${orders[0]?.orderId}`,
  });
}
