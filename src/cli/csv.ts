import { parsePlainDecimal } from '../core/values.ts';
import type { DecimalSign } from '../outbox/intake/csv.ts';

/** Value of a cell. An `amount` becomes a number with the chosen decimal sign; a string never becomes a formula. */
type CsvValue = string | number | boolean | null | undefined | { amount: number | string | null };
/** Content of a cell. Values of a list are separated by `|`. */
type CsvCell = CsvValue | readonly CsvValue[];

/** Columns by title, each with a function that returns a row's cell. */
export type CsvColumns<Row> = Record<string, (row: Row) => CsvCell>;

/** First character of the file, by which spreadsheets recognise UTF-8. */
const BYTE_ORDER_MARK = '\ufeff';
const LINE_END = '\r\n';

/**
 * Returns rows as the text of a file that a spreadsheet opens directly (RFC 4180). If the decimal sign is a comma,
 * semicolons separate cells, as spreadsheets expect in countries with a decimal comma.
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
  if (isList(cell)) return cell.map((each) => cellText(each, decimal).replaceAll('|', '/')).join('|');
  if (cell === null || cell === undefined) return '';
  if (typeof cell === 'string') return harmless(cell);
  if (typeof cell !== 'object') return String(cell);
  const { amount } = cell;
  if (amount === null) return '';
  const number = typeof amount === 'number' ? amount : parsePlainDecimal(amount);
  if (number === undefined) return harmless(String(amount));
  return decimal === 'comma' ? String(number).replace('.', ',') : String(number);
}

function isList(cell: CsvCell): cell is readonly CsvValue[] {
  return Array.isArray(cell);
}

/** What begins a formula in a cell. */
const FORMULA = /^[\s\0]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/;
/** What would begin one for a spreadsheet that takes other characters as separators than the file has. */
const AFTER_SEPARATOR = /(?<=[^\s\0])([,;\t|]["\s\0]*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])/g;

/**
 * Puts an apostrophe before a text that a spreadsheet would run as a formula, because customers may write any text.
 * The wide forms of `=`, `+`, `-` and `@` of East Asian keyboards are included.
 */
function harmless(text: string): string {
  const inside = text.replaceAll(AFTER_SEPARATOR, "$1'");
  return FORMULA.test(inside) ? `'${inside}` : inside;
}

function quoted(cell: string, separator: string): string {
  const needsQuotes = cell.includes(separator) || /["\r\n]|^\s|\s$/.test(cell);
  return needsQuotes ? `"${cell.replaceAll('"', '""')}"` : cell;
}
