import type { ProductName } from '../app/read-only-services.ts';
import { branchName, type MirroredProduct, namedBranch } from '../catalog/product.ts';
import { type UnmappedSku, unmappedSkus } from '../catalog/unmapped.ts';
import type { Config } from '../config/config-type.ts';
import { counted, TillsyncError } from '../core/errors.ts';
import type { OutboxEntry, ProductQuery } from '../outbox/intake/change.ts';
import type { MirrorStores } from '../outbox/sending/repositories.ts';
import type { ProductRecord, SkuRecord } from '../platform/schemas.ts';
import { productDifferences } from '../support/diff/differences.ts';
import { type Call, choice, command, type Result, WAIT, withPlatform, withReaders } from './command.ts';
import { type CsvColumns, csvText } from './csv.ts';
import { differenceTable } from './diff.ts';
import { addressText, valuesText } from './outbox.ts';
import { handOverOne, SETTLE, typedBoolean, typedNumber } from './submit.ts';
import { fields, inCurrency, table, when } from './table.ts';

/** Quantities of a counted stock: its last count, its safety stock, and the pieces that are offered. */
interface Offer {
  counted: number;
  safety: number;
  offered: number;
}
type OfferOf = (sku: string, subsidiaryId: string) => Offer | undefined;

function offersOf(stores: Pick<MirrorStores, 'read'>, products: readonly MirroredProduct[]): OfferOf {
  const skus = products.flatMap((product) => product.skus.map(({ sku }) => sku));
  const all = stores.read(({ ledger }) => skus.flatMap((sku) => ledger.ofSku(sku)));
  return (sku, subsidiaryId) => {
    const stock = all.find((each) => each.sku === sku && each.subsidiaryId === subsidiaryId);
    return stock && { counted: stock.countedQty, safety: stock.safetyQty, offered: stock.wantedQty };
  };
}

function withOffers(product: MirroredProduct, offerOf: OfferOf) {
  const skus = product.skus.map((each) => ({
    ...each,
    stocks: each.stocks.map((stock) => ({ ...stock, ...offerOf(each.sku, stock.subsidiaryId) })),
  }));
  return { ...product, skus };
}

/** Returns a product of the mirror or of the platform as text. */
function productText(
  product: MirroredProduct | ProductRecord,
  { shop }: Config,
  offerOf: OfferOf = () => undefined,
): string {
  const price = inCurrency('PRICE', shop);
  const isMirrored = 'skus' in product;
  const skus: readonly SkuRecord[] = isMirrored ? product.skus : product.children;
  const head = fields({
    product: isMirrored ? product.productId : product.id,
    name: product.name,
    category: product.category,
    show: product.show,
    ...(isMirrored && product.vanishedAt !== null && { 'listed no more since': product.vanishedAt }),
  });
  const skuTable = table(
    skus,
    { SKU: 'sku', BARCODE: 'barcode', [price]: 'price', DISCOUNT: 'discount', SHOW: 'show' },
    [price, 'DISCOUNT'],
  );
  const places = skus.flatMap(({ sku, stocks, integrations }) => {
    const branches = new Set([...stocks, ...integrations].map(({ subsidiaryId }) => subsidiaryId));
    return [...branches].map((branch) => ({
      sku,
      branch,
      stock: stocks.find(({ subsidiaryId }) => subsidiaryId === branch),
      offer: offerOf(sku, branch),
      ids: integrations
        .filter(({ subsidiaryId }) => subsidiaryId === branch)
        .flatMap(({ extId, productIdPosA, productCodePosB }) => [extId, productIdPosA, productCodePosB])
        .filter((id) => id !== null),
    }));
  });
  if (places.length === 0) return `${head}\n${skuTable}\nno stock, no mapping\n`;
  const placeTable = table(
    places,
    {
      SKU: 'sku',
      BRANCH: 'branch',
      QTY: ({ stock }) => stock?.qty,
      SHOW: ({ stock }) => stock?.show,
      ...(places.some(({ offer }) => offer && offer.offered !== offer.counted) && {
        COUNTED: ({ offer }: (typeof places)[number]) => offer?.counted,
        'KEPT BACK': ({ offer }: (typeof places)[number]) => offer?.safety,
        OFFERED: ({ offer }: (typeof places)[number]) => offer?.offered,
      }),
      'EXTERNAL IDS': ({ ids }) => ids.join(', ') || null,
    },
    ['QTY', 'COUNTED', 'KEPT BACK', 'OFFERED'],
  );
  return `${head}\n${skuTable}\n${placeTable}`;
}

