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
export interface EnvelopeHints {
  success?: boolean;
  hasNextPage?: boolean;
  totalPages?: number;
  page?: number;
  totalDocs?: number;
  limit?: number;
}

export interface ScannedAnswer {
  lists: RecordList[];
  /**
   * For each object with objects as properties, these objects as records, such as `{"data": {"id-1": {…}}}`. Its path
   * ends in `{}`.
   */
  maps: RecordList[];
  /** Lists and objects that were not searched, because they are nested too deeply or too many. */
  skipped: SkippedPart[];
  hints: EnvelopeHints;
}

interface SkippedPart {
  path: string;
  /** Position of the first byte. */
  start: number;
}

/** Depth to which nested objects are searched for lists and hints. */
const DEPTH_MAX = 6;
/** Maximum numbers of lists, of objects with objects, and of skipped parts that are remembered. */
const LISTS_MAX = 2_000;
const MAPS_MAX = 20_000;
const SKIPPED_MAX = 20;
const ENVELOPES_MAX = 2_000;
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
  const scan = new Scan(bytes);
  scan.whole();
  return scan.found;
}

/**
 * Finds the lists inside the elements of a list, such as the pages in `[{"docs": […]}, {"docs": […]}]`. Lists under the
 * same names become one list, here `[].docs`.
 */
export function scanInside(bytes: Uint8Array, list: RecordList): ScannedAnswer {
  const scan = new Scan(bytes);
  scan.elements(list);
  return scan.found;
}

/** Joins the elements of lists to one list. */
export function joinedList(lists: readonly RecordList[]): RecordList {
  const [first] = lists;
  if (first !== undefined && lists.length === 1) return first;
  const length = lists.reduce((sum, list) => sum + list.length, 0);
  const joined: RecordList = {
    path: lists.map(({ path }) => path).join(', '),
    starts: new Uint32Array(length),
    ends: new Uint32Array(length),
    length: 0,
  };
  for (const list of lists) {
    joined.starts.set(list.starts.subarray(0, list.length), joined.length);
    joined.ends.set(list.ends.subarray(0, list.length), joined.length);
    joined.length += list.length;
  }
  return joined;
}

/**
 * Returns the number of elements of each array or object whose elements are in the list, because a list may be joined
 * from several.
 */
