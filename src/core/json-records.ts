import { TillsyncError } from './errors.ts';

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_ARRAY = 91;
const BACKSLASH = 92;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

/** An array in an answer of the platform, with the positions of its elements. */
export interface RecordList {
  /**
   * Names of the properties from the root to the array, joined by dots, such as `data.docs`; '' if the root is the
   * array.
   */
  path: string;
  /**
   * `starts[i]` is the position of the first byte of element i, and `ends[i]` the position after its last byte. Only
   * the first `length` entries are used.
   */
  starts: Uint32Array;
  ends: Uint32Array;
  length: number;
}

/** Scalars outside the records, which describe the answer as a whole, such as its number of pages. */
interface EnvelopeHints {
  success?: boolean;
  hasNextPage?: boolean;
  totalPages?: number;
  page?: number;
  totalDocs?: number;
  limit?: number;
}

export interface ScannedAnswer {
  lists: RecordList[];
  hints: EnvelopeHints;
}

/** Depth to which nested objects are searched for lists and hints. */
const DEPTH_MAX = 6;
const LISTS_MAX = 200;
const HINT_MAX_BYTES = 1000;

const HINTS: [hint: keyof EnvelopeHints, type: string, names: string[]][] = [
  ['success', 'boolean', ['success']],
  ['hasNextPage', 'boolean', ['hasNextPage', 'has_next_page', 'hasMore', 'has_more']],
  ['totalPages', 'number', ['totalPages', 'total_pages', 'pages']],
  ['page', 'number', ['page', 'currentPage', 'current_page']],
  ['totalDocs', 'number', ['totalDocs', 'total']],
  ['limit', 'number', ['limit']],
];

/**
 * Scans the bytes of an answer once, and finds every array that is inside objects only, without parsing its elements.
 * Throws `platform-garbled` if the answer is cut off, has unbalanced brackets, or continues after its end.
 */
export function scanRecords(bytes: Uint8Array): ScannedAnswer {
  const { lists, hints } = new Scan(bytes);
  return { lists, hints };
}

