import type { Command } from 'commander';
import type { ProductName } from '../app/readers.ts';
import {
  type MirroredProduct,
  type MirroredSku,
  type ProductDifference,
  productDifferences,
} from '../catalog/product.ts';
import { counted, TillsyncError } from '../core/errors.ts';
import type { PollWindow } from '../orders/poll-window.ts';
import type { ProductQuery } from '../outbox/change.ts';
import type { ProductRecord } from '../platform/platform.ts';
import type { OrderDifference, OrdersDiff, ProductsDiff } from '../support/diff.ts';
import { type Cli, EXIT, type GlobalOptions, type JsonOption, newResultCommand, writeJson } from './cli.ts';
import { type NoWaitOption, patienceOf, windowOption, withNoWait } from './options.ts';
import { fields, table } from './table.ts';
import { type CommandTools, withParts, withReaders } from './with-parts.ts';

/** A product for people, as the mirror or the platform has it. */
export function productText(product: MirroredProduct | ProductRecord): string {
  const isMirrored = 'skus' in product;
  const skus: readonly MirroredSku[] = isMirrored ? product.skus : product.children.map(skuOf);
  const head = fields([
    ['product', isMirrored ? product.productId : product.id],
    ['name', product.name],
    ['category', product.category],
    ['show', product.show],
    ...(isMirrored && product.vanishedAt !== null
      ? [['listed no more since', product.vanishedAt] as const]
      : []),
  ]);
  const places = skus.flatMap((sku) => {
    const branches = new Set([...sku.stocks, ...sku.integrations].map(({ subsidiaryId }) => subsidiaryId));
    return [...branches].map((branch) => ({ sku, branch }));
  });
  return `${head}\n${skuTable(skus)}\n${places.length === 0 ? 'no stock, no mapping\n' : placeTable(places)}`;
}

function skuOf(record: ProductRecord['children'][number]): MirroredSku {
  const { withDiscount, discount } = record;
  return { ...record, withDiscount: asText(withDiscount), discount: asText(discount) };
}

function asText(value: string | number | boolean | null): string | number | null {
  return typeof value === 'boolean' ? String(value) : value;
}

function skuTable(skus: readonly MirroredSku[]): string {
  return table<MirroredSku>(
    [
      { title: 'SKU', cell: (sku) => sku.sku },
      { title: 'BARCODE', cell: (sku) => sku.barcode },
      { title: 'PRICE', cell: (sku) => sku.price, align: 'right' },
      { title: 'DISCOUNT', cell: (sku) => sku.discount, align: 'right' },
      { title: 'SHOW', cell: (sku) => sku.show },
    ],
    skus,
  );
}

function placeTable(places: readonly { sku: MirroredSku; branch: string }[]): string {
  type Place = (typeof places)[number];
  const stock = ({ sku, branch }: Place) => sku.stocks.find((each) => each.subsidiaryId === branch);
  const ids = ({ sku, branch }: Place) =>
    sku.integrations
      .filter((each) => each.subsidiaryId === branch)
      .flatMap(({ extId, productIdPosA, productCodePosB }) => [extId, productIdPosA, productCodePosB])
      .filter((id) => id !== null);
  return table<Place>(
    [
      { title: 'SKU', cell: ({ sku }) => sku.sku },
      { title: 'BRANCH', cell: ({ branch }) => branch },
      { title: 'QTY', cell: (place) => stock(place)?.qty, align: 'right' },
      { title: 'SHOW', cell: (place) => stock(place)?.show },
      { title: 'EXTERNAL IDS', cell: (place) => ids(place).join(', ') || null },
    ],
    places,
  );
}

/** What the mirror and the platform tell differently. */
export function differenceTable(differences: readonly ProductDifference[]): string {
  return table<ProductDifference>(
    [
      { title: 'PRODUCT', cell: (each) => each.productId },
      { title: 'SKU', cell: (each) => each.sku },
      { title: 'BRANCH', cell: (each) => each.subsidiaryId },
      { title: 'WHAT', cell: (each) => each.field },
      { title: 'MIRROR', cell: (each) => each.mirror },
      { title: 'PLATFORM', cell: (each) => each.platform },
    ],
    differences,
  );
}

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
  const { diffProducts } = await import('../support/diff.ts');
  const { branchName, namedBranch } = await import('../app/sweep-now.ts');
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
  const { diffOrders } = await import('../support/diff.ts');
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

