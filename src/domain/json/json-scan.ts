import { TillsyncError } from '../errors.ts';

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
