import type { RecordList, ScannedAnswer } from '../../domain/json/json-records.ts';

/** What a record was found to be. */
export interface SeenRecord {
  digest: string;
  /** undefined: it could not be read. */
  orderId: string | undefined;
}

/**
 * The answer before, which the next one repeats for the most part: the same bytes need no second hash and no
 * second search for their id. What the mirror has of an order is asked anew each time.
 */
export class SeenAnswer {
  readonly scanned: ScannedAnswer;
  readonly list: RecordList;
  readonly #buffer: Buffer;
  readonly #records: readonly (SeenRecord | undefined)[];

  constructor(
    buffer: Buffer,
    scanned: ScannedAnswer,
    list: RecordList,
    records: readonly (SeenRecord | undefined)[],
  ) {
    this.#buffer = buffer;
    this.scanned = scanned;
    this.list = list;
    this.#records = records;
  }

  isSame(buffer: Buffer): boolean {
    return this.#buffer.equals(buffer);
  }

  /** The record of the same bytes; looked for where it is when records came or went before it, or behind it. */
  find(buffer: Buffer, list: RecordList, index: number): SeenRecord | undefined {
    const fromEnd = this.list.length - list.length + index;
    return this.#at(fromEnd, buffer, list, index) ?? this.#at(index, buffer, list, index);
  }

  #at(place: number, buffer: Buffer, list: RecordList, index: number): SeenRecord | undefined {
    if (place < 0 || place >= this.list.length) return undefined;
    const from = list.starts[index] as number;
    const to = list.ends[index] as number;
    const seenFrom = this.list.starts[place] as number;
    const seenTo = this.list.ends[place] as number;
    if (to - from !== seenTo - seenFrom) return undefined;
    return this.#buffer.compare(buffer, from, to, seenFrom, seenTo) === 0 ? this.#records[place] : undefined;
  }
}
