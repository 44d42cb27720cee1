import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { TillsyncError } from '../core/errors.ts';
import {
  type RecordList,
  recordBytes,
  type ScannedAnswer,
  scanRecords,
  speaksOfMorePages,
} from '../core/json-records.ts';
import type { MirrorTables } from './mirror-file.ts';
import type { ImportReport, OrderObservation, OrderOutcome, OrderReading, Unreadable } from './order.ts';
import { chooseOrderList, readOrderText } from './order-reader.ts';
import {
  type ExtraSpellings,
  ITEM_SPELLINGS,
  MODIFIER_SPELLINGS,
  OPTION_SPELLINGS,
  ORDER_SPELLINGS,
  type OrderSpellings,
} from './spellings.ts';

/**
 * Guesses a record's order id from its text, without parsing it, by where the id stood in an earlier record. A
 * guess only saves work: it is used to find a digest of the same bytes, and a wrong one finds none.
 */
export class IdGuess {
  #quotedName = '';
  #occurrence = 0;
  #reach = 0;

  /** How much of a record's text has to be seen for a guess. */
  get reach(): number {
    return this.#reach;
  }

  /** Remembers the first name in `text` that is followed by this id. */
  learn(text: string, orderId: string): void {
    for (const id of [`"${orderId}"`, orderId]) {
      const at = text.indexOf(id);
      if (at === -1) continue;
      const name = /("[^"\\]{1,64}")\s*:\s*$/.exec(text.slice(Math.max(0, at - 80), at))?.[1];
      if (name === undefined) continue;
      this.#quotedName = name;
      this.#occurrence = 0;
      this.#reach = Math.max(this.#reach, at + id.length + SLACK);
      for (let seen = text.indexOf(name); seen !== -1 && seen < at; seen = text.indexOf(name, seen + 1)) {
        this.#occurrence++;
      }
      return;
    }
  }

  guess(text: string): string | undefined {
    const name = this.#quotedName;
    if (name === '') return undefined;
    let at = -1;
    for (let i = 0; i < this.#occurrence; i++) {
      at = text.indexOf(name, at + 1);
      if (at === -1) return undefined;
    }
    VALUE.lastIndex = at + name.length;
    const match = VALUE.exec(text);
    return match?.[1] ?? match?.[2];
  }
}

/** Ids and what stands before them differ in length from record to record. */
const SLACK = 128;

const VALUE = /\s*:\s*(?:"([^"\\]{1,512})"|(\d{1,40}))/y;

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

/** Raised when records are read differently than before, so that they are all read again. */
const READER_VERSION = 1;

/**
 * Names a poll's record: SHA-256 of its bytes, behind a mark of the rules by which it was read. Equal names mean
 * that reading it again would bring nothing new.
 */
export class PollDigests {
  readonly #extra: ExtraSpellings;
  #rules = '';

  constructor(extra: ExtraSpellings) {
    this.#extra = extra;
  }

  of(record: string | Uint8Array): string {
    this.#rules ||= this.#digestOfRules();
    return `${this.#rules}:${hash('sha256', record, 'hex')}`;
  }

  #digestOfRules(): string {
    const rules = [
      READER_VERSION,
      ORDER_SPELLINGS,
      ITEM_SPELLINGS,
      MODIFIER_SPELLINGS,
      OPTION_SPELLINGS,
      this.#extra,
    ];
    return hash('sha256', JSON.stringify(rules), 'hex').slice(0, 8);
  }
}

export interface AnswerImportOptions {
  body: Uint8Array;
  tables: MirrorTables;
  digests: PollDigests;
  spellings: OrderSpellings;
  listPath: string;
  observedAtMs: number;
  asOfSeq: number;
  /** The answer before, where it is remembered; read by the same rules. */
  before?: SeenAnswer | undefined;
}

/** One record that has to be written. */
export type PreparedRecord =
  | { kind: 'order'; observation: OrderObservation; digest: string; known: boolean }
  | { kind: 'unreadable'; unreadable: Unreadable };

export interface WrittenRecord {
  outcome: OrderOutcome;
  orderId: string;
}

const CREATED_IDS_MAX = 1_000;

/**
 * One answer of GET /order/all on its way into the mirror, in steps that whoever drives it puts into
 * transactions: `prepare` reads, `write` writes, `count` notes what was committed.
 */
export class AnswerImport {
  readonly report: ImportReport;
  readonly #options: AnswerImportOptions;
  readonly #buffer: Buffer;
  readonly #scanned: ScannedAnswer;
  readonly #list: RecordList | undefined;
  readonly #found: (SeenRecord | undefined)[] = [];
  readonly #guess = new IdGuess();
  /** A list that names an order twice would otherwise change it to and fro with each poll. */
  readonly #seen = new Set<string>();
  #next = 0;

  /** Throws `platform-garbled` when the answer is cut off or is not JSON; nothing is written then. */
  constructor(options: AnswerImportOptions) {
    this.#options = options;
    const { body, listPath, before } = options;
    this.#buffer = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    const same = before?.isSame(this.#buffer) ? before : undefined;
    const answer = same?.scanned ?? scanRecords(body);
    this.#scanned = answer;
    this.#list =
      same?.list ??
      chooseOrderList(answer, {
        listPath,
        read: (list, index) => this.#readable(this.#textOf(list, index)),
      });
    const records = this.#list?.length ?? 0;
    this.report = {
      listFound: this.#list !== undefined,
      records,
      created: 0,
      changed: 0,
      confirmed: 0,
      superseded: 0,
      unreadable: 0,
      createdIds: [],
      morePages: this.#list !== undefined && speaksOfMorePages(answer.hints, records),
      codes: null,
    };
  }

