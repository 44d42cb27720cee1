import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
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
  branch?: string;
}

/** `stock set`: one quantity in one branch. */
export function stockSetCommand(cli: Cli): Command {
  return newResultCommand('set', 'Hand over the quantity of one product in one branch', [
    'stock set --external-id A-1001 --qty 5 --wait',
    'stock set --sku 1001 --branch B1 --qty 0 --show false',
  ])
    .option('--external-id <id>', 'integration id of the product')
    .option('--sku <sku>', 'sku of the product')
    .requiredOption('--qty <number>', 'quantity as counted, such as 5 or 2.5')
    .option('--show <true|false>', 'stock visibility in the branch; left as it is without it')
    .option('--branch <id>', 'the configured branch, by either of its ids, where the product is in several')
    .option('--subsidiary-id <id>', 'the branch by its subsidiary_id, configured or not')
    .option('--subsidiary-external-id <id>', 'the branch by its external id')
    .option('--wait', 'stay until it is settled; where no daemon runs, send it')
    .action((_options, command: Command) => set(cli, command.optsWithGlobals()));
}

async function set(cli: Cli, options: StockSetOptions): Promise<void> {
  const { externalId, sku, qty, show, branch } = options;
  const named = branch === undefined ? options : await branchNamed(cli, options, branch);
  const { subsidiaryId, subsidiaryExternalId } = named;
  await handOverOne(
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

/** The ids under which a change names a configured branch. Throws `usage` for one that is not configured. */
async function branchNamed(cli: Cli, options: StockSetOptions, name: string) {
  if (options.subsidiaryId !== undefined || options.subsidiaryExternalId !== undefined) {
    throw new TillsyncError('usage', 'Name the branch once: with --branch, or with one of the other two.');
  }
  const { loadConfig } = await import('../../config/config.ts');
  const { configuredBranches } = await import('../../daemon/reading/read-stores.ts');
  const { namedBranch } = await import('../../daemon/sweep-now.ts');
  const config = loadConfig({ file: options.config, env: cli.env });
  const { subsidiaryId, externalId } = namedBranch(configuredBranches(config), name);
  return subsidiaryId === null
    ? { subsidiaryId: undefined, subsidiaryExternalId: externalId ?? undefined }
    : { subsidiaryId, subsidiaryExternalId: undefined };
}
