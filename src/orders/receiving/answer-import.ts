import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { TillsyncError } from '../../core/errors.ts';
import {
  lengthsIn,
  type RecordList,
  recordBytes,
  scanRecords,
  speaksOfMorePages,
} from '../../core/json-records.ts';
import { isoUtc } from '../../core/time.ts';
import { isFeeding } from '../merging/branch-feed.ts';
import { type ExtraSpellings, SPELLING_TABLES } from '../merging/field-aliases.ts';
import type { StatusWords } from '../merging/field-values.ts';
import { isRound, noteListed } from '../merging/listed-orders.ts';
import {
  type ImportReport,
  isEnded,
  type OrderObservation,
  type OrderOutcome,
  type Unreadable,
} from '../merging/order.ts';
import { readOrderText } from '../merging/order-reader.ts';
import { isMirrored, mergeOrder, polledAs } from '../merging/order-rows.ts';
import { LinePlaces } from '../merging/placed-lines.ts';
import { chooseOrders, type ReadingRules } from './order-lists.ts';
import { quarantine, quarantinedAs } from './quarantine.ts';

/** Version of the code that reads records. Raise it when the code changes, so that all records are read again. */
const READER_VERSION = 3;

/**
 * Returns the digest function for poll records: SHA-256 of the bytes, prefixed by a digest of the reading rules. A
 * record with a known digest need not be read again.
 */
export function pollDigests(
  extra: ExtraSpellings,
  timezone?: string,
  statuses: StatusWords = {},
): (record: Uint8Array) => string {
  const tables = JSON.stringify([READER_VERSION, SPELLING_TABLES, extra, timezone, statuses]);
  const rules = hash('sha256', tables, 'hex').slice(0, 8);
  return (record) => `${rules}:${hash('sha256', record, 'hex')}`;
}

interface AnswerImportOptions extends ReadingRules {
  body: Uint8Array;
  digestOf: (record: Uint8Array) => string;
  observedAtMs: number;
  asOfSeq: number;
  asOfHeldId: number;
  isOld?: boolean | undefined;
  watched?: readonly string[] | undefined;
}

/** A record that must be written to the mirror. */
export type PreparedRecord =
  | { kind: 'order'; observation: OrderObservation; digest: string; isKnown: boolean }
  | { kind: 'unreadable'; unreadable: Unreadable };

interface WrittenRecord {
  outcome: OrderOutcome;
  orderId: string;
}

const CREATED_IDS_MAX = 1_000;

/**
 * Imports one answer of GET /order/all in steps that the caller puts into transactions: `prepare` reads, `write`
 * writes, `count` adds what was committed to the report.
 */
export class AnswerImport {
  readonly report: ImportReport;
  readonly #options: AnswerImportOptions;
  readonly #buffer: Buffer;
  readonly #list: RecordList | undefined;
  /**
   * Ids of this answer's orders so far. An order that the list has twice is applied once; otherwise it would change
   * back and forth at each poll.
   */
  readonly #seen = new Set<string>();
  #next = 0;

  /** Throws `platform-garbled` if the answer is cut off or is not JSON. Nothing is written then. */
  constructor(options: AnswerImportOptions) {
    this.#options = options;
    const { body } = options;
    this.#buffer = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    const answer = scanRecords(body);
    const found = chooseOrders(body, answer, options);
    this.#list = found?.list;
    const records = this.#list?.length ?? 0;
    this.report = {
      listFound: this.#list !== undefined,
      records,
      repeated: 0,
      unreadLists: found?.unread ?? [],
      created: 0,
      changed: 0,
      confirmed: 0,
      superseded: 0,
      unreadable: 0,
      createdIds: [],
      unlisted: [...(options.watched ?? [])],
      morePages: this.#list !== undefined && speaksOfMorePages(answer.hints, records),
      mayBeCut: this.#list !== undefined && lengthsIn(body, this.#list).some(isRound),
      codes: null,
    };
  }

