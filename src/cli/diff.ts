import type { Services } from '../app/services.ts';
import type { Branch } from '../catalog/product.ts';
import { branchName, namedBranch } from '../catalog/product.ts';
import type { Config } from '../config/config-type.ts';
import { isBranch } from '../config/roles.ts';
import { counted, TillsyncError } from '../core/errors.ts';
import type { Wait } from '../platform/platform.ts';
import type { OrdersDiff, ProductsDiff, StockDiff } from '../support/diff/diff.ts';
import type { ProductDifference } from '../support/diff/differences.ts';
import { EXIT } from './cli.ts';
import { type Call, command, type Result, spokenFaults, WAIT, withPlatform, withReaders } from './command.ts';
import { windowOf } from './options.ts';
import { type Progress, waitText } from './progress.ts';
import { type Say, speaker } from './speech.ts';
import { table } from './table.ts';

/** Returns callbacks that show the progress of reading products, branch by branch. */
export function productSteps(progress: Progress) {
  let of = '';
  return {
    onBranch: (branch: Branch) => {
      of = branchName(branch);
      progress.step(`asking the platform for the products of ${of}`);
    },
    onProgress: (done: number, total: number | null) =>
      progress.count(`products of ${of}`, done, total ?? undefined),
  };
}

export const diff = command({
  description: 'Compare the mirror with the platform',
  examples: [
    'sync diff stock',
    'sync diff products --branch B1',
    'sync diff orders --from 2026-03-01 --to 2026-03-02 --json',
    'sync diff',
  ],
  argument: ['[what]', 'orders, products or stock (default: all three)'],
  options: {
    '--no-wait': WAIT,
    '--branch <id>': 'Only products or stock of this branch (either ID)',
    '--from <day>': 'First day of orders, YYYY-MM-DD (default: the days of a poll)',
    '--to <day>': 'Last day of orders (default: the first day)',
  },
  more: `
\`sync diff stock\` compares the last POS counts with the platform's stock when it was last read; it calls no API.
The command prints stock, products and orders as they arrive; orders may wait for the next poll. It changes nothing.
Exit code 1 if something differs.`,
  async run(context) {
    const { cli, argument: what } = context;
    const { branch, from, to } = context.options;
    if (what !== undefined && what !== 'orders' && what !== 'products' && what !== 'stock') {
      throw new TillsyncError('usage', `Found "${what}"; allowed: orders, products, stock.`);
    }
    if (what === 'stock') return spokenFaults(context, diffStockOf(context, branch));
    const window = windowOf(from, to);
    const shown = withPlatform(context, async ({ services, config, progress, call }) => {
      const say = speaker(config, cli.clock);
      progress.say = say;
      const { diffOrders, diffProducts } = await import('../support/diff/diff.ts');
      let found = 0;
      /** Prints the differences of one part as soon as they are known, because the next part may take minutes. */
      const show = (differences: readonly unknown[], text: string) => {
        found += differences.length;
        progress.end();
        if (context.options.json !== true) cli.stdout.write(text);
      };
      if (what !== 'products')
        tellWait(services.state.ledger.waits(config.limits, ['order.all'])[0], progress);
      let stock: StockDiff | undefined;
      if (what === undefined) {
        stock = await stockDiff(services, config, branch);
        show(stock.differences, stockText(stock, say));
      }
      let products: ProductsDiff | undefined;
      if (what !== 'orders') {
        const branches = branch === undefined ? services.branches : [namedBranch(services.branches, branch)];
        products = await diffProducts(services, cli.clock, { ...call, branches, ...productSteps(progress) });
        show(products.differences, productsText(products, say));
      }
      let orders: OrdersDiff | undefined;
      if (what !== 'products') {
        progress.step('asking the platform for orders');
        orders = await diffOrders(services, cli.clock, { ...call, window });
        show(orders.differences, ordersText(orders, say));
      }
      return { json: { stock, orders, products }, exit: found > 0 ? EXIT.failed : EXIT.done };
    });
    return spokenFaults(context, shown);
  },
});

/** Shows, before anything is compared, how long the comparison of orders will have to wait. */
function tellWait(wait: Wait | undefined, progress: Progress): void {
  if (wait && wait.waitMs >= TOLD_FROM_MS) progress.note(`orders are compared last: ${waitText(wait)}`);
}

/** Shortest wait that is shown. A shorter one is over before anybody has read the message. */
const TOLD_FROM_MS = 2_000;

