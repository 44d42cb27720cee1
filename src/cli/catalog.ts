import { namedBranch } from '../app/sweep-now.ts';
import { type UnmappedSku, unmappedSkus } from '../catalog/unmapped.ts';
import { TillsyncError } from '../core/errors.ts';
import { printableLines } from './cli.ts';
import { command, group, withReaders } from './command.ts';
import { type CsvColumns, csvText } from './csv.ts';
import { table } from './table.ts';

const CSV: CsvColumns<UnmappedSku> = {
  branch: ({ branch }) => branch,
  sku: ({ sku }) => sku,
  product_id: ({ productId }) => productId,
  name: ({ name }) => name,
  category: ({ category }) => category,
  barcode: ({ barcode }) => barcode,
};

const unmapped = command({
  description: 'List what customers see and what has no id of yours, by the last look at the catalogue',
  examples: ['catalog unmapped', 'catalog unmapped --branch B1 --csv > unmapped.csv'],
  options: {
    '--branch <id>': 'only this configured branch, by either of its ids',
    '--csv': 'as a file for a spreadsheet',
  },
  more: '\nThe ids are given in the company panel. To look at the catalogue again: tillsync sync products',
  run: (call) =>
    withReaders(call, async ({ mirror }, config) => {
      const { configuredBranches } = await import('../app/readers.ts');
      const { branch, csv, json } = call.options;
      if (csv && json) throw new TillsyncError('usage', 'Give --csv or --json, not both.');
      const all = configuredBranches(config);
      const branches = branch === undefined ? all : [namedBranch(all, branch)];
      const products = mirror.read((db) => unmappedSkus(db, branches));
      if (csv) {
        const file = csvText(products, CSV);
        // A terminal is no file: what could steer it is made visible.
        return { text: call.cli.stdout.isTTY ? printableLines(file.replaceAll('\r\n', '\n')) : file };
      }
      if (products.length === 0)
        return { json: { products }, above: 'Every shown product has an id of yours.\n' };
      const columns = {
        BRANCH: 'branch',
        SKU: 'sku',
        BARCODE: 'barcode',
        CATEGORY: 'category',
        NAME: 'name',
      } as const;
      return { json: { products }, text: table(products, columns) };
    }),
});

export const catalog = group('Look at the catalogue', { unmapped });