const CHANGES_SHOWN = 10;

/** Returns the last changes of a product as a table, with who handed them over. */
function changeTable(changes: readonly OutboxEntry[], timeZone: string): string {
  return table(
    changes,
    {
      CHANGE: 'changeId',
      [`HANDED OVER (${timeZone})`]: (entry) => when(entry.createdAt, timeZone),
      STATE: 'state',
      FOR: (entry) => addressText(entry.body),
      VALUES: (entry) => valuesText(entry.body),
      BY: ({ origin, source }) => origin ?? source,
    },
    ['CHANGE'],
  );
}

export const show = command({
  description: 'Show a product with its SKUs, stock, IDs and last changes',
  examples: [
    'product show --external-id A-1001',
    'product show --sku 1001 --live',
    'product show 64f0c2a9e1b2c3d4e5f60718 --json',
  ],
  argument: ['[product]', "SKU, external ID, or the platform's product ID"],
  options: {
    '--no-wait': WAIT,
    '--sku <sku>': 'Find the product by SKU',
    '--external-id <id>': 'Find the product by POS ID, in any of the three mapping fields',
    '--live': 'Also show what the platform has now; store nothing',
  },
  async run(context) {
    const { findProducts, readStores } = await import('../app/read-only-services.ts');
    const { cli, options, argument: productId } = context;
    const { sku, externalId } = options;
    const given: ProductName[] = [];
    if (productId !== undefined) given.push({ productId });
    if (sku !== undefined) given.push({ sku });
    if (externalId !== undefined) given.push({ externalId });
    const [name] = given;
    if (!name || given.length > 1) {
      throw new TillsyncError('usage', 'Name one product: by its id, or with --sku, or with --external-id.');
    }
    if (!options.live) {
      return withReaders(context, ({ mirror }, config) => {
        const stores = readStores(mirror, config, cli.clock);
        const found = meaningsOf(name).map((each) => findProducts(stores, each));
        const products = found.find((some) => some.length > 0);
        if (products === undefined) throw unknownProduct('The mirror has', name);
        const skus = products.flatMap((each) => each.skus.map(({ sku }) => String(sku)));
        const changes = stores.read(({ queries }) => queries.lastOf(skus, CHANGES_SHOWN));
        const last = changes.length === 0 ? '' : `\n${changeTable(changes, config.orders.timezone)}`;
        const offerOf = offersOf(stores, products);
        return {
          json: { products: products.map((each) => withOffers(each, offerOf)), changes },
          text: products.map((each) => productText(each, config, offerOf)).join('\n') + last,
        };
      });
    }
    return withPlatform(context, async ({ services: { stores, platform }, config, progress, call }) => {
      const known = meaningsOf(name).find((each) => findProducts(stores, each).length > 0) ?? name;
      const query = queryFor(known, findProducts(stores, known));
      progress.step('asking the platform for the product');
      const live = await platform.productGet(query, call);
      if (live === null) throw unknownProduct('The platform knows', name);
      const [product] = findProducts(stores, { productId: live.id });
      const differences = productDifferences(product, live);
      const { raw, ...record } = live;
      const isSame = differences.length === 0;
      return {
        json: { live: { ...record, raw: JSON.parse(raw) as unknown }, differences },
        text: `${productText(live, config)}${isSame ? '' : `\nThe mirror differs:\n${differenceTable(differences)}`}`,
        ...(isSame && { below: 'The mirror has the same.\n' }),
      };
    });
  },
});

