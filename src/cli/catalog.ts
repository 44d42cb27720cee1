import { namedBranch } from '../catalog/product.ts';
import { type UnmappedSku, unmappedSkus } from '../catalog/unmapped.ts';
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
      const { configuredBranches } = await import('../app/read-only-services.ts');
      const { branch, csv } = call.options;
      const all = configuredBranches(config, mirror);
      const branches = branch === undefined ? all : [namedBranch(all, branch)];
      const products = mirror.read((db) => unmappedSkus(db, all, branches));
      if (csv) return { csv: csvText(products, CSV) };
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
