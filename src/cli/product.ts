import type { ProductName } from '../app/read-only-services.ts';
import { branchName, type MirroredProduct, namedBranch } from '../catalog/product.ts';
import type { Config } from '../config/config-type.ts';
import { counted, TillsyncError } from '../core/errors.ts';
import type { OutboxEntry, ProductQuery } from '../outbox/intake/change.ts';
import type { MirrorStores } from '../outbox/sending/repositories.ts';
import type { ProductRecord, SkuRecord } from '../platform/schemas.ts';
import { productDifferences } from '../support/diff/differences.ts';
import { choice, command, group, WAIT, withPlatform, withReaders } from './command.ts';
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

const show = command({
  description: 'Show a product with its skus, stock, mappings and last changes',
  examples: [
    'product show --external-id A-1001',
    'product show --sku 1001 --live',
    'product show 64f0c2a9e1b2c3d4e5f60718 --json',
  ],
  argument: ['[product]', "a sku, an external id, or the platform's id of the product"],
  options: {
    '--no-wait': WAIT,
    '--sku <sku>': 'by one of its skus',
    '--external-id <id>': 'by an integration id, in any of the three mapping fields',
    '--live': 'ask the platform now, and tell what the mirror has differently; nothing is written',
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
    hint: 'Ask the platform with --live and --sku or --external-id, or read the catalogue: {tillsync} sync products',
  });
}

const set = command({
  description: 'Hand over a price, texts or the visibility of one product',
  examples: [
    'product set --sku 1001 --price 4990 --wait',
    'product set --external-id A-1001 --description "" --show false',
  ],
  options: {
    '--external-id <id>': 'integration id of the product',
    '--sku <sku>': 'sku of the product',
    '--price <number>': 'price of the sku, such as 4990 or 12.5',
    '--name <text>': 'name, shared by all skus of the product',
    '--description <text>': 'description, shared by all skus; an empty one clears it',
    '--show <true|false>': 'visibility of the whole product',
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

const list = command({
  description: "List a branch's products as the platform has them",
  examples: [
    'product list --live --branch B1',
    'product list --live --branch B1 --order asc --order-by name --json',
  ],
  options: {
    '--live': 'Read GET /product/list now; nothing is written',
    '--branch <id>': 'Configured branch, by either of its IDs',
    '--order <direction>': choice('Sort direction (default: desc)', ['asc', 'desc']),
    '--order-by <field>': "Field to sort by, in the platform's words (default: CreatedDate)",
    '--no-wait': WAIT,
  },
  more: '\nEach page takes a second, as the platform allows one call a second.',
  async run(context) {
    const { live, branch: name, order = 'desc', orderBy = 'CreatedDate' } = context.options;
    if (!live || name === undefined) {
      throw new TillsyncError(
        'usage',
        'product list reads one branch from the platform: give --live and --branch.',
        {
          hint: 'To see one product as the mirror has it: {tillsync} product show PRODUCT',
        },
      );
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

export const product = group('Look at products and change them', { list, show, set });
