import type { Command } from 'commander';
import type { ProductName } from '../../daemon/reading/read-stores.ts';
import type { ProductQuery } from '../../domain/change/target.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { MirroredProduct } from '../../domain/product/mirrored-product.ts';
import { productDifferences } from '../../domain/product/product-differences.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { type NoWaitOption, patienceOf, withNoWait } from '../options/no-wait-option.ts';
import { writeJson } from '../output.ts';
import { differenceTable, productText } from '../texts/product-text.ts';
import { withParts } from '../with-parts.ts';
import { withReaders } from '../with-readers.ts';

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
    const { findProducts, readStores } = await import('../../daemon/reading/read-stores.ts');
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
    const { findProducts } = await import('../../daemon/reading/read-stores.ts');
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
