/** Longest incomplete character at the end of a piece, less one. */
const PENDING_MAX = 3;

/**
 * Makes text of a file piece by piece. UTF-8, unless `mayBe1252` and the first byte that is not ASCII is none of it
 * either: such a file was written by an older Windows program. A single fault in a UTF-8 file stays a fault.
 */
export class FileText {
  /** Whether the file is taken as Windows-1252. */
  is1252 = false;
  readonly #mayBe1252: boolean;
  #decoder = new TextDecoder();
  #isSettled: boolean;
  /** Bytes that may be the beginning of a character. */
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
    // One character, and what follows it: a whole one is whole, whatever comes later.
    const character = new TextDecoder().decode(bytes.subarray(first, first + PENDING_MAX + 1));
    this.is1252 = this.#mayBe1252 && character.startsWith('\uFFFD');
    if (this.is1252) this.#decoder = new TextDecoder('windows-1252');
    return this.#decoder.decode(bytes, { stream: true });
  }
}