/** Returns the names to search for, in order. A word without an option may be a product id, a sku or an external id. */
function meaningsOf(name: ProductName): ProductName[] {
  if (!('productId' in name)) return [name];
  const word = name.productId;
  return [name, ...(/^\d+$/.test(word) ? [{ sku: word }] : []), { externalId: word }];
}

/**
 * Returns the query for GET /product, which accepts a sku or an externalId. A product id is replaced by a sku of the
 * product from the mirror.
 */
function queryFor(name: ProductName, products: readonly MirroredProduct[]): ProductQuery {
  if (!('productId' in name)) return name;
  const sku = products[0]?.skus[0]?.sku;
  if (sku === undefined) throw unknownProduct('The mirror has', name);
  return { sku };
}

function unknownProduct(who: string, name: ProductName): TillsyncError {
  const [[kind, value]] = Object.entries(name) as [[string, string]];
  return new TillsyncError('not-found', `${who} no product with ${kind} "${value}".`, {
    hint: 'Ask the platform with --live and --sku or --external-id, or read the catalogue: {tillsync} sync catalog',
  });
}

export const set = command({
  description: 'Set the price, texts or visibility of a product',
  examples: [
    'product set --sku 1001 --price 4990 --wait',
    'product set --external-id A-1001 --description "" --show false',
  ],
  options: {
    '--external-id <id>': "The product's POS ID",
    '--sku <sku>': "The product's SKU",
    '--price <number>': 'Price of the SKU (example: 4990 or 12.5)',
    '--name <text>': 'Name, shared by all SKUs of the product',
    '--description <text>': 'Description, shared by all SKUs; empty clears it',
    '--show <true|false>': 'Visibility of the whole product',
    '--wait': SETTLE,
  },
  async run(call) {
    const { externalId, sku, price, name, description, show } = call.options;
    const values = { price: typedNumber(price), name, description, show: typedBoolean(show) };
    return handOverOne(call, 'product', { externalId, sku, ...values });
  },
});

/** Most pages that are read, as a platform might say for ever that there is a next one. */
const PAGES_MAX = 10_000;

const CSV: CsvColumns<UnmappedSku> = {
  branch: ({ branch }) => branch,
  sku: ({ sku }) => sku,
  product_id: ({ productId }) => productId,
  name: ({ name }) => name,
  category: ({ category }) => category,
  barcode: ({ barcode }) => barcode,
};

type UnmappedCall = Call<{ branch?: string | undefined; csv?: boolean | undefined }>;

/** Lists products that customers see and that have no id of the POS, by the last look at the catalogue. */
const listUnmapped = (call: UnmappedCall): Promise<Result> =>
  withReaders(call, async ({ mirror }, config) => {
    const { configuredBranches } = await import('../app/read-only-services.ts');
    const { branch, csv } = call.options;
    const all = configuredBranches(config, mirror);
    const branches = branch === undefined ? all : [namedBranch(all, branch)];
    const products = mirror.read((db) => unmappedSkus(db, all, branches));
    if (csv) return { csv: csvText(products, CSV) };
    if (products.length === 0) return { json: { products }, above: 'Every product on sale has a POS ID.\n' };
    const columns = {
      BRANCH: 'branch',
      SKU: 'sku',
      BARCODE: 'barcode',
      CATEGORY: 'category',
      NAME: 'name',
    } as const;
    return { json: { products }, text: table(products, columns) };
  });

