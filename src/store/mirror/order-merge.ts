import type Database from 'better-sqlite3';
import { isoUtc } from '../../domain/clock.ts';
import { mergeOutcome } from '../../domain/merge.ts';
import type { OrderObservation, OrderOutcome } from '../../domain/order.ts';
import { HeldRows } from './held-rows.ts';
import { fieldValues, STATUS_AT, sameRow } from './order-columns.ts';
import { type KnownRow, OrderRows } from './order-rows.ts';

/** Applies observations to the mirror's order tables by the merge rule, within the caller's transaction. */
export class OrderMerge {
  readonly rows: OrderRows;
  readonly held: HeldRows;
  readonly #addEvent: Database.Statement;
  #lastIso = { epochMs: Number.NaN, text: '' };

  constructor(db: Database.Database) {
    this.rows = new OrderRows(db);
    this.held = new HeldRows(db);
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
    if (known && source === 'poll' && outcome !== 'superseded') {
      this.held.resolve(reading.orderId, values[STATUS_AT] as string | null, observation.observedAtMs);
    }
    return outcome;
  }

  /** All records of a poll have the same time. */
  #iso(epochMs: number): string {
    if (epochMs !== this.#lastIso.epochMs) this.#lastIso = { epochMs, text: isoUtc(epochMs) };
    return this.#lastIso.text;
  }

  /** Same content: another spelling of it is kept when it comes from where the payload came from. */
  #noteConfirmed(
    { reading, source, raw }: OrderObservation,
    known: KnownRow,
    pollDigest: string | null,
  ): void {
    const digest = source === 'poll' ? pollDigest : known.pollDigest;
    if (known.payloadSource === source && known.payload !== raw) {
      this.rows.updatePayload(reading.orderId, raw, digest);
    } else if (known.pollDigest !== digest) {
      this.rows.updateDigest(reading.orderId, digest);
    }
  }
}

function mergeView(known: KnownRow) {
  return { status: known.values[STATUS_AT] as string | null, seq: known.seq, source: known.eventSource };
}