/** Compares the last counts with the platform's stock as the mirror has it. Does not call the platform. */
async function stockDiff(
  { mirror, stores }: Pick<Services, 'mirror' | 'stores'>,
  config: Config,
  branch: string | undefined,
): Promise<StockDiff> {
  const { configuredBranches } = await import('../app/read-only-services.ts');
  const { diffStock } = await import('../support/diff/diff.ts');
  const branches = configuredBranches(config);
  const of = branch === undefined ? undefined : namedBranch(branches, branch);
  return diffStock(stores, branches, { lastPollOkMs: mirror.polls.lastOkMs(), of });
}

function diffStockOf(context: Call, branch: string | undefined): Promise<Result> {
  return withReaders(context, async ({ mirror }, config) => {
    const { readStores } = await import('../app/read-only-services.ts');
    if (isBranch(config)) {
      throw new TillsyncError(
        'usage',
        'At a branch the mirror has no stock of the platform; its hub compares.',
        {
          hint: `Ask there: {tillsync} sync diff stock --branch ${config.link.branch}`,
        },
      );
    }
    const stores = readStores(mirror, config, context.cli.clock);
    const stock = await stockDiff({ mirror, stores }, config, branch);
    const exit = stock.differences.length > 0 ? EXIT.failed : EXIT.done;
    return { json: { stock }, text: stockText(stock, speaker(config, context.cli.clock)), exit };
  });
}

function stockText({ compared, unsure, differences }: StockDiff, say: Say): string {
  const stocks = counted(compared, 'counted stock', 'counted stocks');
  const notes = [`${stocks}: ${counted(differences.length, 'difference')}.`];
  if (unsure > 0) {
    notes.push(`Of ${unsure} nobody can tell now: orders or calls moved them since the platform was read.`);
  }
  const columns = {
    [say('SKU')]: 'sku',
    [say('BRANCH')]: 'branch',
    [say('PRODUCT')]: 'name',
    [say('PLATFORM')]: 'platformQty',
    [say('WANTED')]: 'wantedQty',
    [say('COUNTED')]: 'countedQty',
    [say('SINCE')]: 'since',
    [say('SEEN')]: 'seenAt',
  } as const;
  return diffText(notes, differences.length === 0 ? '' : table(differences, columns), say);
}

function ordersText(
  { window, compared, differences, moved, unreadable, morePages }: OrdersDiff,
  say: Say,
): string {
  const orders = counted(compared, 'order of', 'orders of');
  const notes = [
    `${orders} ${window.startDate} to ${window.endDate}: ${counted(differences.length, 'difference')}.`,
  ];
  if (moved > 0) notes.push(`${moved} changed meanwhile and were left out.`);
  if (unreadable > 0) notes.push(`${counted(unreadable, 'record')} could not be read as an order.`);
  if (morePages) {
    notes.push('The answer has further pages, so orders that it lacks were not looked for.');
  }
  const columns = {
    [say('ORDER')]: 'orderId',
    [say('WHAT')]: 'field',
    [say('MIRROR')]: 'mirror',
    [say('PLATFORM')]: 'platform',
  } as const;
  return diffText(notes, differences.length === 0 ? '' : table(differences, columns), say);
}

function productsText({ compared, differences, moved, unreadable }: ProductsDiff, say: Say): string {
  const notes = [`${counted(compared, 'product')}: ${counted(differences.length, 'difference')}.`];
  if (moved > 0) notes.push(`${moved} were pushed meanwhile and were left out.`);
  if (unreadable > 0) {
    notes.push(`${counted(unreadable, 'entry', 'entries')} could not be read as a product.`);
  }
  return diffText(notes, differences.length === 0 ? '' : differenceTable(differences, say), say);
}

function diffText(notes: readonly string[], differences: string, say: Say): string {
  return `${notes.map(say).join('\n')}\n${differences}`;
}

/**
 * Returns the differences between mirror and platform as a table. Names of fields and values are not translated, as
 * with `--json`.
 */
export function differenceTable(
  differences: readonly ProductDifference[],
  say: Say = (english) => english,
): string {
  return table(differences, {
    [say('PRODUCT')]: 'productId',
    [say('SKU')]: 'sku',
    [say('BRANCH')]: 'subsidiaryId',
    [say('WHAT')]: 'field',
    [say('MIRROR')]: 'mirror',
    [say('PLATFORM')]: 'platform',
  });
}