export const list = command({
  description: "List products without a POS ID, or a branch's products at the platform",
  examples: [
    'product list --unmapped --csv > unmapped.csv',
    'product list --live --branch B1',
    'product list --live --branch B1 --order asc --order-by name --json',
  ],
  options: {
    '--unmapped': 'List products on sale without a POS ID',
    '--live': "List a branch's products from the platform now; store nothing",
    '--branch <id>': 'Configured branch, by either of its IDs',
    '--csv': 'With --unmapped: print CSV for a spreadsheet',
    '--order <direction>': choice('Sort direction (default: desc)', ['asc', 'desc']),
    '--order-by <field>': "Field to sort by, in the platform's words (default: CreatedDate)",
    '--no-wait': WAIT,
  },
  more: '\nPOS IDs are set in the company panel. To fetch the catalogue again, run: tillsync sync catalog\nWith --live, each page takes a second, because the platform allows one call a second.',
  async run(context) {
    const { unmapped, csv, live, branch: name, order = 'desc', orderBy = 'CreatedDate' } = context.options;
    if (unmapped && !live) return listUnmapped(context);
    if (unmapped || csv || !live || name === undefined) {
      throw new TillsyncError('usage', 'Give --unmapped, or --live and --branch.', {
        hint: 'To show one product from the mirror, run: {tillsync} product show PRODUCT',
      });
    }
    return withPlatform(context, async ({ services: { platform, branches }, config, progress, call }) => {
      const branch = namedBranch(branches, name);
      const { subsidiaryId, externalId } = branch;
      const address = subsidiaryId === null ? { externalId: externalId ?? '' } : { subsidiaryId };
      const products: ProductRecord[] = [];
      const unreadable: string[] = [];
      const { pageSize: limit } = config.catalog;
      let total: number | null = null;
      for (let page = 1; page <= PAGES_MAX; page++) {
        const answer = await platform.productList({ ...address, page, limit, order, orderBy }, call);
        products.push(...answer.docs);
        unreadable.push(...answer.unreadable);
        total = answer.totalDocs ?? total;
        progress.count('products', products.length, total ?? undefined);
        const isLast = answer.hasNextPage === false || page >= (answer.totalPages ?? PAGES_MAX);
        if (isLast || answer.docs.length + answer.unreadable.length === 0) break;
      }
      progress.end();
      const isUnread = unreadable.length > 0;
      return {
        json: {
          branch: branchName(branch),
          order,
          orderBy,
          totalDocs: total,
          products: products.map(({ raw }) => JSON.parse(raw) as unknown),
          unreadable: unreadable.map((raw) => JSON.parse(raw) as unknown),
        },
        text: products.length === 0 ? '' : listTable(products, subsidiaryId, config),
        below: `${counted(products.length, 'product')}${isUnread ? `, and ${unreadable.length} that cannot be read, in full or in part; see --json` : ''}.\n`,
      };
    });
  },
});

/** Returns the products of a branch as a table with a row for each SKU, in the platform's order. */
function listTable(
  products: readonly ProductRecord[],
  subsidiaryId: string | null,
  { shop }: Config,
): string {
  const price = inCurrency('PRICE', shop);
  const isHere = (each: { subsidiaryId: string }) =>
    subsidiaryId === null || each.subsidiaryId === subsidiaryId;
  const rows = products.flatMap(({ id, name, show: isShown, children }) =>
    children.map(({ sku, price: cost, stocks, integrations }) => ({
      product: id,
      name,
      isShown,
      sku,
      cost,
      qty: stocks.filter(isHere).map(({ qty }) => qty),
      ids: integrations
        .filter(isHere)
        .flatMap(({ extId, productIdPosA, productCodePosB }) => [extId, productIdPosA, productCodePosB])
        .filter((externalId) => externalId !== null),
    })),
  );
  return table(
    rows,
    {
      PRODUCT: 'product',
      NAME: 'name',
      SHOW: 'isShown',
      SKU: 'sku',
      [price]: 'cost',
      QTY: ({ qty }) => qty.join(', ') || null,
      'EXTERNAL IDS': ({ ids }) => ids.join(', ') || null,
    },
    [price, 'QTY'],
  );
}
