import { type ChangeKind, PRODUCT_COLUMNS, STOCK_COLUMNS } from '../change/change.ts';
import { TillsyncError } from '../errors.ts';
import { splitCsvRecord } from './csv-record.ts';

const DELIMITERS = [',', ';', '\t'] as const;
const DELIMITER_NAMES: Record<string, string> = { ',': 'comma', ';': 'semicolon', '\t': 'tab' };
/** Columns of a strange file that are named to a person. */
const NAMED_MAX = 12;

/** Other names that leave no doubt, as `plainName` has them. */
const ALIASES: Record<ChangeKind, Record<string, string>> = {
  stock: { codigo: 'externalId', cantidad: 'qty', stock: 'qty', existencia: 'qty', existencias: 'qty' },
  product: { codigo: 'externalId', precio: 'price', nombre: 'name', descripcion: 'description' },
};

export interface CsvHeader {
  delimiter: string;
  /** Names as the change has them, in the order of the file; null: a column that is passed over. */
  columns: (string | null)[];
  /** The columns that are passed over, as the file names them. */
  ignored: string[];
}

export interface CsvHeaderOptions {
  kind: ChangeKind;
  /** Said by a line `sep=` before the header; otherwise learnt from the header. */
  delimiter?: string | undefined;
  /** Whether columns that no change has may be passed over. */
  mayIgnore: boolean;
}

/** The delimiter that a first line `sep=;` names, as Excel writes it; undefined: it is no such line. */
export function readSepLine(line: string): string | undefined {
  return /^"?sep=([,;\t])"?\s*$/i.exec(line)?.[1];
}

/**
 * Reads the header line and learns from it which delimiter the file uses: the one that splits it most. Names are
 * taken in any case, with or without underscores, blanks and accents (`external_id`, `External ID`, `Código`). Throws
 * `usage` when it lacks a column that is needed, names one twice, or one that looks like a slip of the pen.
 */
export function readCsvHeader(
  line: string,
  { kind, delimiter: said, mayIgnore }: CsvHeaderOptions,
): CsvHeader {
  const known: readonly string[] = kind === 'stock' ? STOCK_COLUMNS : PRODUCT_COLUMNS;
  const byPlainName = new Map([
    ...Object.entries(ALIASES[kind]),
    ...known.map((column) => [plainName(column), column] as const),
  ]);
  let best: { names: string[]; delimiter: string } | undefined;
  for (const delimiter of said === undefined ? DELIMITERS : [said]) {
    const names = splitCsvRecord(line, delimiter);
    if (!names) continue;
    if (!best || names.length > best.names.length) best = { names, delimiter };
  }
  const names = best?.names ?? [line];
  const hint = `The first line must name the columns, out of: ${known.join(', ')}; separated by comma, semicolon or tab.`;
  const found =
    best && best.names.length > 1 ? `separated by ${DELIMITER_NAMES[best.delimiter]}` : 'not separated';
  const refuse = (what: string) => new TillsyncError('usage', `${what} Nothing was taken.`, { hint });
  if (names.every((name) => name.trim() === '')) throw refuse('The file has no header.');
  const unknown = names.filter((name) => !byPlainName.has(plainName(name)));
  if (unknown.length > 0 && !mayIgnore) {
    throw refuse(`Unknown columns in the header (${found}): ${quoted(unknown)}.`);
  }
  const slip = unknown.find((name) => likeOneOf(plainName(name), known.map(plainName)));
  if (slip !== undefined) {
    throw refuse(`The column ${quoted([slip])} is none, and looks like ${likeName(slip, known)}.`);
  }
  const columns = names.map((name) => byPlainName.get(plainName(name)) ?? null);
  const twice = columns.find((column, i) => column !== null && columns.indexOf(column) !== i);
  if (twice !== undefined) throw refuse(`The header names ${twice} twice.`);
  const all = quoted(names);
  if (!columns.includes('externalId') && !columns.includes('sku')) {
    throw refuse(`The header (${found}) names neither externalId nor sku: ${all}.`);
  }
  const values = kind === 'stock' ? ['qty'] : ['price', 'name', 'description', 'show'];
  if (mayIgnore && !values.some((column) => columns.includes(column))) {
    throw refuse(`The header (${found}) names no ${values.join(', ')}: ${all}.`);
  }
  return {
    delimiter: best?.delimiter ?? ',',
    columns,
    ignored: unknown.filter((name) => name.trim() !== ''),
  };
}

function plainName(name: string): string {
  return name
    .normalize('NFD')
    .replace(/[\u0300-\u036f_\s-]/g, '')
    .toLowerCase();
}

function quoted(names: readonly string[]): string {
  const list = names.slice(0, NAMED_MAX).map((name) => JSON.stringify(name.slice(0, 60)));
  return [...list, ...(names.length > NAMED_MAX ? [`and ${names.length - NAMED_MAX} more`] : [])].join(', ');
}

function likeName(name: string, known: readonly string[]): string | undefined {
  return known.find((column) => likeOneOf(plainName(name), [plainName(column)]));
}

/** Whether a slip of one or two letters made `name` of one of these. */
function likeOneOf(name: string, known: readonly string[]): boolean {
  return known.some((each) => each !== name && distance(name, each) <= (each.length > 6 ? 2 : 1));
}

/** Letters to add, drop, change or swap with the next. */
function distance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return 3;
  const rows = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number) => rows[i]?.[j] ?? 3;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row.push(
        Math.min(
          at(i - 1, j) + 1,
          at(i, j - 1) + 1,
          at(i - 1, j - 1) + same,
          swapped ? at(i - 2, j - 2) + 1 : 3,
        ),
      );
    }
  }
  return at(a.length, b.length);
}
