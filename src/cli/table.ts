import { formatDuration } from '../core/time.ts';
import { printable } from './cli.ts';

/** Of the last column, which pushes none aside, and of the others. */
const [LAST_MAX, CELL_MAX] = [1_000, 120];

export interface Column<Row> {
  title: string;
  /** What of a row stands in this column; null and undefined show as a dash. */
  cell: (row: Row) => string | number | boolean | null | undefined;
  align?: 'left' | 'right';
}

/** Rows as aligned text with a head line; ends with a line break. */
export function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
  const cells = rows.map((row) =>
    columns.map((column, i) =>
      cut(printable(String(column.cell(row) ?? '-')), i === columns.length - 1 ? LAST_MAX : CELL_MAX),
    ),
  );
  const lines = [columns.map((column) => column.title), ...cells];
  const widths = columns.map((_, i) => Math.max(...lines.map((line) => width(line[i] ?? ''))));
  const text = lines.map((line) =>
    line
      .map((cell, i) => {
        const padding = ' '.repeat((widths[i] ?? 0) - width(cell));
        return columns[i]?.align === 'right' ? padding + cell : cell + padding;
      })
      .join('  ')
      .trimEnd(),
  );
  return `${text.join('\n')}\n`;
}

/** Names and values below each other. */
export function fields(entries: readonly (readonly [name: string, value: unknown])[]): string {
  const longest = Math.max(0, ...entries.map(([name]) => name.length));
  return entries
    .map(([name, value]) => `${`${name}:`.padEnd(longest + 2)}${printable(String(value ?? '-'))}\n`)
    .join('');
}

/** A cell that is longer than any word or sentence of ours would push all others off the screen. */
function cut(text: string, lengthMax: number): string {
  return text.length > lengthMax ? `${text.slice(0, lengthMax - 1)}…` : text;
}

/** Characters as people count them, so that accents do not shift a column. */
function width(text: string): number {
  return [...text.normalize('NFC')].length;
}

/** An ISO time as a person in the company's zone reads it: `2026-01-02 00:04:05`; other text as it is. */
export function when(iso: string | null | undefined, timeZone: string): string | null {
  if (iso === null || iso === undefined || iso === '') return null;
  const ms = Date.parse(iso);
  if (Number.isNaN(ms)) return iso;
  return new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' }).format(ms);
}

/** The same with the zone, where no column says it. */
export function whenIn(iso: string | null | undefined, timeZone: string): string | null {
  const text = when(iso, timeZone);
  return text === null || text === iso ? text : `${text} (${timeZone})`;
}

/** Head of a column of times: `CREATED (America/Santiago)`. */
export function timeTitle(title: string, timeZone: string): string {
  return `${title} (${timeZone})`;
}

/** How long ago, or how soon: `3m ago`, `in 29d 3h`. */
export function ago(iso: string, nowMs: number): string {
  const ms = nowMs - Date.parse(iso);
  if (Number.isNaN(ms)) return iso;
  if (Math.abs(ms) < 1000) return 'just now';
  return ms > 0 ? `${formatDuration(ms)} ago` : `in ${formatDuration(-ms)}`;
}