const LONG_NUMBER = /[:,[]\s*-?\d{16}/;

/** Whether a JSON text may have an integer that is too large for JavaScript's numbers. */
export function hasLongNumber(text: string): boolean {
  return LONG_NUMBER.test(text);
}

/**
 * Parses JSON text. An integer too large for JavaScript becomes the text of its digits, because it may be an id:
 * `{"id": 12345678901234567890}` → `{ id: '12345678901234567890' }`.
 */
export function parseLossless(text: string): unknown {
  return hasLongNumber(text) ? JSON.parse(text, keepLongNumbers) : JSON.parse(text);
}

function keepLongNumbers(_name: string, value: unknown, context?: { source?: string }): unknown {
  const isLong = typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isLong && context?.source !== undefined && /^-?\d+$/.test(context.source) ? context.source : value;
}

const recordDecoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** Returns the text of one element, exactly as received. */
export function recordText(bytes: Uint8Array, list: RecordList, index: number): string {
  return recordDecoder.decode(recordBytes(bytes, list, index));
}

/** Returns the bytes of one element, as a view and not as a copy. */
export function recordBytes(bytes: Uint8Array, list: RecordList, index: number): Uint8Array {
  return bytes.subarray(list.starts[index], list.ends[index]);
}

/** Whether the hints show that more pages follow. */
export function speaksOfMorePages(hints: EnvelopeHints, records: number): boolean {
  if (hints.hasNextPage !== undefined) return hints.hasNextPage;
  if (hints.totalPages !== undefined) return hints.totalPages > (hints.page ?? 1);
  return hints.limit !== undefined && hints.totalDocs !== undefined && hints.totalDocs > records;
}

const decoder = new TextDecoder();

/**
 * Scans the bytes of an answer. A method that scans a value takes the position of its first byte, and returns the
 * position after its last byte.
 */
class Scan {
  readonly lists: RecordList[] = [];
  readonly hints: EnvelopeHints = {};
  readonly #bytes: Uint8Array;
  /** Opening brackets of the open containers in a value that is skipped. The array is enlarged if they nest deeper. */
  #open = new Uint8Array(64);

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    const hasMark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    const start = this.#space(hasMark ? 3 : 0);
    if (start >= bytes.length) throw this.#fault(start, 'a value');
    const end = this.#space(this.#lookedInto(start, []));
    if (end < bytes.length) throw this.#fault(end, 'the end');
  }

  /** Scans a value, and collects the lists and hints in it. */
  #lookedInto(at: number, path: string[]): number {
    const first = this.#bytes[at];
    if (first === OPEN_OBJECT && path.length < DEPTH_MAX) return this.#object(at, path);
    if (first === OPEN_ARRAY && this.lists.length < LISTS_MAX) return this.#list(at, path);
    return this.#value(at);
  }

  #object(from: number, path: string[]): number {
    const bytes = this.#bytes;
    let at = this.#space(from + 1);
    if (bytes[at] === CLOSE_OBJECT) return at + 1;
    for (;;) {
      if (bytes[at] !== QUOTE) throw this.#fault(at, 'a name');
      const nameEnd = this.#string(at);
      const name = this.#parsed(at, nameEnd);
      if (typeof name !== 'string') throw this.#fault(at, 'a name');
      at = this.#space(nameEnd);
      if (bytes[at] !== COLON) throw this.#fault(at, 'a colon');
      at = this.#space(at + 1);
      const end = this.#lookedInto(at, [...path, name]);
      this.#noteHint(name, at, end);
      at = this.#space(end);
      if (bytes[at] === CLOSE_OBJECT) return at + 1;
      if (bytes[at] !== COMMA) throw this.#fault(at, 'a comma');
      at = this.#space(at + 1);
    }
  }

  #list(from: number, path: string[]): number {
    const bytes = this.#bytes;
    const list: RecordList = {
      path: path.join('.'),
      starts: new Uint32Array(16),
      ends: new Uint32Array(16),
      length: 0,
    };
    this.lists.push(list);
    let at = this.#space(from + 1);
    if (bytes[at] === CLOSE_ARRAY) return at + 1;
    for (;;) {
      if (list.length === list.starts.length) {
        list.starts = doubled(list.starts);
        list.ends = doubled(list.ends);
      }
      const end = this.#value(at);
      list.starts[list.length] = at;
      list.ends[list.length++] = end;
      at = this.#space(end);
      if (bytes[at] === CLOSE_ARRAY) return at + 1;
      if (bytes[at] !== COMMA) throw this.#fault(at, 'a comma');
      at = this.#space(at + 1);
    }
  }

  #noteHint(name: string, from: number, to: number): void {
    if (to - from > HINT_MAX_BYTES) return;
    const [hint, type] = HINTS.find(([, , names]) => names.includes(name)) ?? [];
    if (hint === undefined || this.hints[hint] !== undefined) return;
    const value = this.#parsed(from, to);
    const found: string = typeof value;
    if (found === type) Object.assign(this.hints, { [hint]: value });
  }

  /** Skips a value. In a container, only the brackets are checked. */
  #value(from: number): number {
    const first = this.#bytes[from];
    if (first === OPEN_OBJECT || first === OPEN_ARRAY) return this.#container(from);
    return first === QUOTE ? this.#string(from) : this.#scalar(from);
  }

  #container(from: number): number {
    const bytes = this.#bytes;
    let open = this.#open;
    let depth = 0;
    for (let at = from; at < bytes.length; at++) {
      const byte = bytes[at] as number;
      if (byte === QUOTE) {
        // The loop is not in a function of its own, because most bytes are inside texts, and one call per text makes
        // the scan a third slower.
        for (at++; at < bytes.length; at++) {
          const inside = bytes[at];
          if (inside === QUOTE) break;
          if (inside === BACKSLASH) at++;
        }
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (depth === open.length) {
          open = doubled(open);
          this.#open = open;
        }
        open[depth++] = byte;
      } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
        // In ASCII, the code of a closing bracket is that of its opening bracket plus two.
        if (open[--depth] !== byte - 2) throw this.#fault(at, 'the other bracket');
        if (depth === 0) return at + 1;
      }
    }
    throw this.#fault(bytes.length, 'the end of a container');
  }

  #string(from: number): number {
    const bytes = this.#bytes;
    for (let at = from + 1; at < bytes.length; at++) {
      const byte = bytes[at];
      if (byte === QUOTE) return at + 1;
      if (byte === BACKSLASH) at++;
    }
    throw this.#fault(bytes.length, 'the end of a text');
  }

  #scalar(from: number): number {
    const bytes = this.#bytes;
    let at = from;
    for (; at < bytes.length; at++) {
      const byte = bytes[at] as number;
      const isEnd = byte <= 32 || byte === COMMA || byte === CLOSE_ARRAY || byte === CLOSE_OBJECT;
      if (isEnd || byte === COLON) break;
    }
    const text = this.#text(from, Math.min(at, from + 400));
    if (!/^(true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?)$/.test(text)) throw this.#fault(from, 'a value');
    return at;
  }

  #space(from: number): number {
    const bytes = this.#bytes;
    let at = from;
    for (; at < bytes.length; at++) {
      const byte = bytes[at];
      if (byte !== 32 && byte !== 10 && byte !== 13 && byte !== 9) break;
    }
    return at;
  }

  /** Returns the text between two positions, exactly as received. */
  #text(from: number, to: number): string {
    return decoder.decode(this.#bytes.subarray(from, to));
  }

  /** Parses a scalar. Returns undefined for a container, or a text with an invalid escape. */
  #parsed(from: number, to: number): unknown {
    if (this.#bytes[from] === OPEN_OBJECT || this.#bytes[from] === OPEN_ARRAY) return undefined;
    try {
      return JSON.parse(this.#text(from, to));
    } catch {
      return undefined;
    }
  }

  #fault(at: number, expected: string): TillsyncError {
    const length = this.#bytes.length;
    const what =
      at >= length
        ? `The answer is cut off after ${length} bytes; nothing of it was mirrored.`
        : `The answer is not JSON at byte ${at}, where ${expected} was expected; nothing of it was mirrored.`;
    return new TillsyncError('platform-garbled', what, {
      hint: 'It is asked for again by itself; if it stays, a proxy may be changing answers.',
    });
  }
}

function doubled<T extends Uint8Array | Uint32Array>(array: T): T {
  const larger = new (array.constructor as new (length: number) => T)(array.length * 2);
  larger.set(array);
  return larger;
}
