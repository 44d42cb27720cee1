import { TillsyncError } from '../../core/errors.ts';
import { isExactDecimal } from '../../core/values.ts';
import {
  badText,
  type ChangeFault,
  type ChangeKind,
  cut,
  type ItemParser,
  type RawItem,
  readChange,
  type SourceLine,
  type SubmittedChange,
} from './change.ts';
import { Csv, type DecimalSign, RECORD_LENGTH_MAX } from './csv.ts';
import type { OptionNames } from './same-article.ts';

/** Maximum number of bytes of an incomplete character at the end of a chunk. The longest UTF-8 character has four. */
const PENDING_MAX = 3;

/**
 * Decodes a file chunk by chunk as UTF-8. With `mayBe1252`, the file is Windows-1252 if its first byte beyond ASCII
 * is not valid UTF-8, as in files of older Windows programs. A wrong byte later in a UTF-8 file is a fault.
 */
class FileText {
  /** Whether the file is read as Windows-1252. */
  is1252 = false;
  readonly #mayBe1252: boolean;
  #decoder = new TextDecoder();
  #isSettled: boolean;
  /** Bytes at the end of the last chunk that may be the beginning of a character. */
  #pending = new Uint8Array(0);

  constructor(mayBe1252: boolean) {
    this.#mayBe1252 = mayBe1252;
    this.#isSettled = !mayBe1252;
  }

