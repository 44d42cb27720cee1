import type { ChangeKind } from '../change/change.ts';
import { TillsyncError } from '../errors.ts';
import { type DecimalSign, readCell } from './csv-cell.ts';
import { type CsvHeader, readCsvHeader, readSepLine } from './csv-header.ts';
import { scanCsvRecord } from './csv-record.ts';
import { badText, cut, type ItemParser, type RawItem } from './raw-item.ts';

/** Longest record that is waited for; a quote that is never closed would swallow the whole file. */
const RECORD_LENGTH_MAX = 1_000_000;

export interface CsvOptions {
  kind: ChangeKind;
  /** Which sign of its numbers is the decimal one; undefined: nobody said. */
  decimal?: DecimalSign | undefined;
  /** Told which columns are passed over; without it a column that no change has is refused. */
  tell?: ((note: string) => void) | undefined;
}

/**
 * CSV with a header line, before which `sep=;` may stand. An empty cell says nothing (so a description is cleared by JSON only). A line with
 * more or fewer cells than the header is a fault of its own. Empty lines are passed over.
 */
export class Csv implements ItemParser {
  readonly #options: CsvOptions;
  #header: CsvHeader | undefined;
  #saidDelimiter: string | undefined;
  #text = '';
  /** Lines before `#text`. */
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
      // A file without even a header is as wrong as one with a wrong header.
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

  /** Reads the record at `at`; the place after it, or undefined while it is not whole. */
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
    items.push(scan.state === 'bad' ? this.#item(badText(scan.message)) : this.#record(scan.cells));
    this.#lines += countLines(text, at, scan.end);
    return scan.end;
  }

  #record(cells: string[]): RawItem {
    const columns = this.#header?.columns ?? [];
    if (cells.length !== columns.length) {
      return this.#item(badText(`The line has ${cells.length} cells, the header has ${columns.length}.`));
    }
    const rules = { delimiter: this.#header?.delimiter ?? ',', decimal: this.#options.decimal };
    const value: Record<string, unknown> = {};
    for (let i = 0; i < columns.length; i++) {
      const [column, cell] = [columns[i], cells[i] as string];
      if (cell === '' || column === null || column === undefined) continue;
      const read = readCell(column, cell, rules);
      if ('fault' in read) return this.#item(read);
      value[column] = read.value;
    }
    return this.#item({ value });
  }

  /** Of the first lines; a line that only names the delimiter is none. */
  #readHeader(line: string): void {
    const { kind, tell } = this.#options;
    if (this.#saidDelimiter === undefined) {
      this.#saidDelimiter = readSepLine(line);
      if (this.#saidDelimiter !== undefined) return;
    }
    const header = readCsvHeader(line, {
      kind,
      delimiter: this.#saidDelimiter,
      mayIgnore: tell !== undefined,
    });
    this.#header = header;
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
