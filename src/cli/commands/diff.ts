import type { Command } from 'commander';
import type { OrderDifference, OrdersDiff } from '../../daemon/reading/diff-orders.ts';
import type { ProductsDiff } from '../../daemon/reading/diff-products.ts';
import { counted } from '../../domain/counted.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { PollWindow } from '../../domain/order/poll-window.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { type NoWaitOption, patienceOf, withNoWait } from '../options/no-wait-option.ts';
import { windowOption } from '../options/window-option.ts';
import { writeJson } from '../output.ts';
import { differenceTable } from '../texts/product-text.ts';
import { table } from '../texts/table.ts';
import { type CommandTools, withParts } from '../with-parts.ts';

type What = 'orders' | 'products';

interface DiffOptions extends GlobalOptions, JsonOption, NoWaitOption {
  branch?: string;
  from?: string;
  to?: string;
}

/** `diff`: the mirror against the platform as it is now. */
export function diffCommand(cli: Cli): Command {
  return withNoWait(
    newResultCommand('diff', 'Tell what the mirror has differently from the platform now', [
      'diff products --branch B1',
      'diff orders --from 2026-03-01 --to 2026-03-02 --json',
      'diff',
    ]),
  )
    .argument('[what]', '`orders` or `products`; both without it')
    .option('--branch <id>', 'products of this branch only, by one of its ids')
    .option('--from <day>', 'first day of orders to ask for, YYYY-MM-DD; else the days of a poll')
    .option('--to <day>', 'last day of orders; without it the first day')
    .addHelpText('after', '\nNothing is written. Exit code 1 when something differs.')
    .action((what: string | undefined, _options, command: Command) =>
      diff(cli, whatOf(what), command.optsWithGlobals()),
    );
}

function whatOf(word: string | undefined): readonly What[] {
  if (word === undefined) return ['orders', 'products'];
  if (word === 'orders' || word === 'products') return [word];
  throw new TillsyncError('usage', `Found "${word}"; allowed: orders, products.`);
}

async function diff(cli: Cli, what: readonly What[], options: DiffOptions): Promise<void> {
  const window = windowOption(options);
  await withParts(cli, options, async (opened) => {
    const tools = { ...opened, call: patienceOf(opened.call, options) };
    const products = what.includes('products') ? await productsOf(cli, tools, options) : undefined;
    const orders = what.includes('orders') ? await ordersOf(cli, tools, window) : undefined;
    tools.progress.end();
    const found = (products?.differences.length ?? 0) + (orders?.differences.length ?? 0);
    if (found > 0) cli.endWith(EXIT.failed);
    if (options.json) return writeJson(cli, { ...(orders && { orders }), ...(products && { products }) });
    if (orders) cli.stdout.write(ordersText(orders));
    if (products) cli.stdout.write(productsText(products));
  });
}

async function productsOf(
  cli: Cli,
  { parts, progress, call }: CommandTools,
  options: DiffOptions,
): Promise<ProductsDiff> {
  const { diffProducts } = await import('../../daemon/reading/diff-products.ts');
  const { branchName, namedBranch } = await import('../../daemon/sweep-now.ts');
  const branches =
    options.branch === undefined ? parts.branches : [namedBranch(parts.branches, options.branch)];
  let of = '';
  return await diffProducts(parts, cli.clock, {
    ...call,
    branches,
    onBranch: (branch) => {
      of = branchName(branch);
      progress.step(`asking the platform for the products of ${of}`);
    },
    onProgress: (done, total) => progress.count(`products of ${of}`, done, total ?? undefined),
  });
}

async function ordersOf(
  cli: Cli,
  { parts, progress, call }: CommandTools,
  window: PollWindow | undefined,
): Promise<OrdersDiff> {
  const { diffOrders } = await import('../../daemon/reading/diff-orders.ts');
  progress.step('asking the platform for orders');
  return await diffOrders(parts, cli.clock, { ...call, window });
}

function ordersText(report: OrdersDiff): string {
  const { window, compared, differences, moved, unreadable, morePages } = report;
  const notes = [
    `${counted(compared, 'order')} of ${window.startDate} to ${window.endDate}: ${counted(differences.length, 'difference')}.`,
    ...(moved > 0 ? [`${moved} changed meanwhile and were left out.`] : []),
    ...(unreadable > 0 ? [`${counted(unreadable, 'record')} could not be read as an order.`] : []),
    ...(morePages ? ['The answer has further pages, so orders that it lacks were not looked for.'] : []),
  ];
  return `${notes.join('\n')}\n${differences.length === 0 ? '' : orderTable(differences)}`;
}

function orderTable(differences: readonly OrderDifference[]): string {
  return table<OrderDifference>(
    [
      { title: 'ORDER', cell: (each) => each.orderId },
      { title: 'WHAT', cell: (each) => each.field },
      { title: 'MIRROR', cell: (each) => each.mirror },
      { title: 'PLATFORM', cell: (each) => each.platform },
    ],
    differences,
  );
}

function productsText(report: ProductsDiff): string {
  const { compared, differences, moved, unreadable } = report;
  const notes = [
    `${counted(compared, 'product')}: ${counted(differences.length, 'difference')}.`,
    ...(moved > 0 ? [`${moved} were pushed meanwhile and were left out.`] : []),
    ...(unreadable > 0 ? [`${counted(unreadable, 'entry', 'entries')} could not be read as a product.`] : []),
  ];
  return `${notes.join('\n')}\n${differences.length === 0 ? '' : differenceTable(differences)}`;
}
