import type { Command } from 'commander';
import type { Readers } from '../app/readers.ts';
import type { Config } from '../config/config-type.ts';
import { TillsyncError } from '../core/errors.ts';
import type { MirroredOrder, OrderEvent, OrderHistory, OrderItem } from '../orders/order.ts';
import {
  type Cli,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  wholeNumberOption,
  writeJson,
} from './cli.ts';
import { writePayload } from './events.ts';
import { instantOption, orderCode } from './options.ts';
import { fields, table, timeTitle, when, whenIn } from './table.ts';
import { withReaders } from './with-parts.ts';

/** Orders as a table for people, times in the company's zone. */
export function orderTable(orders: readonly MirroredOrder[], timeZone: string): string {
  return table<MirroredOrder>(
    [
      { title: 'CODE', cell: (order) => order.code, align: 'right' },
      { title: 'ORDER', cell: (order) => order.orderId },
      { title: 'STATUS', cell: (order) => order.status },
      { title: timeTitle('CREATED', timeZone), cell: (order) => when(order.createdAt, timeZone) },
      { title: 'DELIVERY', cell: (order) => order.deliveryType },
      { title: 'TO PAY', cell: (order) => order.amountToPay, align: 'right' },
      { title: 'STORE', cell: (order) => order.storeExternalId },
      { title: 'CUSTOMER', cell: customerOf },
    ],
    orders,
  );
}

function customerOf(order: MirroredOrder): string | null {
  return [order.customerFirstName, order.customerLastName].filter(Boolean).join(' ') || null;
}

const TIMES: ReadonlySet<string> = new Set(['createdAt', 'deliveryTime', 'scheduledFor', 'updatedAt']);

/** Every field of one order and its items, under the names that the mirror's columns have. */
export function orderDetails(order: MirroredOrder, timeZone: string): string {
  const { items, ...scalars } = order;
  const entries = Object.entries(scalars).map(([name, value]): [string, unknown] => [
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    TIMES.has(name) && typeof value === 'string' ? whenIn(value, timeZone) : value,
  ]);
  if (items.length === 0) return `${fields(entries)}\nno items\n`;
  return `${fields(entries)}\n${itemTable(items)}${modifierTable(items)}`;
}

const CAME_BY = { webhook: 'callback', poll: 'poll' } as const;

/** What became of an order: its statuses, and whether a POS has it. */
export function historyText({ events, acknowledged }: OrderHistory, timeZone: string): string {
  const booked =
    acknowledged === null
      ? 'No POS has acknowledged this order.'
      : `Acknowledged by the POS at ${whenIn(acknowledged.at, timeZone)}, by ${acknowledged.source}.`;
  const statuses = table<OrderEvent>(
    [
      { title: timeTitle('HEARD', timeZone), cell: (event) => when(event.observedAt, timeZone) },
      { title: 'STATUS', cell: (event) => event.status },
      { title: 'BEFORE', cell: (event) => event.previousStatus },
      { title: 'BY', cell: (event) => CAME_BY[event.source] },
      { title: 'SEQ', cell: (event) => event.seq, align: 'right' },
    ],
    events,
  );
  return `${events.length === 0 ? '' : `\n${statuses}`}\n${booked}\n`;
}

function itemTable(items: readonly OrderItem[]): string {
  return table<OrderItem>(
    [
      { title: 'QUANTITY', cell: (item) => item.quantity, align: 'right' },
      { title: 'PRODUCT', cell: (item) => item.productExternalId },
      { title: 'NAME', cell: (item) => item.productName },
      { title: 'UNIT PRICE', cell: (item) => item.unitPrice, align: 'right' },
      { title: 'BASE UNIT PRICE', cell: (item) => item.baseUnitPrice, align: 'right' },
      { title: 'PRICE', cell: (item) => item.productPrice, align: 'right' },
      { title: 'BASE PRICE', cell: (item) => item.productBasePrice, align: 'right' },
      { title: 'COMMENT', cell: (item) => item.comment },
    ],
    items,
  );
}

function modifierTable(items: readonly OrderItem[]): string {
  const rows = items.flatMap((item) => item.modifiers.map((modifier) => ({ item, modifier })));
  if (rows.length === 0) return '';
  return `\n${table<(typeof rows)[number]>(
    [
      { title: 'MODIFIER OF', cell: ({ item }) => item.productName },
      { title: 'NAME', cell: ({ modifier }) => modifier.name },
      { title: 'SHORT NAME', cell: ({ modifier }) => modifier.shortName },
      { title: 'QUANTITY', cell: ({ modifier }) => modifier.quantity, align: 'right' },
      { title: 'OPTION', cell: ({ modifier }) => modifier.optionName },
      { title: 'OPTION ID', cell: ({ modifier }) => modifier.optionExternalId ?? modifier.optionId },
      { title: 'PRICE', cell: ({ modifier }) => modifier.optionPrice, align: 'right' },
      { title: 'DESCRIPTION', cell: ({ modifier }) => modifier.description },
    ],
    rows,
  )}`;
}

interface OrderListOptions extends GlobalOptions, JsonOption {
  status?: string;
  open?: boolean;
  code?: number;
  day?: string;
  branch?: string;
  customer?: string;
  unbooked?: boolean;
  limit: number;
  before?: string;
}

