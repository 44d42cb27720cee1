import { type ChangeKind, PRODUCT_COLUMNS, STOCK_COLUMNS } from '../change/change.ts';
import { TillsyncError } from '../errors.ts';
import { splitCsvRecord } from './csv-record.ts';

const DELIMITERS = [',', ';', '\t'] as const;
const DELIMITER_NAMES: Record<string, string> = { ',': 'comma', ';': 'semicolon', '\t': 'tab' };

export interface CsvHeader {
  delimiter: string;
  /** Names as the change has them, in the order of the file. */
  columns: string[];
}

/**
 * Reads the header line and learns from it which delimiter the file uses: the one that splits it into known
 * columns. Names are taken with or without underscores and in any case (`external_id`, `externalId`). Throws
 * `usage` when no delimiter does.
 */
export function readCsvHeader(line: string, kind: ChangeKind): CsvHeader {
  const known: readonly string[] = kind === 'stock' ? STOCK_COLUMNS : PRODUCT_COLUMNS;
  const byPlainName = new Map(known.map((column) => [plainName(column), column]));
  let best: { names: string[]; delimiter: string } | undefined;
  for (const delimiter of DELIMITERS) {
    const names = splitCsvRecord(line, delimiter);
    if (!names) continue;
    if (!best || names.length > best.names.length) best = { names, delimiter };
  }
  const names = best?.names ?? [line];
  const unknown = names.filter((name) => !byPlainName.has(plainName(name)));
  const columns = names.map((name) => byPlainName.get(plainName(name)) ?? name);
  const hint = `The first line must name the columns, out of: ${known.join(', ')}; separated by comma, semicolon or tab.`;
  const found =
    best && best.names.length > 1 ? `separated by ${DELIMITER_NAMES[best.delimiter]}` : 'not separated';
  if (unknown.length > 0) {
    const list = unknown.map((name) => JSON.stringify(name.slice(0, 60))).join(', ');
    throw new TillsyncError(
      'usage',
      `Unknown columns in the header (${found}): ${list}. Nothing was taken.`,
      {
        hint,
      },
    );
  }
  const twice = columns.find((column, i) => columns.indexOf(column) !== i);
  if (twice !== undefined) {
    throw new TillsyncError('usage', `The header names ${twice} twice. Nothing was taken.`, { hint });
  }
  if (!columns.includes('externalId') && !columns.includes('sku')) {
    throw new TillsyncError('usage', 'The header names neither externalId nor sku. Nothing was taken.', {
      hint,
    });
  }
  return { delimiter: best?.delimiter ?? ',', columns };
}

function plainName(name: string): string {
  return name.trim().toLowerCase().replaceAll('_', '');
}