  push(piece: Uint8Array): string {
    if (this.#isSettled) return this.#decoder.decode(piece, { stream: true });
    const bytes = new Uint8Array(this.#pending.length + piece.length);
    bytes.set(this.#pending);
    bytes.set(piece, this.#pending.length);
    const first = bytes.findIndex((byte) => byte > 0x7f);
    if (first === -1) {
      this.#pending = new Uint8Array(0);
      return this.#decoder.decode(bytes, { stream: true });
    }
    if (bytes.length - first <= PENDING_MAX) {
      this.#pending = bytes.slice(first);
      return this.#decoder.decode(bytes.subarray(0, first), { stream: true });
    }
    return this.#settle(bytes, first);
  }

  end(): string {
    if (this.#isSettled) return this.#decoder.decode();
    const first = this.#pending.length === 0 ? '' : this.#settle(this.#pending, 0);
    return first + this.#decoder.decode();
  }

  #settle(bytes: Uint8Array, first: number): string {
    this.#isSettled = true;
    this.#pending = new Uint8Array(0);
    // Decodes the first character beyond ASCII, which shows whether the text is valid UTF-8.
    const character = new TextDecoder().decode(bytes.subarray(first, first + PENDING_MAX + 1));
    this.is1252 = this.#mayBe1252 && character.startsWith('\uFFFD');
    if (this.is1252) this.#decoder = new TextDecoder('windows-1252');
    return this.#decoder.decode(bytes, { stream: true });
  }
}

/**
 * Matches numbers that a double may not hold: those of 15 digits or more may lose digits, and those with a large
 * negative exponent may become zero.
 */
const LONG_NUMBER = /\d[\d.eE+-]{14,}|\d[eE]-0*\d{3}/;

type SourceReviver = (key: string, value: unknown, context: { source?: string }) => unknown;
const parseWithSource = JSON.parse as (text: string, reviver: SourceReviver) => unknown;

/** Parses JSON text. A number that would lose digits is a fault and is never rounded silently. */
function parseExactJson(text: string): { value: unknown } | { fault: ChangeFault; value?: unknown } {
  let lossy: string | undefined;
  try {
    if (!LONG_NUMBER.test(text)) return { value: JSON.parse(text) as unknown };
    const value = parseWithSource(text, (_key, each, { source }) => {
      if (typeof each === 'number' && source !== undefined && !isExactDecimal(source)) lossy ??= source;
      return each;
    });
    if (lossy === undefined) return { value };
    return { ...badText(`The number ${lossy} cannot be kept exactly.`), value };
  } catch {
    const shown = text.length > 60 ? `${text.slice(0, 57)}…` : text;
    return badText(`${JSON.stringify(shown)} is not JSON.`);
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/**
 * Splits a JSON array into elements by counting the brackets outside strings, and parses each element separately. So a
 * bad element does not affect the others, and a large array is never in memory as a whole.
 */
class JsonArray implements ItemParser {
  #text = '';
  /** Positions in `#text`: `#at` is where the scan continues, `#start` where the current element began. */
  #at = 0;
  #start = 0;
  #depth = 0;
  #inText = false;
  #index = 0;
  #state: 'before' | 'within' | 'after' | 'over' = 'before';

  push(text: string): RawItem[] {
    if (this.#state === 'over') return [];
    this.#text = this.#text.slice(this.#start) + text;
    this.#at -= this.#start;
    this.#start = 0;
    const items: RawItem[] = [];
    if (this.#state === 'before') this.#open();
    if (this.#state === 'within') this.#scan(items);
    if (this.#state === 'after') this.#trailing(items);
    if (this.#text.length - this.#start > RECORD_LENGTH_MAX) {
      this.#state = 'over';
      items.push(this.#place(neverEnds('element')));
    }
    return items;
  }

  end(): RawItem[] {
    if (this.#state === 'after' || this.#state === 'over') return [];
    return [this.#place(cut('The array has no end: the file is cut off here.'))];
  }

  #open(): void {
    const start = this.#text.search(/\S/);
    if (start === -1) {
      this.#text = '';
      return;
    }
    // If a person chose JSON for a file without an opening bracket, the first element begins at the first character.
    this.#state = 'within';
    this.#at = this.#start = this.#text[start] === '[' ? start + 1 : start;
  }

  #scan(items: RawItem[]): void {
    const text = this.#text;
    let at = this.#at;
    for (; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (this.#inText) {
        if (code === BACKSLASH) at += 1;
        else if (code === QUOTE) this.#inText = false;
      } else if (code === QUOTE) {
        this.#inText = true;
      } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
        this.#depth += 1;
      } else if (this.#depth > 0) {
        if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) this.#depth -= 1;
      } else if (code === COMMA || code === CLOSE_ARRAY) {
        this.#element(text.slice(this.#start, at), code === CLOSE_ARRAY, items);
        this.#start = at + 1;
        if (code === CLOSE_ARRAY) {
          this.#state = 'after';
          break;
        }
      }
    }
    this.#at = this.#state === 'after' ? this.#start : at;
  }

  #element(text: string, isLast: boolean, items: RawItem[]): void {
    if (isLast && this.#index === 0 && text.trim() === '') return;
    items.push(this.#place(parseExactJson(text)));
  }

  #trailing(items: RawItem[]): void {
    if (this.#text.slice(this.#start).trim() !== '') {
      // Content after the array is reported once, whatever its length.
      this.#state = 'over';
      items.push(this.#place(badText('Something follows the end of the array; it was not read.')));
    }
    this.#start = this.#at = this.#text.length;
  }

  #place<T extends object>(content: T): T & { index: number; line: null } {
    return { index: this.#index++, line: null, ...content };
  }
}

function neverEnds(what: string): { fault: ChangeFault } {
  return cut(`The ${what} that begins here is too long; nothing from it on was read.`);
}

/** Splits NDJSON, which has one JSON value per line, into items. Empty lines are skipped. */
class JsonLines implements ItemParser {
  #rest = '';
  #line = 0;
  #index = 0;
  #isOver = false;

  push(text: string): RawItem[] {
    if (this.#isOver) return [];
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    const items = lines.flatMap((line) => this.#item(line));
    if (this.#rest.length <= RECORD_LENGTH_MAX) return items;
    this.#isOver = true;
    this.#rest = '';
    return [...items, { index: this.#index, line: this.#line + 1, ...neverEnds('line') }];
  }

  end(): RawItem[] {
    const text = this.#rest;
    const [last] = this.#item(text);
    this.#rest = '';
    if (!last) return [];
    // If the last line has no line break and is not JSON, the file was cut off within the line.
    return [isJson(text) ? last : { ...last, ...cut('The file ends in the middle of this line.') }];
  }

  #item(line: string): RawItem[] {
    this.#line += 1;
    return line.trim() === '' ? [] : [{ index: this.#index++, line: this.#line, ...parseExactJson(line) }];
  }
}

export type FileFormat = 'csv' | 'json' | 'ndjson';

interface ReadChangeFileOptions {
  /** If left out, the first character decides: `[` means a JSON array, `{` means NDJSON, anything else CSV. */
  format?: FileFormat;
  /** Decimal sign of the numbers in a CSV file. If left out, an ambiguous number is refused. */
  decimal?: DecimalSign | undefined;
  /**
   * Called with notes for a person on how the file is read, such as ignored columns or another encoding. If left out,
   * unknown columns and text that is not UTF-8 are refused.
   */
  tell?: ((note: string) => void) | undefined;
  /** How the sender names options, for messages that advise one; by default as on the command line. */
  names?: OptionNames;
}

/**
 * Reads changes from a file or stream: CSV with a header, a JSON array, or NDJSON. Yields one array per chunk. Each
 * item is checked separately, and has its index and, except in a JSON array, its line. Throws `usage` if nothing is
 * readable, as with UTF-16 or a wrong header.
 */
export async function* readChangeFile(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  kind: ChangeKind,
  options: ReadChangeFileOptions = {},
): AsyncGenerator<(SourceLine & SubmittedChange)[]> {
  const check = (item: RawItem): SourceLine & SubmittedChange => {
    const { index, line } = item;
    if ('fault' in item) return { ...item, kind };
    const reading = readChange(kind, item.value);
    return { index, line, ...reading, ...('fault' in reading && { value: item.value }) };
  };
  const { format, tell } = options;
  const decoder = new FileText(tell !== undefined);
  const tellEncoding = () => {
    if (!decoder.is1252 || toldEncoding) return;
    toldEncoding = true;
    tell?.('The file is not UTF-8, so it is read as Windows-1252.');
  };
  let toldEncoding = false;
  let parser: ItemParser | undefined;
  let held = '';
  for await (const chunk of chunks) {
    const text = decoder.push(chunk);
    if (!parser && (isUtf16(chunk) || text.includes('\0'))) throw wrongEncoding();
    tellEncoding();
    if (parser) {
      yield parser.push(text).map(check);
      continue;
    }
    held += text;
    if (format === undefined && held.trim() === '') continue;
    parser = parserOf(format ?? formatOf(held), kind, options);
    yield parser.push(held).map(check);
  }
  const rest = decoder.end();
  parser ??= parserOf(format ?? formatOf(held + rest), kind, options);
  const items = [...parser.push(rest), ...parser.end()];
  tellEncoding();
  if (items.length > 0) yield items.map(check);
}

function formatOf(text: string): FileFormat {
  const first = text.trimStart()[0];
  if (first === '[') return 'json';
  return first === '{' ? 'ndjson' : 'csv';
}

function parserOf(
  format: FileFormat,
  kind: ChangeKind,
  { decimal, tell, names = 'command' }: ReadChangeFileOptions,
): ItemParser {
  if (format === 'csv') return new Csv({ kind, decimal, tell, names });
  return format === 'json' ? new JsonArray() : new JsonLines();
}

function isUtf16(chunk: Uint8Array): boolean {
  const [a, b] = chunk;
  return (a === 0xff && b === 0xfe) || (a === 0xfe && b === 0xff);
}

function wrongEncoding(): TillsyncError {
  return new TillsyncError('usage', 'The file is not UTF-8 text. Nothing was taken.', {
    hint: 'Save it as UTF-8 (in a spreadsheet: "CSV UTF-8"), then hand it over again.',
  });
}