export function lengthsIn(bytes: Uint8Array, list: RecordList): number[] {
  const lengths: number[] = [];
  for (let index = 0, first = 0; index < list.length; index++) {
    const next = list.starts[index + 1] ?? 0;
    const end = list.ends[index] ?? 0;
    const between = bytes.subarray(end, next);
    const isLast = index + 1 === list.length || next < end;
    if (!isLast && !between.includes(CLOSE_ARRAY) && !between.includes(CLOSE_OBJECT)) continue;
    lengths.push(index + 1 - first);
    first = index + 1;
  }
  return lengths;
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

/**
 * Returns what all envelopes of an answer say together. The pages of one list have different numbers, so the last one
 * speaks for all; lists beside each other, such as one for each branch, have further pages if one of them has.
 */
function mergedHints(envelopes: readonly EnvelopeHints[]): EnvelopeHints {
  const flat: EnvelopeHints = Object.assign({}, ...envelopes.toReversed());
  const paged = envelopes.filter(({ success: _, ...paging }) => Object.keys(paging).length > 0);
  const names = paged.flatMap(({ success: _, ...paging }) => Object.keys(paging));
  if (new Set(names).size === names.length) return flat;
  const { success } = flat;
  const said = success === undefined ? {} : { success };
  const pages = paged.flatMap(({ page }) => page ?? []);
  if (pages.length > 1 && new Set(pages).size === pages.length) {
    return { ...Object.assign({}, ...paged.toSorted((a, b) => (a.page ?? 0) - (b.page ?? 0))), ...said };
  }
  const hasNextPage = paged.some((each) => speaksOfMorePages({ ...each, totalDocs: 0 }, 0));
  const totalDocs = paged.reduce((sum, each) => sum + (each.totalDocs ?? 0), 0);
  if (hasNextPage) return { ...said, hasNextPage };
  const [limit] = paged.flatMap((each) => each.limit ?? []);
  return limit === undefined ? said : { ...said, totalDocs, limit };
}

const decoder = new TextDecoder();

/**
 * Scans the bytes of an answer. A method that scans a value takes the position of its first byte, and returns the
 * position after its last byte.
 */
class Scan {
  readonly #bytes: Uint8Array;
  readonly #lists = new Map<string, RecordList>();
  readonly #maps: RecordList[] = [];
  readonly #skipped: SkippedPart[] = [];
  readonly #envelopes: EnvelopeHints[] = [];
  /** Opening brackets of the open containers in a value that is skipped. The array is enlarged if they nest deeper. */
  #open = new Uint8Array(64);

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get found(): ScannedAnswer {
    const hints = mergedHints(this.#envelopes);
    return { lists: [...this.#lists.values()], maps: this.#maps, skipped: this.#skipped, hints };
  }

  whole(): void {
    const bytes = this.#bytes;
    const hasMark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    const start = this.#space(hasMark ? 3 : 0);
    if (start >= bytes.length) throw this.#fault(start, 'a value');
    const end = this.#space(this.#lookedInto(start, []));
    if (end < bytes.length) throw this.#fault(end, 'the end');
  }

  elements({ path, starts, length }: RecordList): void {
    for (let index = 0; index < length; index++) this.#lookedInto(starts[index] as number, [`${path}[]`]);
  }

  /** Scans a value, and collects the lists and hints in it. */
  #lookedInto(at: number, path: string[]): number {
    const first = this.#bytes[at];
    if (first === OPEN_OBJECT) {
      if (path.length < DEPTH_MAX) return this.#object(at, path);
      const end = this.#value(at);
      if (this.#space(at + 1) !== end - 1) this.#skip(at, path);
      return end;
    }
    if (first === OPEN_ARRAY) {
      const name = path.join('.');
      const list = this.#lists.get(name) ?? emptyList(name);
      if (this.#lists.has(name) || this.#lists.size < LISTS_MAX) {
        this.#lists.set(name, list);
        return this.#list(at, list);
      }
      this.#skip(at, path);
    }
    return this.#value(at);
  }

  /** Remembers the first skipped parts and the last one. */
  #skip(start: number, path: readonly string[]): void {
    const at = Math.min(this.#skipped.length, SKIPPED_MAX);
    this.#skipped[at] = { path: path.join('.'), start };
  }

  #object(from: number, path: string[]): number {
    const bytes = this.#bytes;
    const hints: EnvelopeHints = {};
    let map: RecordList | undefined;
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
      // An object is remembered before the objects in it, so that the limit leaves out the inner ones.
      const isObject = bytes[at] === OPEN_OBJECT;
      if (isObject) map ??= this.#map(from, path);
      const end = this.#lookedInto(at, [...path, name]);
      if (isObject && map) addElement(map, at, end);
      this.#noteHint(hints, name, at, end);
      at = this.#space(end);
      if (bytes[at] === CLOSE_OBJECT) return at + 1;
      if (bytes[at] !== COMMA) throw this.#fault(at, 'a comma');
      at = this.#space(at + 1);
    }
  }

  #map(from: number, path: readonly string[]): RecordList | undefined {
    if (this.#maps.length >= MAPS_MAX) {
      this.#skip(from, path);
      return undefined;
    }
    const map = emptyList(`${path.join('.')}{}`);
    this.#maps.push(map);
    return map;
  }

  #list(from: number, list: RecordList): number {
    const bytes = this.#bytes;
    let at = this.#space(from + 1);
    if (bytes[at] === CLOSE_ARRAY) return at + 1;
    for (;;) {
      const end = this.#value(at);
      addElement(list, at, end);
      at = this.#space(end);
      if (bytes[at] === CLOSE_ARRAY) return at + 1;
      if (bytes[at] !== COMMA) throw this.#fault(at, 'a comma');
      at = this.#space(at + 1);
    }
  }

  /** Adds what a property says about the answer to the hints of its object. */
  #noteHint(hints: EnvelopeHints, name: string, from: number, to: number): void {
    if (to - from > HINT_MAX_BYTES) return;
    const [hint, type] = HINTS.find(([, , names]) => names.includes(name)) ?? [];
    if (hint === undefined || hints[hint] !== undefined) return;
    const value = this.#parsed(from, to);
    const found: string = typeof value;
    if (found !== type) return;
    const isNew = Object.keys(hints).length === 0;
    if (isNew && this.#envelopes.length < ENVELOPES_MAX) this.#envelopes.push(hints);
    Object.assign(hints, { [hint]: value });
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

function emptyList(path: string): RecordList {
  return { path, starts: new Uint32Array(4), ends: new Uint32Array(4), length: 0 };
}

function addElement(list: RecordList, start: number, end: number): void {
  if (list.length === list.starts.length) {
    list.starts = doubled(list.starts);
    list.ends = doubled(list.ends);
  }
  list.starts[list.length] = start;
  list.ends[list.length++] = end;
}

function doubled<T extends Uint8Array | Uint32Array>(array: T): T {
  const larger = new (array.constructor as new (length: number) => T)(array.length * 2);
  larger.set(array);
  return larger;
}
