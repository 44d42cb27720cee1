import { TillsyncError } from '../../core/errors.ts';
import { fold } from '../../core/folding.ts';
import { editDistance, mayBeThousands, parsePlainDecimal } from '../../core/values.ts';
import {
  badText,
  type ChangeFault,
  type ChangeKind,
  COLUMNS,
  cut,
  type ItemParser,
  type RawItem,
} from './change.ts';
import { type OptionNames, optionText } from './same-article.ts';

/** Decimal sign of the numbers in a file. The other sign separates thousands. */
export type DecimalSign = 'point' | 'comma';

/** Delimiter of a file's cells and decimal sign of its numbers; `decimal` is undefined if nobody named the sign. */
type CellRules = { delimiter: string; decimal: DecimalSign | undefined; names: OptionNames };

/** A long id that a spreadsheet wrote as 7.8E+12, so that digits are lost. */
const SPOILT_ID = /^\d([.,]\d+)?E\+?\d+$/i;

/**
 * Reads a cell by the type of its column. Text in a column of numbers stays text, which the later check reports.
 * Returns a fault for a cell that might be misread.
 */
function readCell(
  column: string,
  cell: string,
  rules: CellRules,
): { value: unknown } | { fault: ChangeFault } {
  const text = cell.trim();
  if (column === 'qty' || column === 'price') return readNumber(column, text, rules);
  if ((column === 'externalId' || column === 'sku') && SPOILT_ID.test(text)) {
    return bad(
      column,
      text,
      'is what a spreadsheet made of a long id; its digits are lost. Format the column as text.',
    );
  }
  if (column !== 'show') return { value: cell };
  const word = text.toLowerCase();
  if (word === 'true' || word === '1') return { value: true };
  return { value: word === 'false' || word === '0' ? false : cell };
}

function readNumber(
  column: string,
  text: string,
  { delimiter, decimal, names }: CellRules,
): { value: unknown } | { fault: ChangeFault } {
  if (decimal !== undefined) return { value: parsePlainDecimal(withPoint(text, decimal) ?? '') ?? text };
  // If the comma does not separate cells, it may be the decimal sign of the file.
  if (delimiter !== ',' && mayBeThousands(text)) {
    const signs = `${optionText(names, 'decimal', 'comma')}, or ${optionText(names, 'decimal', 'point')}`;
    const both = `${text.replace('.', '')} or ${Number(text)}`;
    return bad(column, text, `may mean ${both}. Say which: ${signs}.`);
  }
  if (/^[+-]?\d+(\.\d{3})*,\d+$/.test(text)) {
    const said = optionText(names, 'decimal', 'comma');
    return bad(column, text, `has a comma. If that is the decimal sign of the file: ${said}.`);
  }
  return { value: parsePlainDecimal(text) ?? text };
}

/** Returns the number with a decimal point and without separators of thousands; undefined if a sign is misplaced. */
function withPoint(text: string, decimal: DecimalSign): string | undefined {
  const [sign, group] = decimal === 'comma' ? [',', '.'] : ['.', ','];
  const [whole = '', fraction, ...more] = text.split(sign);
  const grouped = whole.split(group);
  const isGrouped =
    grouped.slice(1).every((each) => each.length === 3) && /^[+-]?[1-9]\d{0,2}$/.test(grouped[0] ?? '');
  if (more.length > 0 || (grouped.length > 1 && !isGrouped) || fraction?.includes(group)) return undefined;
  return fraction === undefined ? grouped.join('') : `${grouped.join('')}.${fraction}`;
}

function bad(column: string, text: string, why: string): { fault: ChangeFault } {
  const message = `${column} ${JSON.stringify(text.slice(0, 60))} ${why}`;
  return { fault: { code: 'bad-value', column, message } };
}

/** Result of scanning one record. */
type CsvScan =
  | { state: 'whole'; cells: string[]; quoted: boolean[]; end: number }
  /** `end` is after the faulty line. */
  | { state: 'bad'; message: string; end: number }
  /** The text ends within the record, perhaps inside quotes. */
  | { state: 'open'; inQuotes: boolean };

/**
 * Reads one record (RFC 4180) from `start`. Cells that contain a delimiter are quoted, and quotes inside are doubled.
 * `end` is the position after the record's line break.
 */
function scanCsvRecord(text: string, start: number, delimiter: string): CsvScan {
  const cells: string[] = [];
  const quotes: boolean[] = [];
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
    quotes.push(quoted);
    if (lineBreak > 0) return { state: 'whole', cells, quoted: quotes, end: at + lineBreak };
    at += 1;
  }
}

