import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import type { InboxBatch } from './inbox-rows.ts';

/** A key of which the inbox row was deleted long ago without our noting it. */
const FORGET_AFTER_MS = 30 * 24 * 3_600_000;

/**
 * The mirror's memory of which inbox rows it has taken in. Two files cannot change in one transaction, so a row
 * is noted here together with its change, then deleted from the inbox, then forgotten here; dying anywhere in
 * between, and doing it again, takes it in once. Transactions are the caller's.
 */
export class InboxCopy {
  readonly #clock: Clock;
  readonly #note: Database.Statement<[string, string]>;
  readonly #forget: Database.Statement<[string]>;
  readonly #forgetOld: Database.Statement<[string]>;
  readonly #forgetAll: Database.Statement<[]>;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#clock = clock;
    this.#note = db.prepare(`
      INSERT INTO inbox_copied (inbox_key, copied_at) VALUES (?, ?) ON CONFLICT DO NOTHING`);
    this.#forget = db.prepare('DELETE FROM inbox_copied WHERE inbox_key = ?');
    this.#forgetAll = db.prepare('DELETE FROM inbox_copied');
    this.#forgetOld = db.prepare('DELETE FROM inbox_copied WHERE copied_at < ?');
  }

  /** Notes the rows of a batch as taken in, and gives those that were not before. */
  take(batch: InboxBatch): InboxBatch {
    const at = isoUtc(this.#clock.nowMs());
    const isNew = ({ key }: { key: string }) => this.#note.run(key, at).changes > 0;
    return { changes: batch.changes.filter(isNew), acks: batch.acks.filter(isNew), more: batch.more };
  }

  /** To be called when the inbox has no row at all: whatever is noted was deleted there, though a process died over it. */
  forgetAll(): void {
    this.#forgetAll.run();
  }

  /** To be called when the inbox no longer has the rows. */
  forget(batch: InboxBatch): void {
    for (const { key } of [...batch.changes, ...batch.acks]) this.#forget.run(key);
    this.#forgetOld.run(isoUtc(this.#clock.nowMs() - FORGET_AFTER_MS));
  }
}
