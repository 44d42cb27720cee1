import type Database from 'better-sqlite3';
import { LINE_COLUMNS, type LineRow } from './outbox-row.ts';

type Named = [Record<string, unknown>];

/** Statements on the waiting changes of the outbox. Transactions are the caller's. */
export class LineRows {
  readonly waiting: Database.Statement<[string, string], LineRow>;
  readonly held: Database.Statement<[string, string], LineRow>;
  readonly anyHeld: Database.Statement<[], number>;
  readonly siblings: Database.Statement<[string, string], LineRow>;
  readonly insert: Database.Statement<Named>;
  readonly merge: Database.Statement<Named>;
  readonly setBody: Database.Statement<[string, number, number]>;
  readonly supersede: Database.Statement<[string, number, string, number]>;
  readonly wait: Database.Statement<[string | null, number]>;
  readonly setTarget: Database.Statement<Named>;

  constructor(db: Database.Database) {
    const pending = `SELECT ${LINE_COLUMNS} FROM outbox WHERE kind = ? AND target = ? AND state = 'pending'`;
    this.waiting = db.prepare(`${pending} AND held_guard IS NULL`);
    this.held = db.prepare(`${pending} AND held_guard IS NOT NULL`);
    this.anyHeld = db
      .prepare<[], number>(
        "SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'pending' AND held_guard IS NOT NULL)",
      )
      .pluck();
    this.siblings = db.prepare(`
      SELECT ${LINE_COLUMNS} FROM outbox
      WHERE conflict_key = ? AND state = 'pending' AND kind = 'product' AND target <> ?`);
    this.insert = db.prepare(`
      INSERT INTO outbox (change_id, kind, target, conflict_key, body, state, message, created_at, settled_at,
        priority, queue_seq, basis, sku, subsidiary_id, held_guard, source, reference, version, zeroed_at, as_of_seq)
      VALUES (@changeId, @kind, @target, @conflictKey, @body, @state, @message, @createdAt, @settledAt,
        @priority, @changeId, @basis, @sku, @subsidiaryId, @heldGuard, @source, @reference, @version, @zeroedAt,
        @asOfSeq)`);
    this.merge = db.prepare(`
      UPDATE outbox SET body = @body, priority = @priority, version = @version, source = @source,
        reference = @reference, message = @message, held_guard = @heldGuard, as_of_seq = @asOfSeq,
        zeroed_at = @zeroedAt, basis = @basis, sku = @sku, subsidiary_id = @subsidiaryId,
        conflict_key = @conflictKey, field_versions = @fieldVersions, replaced = replaced + 1
      WHERE change_id = @changeId`);
    this.setBody = db.prepare('UPDATE outbox SET body = ?, priority = ? WHERE change_id = ?');
    this.supersede = db.prepare(`
      UPDATE outbox SET state = 'superseded', message = ?, superseded_by = ?, settled_at = ?, call_id = NULL,
        zeroed_at = NULL
      WHERE change_id = ?`);
    this.wait = db.prepare(`
      UPDATE outbox SET state = 'pending', message = ?, call_id = NULL, held_guard = NULL WHERE change_id = ?`);
    this.setTarget = db.prepare(`
      UPDATE outbox SET target = @target, conflict_key = @conflictKey, basis = @basis, sku = @sku,
        subsidiary_id = @subsidiaryId, body = @body, priority = @priority, queue_seq = @queueSeq,
        field_versions = @fieldVersions, version = @version
      WHERE change_id = @changeId`);
  }
}
