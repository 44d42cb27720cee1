import { TillsyncError } from './errors.ts';

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_ARRAY = 91;
const BACKSLASH = 92;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

/**
 * Walks the bytes of a JSON text without building values. Every method takes the place of a first byte and
 * gives the place after the last. Throws `platform-garbled` where the text is cut off or does not balance.
 */
export class JsonScan {
  readonly bytes: Uint8Array;
  /** Kinds of the containers that are open inside the value being skipped; grows with its depth. */
  #open = new Uint8Array(64);

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  fault(at: number, expected: string): TillsyncError {
    const length = this.bytes.length;
    const what =
      at >= length
        ? `The answer is cut off after ${length} bytes; nothing of it was mirrored.`
        : `The answer is not JSON at byte ${at}, where ${expected} was expected; nothing of it was mirrored.`;
    return new TillsyncError('platform-garbled', what, {
      hint: 'It is asked for again by itself; if it stays, a proxy may be changing answers.',
    });
  }

  /** Skips white space, and a byte order mark at the very start. */
  space(from: number): number {
    const bytes = this.bytes;
    let at = from;
    if (at === 0 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) at = 3;
    for (; at < bytes.length; at++) {
      const byte = bytes[at];
      if (byte !== 32 && byte !== 10 && byte !== 13 && byte !== 9) break;
    }
    return at;
  }

  string(from: number): number {
    const bytes = this.bytes;
    const length = bytes.length;
    for (let at = from + 1; at < length; at++) {
      const byte = bytes[at];
      if (byte === QUOTE) return at + 1;
      if (byte === BACKSLASH) at++;
    }
    throw this.fault(length, 'the end of a text');
  }

  /** Any value; of a container's inside only the balance is checked. */
  value(from: number): number {
    const first = this.bytes[from];
    if (first === OPEN_OBJECT || first === OPEN_ARRAY) return this.#container(from);
    if (first === QUOTE) return this.string(from);
    return this.#scalar(from);
  }

  #container(from: number): number {
    const bytes = this.bytes;
    const length = bytes.length;
    let open = this.#open;
    let depth = 0;
    for (let at = from; at < length; at++) {
      const byte = bytes[at] as number;
      if (byte === QUOTE) {
        // Written out here: most bytes of an answer are inside texts, and a call for each costs a third more.
        for (at++; at < length; at++) {
          const inside = bytes[at];
          if (inside === QUOTE) break;
          if (inside === BACKSLASH) at++;
        }
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (depth === open.length) {
          this.#open = new Uint8Array(open.length * 2);
          this.#open.set(open);
          open = this.#open;
        }
        open[depth++] = byte;
      } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
        // In ASCII each closing bracket is its opening one plus two.
        if (open[--depth] !== byte - 2) throw this.fault(at, 'the other bracket');
        if (depth === 0) return at + 1;
      }
    }
    throw this.fault(length, 'the end of a container');
  }

  #scalar(from: number): number {
    const bytes = this.bytes;
    let at = from;
    for (; at < bytes.length; at++) {
      const byte = bytes[at] as number;
      if (byte <= 32 || byte === COMMA || byte === CLOSE_ARRAY || byte === CLOSE_OBJECT || byte === COLON)
        break;
    }
    if (!isScalar(this.text(from, Math.min(at, from + 400))))
      throw this.fault(at === from ? at : from, 'a value');
    return at;
  }

  /** The text between two places, exactly as received. */
  text(from: number, to: number): string {
    return decoder.decode(this.bytes.subarray(from, to));
  }

  is(at: number, character: '{' | '[' | '}' | ']' | ',' | ':' | '"'): boolean {
    return this.bytes[at] === character.charCodeAt(0);
  }
}

const decoder = new TextDecoder();

function isScalar(text: string): boolean {
  return (
    text === 'true' || text === 'false' || text === 'null' || /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text)
  );
}

/** One array of the answer, with the place of each of its elements. */
export interface RecordList {
  /** Names from the root joined by dots, such as `data.docs`; empty for the root itself. */
  path: string;
  /** Place of each element's first byte, and of the byte after its last; `length` of them are in use. */
  starts: Uint32Array;
  ends: Uint32Array;
  length: number;
  /** How many elements are objects. */
  objects: number;
}

