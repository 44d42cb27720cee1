import { parsePlainDecimal } from '../core/values.ts';
import type { DecimalSign } from '../outbox/csv.ts';

/** What stands in a cell; an `amount` is a number in the numbers of the spreadsheet, a text stays a text. */
export type CsvCell = string | number | boolean | null | undefined | { amount: number | string | null };

/** By its title, what of a row stands in a column. */
export type CsvColumns<Row> = Record<string, (row: Row) => CsvCell>;

/** So that spreadsheets take the file for UTF-8. */
const BYTE_ORDER_MARK = '\ufeff';
const LINE_END = '\r\n';

/**
 * Rows as a file that a spreadsheet opens by itself (RFC 4180). With the decimal comma, cells are separated by
 * semicolons, as the spreadsheets of those countries expect.
 */
export function csvText<Row>(
  rows: Iterable<Row>,
  columns: CsvColumns<Row>,
  decimal: DecimalSign = 'point',
): string {
  const separator = decimal === 'comma' ? ';' : ',';
  const line = (cells: string[]) => cells.map((cell) => quoted(cell, separator)).join(separator) + LINE_END;
  const titles = line(Object.keys(columns));
  let text = BYTE_ORDER_MARK + titles;
  for (const row of rows) text += line(Object.values(columns).map((of) => cellText(of(row), decimal)));
  return text;
}

function cellText(cell: CsvCell, decimal: DecimalSign): string {
  if (cell === null || cell === undefined) return '';
  if (typeof cell === 'string') return harmless(cell);
  if (typeof cell !== 'object') return String(cell);
  const { amount } = cell;
  if (amount === null) return '';
  const number = typeof amount === 'number' ? amount : parsePlainDecimal(amount);
  if (number === undefined) return harmless(String(amount));
  return decimal === 'comma' ? String(number).replace('.', ',') : String(number);
}

/**
 * A spreadsheet takes a text that begins so for a formula, also with the wide signs of East Asian keyboards, and
 * customers write texts; the quote keeps it a text.
 */
function harmless(text: string): string {
  return /^[\s\0]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/.test(text) ? `'${text}` : text;
}

function quoted(cell: string, separator: string): string {
  const needsQuotes = cell.includes(separator) || /["\r\n]|^\s|\s$/.test(cell);
  return needsQuotes ? `"${cell.replaceAll('"', '""')}"` : cell;
}
