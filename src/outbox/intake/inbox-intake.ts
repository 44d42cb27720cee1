import type Database from 'better-sqlite3';
import type { TillsyncError } from '../../core/errors.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { seen } from '../../db/seen.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import type { Reservations } from '../ledger/reservations.ts';
import { PassedOver } from '../sending/call-plan.ts';
import { type AckResult, readChange, type SubmittedChange } from './change.ts';
import type { GuardSettings } from './guards.ts';
import { type InboxAck, type InboxBatch, type InboxChange, WIRE_NAMES } from './inbox.ts';
import type { Acceptance, OutboxIntake } from './intake.ts';

interface InboxIngested {
  accepted: Acceptance[];
  acks: AckResult[];
  /** Rows that were copied and can be deleted in the inbox. */
  taken: Pick<InboxBatch, 'changes' | 'acks'>;
  /** Reason why the rest of the batch was not copied; null if everything was. */
  full: TillsyncError | null;
}

/**
 * Age at which notes of copied rows are deleted even if the deletion of the rows was never recorded, and at which
 * refused acknowledgements are deleted.
 */
const FORGET_AFTER_MS = 30 * 24 * 3_600_000;
const FORGET_ROWS = `DELETE FROM ${seen('inbox-row')}`;
const FORGET_ROW = `${FORGET_ROWS} AND name = ?`;

/**
 * Copies inbox rows into the outbox, each once, although two files cannot change in one transaction. The mirror notes
 * a row together with its change; the row is then deleted in the inbox, and the note after it. After a crash, a noted
 * row is not copied again. Each call is one transaction of the mirror.
 */
export class InboxIntake {
  readonly #sql: Sql;
  readonly #clock: Clock;
  readonly #intake: OutboxIntake;
  readonly #reservations: Reservations;

  constructor(
    { db, clock }: { db: Database.Database; clock: Clock },
    intake: OutboxIntake,
    reservations: Reservations,
  ) {
    this.#sql = sqlOf(db);
    this.#clock = clock;
    this.#intake = intake;
    this.#reservations = reservations;
  }

  /**
   * Copies changes first, then acknowledgements, which say that earlier counts include the order. Both stay in the
   * inbox if their branch's queue is full. `passed` has the skipped rows.
   */
  ingest(batch: Omit<InboxBatch, 'alive'>, guards: GuardSettings, passed = new PassedOver()): InboxIngested {
    return this.#sql.transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      const note =
        "INSERT INTO _seen (kind, name, first_at) VALUES ('inbox-row', ?, ?) ON CONFLICT DO NOTHING";
      const isNew = ({ key }: { key: string }) => this.#sql.run(note, key, at).changes > 0;
      const changes = batch.changes.filter(isNew);
      const items = this.#intake.dated(changes.map(handedOver));
      const { accepted, left } = this.#intake.acceptSome(items, {
        source: 'inbox',
        guards,
        whenFull: passed,
      });
      const isLeft = new Set(left);
      const stay = new Set<{ key: string }>(
        changes.filter((_, i) => isLeft.has(items[i] as SubmittedChange)),
      );
      // An acknowledgement says that earlier counts include the order, so it waits while such counts are not copied
      // yet.
      const mayBook = ({ orderId }: InboxAck) =>
        passed.isNone || this.#reservations.isOfOthers(orderId, passed.branches);
      for (const ack of batch.acks) if (!mayBook(ack)) stay.add(ack);
      for (const { key } of stay) this.#sql.run(FORGET_ROW, key);
      const goes = (row: { key: string }) => !stay.has(row);
      // An acknowledgement with a value that is too long is dropped, because no order has an id this long.
      const acked = batch.acks
        .filter(goes)
        .filter(isNew)
        .filter(({ tooLong }) => tooLong === null);
      const acks = this.#reservations.acknowledge(acked, 'inbox');
      this.#reservations.noteRefused(acks, acked);
      const taken = { changes: batch.changes.filter(goes), acks: batch.acks.filter(goes) };
      const [branch] = passed.branches;
      return { accepted, acks, taken, full: branch === undefined ? null : this.#intake.fullLine(branch) };
    });
  }

  /** Deletes the notes of rows that the inbox no longer has. */
  forget(batch: Pick<InboxBatch, 'changes' | 'acks'>): void {
    this.#sql.transaction(() => {
      for (const { key } of [...batch.changes, ...batch.acks]) this.#sql.run(FORGET_ROW, key);
      const before = isoUtc(this.#clock.nowMs() - FORGET_AFTER_MS);
      this.#sql.run(`${FORGET_ROWS} AND first_at < ?`, before);
      this.#sql.run('DELETE FROM refused_acks WHERE refused_at < ?', before);
    });
  }

  /**
   * Deletes the notes of all copied rows. Must be called only if the inbox has no rows and no damaged file was
   * renamed, so that no noted row can come again.
   */
  forgetAll(): void {
    this.#sql.run(FORGET_ROWS);
  }
}

/**
 * Returns a row as a submitted item. A bad row that the inbox's checks could not refuse becomes a rejected change,
 * because the POS learns of it in no other way.
 */
function handedOver({ kind, value, reference, handedAt, tooLong }: InboxChange): SubmittedChange {
  if (tooLong !== null) {
    const { column, bytes, maxBytes } = tooLong;
    const message = `${WIRE_NAMES[column] ?? column} has ${bytes} bytes; no more than ${maxBytes} are taken.`;
    return { kind, fault: { code: 'bad-value', column, message }, value, reference };
  }
  return { ...readChange(kind, value), value, reference, handedAt };
}