  /** The whole answer, for quarantine. Used if it contains no list of orders. */
  get wholeAnswer(): Unreadable {
    return {
      source: 'poll',
      receivedAtMs: this.#options.observedAtMs,
      reason: 'No list of orders was found in the answer of GET /order/all; its place can be configured.',
      payload: isUtf8(this.#buffer) ? new TextDecoder().decode(this.#buffer) : this.#buffer,
    };
  }

  get done(): number {
    return this.#next;
  }

  get finished(): boolean {
    return this.#next >= this.report.records;
  }

  /** Reads the next `most` records and returns those that must be written. Only reads from the database. */
  prepare(db: Database.Database, most: number): PreparedRecord[] {
    const end = Math.min(this.report.records, this.#next + most);
    const prepared: PreparedRecord[] = [];
    for (; this.#next < end; this.#next++) {
      const record = this.#prepareOne(
        db,
        recordBytes(this.#buffer, this.#list as RecordList, this.#next) as Buffer,
      );
      if (record) prepared.push(record);
    }
    if (this.finished) this.report.unlisted = this.report.unlisted.filter((id) => !this.#seen.has(id));
    return prepared;
  }

  #prepareOne(db: Database.Database, bytes: Buffer): PreparedRecord | undefined {
    const { digestOf, spellings, observedAtMs, asOfSeq, asOfHeldId, isOld } = this.#options;
    const digest = digestOf(bytes);
    const same = polledAs(db, digest);
    if (same) return this.#unchanged(same);
    if (!isUtf8(bytes)) return this.#unreadable(db, Buffer.from(bytes), 'The record is not UTF-8 text.');
    const raw = bytes.toString('utf8');
    const reading = readOrderText(raw, spellings, 'poll');
    if ('unreadable' in reading) return this.#unreadable(db, raw, reading.unreadable);
    const { orderId, fields } = reading;
    this.#noteCode(fields.code ?? null);
    // If the answer has an order twice, only the first record is applied.
    if (this.#seen.has(orderId)) {
      this.report.repeated += 1;
      return undefined;
    }
    this.#seen.add(orderId);
    const isKnown = isMirrored(db, orderId);
    if (isOld && !isKnown && isEnded(fields.status)) return undefined;
    const observation: OrderObservation = { source: 'poll', observedAtMs, asOfSeq, asOfHeldId, raw, reading };
    return { kind: 'order', digest, isKnown, observation };
  }

  #unchanged({ orderId, code }: { orderId: string; code: number | null }): undefined {
    this.report[this.#seen.has(orderId) ? 'repeated' : 'confirmed'] += 1;
    this.#seen.add(orderId);
    this.#noteCode(code);
  }

  #unreadable(db: Database.Database, payload: string | Buffer, reason: string): PreparedRecord | undefined {
    this.report.unreadable += 1;
    const { observedAtMs: receivedAtMs } = this.#options;
    const unreadable: Unreadable = { source: 'poll', receivedAtMs, reason, payload };
    return quarantinedAs(db, unreadable) === undefined ? { kind: 'unreadable', unreadable } : undefined;
  }

  /**
   * Writes prepared records in the caller's transaction and returns each outcome. `samePrepared` is true if they were
   * prepared in the same transaction, so that an order that was unknown then is still unknown.
   */
  write(
    db: Database.Database,
    prepared: readonly PreparedRecord[],
    { samePrepared, places = new LinePlaces(db) }: { samePrepared: boolean; places?: LinePlaces },
  ): WrittenRecord[] {
    const written: WrittenRecord[] = [];
    const isFed = isFeeding(db);
    for (const record of prepared) {
      if (record.kind === 'unreadable') quarantine(db, record.unreadable);
      else {
        const { observation, digest, isKnown } = record;
        const isNew = samePrepared && !isKnown;
        const outcome = mergeOrder(db, observation, this.#options.spellings, digest, {
          isNew,
          places,
          isFed,
        });
        // An order that the merge writes gets the time in the same statement.
        if (outcome === 'superseded' || outcome === 'held')
          noteListed(db, observation.reading.orderId, isoUtc(observation.observedAtMs));
        written.push({ outcome, orderId: observation.reading.orderId });
      }
    }
    return written;
  }

  /** Adds the outcomes to the report. Must be called after the commit. */
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
    const { min, max } = this.report.codes ?? { min: code, max: code };
    this.report.codes = { min: Math.min(min, code), max: Math.max(max, code) };
  }
}

export function importAborted(): TillsyncError {
  return new TillsyncError('aborted', 'Stopped while mirroring an answer; what was mirrored so far is kept.');
}
