import type Database from 'better-sqlite3';
import { mergeOutcome } from '../../domain/order/merge.ts';
import type { OrderObservation, OrderOutcome } from '../../domain/order/order.ts';
import { isoUtc } from '../../domain/time/clock.ts';
import { HeldRows } from './held-rows.ts';
import { fieldValues, STATUS_AT, sameRow } from './order-columns.ts';
import { type KnownRow, OrderRows } from './order-rows.ts';
import { PayloadRows } from './payload-rows.ts';

/** Applies observations to the mirror's order tables by the merge rule, within the caller's transaction. */
export class OrderMerge {
  readonly rows: OrderRows;
  readonly held: HeldRows;
  readonly payloads: PayloadRows;
  readonly #addEvent: Database.Statement;
  #lastIso = { epochMs: Number.NaN, text: '' };

  constructor(db: Database.Database) {
    this.rows = new OrderRows(db);
    this.held = new HeldRows(db);
    this.payloads = new PayloadRows(db);
    this.#addEvent = db.prepare(
      'INSERT INTO order_events (order_id, status, previous_status, source, observed_at) VALUES (?, ?, ?, ?, ?)',
    );
  }

  /**
   * `pollDigest` names the record a poll read, under the rules it was read by; see `PollDigests`. `isNew` spares the look for an order
   * that this transaction has already looked for in vain.
   */
  apply(observation: OrderObservation, pollDigest: string | null, isNew = false): OrderOutcome {
    const { reading, source } = observation;
    const known = isNew ? undefined : this.rows.known(reading.orderId);
    const values = fieldValues(reading.fields, known?.values);
    const sameItems = !known || !reading.items || this.rows.hasItems(reading.orderId, reading.items);
    const outcome = mergeOutcome(known && mergeView(known), {
      source,
      status: reading.fields.status,
      asOfSeq: observation.asOfSeq,
      sameContent: known !== undefined && sameItems && sameRow(values, known.values),
    });
    if (!known || outcome === 'created' || outcome === 'changed') {
      const previousStatus = known ? known.values[STATUS_AT] : null;
      const status = values[STATUS_AT] as string | null;
      const observedAt = this.#iso(observation.observedAtMs);
      const { lastInsertRowid } = this.#addEvent.run(
        reading.orderId,
        status,
        previousStatus,
        source,
        observedAt,
      );
      const order = {
        orderId: reading.orderId,
        values,
        seq: Number(lastInsertRowid),
        source,
        updatedAt: observedAt,
        pollDigest,
        payload: observation.raw,
      };
      if (!known) {
        this.rows.insert(order);
        if (reading.items) this.rows.insertItems(reading.orderId, reading.items);
      } else {
        if (known.payload !== observation.raw) this.#keepPayload(reading.orderId, known);
        this.rows.update(order);
        if (!sameItems && reading.items) this.rows.replaceItems(reading.orderId, reading.items);
      }
    } else if (outcome === 'confirmed') {
      this.#noteConfirmed(observation, known, pollDigest);
    } else if (outcome === 'held') {
      this.held.hold(observation, known.values[STATUS_AT] as string | null);
      // The next poll has to read this order again to say which of the two is true.
      if (known.pollDigest !== null) this.rows.updateDigest(reading.orderId, null);
    }
    if (known && source === 'poll' && outcome !== 'superseded' && !observation.isReplay) {
      this.held.resolve(reading.orderId, values[STATUS_AT] as string | null, observation.observedAtMs);
    }
    return outcome;
  }

  /** All records of a poll have the same time. */
  #iso(epochMs: number): string {
    if (epochMs !== this.#lastIso.epochMs) this.#lastIso = { epochMs, text: isoUtc(epochMs) };
    return this.#lastIso.text;
  }

  /**
   * Same content: another spelling of it is kept when it comes from where the payload came from. Of polls only the
   * last, for they repeat themselves; of webhooks all, for nobody sends them again.
   */
  #noteConfirmed(
    { reading, source, raw, observedAtMs }: OrderObservation,
    known: KnownRow,
    pollDigest: string | null,
  ): void {
    const { orderId } = reading;
    const digest = source === 'poll' ? pollDigest : known.pollDigest;
    if (known.payloadSource === source && known.payload !== raw) {
      if (source === 'webhook') this.#keepPayload(orderId, known);
      this.rows.updatePayload(orderId, raw, this.#iso(observedAtMs), digest);
    } else if (known.pollDigest !== digest) {
      this.rows.updateDigest(orderId, digest);
    }
    if (source === 'webhook' && known.payloadSource === 'poll' && known.payload !== raw) {
      const receivedAt = this.#iso(observedAtMs);
      this.payloads.add({ orderId, seq: known.seq, applied: false, source, receivedAt, payload: raw });
    }
  }

  /** Keeps the payload that another is about to replace. */
  #keepPayload(orderId: string, known: KnownRow): void {
    const { seq, payload, payloadSource: source, payloadAt, updatedAt } = known;
    const receivedAt = payloadAt ?? updatedAt;
    this.payloads.add({ orderId, seq, applied: payloadAt === null, source, receivedAt, payload });
  }
}

function mergeView(known: KnownRow) {
  return { status: known.values[STATUS_AT] as string | null, seq: known.seq, source: known.eventSource };
}