interface ProductShowOptions extends GlobalOptions, JsonOption, NoWaitOption {
  sku?: string;
  externalId?: string;
  live?: boolean;
}

/** `product show`: a product as the mirror has it, or as the platform has it now. */
export function productShowCommand(cli: Cli): Command {
  return withNoWait(
    newResultCommand('show', 'Show a product with its skus, stock and mappings', [
      'product show --external-id A-1001',
      'product show --sku 1001 --live',
      'product show 64f0c2a9e1b2c3d4e5f60718 --json',
    ]),
  )
    .argument('[product]', "a sku, an external id, or the platform's id of the product")
    .option('--sku <sku>', 'by one of its skus')
    .option('--external-id <id>', 'by an integration id, in any of the three mapping fields')
    .option('--live', 'ask the platform now, and tell what the mirror has differently; nothing is written')
    .action((productId: string | undefined, _options, command: Command) =>
      show(cli, productId, command.optsWithGlobals()),
    );
}

function show(cli: Cli, productId: string | undefined, options: ProductShowOptions): Promise<void> {
  const { sku, externalId } = options;
  const names: ProductName[] = [
    ...(productId === undefined ? [] : [{ productId }]),
    ...(sku === undefined ? [] : [{ sku }]),
    ...(externalId === undefined ? [] : [{ externalId }]),
  ];
  const [name] = names;
  if (!name || names.length > 1) {
    throw new TillsyncError('usage', 'Name one product: by its id, or with --sku, or with --external-id.');
  }
  return options.live ? showLive(cli, name, options) : showMirrored(cli, name, options);
}

function showMirrored(cli: Cli, name: ProductName, options: ProductShowOptions): Promise<void> {
  return withReaders(cli, options, async ({ mirror }, config) => {
    const { findProducts, readStores } = await import('../app/readers.ts');
    const stores = readStores(mirror, config, cli.clock);
    const products =
      namesOf(name)
        .map((each) => findProducts(stores, each))
        .find((found) => found.length > 0) ?? [];
    if (products.length === 0) throw unknownProduct('The mirror has', name);
    if (options.json) writeJson(cli, { products });
    else cli.stdout.write(products.map(productText).join('\n'));
  });
}

function showLive(cli: Cli, name: ProductName, options: ProductShowOptions): Promise<void> {
  return withParts(cli, options, async ({ parts, progress, call }) => {
    const { findProducts } = await import('../app/readers.ts');
    const known = namesOf(name).find((each) => findProducts(parts.stores, each).length > 0) ?? name;
    const products = findProducts(parts.stores, known);
    progress.step('asking the platform for the product');
    const live = await parts.platform.productGet(queryOf(known, products), patienceOf(call, options));
    progress.end();
    if (live === null) throw unknownProduct('The platform knows', name);
    const [product] = findProducts(parts.stores, { productId: live.id });
    const differences = productDifferences(product, live);
    if (options.json) {
      const { raw, ...record } = live;
      writeJson(cli, { live: { ...record, raw: JSON.parse(raw) as unknown }, differences });
      return;
    }
    cli.stdout.write(productText(live));
    if (differences.length === 0) cli.stderr.write('The mirror has the same.\n');
    else cli.stdout.write(`\nThe mirror differs:\n${differenceTable(differences)}`);
  });
}

/** What a word without an option may be, in the order in which it is looked for. */
function namesOf(name: ProductName): ProductName[] {
  if (!('productId' in name)) return [name];
  const word = name.productId;
  return [name, ...(/^\d+$/.test(word) ? [{ sku: word }] : []), { externalId: word }];
}

/** GET /product takes a sku or an externalId, so an id is turned into a sku by the mirror. */
function queryOf(name: ProductName, products: readonly MirroredProduct[]): ProductQuery {
  if (!('productId' in name)) return name;
  const sku = products[0]?.skus[0]?.sku;
  if (sku === undefined) throw unknownProduct('The mirror has', name);
  return { sku };
}

function unknownProduct(who: string, name: ProductName): TillsyncError {
  const [[kind, value]] = Object.entries(name) as [[string, string]];
  return new TillsyncError('not-found', `${who} no product with ${kind} "${value}".`, {
    hint: 'Ask the platform with --live and --sku or --external-id, or read the catalogue: {tillsync} sync products',
  });
}