/** Splits a line without its line break into cells; undefined if its quotes are wrong. */
function splitCsvRecord(line: string, delimiter: string): string[] | undefined {
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

const DELIMITERS = [',', ';', '\t'] as const;
const DELIMITER_NAMES: Record<string, string> = { ',': 'comma', ';': 'semicolon', '\t': 'tab' };
/** Maximum number of column names that a message lists. */
const NAMED_MAX = 12;

/** Other accepted names of columns, in the form that `plainName` returns. */
const ALIASES: Record<ChangeKind, Record<string, string>> = {
  stock: { codigo: 'externalId', cantidad: 'qty', stock: 'qty', existencia: 'qty', existencias: 'qty' },
  product: { codigo: 'externalId', precio: 'price', nombre: 'name', descripcion: 'description' },
};

interface CsvHeader {
  delimiter: string;
  /** Names of the columns in a change, in the order of the file; null for an ignored column. */
  columns: (string | null)[];
  /** Ignored columns, as the file names them. */
  ignored: string[];
}

/**
 * Reads the header, and detects the delimiter: the one that splits the header into most cells. Names match in any
 * case, with or without underscores, blanks and accents (`external_id`, `External ID`, `Código`). Throws `usage` if a
 * needed column is missing, present twice or probably misspelt. `said` is the delimiter from a line `sep=`;
 * `mayIgnore` allows unknown columns.
 */
function readCsvHeader(
  line: string,
  kind: ChangeKind,
  said: string | undefined,
  mayIgnore: boolean,
): CsvHeader {
  const known = COLUMNS[kind];
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
  for (const name of unknown) {
    const like = known.find((column) => isSlipOf(plainName(name), plainName(column)));
    if (like) throw refuse(`The column ${quoted([name])} is none, and looks like ${like}.`);
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
  return fold(name).replace(/[_ -]/g, '');
}

function quoted(names: readonly string[]): string {
  const list = names.slice(0, NAMED_MAX).map((name) => JSON.stringify(name.slice(0, 60)));
  return [...list, ...(names.length > NAMED_MAX ? [`and ${names.length - NAMED_MAX} more`] : [])].join(', ');
}

/** Whether `name` is `column` with one or two letters mistyped. */
function isSlipOf(name: string, column: string): boolean {
  const most = column.length > 6 ? 2 : 1;
  // Lengths are compared first, because the distance of a very long name is slow to compute.
  if (name === column || Math.abs(name.length - column.length) > most) return false;
  return editDistance(name, column) <= most;
}

/** Longest accepted record, in characters. A record without an end would be scanned again with each chunk. */
export const RECORD_LENGTH_MAX = 1_000_000;

interface CsvOptions {
  kind: ChangeKind;
  /** Decimal sign of the file's numbers; undefined if nobody named it. */
  decimal?: DecimalSign | undefined;
  /** Called with the ignored columns. If left out, an unknown column is refused. */
  tell?: ((note: string) => void) | undefined;
  /** How the sender names options. */
  names: OptionNames;
}

/**
 * What a cell of a description contains to clear it: two quotes, as a person types them into a spreadsheet, which writes
 * them as six.
 */
const CLEARING_TEXT = '""';

/**
 * Reads CSV with a header line, perhaps after a line `sep=;`. An empty cell means that the value is not given. A
 * description is cleared by a cell with the text `""`, or by an empty cell in quotes, unless the header is in quotes
 * too: such a file has all its cells in quotes. A line with more or fewer cells than the header is a fault. Empty lines
 * are skipped.
 */
export class Csv implements ItemParser {
  readonly #options: CsvOptions;
  #header: CsvHeader | undefined;
  /** Whether quotes around an empty cell mean something, as the file does not quote every cell. */
  #quotesMean = false;
  #saidDelimiter: string | undefined;
  #text = '';
  /** Number of lines before `#text`. */
  #lines = 0;
  #index = 0;
  #givenUp = false;

  constructor(options: CsvOptions) {
    this.#options = options;
  }

  push(text: string): RawItem[] {
    if (this.#givenUp) return [];
    this.#text += text;
    const items: RawItem[] = [];
    let at = 0;
    while (at < this.#text.length) {
      const end = this.#next(at, items);
      if (end === undefined) break;
      at = end;
    }
    this.#text = this.#text.slice(at);
    if (this.#text.length > RECORD_LENGTH_MAX) {
      this.#givenUp = true;
      if (!this.#header) throw noHeader();
      items.push(this.#item(cut('A quote that begins here is never closed; nothing after it was read.')));
    }
    return items;
  }

  end(): RawItem[] {
    if (this.#givenUp || this.#text === '') {
      // An empty file is refused like a file with a wrong header.
      if (!this.#header) this.#readHeader('');
      return [];
    }
    const atLastLine = this.#text;
    const items = this.push('\n');
    if (this.#text !== '') return [this.#item(cut('The file ends within quotes that begin here.'))];
    const last = items.at(-1);
    if (!last || !('fault' in last) || last.fault.code !== 'bad-text') return items;
    const cells = atLastLine.split(this.#header?.delimiter ?? ',').length;
    const isShort = cells < (this.#header?.columns.length ?? 0);
    return isShort
      ? [...items.slice(0, -1), { ...last, ...cut('The file ends in the middle of this line.') }]
      : items;
  }

  /** Reads the record at `at`. Returns the position after the record, or undefined while the record is incomplete. */
  #next(at: number, items: RawItem[]): number | undefined {
    const text = this.#text;
    const lineEnd = text.indexOf('\n', at);
    if (lineEnd === -1) return undefined;
    const line = text.slice(at, text[lineEnd - 1] === '\r' && lineEnd > at ? lineEnd - 1 : lineEnd);
    if (!this.#header) {
      this.#readHeader(line);
      this.#lines += 1;
      return lineEnd + 1;
    }
    if (!line.includes('"')) {
      if (line !== '') items.push(this.#record(line.split(this.#header.delimiter)));
      this.#lines += 1;
      return lineEnd + 1;
    }
    const scan = scanCsvRecord(text, at, this.#header.delimiter);
    if (scan.state === 'open') return undefined;
    items.push(
      scan.state === 'bad' ? this.#item(badText(scan.message)) : this.#record(scan.cells, scan.quoted),
    );
    this.#lines += countLines(text, at, scan.end);
    return scan.end;
  }

  #record(cells: string[], quoted: readonly boolean[] = []): RawItem {
    const columns = this.#header?.columns ?? [];
    if (cells.length !== columns.length) {
      return this.#item(badText(`The line has ${cells.length} cells, the header has ${columns.length}.`));
    }
    const { decimal, names } = this.#options;
    const rules = { delimiter: this.#header?.delimiter ?? ',', decimal, names };
    const value: Record<string, unknown> = {};
    let faulty: { fault: ChangeFault } | undefined;
    for (let i = 0; i < columns.length; i++) {
      const [column, cell] = [columns[i], cells[i] as string];
      if (column === null || column === undefined) continue;
      const isCleared = cell === CLEARING_TEXT || (cell === '' && quoted[i] === true && this.#quotesMean);
      if (column === 'description' && isCleared) value[column] = '';
      if (cell === '' || (column === 'description' && isCleared)) continue;
      const read = readCell(column, cell, rules);
      if ('fault' in read) faulty ??= read;
      else value[column] = read.value;
    }
    return this.#item(faulty ? { ...faulty, value } : { value });
  }

  /** Reads a line as the header, or as the line `sep=` that may come before the header. */
  #readHeader(line: string): void {
    const { kind, tell } = this.#options;
    if (this.#saidDelimiter === undefined) {
      // Excel names the delimiter in a line `sep=;` before the header.
      this.#saidDelimiter = /^"?sep=([,;\t])"?\s*$/i.exec(line)?.[1];
      if (this.#saidDelimiter !== undefined) return;
    }
    const header = readCsvHeader(line, kind, this.#saidDelimiter, tell !== undefined);
    this.#header = header;
    this.#quotesMean = !/^\s*"/.test(line);
    if (header.ignored.length > 0) {
      tell?.(
        `Columns that are passed over: ${header.ignored.map((name) => JSON.stringify(name.slice(0, 60))).join(', ')}.`,
      );
    }
  }

  #item<T extends object>(content: T): T & { index: number; line: number } {
    return { index: this.#index++, line: this.#lines + 1, ...content };
  }
}

function noHeader(): TillsyncError {
  return new TillsyncError('usage', 'The first line is too long to be a header. Nothing was taken.', {
    hint: 'The file must be CSV with a header line, a JSON array or NDJSON.',
  });
}

function countLines(text: string, start: number, end: number): number {
  let lines = 0;
  for (let at = text.indexOf('\n', start); at !== -1 && at < end; at = text.indexOf('\n', at + 1)) lines += 1;
  return lines;
}
