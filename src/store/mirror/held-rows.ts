import { hash } from 'node:crypto';
import type Database from 'better-sqlite3';
import type { OrderObservation } from '../../domain/order/order.ts';
import { isoUtc } from '../../domain/time/clock.ts';

/** A webhook that was noted and not applied. */
export interface HeldNotification {
  heldId: number;
  orderId: string;
  /** The status it carried, and the one the mirror had. */
  status: string | null;
  knownStatus: string | null;
  receivedAt: string;
  /** null while no poll has said what is true. */
  resolvedAt: string | null;
  /** `confirmed`: a poll took the order to the held status; `refuted`: it did not. */
  resolution: 'confirmed' | 'refuted' | null;
  payload: string;
}

const KEPT_MAX = 1_000;

/** Statements on `held_notifications`, of which the newest thousand are kept. */
export class HeldRows {
  readonly #insert: Database.Statement;
  readonly #trim: Database.Statement;
  readonly #resolve: Database.Statement;
  readonly #list: Database.Statement<[string | null, number], HeldNotification>;

  constructor(db: Database.Database) {
    // The same webhook held again after a poll resolved it is open again.
    this.#insert = db.prepare(`
      INSERT INTO held_notifications (order_id, status, known_status, digest, received_at, payload)
      VALUES (?, ?, ?, ?, ?, ?)
      ON CONFLICT (order_id, digest) DO UPDATE
        SET resolved_at = NULL, resolution = NULL, known_status = excluded.known_status
        WHERE resolved_at IS NOT NULL`);
    this.#trim = db.prepare('DELETE FROM held_notifications WHERE held_id <= ?');
    this.#resolve = db.prepare(`
      UPDATE held_notifications SET resolved_at = ?, resolution = iif(status IS ?, 'confirmed', 'refuted')
      WHERE order_id = ? AND resolved_at IS NULL`);
    this.#list = db.prepare(`
      SELECT held_id AS heldId, order_id AS orderId, status, known_status AS knownStatus,
        received_at AS receivedAt, resolved_at AS resolvedAt, resolution, payload
      FROM held_notifications WHERE order_id = coalesce(?, order_id)
      ORDER BY held_id DESC LIMIT ?`);
  }

  hold(observation: OrderObservation, knownStatus: string | null): void {
    const { reading, raw, observedAtMs } = observation;
    const digest = hash('sha256', raw, 'hex');
    const status = reading.fields.status ?? null;
    const { lastInsertRowid, changes } = this.#insert.run(
      reading.orderId,
      status,
      knownStatus,
      digest,
      isoUtc(observedAtMs),
      raw,
    );
    if (changes > 0) this.#trim.run(Number(lastInsertRowid) - KEPT_MAX);
  }

  /** A poll said that the order has `status`. */
  resolve(orderId: string, status: string | null, atMs: number): void {
    this.#resolve.run(isoUtc(atMs), status, orderId);
  }

  /** Newest first. */
  list(limit: number, orderId?: string): HeldNotification[] {
    return this.#list.all(orderId ?? null, limit);
  }
}
