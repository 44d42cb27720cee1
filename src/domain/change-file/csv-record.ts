/** Where a record with quotes ends, or why it cannot be read. */
export type CsvScan =
  | { state: 'whole'; cells: string[]; end: number }
  /** `end`: after the line at fault. */
  | { state: 'bad'; message: string; end: number }
  /** The text ends within quotes or within the line. */
  | { state: 'open'; inQuotes: boolean };

/**
 * Reads one record (RFC 4180) that begins at `start`: cells between delimiters, quotes around a cell that contains
 * one, doubled quotes within. `end` is the place after its line break.
 */
export function scanCsvRecord(text: string, start: number, delimiter: string): CsvScan {
  const cells: string[] = [];
  let at = start;
  for (;;) {
    const quoted = text[at] === '"';
    const part = quoted ? readQuoted(text, at) : readPlain(text, at, delimiter);
    if (!part) return { state: 'open', inQuotes: true };
    at = part.end;
    const next = text[at];
    if (next === undefined || (next === '\r' && at + 1 === text.length)) {
      return { state: 'open', inQuotes: false };
    }
    const lineBreak = next === '\n' ? 1 : next === '\r' && text[at + 1] === '\n' ? 2 : 0;
    const stray = quoted ? next !== delimiter && lineBreak === 0 : part.cell.includes('"');
    if (stray) {
      const end = text.indexOf('\n', at);
      if (end === -1) return { state: 'open', inQuotes: false };
      return { state: 'bad', message: 'A quote stands where none may be.', end: end + 1 };
    }
    cells.push(part.cell);
    if (lineBreak > 0) return { state: 'whole', cells, end: at + lineBreak };
    at += 1;
  }
}

/** The cells of a line without its line break; undefined when its quotes are wrong. */
export function splitCsvRecord(line: string, delimiter: string): string[] | undefined {
  if (!line.includes('"')) return line.split(delimiter);
  const scan = scanCsvRecord(`${line}\n`, 0, delimiter);
  return scan.state === 'whole' ? scan.cells : undefined;
}

interface CsvCell {
  cell: string;
  end: number;
}

function readQuoted(text: string, start: number): CsvCell | undefined {
  let cell = '';
  let from = start + 1;
  for (;;) {
    const quote = text.indexOf('"', from);
    if (quote === -1) return undefined;
    cell += text.slice(from, quote);
    if (text[quote + 1] !== '"') return { cell, end: quote + 1 };
    cell += '"';
    from = quote + 2;
  }
}

function readPlain(text: string, start: number, delimiter: string): CsvCell {
  let end = start;
  for (; end < text.length; end++) {
    const char = text[end];
    if (char === delimiter || char === '\n' || (char === '\r' && (text[end + 1] ?? '\n') === '\n')) break;
  }
  return { cell: text.slice(start, end), end };
}
