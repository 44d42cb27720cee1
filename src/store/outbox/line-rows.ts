import type Database from 'better-sqlite3';
import { LINE_COLUMNS, type LineRow } from './outbox-row.ts';

const REPLACED_COLUMNS = [
  'version',
  'conflict_key',
  'body',
  'priority',
  'basis',
  'sku',
  'subsidiary_id',
  'source',
  'reference',
  'zeroed_at',
  'as_of_seq',
];
const UPSERT_COLUMNS = [
  ...REPLACED_COLUMNS,
  'change_id',
  'kind',
  'target',
  'fields',
  'created_at',
  'queue_seq',
];

type Named = [Record<string, unknown>];

/** Statements on the waiting changes of the outbox. Transactions are the caller's. */
export class LineRows {
  readonly waiting: Database.Statement<[string, string], LineRow>;
  readonly held: Database.Statement<[string, string], LineRow>;
  readonly anyHeld: Database.Statement<[], number>;
  readonly siblings: Database.Statement<[string, string], LineRow>;
  /** Parameters in the order of UPSERT_COLUMNS; the id of the row, or none when its fields must be merged. */
  readonly upsert: Database.Statement<unknown[], number>;
  readonly insert: Database.Statement<Named>;
  readonly merge: Database.Statement<Named>;
  readonly setBody: Database.Statement<[string, string, number, number]>;
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
    this.upsert = db
      .prepare<unknown[], number>(
        `INSERT INTO outbox (${UPSERT_COLUMNS}, state) VALUES (${UPSERT_COLUMNS.map(() => '?')}, 'pending')
         ON CONFLICT (kind, target) WHERE state = 'pending' AND held_guard IS NULL DO UPDATE SET
           ${REPLACED_COLUMNS.map((column) => `${column} = excluded.${column}`)},
           message = NULL, field_versions = NULL, replaced = replaced + 1
         WHERE fields = excluded.fields
         RETURNING change_id`,
      )
      .pluck();
    this.insert = db.prepare(`
      INSERT INTO outbox (change_id, kind, target, conflict_key, body, fields, state, message, created_at, settled_at,
        priority, queue_seq, basis, sku, subsidiary_id, held_guard, source, reference, version, zeroed_at, as_of_seq)
      VALUES (@changeId, @kind, @target, @conflictKey, @body, @fields, @state, @message, @createdAt, @settledAt,
        @priority, @changeId, @basis, @sku, @subsidiaryId, @heldGuard, @source, @reference, @version, @zeroedAt,
        @asOfSeq)`);
    this.merge = db.prepare(`
      UPDATE outbox SET body = @body, fields = @fields, priority = @priority, version = @version, source = @source,
        reference = @reference, message = @message, held_guard = @heldGuard, as_of_seq = @asOfSeq,
        zeroed_at = @zeroedAt, basis = @basis, sku = @sku, subsidiary_id = @subsidiaryId,
        conflict_key = @conflictKey, field_versions = @fieldVersions, replaced = replaced + 1
      WHERE change_id = @changeId`);
    this.setBody = db.prepare('UPDATE outbox SET body = ?, fields = ?, priority = ? WHERE change_id = ?');
    this.supersede = db.prepare(`
      UPDATE outbox SET state = 'superseded', message = ?, superseded_by = ?, settled_at = ?, call_id = NULL,
        zeroed_at = NULL
      WHERE change_id = ?`);
    this.wait = db.prepare(`
      UPDATE outbox SET state = 'pending', message = ?, call_id = NULL, held_guard = NULL WHERE change_id = ?`);
    this.setTarget = db.prepare(`
      UPDATE outbox SET target = @target, conflict_key = @conflictKey, basis = @basis, sku = @sku,
        subsidiary_id = @subsidiaryId, body = @body, fields = @fields, priority = @priority, queue_seq = @queueSeq,
        field_versions = @fieldVersions, version = @version
      WHERE change_id = @changeId`);
  }
}