  /** The whole answer, when no list of orders is in it. */
  get wholeAnswer(): Unreadable {
    return {
      source: 'poll',
      receivedAtMs: this.#options.observedAtMs,
      reason: 'No list of orders was found in the answer of GET /order/all; its place can be configured.',
      payload: textOrBytes(this.#buffer),
    };
  }

  get done(): number {
    return this.#next;
  }

  get finished(): boolean {
    return this.#next >= this.report.records;
  }

  /** To be remembered for the next answer; undefined: there was no list of orders. */
  get seen(): SeenAnswer | undefined {
    return this.#list && new SeenAnswer(this.#buffer, this.#scanned, this.#list, this.#found);
  }

  /** Goes over the next `most` records and gives those that have to be written; only reads the database. */
  prepare(most: number): PreparedRecord[] {
    const end = Math.min(this.report.records, this.#next + most);
    const prepared: PreparedRecord[] = [];
    for (; this.#next < end; this.#next++) {
      const record = this.#prepareOne(this.#list as RecordList, this.#next);
      if (record) prepared.push(record);
    }
    return prepared;
  }

  #prepareOne(list: RecordList, index: number): PreparedRecord | undefined {
    const { tables, digests, before } = this.#options;
    const { rows } = tables.merge;
    const seen = before?.find(this.#buffer, list, index);
    const digest = seen?.digest ?? digests.of(recordBytes(this.#buffer, list, index));
    const from = list.starts[index] as number;
    const to = list.ends[index] as number;
    const guess = seen?.orderId ?? this.#guessed(from, to);
    this.#found[index] = { digest, orderId: guess };
    const guessed = guess === undefined ? undefined : rows.digestOf(guess);
    if (guess !== undefined && guessed?.pollDigest === digest) {
      this.#noteUnchanged(guess, guessed.code);
      return undefined;
    }
    const bytes = this.#buffer.subarray(from, to);
    if (!isUtf8(bytes)) return this.#unreadable(Buffer.from(bytes), 'The record is not UTF-8 text.');
    const raw = this.#textOf(list, index);
    const reading = readOrderText(raw, this.#options.spellings);
    this.#found[index] = { digest, orderId: 'unreadable' in reading ? undefined : reading.orderId };
    if ('unreadable' in reading) return this.#unreadable(raw, reading.unreadable);
    let known = guessed;
    if (reading.orderId !== guess) {
      this.#guess.learn(raw, reading.orderId);
      known = rows.digestOf(reading.orderId);
      if (known?.pollDigest === digest) {
        this.#noteUnchanged(reading.orderId, known.code);
        return undefined;
      }
    }
    this.#noteCode(reading.fields.code ?? null);
    if (this.#repeats(reading.orderId)) {
      this.report.superseded += 1;
      return undefined;
    }
    const { observedAtMs, asOfSeq } = this.#options;
    return {
      kind: 'order',
      digest,
      known: known !== undefined,
      observation: { source: 'poll', observedAtMs, asOfSeq, raw, reading },
    };
  }

  #guessed(from: number, to: number): string | undefined {
    const end = Math.min(to, from + this.#guess.reach);
    return this.#guess.guess(this.#buffer.toString('latin1', from, end));
  }

  #noteUnchanged(orderId: string, code: number | null): void {
    this.#repeats(orderId);
    this.#noteCode(code);
    this.report.confirmed += 1;
  }

  /** Whether the id was in this answer before; the first of them counts. */
  #repeats(orderId: string): boolean {
    if (this.#seen.has(orderId)) return true;
    this.#seen.add(orderId);
    return false;
  }

  #unreadable(payload: string | Buffer, reason: string): PreparedRecord | undefined {
    this.report.unreadable += 1;
    const unreadable: Unreadable = {
      source: 'poll',
      receivedAtMs: this.#options.observedAtMs,
      reason,
      payload,
    };
    return this.#options.tables.quarantine.has(unreadable) ? undefined : { kind: 'unreadable', unreadable };
  }

  /**
   * Within a transaction: writes what was prepared and gives the outcome of each. `samePrepared`: it was prepared
   * within this very transaction, so an order that was not known then is not known now.
   */
  write(prepared: readonly PreparedRecord[], samePrepared: boolean): WrittenRecord[] {
    const { merge, quarantine } = this.#options.tables;
    const written: WrittenRecord[] = [];
    for (const record of prepared) {
      if (record.kind === 'unreadable') quarantine.add(record.unreadable);
      else {
        const { observation, digest, known } = record;
        const outcome = merge.apply(observation, digest, samePrepared && !known);
        written.push({ outcome, orderId: observation.reading.orderId });
      }
    }
    return written;
  }

  /** After the commit. */
  count(written: readonly WrittenRecord[]): void {
    for (const { outcome, orderId } of written) {
      if (outcome === 'held') continue;
      this.report[outcome] += 1;
      const { createdIds } = this.report;
      if (outcome === 'created' && createdIds.length < CREATED_IDS_MAX) createdIds.push(orderId);
    }
  }

  #noteCode(code: number | null): void {
    if (code === null) return;
    const { codes } = this.report;
    this.report.codes = codes
      ? { min: Math.min(codes.min, code), max: Math.max(codes.max, code) }
      : { min: code, max: code };
  }

  #textOf(list: RecordList, index: number): string {
    return this.#buffer.toString('utf8', list.starts[index], list.ends[index]);
  }

  #readable(raw: string): OrderReading | undefined {
    const reading = readOrderText(raw, this.#options.spellings);
    return 'unreadable' in reading ? undefined : reading;
  }
}

export function importAborted(): TillsyncError {
  return new TillsyncError('aborted', 'Stopped while mirroring an answer; what was mirrored so far is kept.');
}

function textOrBytes(bytes: Buffer): string | Uint8Array {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return bytes;
  }
}
