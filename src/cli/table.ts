import { formatDuration } from '../core/time.ts';
import { printable } from './cli.ts';

/**
 * Maximum length of a cell in the last column, and in any other column. A long last cell moves no other column.
 */
const [LAST_MAX, CELL_MAX] = [1_000, 120];

/** Content of a cell. null and undefined are shown as a dash. */
type Cell = string | number | boolean | null | undefined;
type CellKey<Row> = { [K in keyof Row]: Row[K] extends Cell ? K : never }[keyof Row];

/** Columns by title, each with a field name or a function that returns the cell. */
type Columns<Row> = Record<string, CellKey<Row> | ((row: Row) => Cell)>;

/**
 * Returns rows as text in columns, with a header and a line break at the end. `right` are the titles of right-aligned
 * columns.
 */
export function table<Row>(
  rows: readonly Row[],
  columns: Columns<Row>,
  right: readonly string[] = [],
): string {
  const titles = Object.keys(columns);
  const cells = rows.map((row) =>
    Object.values(columns).map((column, i) => {
      const value = typeof column === 'function' ? column(row) : row[column];
      return cut(printable(String(value ?? '-')), i === titles.length - 1 ? LAST_MAX : CELL_MAX);
    }),
  );
  const lines = [titles, ...cells];
  const widths = titles.map((_, i) => lines.reduce((max, line) => Math.max(max, width(line[i] ?? '')), 0));
  const text = lines.map((line) =>
    line
      .map((cell, i) => {
        const padding = ' '.repeat((widths[i] ?? 0) - width(cell));
        return right.includes(titles[i] ?? '') ? padding + cell : cell + padding;
      })
      .join('  ')
      .trimEnd(),
  );
  return `${text.join('\n')}\n`;
}

/** Returns names and values, one pair per line. */
export function fields(entries: Readonly<Record<string, unknown>>): string {
  const longest = Math.max(0, ...Object.keys(entries).map((name) => name.length));
  return Object.entries(entries)
    .map(([name, value]) => `${`${name}:`.padEnd(longest + 2)}${printable(String(value ?? '-'))}\n`)
    .join('');
}

/** Cuts a text that would move the other columns off the screen. */
function cut(text: string, lengthMax: number): string {
  return text.length > lengthMax ? `${text.slice(0, lengthMax - 1)}…` : text;
}

/** Returns the number of visible characters, so that an accent does not shift a column. */
function width(text: string): number {
  return [...text.normalize('NFC')].length;
}

/** Returns an ISO time in the company's zone: `2026-01-02 00:04:05`. Other text is returned unchanged. */
export function when(iso: string | null | undefined, timeZone: string): string | null {
  if (iso === null || iso === undefined || iso === '') return null;
  const ms = Date.parse(iso);
  if (Number.isNaN(ms)) return iso;
  const format = formats.get(timeZone) ?? formatIn(timeZone);
  formats.set(timeZone, format);
  return format.format(ms);
}

/** Formats by time zone. Making one takes as long as using one a thousand times. */
const formats = new Map<string, Intl.DateTimeFormat>();

function formatIn(timeZone: string): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' });
}

/** Returns a time as `when` does, with the name of the zone, for places where no column title names the zone. */
export function whenIn(iso: string | null | undefined, timeZone: string): string | null {
  const text = when(iso, timeZone);
  return text === null || text === iso ? text : `${text} (${timeZone})`;
}

/** Returns the title of a column of amounts, such as `PRICE (CLP)`. */
export function inCurrency(title: string, { currency }: { currency: string }): string {
  return currency === '' ? title : `${title} (${currency})`;
}

/** Returns how long ago a time was, or how soon it is: `3m ago`, `in 29d 3h`. */
export function ago(iso: string, nowMs: number): string {
  const ms = nowMs - Date.parse(iso);
  if (Number.isNaN(ms)) return iso;
  if (Math.abs(ms) < 1000) return 'just now';
  return ms > 0 ? `${formatDuration(ms)} ago` : `in ${formatDuration(-ms)}`;
}