/** Scalars beside the records that tell what the answer is part of. */
export interface EnvelopeHints {
  success?: boolean;
  message?: string;
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

/** Objects inside objects that are looked into for lists and hints. */
const DEPTH_MAX = 6;
const LISTS_MAX = 200;

const HINT_NAMES: Record<string, { hint: keyof EnvelopeHints; type: 'boolean' | 'number' | 'string' }> = {
  success: { hint: 'success', type: 'boolean' },
  message: { hint: 'message', type: 'string' },
  hasNextPage: { hint: 'hasNextPage', type: 'boolean' },
  has_next_page: { hint: 'hasNextPage', type: 'boolean' },
  hasMore: { hint: 'hasNextPage', type: 'boolean' },
  has_more: { hint: 'hasNextPage', type: 'boolean' },
  totalPages: { hint: 'totalPages', type: 'number' },
  total_pages: { hint: 'totalPages', type: 'number' },
  pages: { hint: 'totalPages', type: 'number' },
  page: { hint: 'page', type: 'number' },
  currentPage: { hint: 'page', type: 'number' },
  current_page: { hint: 'page', type: 'number' },
  totalDocs: { hint: 'totalDocs', type: 'number' },
  total: { hint: 'totalDocs', type: 'number' },
  limit: { hint: 'limit', type: 'number' },
};

/**
 * Goes once over the bytes of an answer and finds every array that a chain of objects leads to, without
 * parsing the elements. The whole structure is checked before this returns: throws `platform-garbled` when the
 * answer is cut off, does not balance or is followed by something else.
 */
export function scanRecords(bytes: Uint8Array): ScannedAnswer {
  const scan = new JsonScan(bytes);
  const found: ScannedAnswer = { lists: [], hints: {} };
  const start = scan.space(0);
  if (start >= bytes.length) throw scan.fault(start, 'a value');
  const end = scan.space(anyValue(scan, start, [], found));
  if (end < bytes.length) throw scan.fault(end, 'the end');
  return found;
}

/** The text of one element of a list, exactly as received. */
export function recordText(bytes: Uint8Array, list: RecordList, index: number): string {
  return recordDecoder.decode(recordBytes(bytes, list, index));
}

/** The bytes of one element of a list, not copied. */
export function recordBytes(bytes: Uint8Array, list: RecordList, index: number): Uint8Array {
  return bytes.subarray(list.starts[index], list.ends[index]);
}

/** Whether the envelope says that this answer is not all there is. */
export function speaksOfMorePages(hints: EnvelopeHints, records: number): boolean {
  if (hints.hasNextPage !== undefined) return hints.hasNextPage;
  if (hints.totalPages !== undefined) return hints.totalPages > (hints.page ?? 1);
  return hints.limit !== undefined && hints.totalDocs !== undefined && hints.totalDocs > records;
}

const recordDecoder = new TextDecoder('utf-8', { ignoreBOM: true });

function anyValue(scan: JsonScan, at: number, path: string[], found: ScannedAnswer): number {
  if (scan.is(at, '{') && path.length < DEPTH_MAX) return objectValue(scan, at, path, found);
  if (scan.is(at, '[') && found.lists.length < LISTS_MAX) return arrayValue(scan, at, path, found);
  return scan.value(at);
}

function objectValue(scan: JsonScan, from: number, path: string[], found: ScannedAnswer): number {
  let at = scan.space(from + 1);
  if (scan.is(at, '}')) return at + 1;
  for (;;) {
    if (!scan.is(at, '"')) throw scan.fault(at, 'a name');
    const nameEnd = scan.string(at);
    const name = parseName(scan.text(at, nameEnd));
    if (name === undefined) throw scan.fault(at, 'a name');
    at = scan.space(nameEnd);
    if (!scan.is(at, ':')) throw scan.fault(at, 'a colon');
    at = scan.space(at + 1);
    const end = anyValue(scan, at, [...path, name], found);
    noteHint(found.hints, name, scan, at, end);
    at = scan.space(end);
    if (scan.is(at, '}')) return at + 1;
    if (!scan.is(at, ',')) throw scan.fault(at, 'a comma');
    at = scan.space(at + 1);
  }
}

function arrayValue(scan: JsonScan, from: number, path: string[], found: ScannedAnswer): number {
  const list: RecordList = {
    path: path.join('.'),
    starts: new Uint32Array(16),
    ends: new Uint32Array(16),
    length: 0,
    objects: 0,
  };
  found.lists.push(list);
  let at = scan.space(from + 1);
  if (scan.is(at, ']')) return at + 1;
  for (;;) {
    if (list.length === list.starts.length) grow(list);
    const end = scan.value(at);
    if (scan.is(at, '{')) list.objects++;
    list.starts[list.length] = at;
    list.ends[list.length++] = end;
    at = scan.space(end);
    if (scan.is(at, ']')) return at + 1;
    if (!scan.is(at, ',')) throw scan.fault(at, 'a comma');
    at = scan.space(at + 1);
  }
}

function grow(list: RecordList): void {
  for (const spans of ['starts', 'ends'] as const) {
    const larger = new Uint32Array(list[spans].length * 2);
    larger.set(list[spans]);
    list[spans] = larger;
  }
}

function parseName(text: string): string | undefined {
  try {
    return JSON.parse(text) as string;
  } catch {
    return undefined;
  }
}

function noteHint(hints: EnvelopeHints, name: string, scan: JsonScan, from: number, to: number): void {
  const known = Object.hasOwn(HINT_NAMES, name) ? HINT_NAMES[name] : undefined;
  if (!known || hints[known.hint] !== undefined || to - from > 1000) return;
  if (scan.is(from, '{') || scan.is(from, '[')) return;
  try {
    const value: unknown = JSON.parse(scan.text(from, to));
    const type: string = typeof value;
    if (type === known.type) Object.assign(hints, { [known.hint]: value });
  } catch {
    // A text with a bad escape says nothing.
  }
}
