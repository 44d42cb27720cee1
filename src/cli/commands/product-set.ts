import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { newResultCommand } from '../new-command.ts';
import { handOverOne, type SingleOptions, typedBoolean, typedNumber } from '../single-change.ts';

interface ProductSetOptions extends SingleOptions {
  externalId?: string;
  sku?: string;
  price?: string;
  name?: string;
  description?: string;
  show?: string;
}

/** `product set`: price of a sku; name, description and visibility of its product. */
export function productSetCommand(cli: Cli): Command {
  return newResultCommand('set', 'Hand over a price, texts or the visibility of one product', [
    'product set --sku 1001 --price 4990 --wait',
    'product set --external-id A-1001 --description "" --show false',
  ])
    .option('--external-id <id>', 'integration id of the product')
    .option('--sku <sku>', 'sku of the product')
    .option('--price <number>', 'price of the sku, such as 4990 or 12.5')
    .option('--name <text>', 'name, shared by all skus of the product')
    .option('--description <text>', 'description, shared by all skus; an empty one clears it')
    .option('--show <true|false>', 'visibility of the whole product')
    .option('--wait', 'stay until it is settled; where no daemon runs, send it')
    .action((_options, command: Command) => set(cli, command.optsWithGlobals()));
}

function set(cli: Cli, options: ProductSetOptions): Promise<void> {
  const { externalId, sku, price, name, description, show } = options;
  return handOverOne(
    cli,
    'product',
    { externalId, sku, price: typedNumber(price), name, description, show: typedBoolean(show) },
    options,
  );
}