/** `order list`: the newest orders of the mirror. */
export function orderListCommand(cli: Cli): Command {
  return newResultCommand('list', 'List orders of the mirror, the newest first', [
    'order list --open',
    'order list --day 2026-03-01 --customer soto',
    'order list --unbooked --branch B1 --json',
  ])
    .option('--code <number>', 'only orders with this number', codeOption)
    .option('--day <day>', 'only orders placed on this day, such as 2026-03-01')
    .option('--branch <id>', 'only orders of this branch, by either of its ids')
    .option('--customer <text>', 'only orders whose customer has this in the name, phone number or e-mail')
    .option('--unbooked', 'only paid orders that no POS has acknowledged')
    .option('--status <status>', 'only orders in this status')
    .option('--open', 'only orders whose life has not ended')
    .option('--limit <n>', 'at most this many', wholeNumberOption('--limit', 1), 20)
    .option('--before <time>', 'only orders placed before this day or time, such as 2026-03-01T18:30')
    .action((_options, command: Command) => list(cli, command.optsWithGlobals()));
}

function codeOption(text: string): number {
  const code = orderCode(text);
  if (code !== undefined) return code;
  throw new TillsyncError('usage', `--code: found "${text}"; allowed: an order number such as 1005.`);
}

function list(cli: Cli, options: OrderListOptions): Promise<void> {
  const { status, open, code, day, branch, customer, unbooked, limit, before } = options;
  return withReaders(cli, options, async ({ mirror }, config) => {
    const timeZone = config.orders.timezone;
    const [createdFrom, dayEnd, beforeTime] = [
      await instantOption('--day', day, { timeZone, end: false }),
      await instantOption('--day', day, { timeZone, end: true }),
      await instantOption('--before', before, { timeZone, end: false }),
    ];
    const ends = [dayEnd, beforeTime].filter((end) => end !== undefined);
    const orders = mirror.orders({
      limit,
      ...{ status, open, code, customer, unbooked, createdFrom },
      createdBefore: ends.sort()[0],
      stores: branch === undefined ? undefined : await storesOf(config, branch),
    });
    if (options.json) writeJson(cli, { orders });
    else if (orders.length > 0) cli.stdout.write(orderTable(orders, timeZone));
    else cli.stderr.write('The mirror has no such orders.\n');
  });
}

/** The ids under which orders may name a branch. */
async function storesOf(config: Config, name: string): Promise<string[]> {
  const { namedBranch } = await import('../app/sweep-now.ts');
  const branches = config.branches.map(({ subsidiaryId = null, externalId = null }) => ({
    subsidiaryId,
    externalId,
  }));
  const { subsidiaryId, externalId } = namedBranch(branches, name);
  return [subsidiaryId, externalId].filter((id) => id !== null);
}

interface OrderShowOptions extends GlobalOptions, JsonOption {
  payload?: boolean;
}

/** Several orders with one number are rare; a person who sees these will name another. */
const SAME_CODE_MAX = 10;

/** `order show`: everything the mirror has of one order, and what became of it. */
export function orderShowCommand(cli: Cli): Command {
  return newResultCommand('show', 'Show every field of an order, its statuses and whether the POS has it', [
    'order show 1005',
    'order show 64f0c2a9e1 --payload',
  ])
    .argument('<order>', "the order's number, such as 1005, or the platform's id of it")
    .option('--payload', 'print what the platform sent, exactly as received')
    .action((word: string, _options, command: Command) => show(cli, word, command.optsWithGlobals()));
}

function show(cli: Cli, word: string, options: OrderShowOptions): Promise<void> {
  return withReaders(cli, options, ({ mirror }, config) => {
    const { timezone } = config.orders;
    const order = mirror.order(word) ?? withCode(mirror, word, timezone);
    if (order === undefined) {
      throw new TillsyncError('not-found', `The mirror has no order "${word}".`, {
        hint: 'See those it has with: {tillsync} order list. To ask the platform again: {tillsync} sync orders --from DAY --to DAY',
      });
    }
    const payload = mirror.orderPayload(order.orderId) ?? null;
    const history = mirror.orderHistory(order.orderId);
    if (options.json) writeJson(cli, { order, ...history, payload });
    else if (options.payload) writePayload(cli, `${payload ?? ''}\n`);
    else cli.stdout.write(orderDetails(order, timezone) + historyText(history, timezone));
  });
}

/** The one order with this number; undefined: none. Throws `usage` where there are several. */
function withCode(mirror: Readers['mirror'], word: string, timeZone: string): MirroredOrder | undefined {
  const code = orderCode(word);
  if (code === undefined) return undefined;
  const orders = mirror.orders({ code, limit: SAME_CODE_MAX });
  if (orders.length < 2) return orders[0];
  const each = orders.map(
    ({ orderId, createdAt, storeExternalId }) =>
      `  ${orderId}  ${whenIn(createdAt, timeZone) ?? '-'}  branch ${storeExternalId ?? '-'}`,
  );
  throw new TillsyncError('usage', `${orders.length} orders have the number ${code}:\n${each.join('\n')}`, {
    hint: `Name one by its id: {tillsync} order show ${orders[0]?.orderId}`,
  });
}
