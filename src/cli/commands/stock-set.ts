import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { newResultCommand } from '../new-command.ts';
import { handOverOne, type SingleOptions, typedBoolean, typedNumber } from '../single-change.ts';

interface StockSetOptions extends SingleOptions {
  externalId?: string;
  sku?: string;
  qty: string;
  show?: string;
  subsidiaryId?: string;
  subsidiaryExternalId?: string;
}

/** `stock set`: one quantity in one branch. */
export function stockSetCommand(cli: Cli): Command {
  return newResultCommand('set', 'Hand over the quantity of one product in one branch', [
    'stock set --external-id A-1001 --qty 5 --wait',
    'stock set --sku 1001 --subsidiary-external-id B1 --qty 0 --show false',
  ])
    .option('--external-id <id>', 'integration id of the product')
    .option('--sku <sku>', 'sku of the product')
    .requiredOption('--qty <number>', 'quantity as counted, such as 5 or 2.5')
    .option('--show <true|false>', 'stock visibility in the branch; left as it is without it')
    .option('--subsidiary-id <id>', 'the branch, where the product is in several')
    .option('--subsidiary-external-id <id>', 'the branch by its external id')
    .option('--wait', 'stay until it is settled; where no daemon runs, send it')
    .action((_options, command: Command) => set(cli, command.optsWithGlobals()));
}

function set(cli: Cli, options: StockSetOptions): Promise<void> {
  const { externalId, sku, qty, show, subsidiaryId, subsidiaryExternalId } = options;
  return handOverOne(
    cli,
    'stock',
    {
      externalId,
      sku,
      qty: typedNumber(qty),
      show: typedBoolean(show),
      subsidiaryId,
      subsidiaryExternalId,
    },
    options,
  );
}
