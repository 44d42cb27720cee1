import { namedBranch } from '../app/sweep-now.ts';
import { loadConfig } from '../config/config.ts';
import { TillsyncError } from '../core/errors.ts';
import { readStockChange } from '../outbox/change.ts';
import { command, group, mandatory, sourceOf } from './command.ts';
import { handOverOne, SETTLE, typedBoolean, typedNumber } from './hand-over.ts';

const set = command({
  description: 'Hand over the quantity of one product in one branch',
  examples: [
    'stock set --external-id A-1001 --qty 5 --wait',
    'stock set --sku 1001 --branch B1 --qty 0 --show false',
  ],
  options: {
    '--external-id <id>': 'integration id of the product',
    '--sku <sku>': 'sku of the product',
    '--qty <number>': mandatory('quantity as counted, such as 5 or 2.5'),
    '--show <true|false>': 'stock visibility in the branch; left as it is without it',
    '--branch <id>': 'the configured branch, by either of its ids, where the product is in several',
    '--subsidiary-id <id>': 'the branch by its subsidiary_id, configured or not',
    '--subsidiary-external-id <id>': 'the branch by its external id',
    '--wait': SETTLE,
  },
  async run(call) {
    const { externalId, sku, qty, show, branch, ...ids } = call.options;
    let { subsidiaryId, subsidiaryExternalId } = ids;
    if (branch !== undefined) {
      if (subsidiaryId !== undefined || subsidiaryExternalId !== undefined) {
        throw new TillsyncError(
          'usage',
          'Name the branch once: with --branch, or with one of the other two.',
        );
      }
      const { configuredBranches } = await import('../app/readers.ts');
      const named = namedBranch(configuredBranches(loadConfig(sourceOf(call))), branch);
      subsidiaryId = named.subsidiaryId ?? undefined;
      subsidiaryExternalId = subsidiaryId === undefined ? (named.externalId ?? undefined) : undefined;
    }
    const values = { qty: typedNumber(qty), show: typedBoolean(show) };
    const typed = { externalId, sku, ...values, subsidiaryId, subsidiaryExternalId };
    return handOverOne(call, 'stock', typed, readStockChange);
  },
});

export const stock = group('Change stock', { set });
