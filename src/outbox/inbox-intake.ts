import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../core/time.ts';
import { type Sql, sqlOf } from '../db/sql.ts';
import { type HandedOver, readProductChange, readStockChange } from './change.ts';
import type { GuardSettings } from './guard-rails.ts';
import { type InboxBatch, type InboxChange, WIRE_NAMES } from './inbox.ts';
import type { Acceptance, OutboxIntake } from './intake.ts';
import type { AckResult, OrderTakings } from './order-takings.ts';

/** A key of which the inbox row was deleted long ago without our noting it. */
const FORGET_AFTER_MS = 30 * 24 * 3_600_000;

/**
 * Copies rows of the inbox into the outbox, each once. Two files cannot change in one transaction, so a row is noted in
 * the mirror together with its change, then deleted from the inbox, then forgotten in the mirror; dying anywhere in
 * between, and doing it again, takes it in once. Each call is one transaction of the mirror.
 */
export class InboxIntake {
  readonly #sql: Sql;
  readonly #clock: Clock;
  readonly #intake: OutboxIntake;
  readonly #takings: OrderTakings;

  constructor(
    { db, clock }: { db: Database.Database; clock: Clock },
    intake: OutboxIntake,
    takings: OrderTakings,
  ) {
    this.#sql = sqlOf(db);
    this.#clock = clock;
    this.#intake = intake;
    this.#takings = takings;
  }

  /** First the counts, then the acknowledgements that say that these counts include them. */
  takeIn(batch: InboxBatch, guards: GuardSettings): { accepted: Acceptance[]; acks: AckResult[] } {
    return this.#sql.transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      const note = 'INSERT INTO inbox_copied (inbox_key, copied_at) VALUES (?, ?) ON CONFLICT DO NOTHING';
      const isNew = ({ key }: { key: string }) => this.#sql.run(note, key, at).changes > 0;
      const changes = batch.changes.filter(isNew);
      const accepted = this.#intake.accept(changes.map(handedOver), { source: 'inbox', guards });
      // An order has no id as long as that, so there is none to acknowledge.
      const acked = batch.acks.filter(isNew).filter(({ tooLong }) => tooLong === null);
      const acks = this.#takings.acknowledge(
        acked.map(({ orderId }) => orderId),
        'inbox',
      );
      return { accepted, acks };
    });
  }

  /** To be called when the inbox no longer has the rows of the batch. */
  forget(batch: InboxBatch): void {
    this.#sql.transaction(() => {
      const forget = 'DELETE FROM inbox_copied WHERE inbox_key = ?';
      for (const { key } of [...batch.changes, ...batch.acks]) this.#sql.run(forget, key);
      const before = isoUtc(this.#clock.nowMs() - FORGET_AFTER_MS);
      this.#sql.run('DELETE FROM inbox_copied WHERE copied_at < ?', before);
    });
  }

  /**
   * To be called when the inbox has no row at all, nor a file that was set aside: whatever is noted was deleted there,
   * though a process died over it.
   */
  forgetAll(): void {
    this.#sql.run('DELETE FROM inbox_copied');
  }
}

/** A row that no check of the inbox could catch is kept as rejected, since nobody else would tell the POS. */
function handedOver({ kind, value, reference, tooLong }: InboxChange): HandedOver {
  if (tooLong !== null) {
    const { column, bytes, maxBytes } = tooLong;
    const message = `${WIRE_NAMES[column] ?? column} has ${bytes} bytes; no more than ${maxBytes} are taken.`;
    return { kind, fault: { code: 'bad-value', column, message }, value, reference };
  }
  if (kind === 'stock') {
    const reading = readStockChange(value);
    return 'fault' in reading ? { kind, ...reading, value, reference } : { kind, ...reading, reference };
  }
  const reading = readProductChange(value);
  return 'fault' in reading ? { kind, ...reading, value, reference } : { kind, ...reading, reference };
}
