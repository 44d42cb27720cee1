import { printable } from './printable.ts';

export interface Column<Row> {
  title: string;
  /** What of a row stands in this column; null and undefined show as a dash. */
  cell: (row: Row) => string | number | boolean | null | undefined;
  align?: 'left' | 'right';
}

/** Rows as aligned text with a head line; ends with a line break. */
export function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
  const cells = rows.map((row) => columns.map((column) => printable(String(column.cell(row) ?? '-'))));
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

/** Characters as people count them, so that accents do not shift a column. */
function width(text: string): number {
  return [...text.normalize('NFC')].length;
}
