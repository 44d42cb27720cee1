import type Database from 'better-sqlite3';
import { LINE_COLUMNS, type LineRow } from './outbox-row.ts';

/** What a newer value of the same kind changes; no index of the table contains one of these. */
const REPLACED_COLUMNS = ['version', 'body', 'source', 'reference', 'as_of_seq'];
/** What must be the same for that; else the two are merged. */
const SAME_COLUMNS = ['fields', 'priority', 'basis', 'conflict_key', 'sku', 'subsidiary_id', 'zeroed_at'];
/** What most changes of a hand-over have in common. */
const SHARED_COLUMNS = ['kind', 'source', 'basis', 'fields'] as const;
const BOUND_COLUMNS = [
  'change_id',
  'target',
  'conflict_key',
  'body',
  'priority',
  'sku',
  'subsidiary_id',
  'reference',
  'version',
  'zeroed_at',
  'as_of_seq',
  'created_at',
  'queue_seq',
];

export type SharedValues = Record<(typeof SHARED_COLUMNS)[number], string>;

type Named = [Record<string, unknown>];

/** Statements on the waiting changes of the outbox. Transactions are the caller's. */
export class LineRows {
  readonly waiting: Database.Statement<[string, string], LineRow>;
  readonly held: Database.Statement<[string, string], LineRow>;
  readonly waitingId: Database.Statement<[string, string], number>;
  readonly beginning: Database.Statement<[], { anyHeld: number; lastId: number }>;
  readonly siblings: Database.Statement<[string, string], LineRow>;
  readonly insert: Database.Statement<Named>;
  readonly merge: Database.Statement<Named>;
  readonly setBody: Database.Statement<[string, string, number, number]>;
  readonly supersede: Database.Statement<[string, number, string, number]>;
  readonly wait: Database.Statement<[string | null, number]>;
  readonly setTarget: Database.Statement<Named>;

  readonly #db: Database.Database;
  readonly #upserts = new Map<string, Database.Statement<unknown[]>>();
  #last: { shared: SharedValues; upsert: Database.Statement<unknown[]> } | undefined;

  constructor(db: Database.Database) {
    this.#db = db;
    // INDEXED BY, for otherwise SQLite compares the bound kind with the conditions of other partial indexes and
    // plans the statement anew each time, which takes longer than to run it.
    const one = (columns: string, index: string, guard: string) => `
      SELECT ${columns} FROM outbox INDEXED BY ${index}
      WHERE kind = ? AND target = ? AND state = 'pending' AND held_guard ${guard}`;
    this.waiting = db.prepare(one(LINE_COLUMNS, 'outbox_waiting', 'IS NULL'));
    this.held = db.prepare(one(LINE_COLUMNS, 'outbox_held', 'IS NOT NULL'));
    this.waitingId = db
      .prepare<[string, string], number>(one('change_id', 'outbox_waiting', 'IS NULL'))
      .pluck();
    this.beginning = db.prepare(`
      SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'pending' AND held_guard IS NOT NULL) AS anyHeld,
        last_insert_rowid() AS lastId`);
    this.siblings = db.prepare(`
      SELECT ${LINE_COLUMNS} FROM outbox
      WHERE conflict_key = ? AND state = 'pending' AND kind = 'product' AND target <> ?`);
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
        field_versions = @fieldVersions, version = @version, as_of_seq = @asOfSeq
      WHERE change_id = @changeId`);
  }

  /**
   * Parameters in the order of BOUND_COLUMNS. Changes no row when the waiting one must be merged. One statement for
   * each combination of shared values: binding them for every row would take a tenth of the time.
   */
  upsert(shared: SharedValues): Database.Statement<unknown[]> {
    const last = this.#last;
    if (last && SHARED_COLUMNS.every((column) => last.shared[column] === shared[column])) return last.upsert;
    const literals = SHARED_COLUMNS.map((column) => `'${shared[column].replaceAll("'", "''")}'`).join();
    const upsert = this.#upserts.get(literals) ?? this.#prepareUpsert(literals);
    this.#upserts.set(literals, upsert);
    this.#last = { shared, upsert };
    return upsert;
  }

  /** Without RETURNING, for which SQLite would make a temporary table each time. */
  #prepareUpsert(literals: string): Database.Statement<unknown[]> {
    return this.#db.prepare(`
      INSERT INTO outbox (${SHARED_COLUMNS}, ${BOUND_COLUMNS}, state)
      VALUES (${literals}, ${BOUND_COLUMNS.map(() => '?')}, 'pending')
      ON CONFLICT (kind, target) WHERE state = 'pending' AND held_guard IS NULL DO UPDATE SET
        ${REPLACED_COLUMNS.map((column) => `${column} = excluded.${column}`)},
        message = NULL, field_versions = NULL, replaced = replaced + 1
      WHERE ${SAME_COLUMNS.map((column) => `${column} IS excluded.${column}`).join(' AND ')}`);
  }
}
