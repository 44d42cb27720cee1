import type Database from 'better-sqlite3';
import {
  hasSharedFields,
  mergeBodies,
  mergeVersioned,
  priorityOf,
  type Versioned,
  valueKeys,
  withoutNewer,
  withoutNewerShared,
  withoutOverruled,
} from './batch.ts';
import type { ChangeBody, ChangeKind } from './change.ts';
import type { Guard } from './guard-rails.ts';

export type OutboxState = 'pending' | 'sending' | 'done' | 'rejected' | 'superseded';

/** The way in that a change took. */
export type ChangeSource = 'inbox' | 'http' | 'cli' | 'hold-back';

export type Basis = 'mirror' | 'as-is' | 'needs-read';

/** One change as people and the POS see it. */
export interface OutboxEntry {
  changeId: number;
  kind: ChangeKind;
  target: string;
  body: ChangeBody;
  state: OutboxState;
  attempts: number;
  message: string | null;
  createdAt: string;
  settledAt: string | null;
  heldGuard: Guard | null;
  source: ChangeSource;
  reference: string | null;
  /** How many earlier values for the target went into this one while it waited. */
  replaced: number;
  /** The change that took its place. */
  supersededBy: number | null;
}

/** What the rules of the line need of a row. `body` is JSON text. */
export interface LineRow {
  changeId: number;
  kind: ChangeKind;
  target: string;
  conflictKey: string;
  body: string;
  queueSeq: number;
  version: number;
  /** JSON text; null when every field has the row's version. */
  fieldVersions: string | null;
  basis: Basis;
  sku: string | null;
  subsidiaryId: string | null;
  heldGuard: Guard | null;
  asOfSeq: number;
}

export interface NewRow extends Omit<LineRow, 'queueSeq' | 'fieldVersions'> {
  message: string | null;
  source: ChangeSource;
  reference: string | null;
  zeroedAt: string | null;
  createdAt: string;
}

/** The columns of a LineRow. */
export const LINE_COLUMNS = `change_id AS changeId, kind, target, conflict_key AS conflictKey, body,
  queue_seq AS queueSeq, version, field_versions AS fieldVersions, basis, sku, subsidiary_id AS subsidiaryId, held_guard AS heldGuard,
  as_of_seq AS asOfSeq`;

/** The body with the version of each of its fields. */
export function versioned(row: Pick<LineRow, 'body' | 'version' | 'fieldVersions'>): Versioned {
  const body = bodyOf(row);
  if (row.fieldVersions !== null) {
    return { body, versions: JSON.parse(row.fieldVersions) as Record<string, number> };
  }
  return { body, versions: Object.fromEntries(valueKeys(body).map((field) => [field, row.version])) };
}

export function bodyOf(row: { body: string }): ChangeBody {
  return JSON.parse(row.body) as ChangeBody;
}

/** What of a row follows from its body. */
export function bodyColumns(body: ChangeBody): { body: string; fields: string; priority: number } {
  return { body: JSON.stringify(body), fields: fieldsOf(body), priority: priorityOf(body) };
}

function fieldsOf(body: ChangeBody): string {
  const keys = valueKeys(body);
  return keys.length === 1 ? (keys[0] as string) : keys.sort().join();
}

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

type Refused = Pick<LineRow, 'changeId' | 'body'>;

/**
 * Refused changes stay for a person to see. One that a newer change for the same target has outlived, arrived or
 * refused itself, is no longer news: it is superseded, so that what is refused is what is wrong now. Transactions
 * are the caller's.
 */
export class RefusedChanges {
  readonly #of: Database.Statement<[string, string, number], Refused>;
  readonly #supersede: Database.Statement<[string, number, string, number]>;

  constructor(db: Database.Database) {
    this.#of = db.prepare(`
      SELECT change_id AS changeId, body FROM outbox INDEXED BY outbox_rejected_target
      WHERE kind = ? AND target = ? AND state = 'rejected' AND version < ?`);
    this.#supersede = db.prepare(`
      UPDATE outbox SET state = 'superseded', message = message || ?, superseded_by = ?, settled_at = ?
      WHERE change_id = ?`);
  }

  /** To be called when a change has arrived or was refused. */
  outlived(
    newer: Pick<LineRow, 'kind' | 'target' | 'changeId' | 'version'>,
    body: ChangeBody,
    at: string,
  ): void {
    for (const refused of this.#of.all(newer.kind, newer.target, newer.version)) {
      if (withoutOverruled(bodyOf(refused), body, 'all') !== undefined) continue;
      this.#supersede.run(` Replaced by change ${newer.changeId}.`, newer.changeId, at, refused.changeId);
    }
  }
}

/** Where a change belongs by what the mirror knows now. */
type Place = Pick<LineRow, 'target' | 'conflictKey'>;
type NewerRow = LineRow & { state: OutboxState };

/** What is left of a change: its fields of which nobody has said anything newer, or else who did. */
export type Remainder = { body: ChangeBody } | { overruledBy: number };

/** What was handed over for the same thing since, whatever became of it. Transactions are the caller's. */
export class NewerWords {
  readonly #newer: Database.Statement<[Record<string, unknown>], NewerRow>;

  constructor(db: Database.Database) {
    // In parts, each of which an index answers: what is settled stays for a month.
    const part = (where: string) => `
      SELECT ${LINE_COLUMNS}, state FROM outbox WHERE kind = @kind AND version > @after AND ${where}`;
    const parts = [
      "target = @target AND state = 'pending' AND held_guard IS NULL",
      "target = @target AND state = 'pending' AND held_guard IS NOT NULL",
      "target = @target AND state = 'rejected'",
      "conflict_key = @conflictKey AND state IN ('sending', 'done')",
      // Other skus of the product; of a stock they have no say.
      `conflict_key = @conflictKey AND target <> @target AND @isShared AND kind = 'product'
        AND state IN ('pending', 'rejected')`,
    ];
    this.#newer = db.prepare(`${parts.map(part).join(' UNION ALL ')} ORDER BY version`);
  }

  /** Each field of `row` stays whose newest word it is; a stock's show takes the newest quantity with it. */
  restOf(row: LineRow, place: Place): Remainder {
    const own = versioned(row);
    const after = Math.min(row.version, ...Object.values(own.versions));
    const isShared = Number(hasSharedFields(row.kind, own.body));
    const { kind, changeId } = row;
    let rest = own.body;
    let last: NewerRow | undefined;
    for (const newer of this.#newer.all({ kind, after, isShared, ...place })) {
      if (newer.changeId === changeId) continue;
      const scope = newer.target === place.target ? 'all' : 'shared';
      const left = withoutNewer({ ...own, body: rest }, versioned(newer), scope);
      if (left === undefined) return { overruledBy: newer.changeId };
      rest = left;
      last = newer;
    }
    // Whatever is newer for a stock has a quantity.
    if (kind === 'product' || 'qty' in rest || last === undefined) return { body: rest };
    // A guard rail holds the quantity, and the show that came with the older one must not let it go.
    if (last.heldGuard !== null) return { overruledBy: last.changeId };
    return { body: { ...rest, qty: (bodyOf(last) as { qty: number }).qty } as ChangeBody };
  }
}

/** Where a row goes when its target becomes known. */
export type NewPlace = Pick<LineRow, 'target' | 'conflictKey' | 'basis' | 'sku' | 'subsidiaryId'> & {
  body: ChangeBody;
};

/**
 * The rule of the line: one waiting change for each target, with the last value of every field; beside it at
 * most one that a guard rail holds. Transactions are the caller's.
 */
export class OutboxLine {
  readonly #rows: LineRows;
  #anyHeld = true;
  /** Rowid of the connection's last insert. */
  #lastId: number | undefined;

  constructor(db: Database.Database) {
    this.#rows = new LineRows(db);
  }

  /**
   * To be called at the start of each transaction that puts changes in line; until its end nothing else inserts
   * rows, but for changes of other ids.
   */
  begin(): void {
    const { anyHeld, lastId } = this.#rows.beginning.get() ?? { anyHeld: 1, lastId: undefined };
    this.#anyHeld = anyHeld === 1;
    this.#lastId = lastId;
  }

  /** The newest word for its target: goes over what waits. Returns the id of the row that carries it. */
  putNewest(row: NewRow, body: ChangeBody): number {
    if (row.heldGuard !== null) return this.#putHeld(row, body);
    const changeId = this.#upsert(row, body) ?? this.#mergeInto(this.#rows.waiting, row, body);
    if (this.#anyHeld || hasSharedFields(row.kind, body)) {
      this.overrule({ ...row, changeId }, body, row.createdAt);
    }
    return changeId;
  }

  /** Takes out of held changes and of other skus of the product what a newer change has decided. */
  overrule(
    newer: Pick<LineRow, 'kind' | 'target' | 'conflictKey' | 'changeId'>,
    body: ChangeBody,
    at: string,
  ): void {
    const held = this.#anyHeld ? this.#rows.held.get(newer.kind, newer.target) : undefined;
    if (held && held.changeId !== newer.changeId) this.#strip(held, body, 'all', newer.changeId, at);
    if (!hasSharedFields(newer.kind, body)) return;
    for (const sibling of this.#rows.siblings.all(newer.conflictKey, newer.target)) {
      this.#strip(sibling, body, 'shared', newer.changeId, at);
    }
  }

  /** A change that was under way and did not arrive: back into the line, under everything newer. */
  putBack(row: LineRow, message: string, at: string): 'waiting' | 'superseded' {
    const newer = this.#rows.waiting.get(row.kind, row.target);
    if (newer) {
      this.#putUnder(row, newer, at);
      return 'superseded';
    }
    const body = bodyOf(row);
    let rest: ChangeBody | undefined = body;
    let by = row.changeId;
    if (hasSharedFields(row.kind, body)) {
      for (const sibling of this.#rows.siblings.all(row.conflictKey, row.target)) {
        if (rest === undefined || sibling.heldGuard !== null) continue;
        rest = withoutOverruled(rest, bodyOf(sibling), 'shared');
        by = sibling.changeId;
      }
    }
    if (rest === undefined) {
      this.#supersede(row.changeId, by, at);
      return 'superseded';
    }
    if (rest !== body) this.#setBody(row.changeId, rest);
    this.#rows.wait.run(message, row.changeId);
    return 'waiting';
  }

  /** A held change goes into the line, over what waited when it was handed over. */
  release(row: LineRow, message: string, at: string): void {
    let released = versioned(row);
    const before = this.#rows.waiting.get(row.kind, row.target);
    if (before) {
      released = mergeVersioned(versioned(before), released);
      this.#supersede(before.changeId, row.changeId, at);
      this.#place({ ...row, queueSeq: Math.min(before.queueSeq, row.queueSeq) }, released);
    }
    this.#rows.wait.run(message, row.changeId);
    this.overrule(row, released.body, at);
  }

  /** A waiting or sent row whose target has become known; joins what waits there, each field's newest value. */
  move(row: LineRow, place: NewPlace, isSending: boolean, at: string): void {
    const slot = row.heldGuard === null ? this.#rows.waiting : this.#rows.held;
    const there = isSending ? undefined : slot.get(row.kind, place.target);
    const { versions } = versioned(row);
    let moved: Versioned = { body: place.body, versions };
    let { queueSeq, version, asOfSeq } = row;
    if (there && there.changeId !== row.changeId) {
      moved = mergeVersioned(moved, versioned(there));
      queueSeq = Math.min(queueSeq, there.queueSeq);
      if (there.version > version) ({ version, asOfSeq } = there);
      this.#supersede(there.changeId, row.changeId, at);
    }
    const placed = { ...row, ...place, queueSeq, version, asOfSeq };
    this.#place(placed, moved);
    if (row.heldGuard === null && !isSending) this.#settleSiblings(placed, moved, at);
  }

  /** Of the skus of one product, the newest value of a shared field stays. */
  #settleSiblings(row: Omit<LineRow, 'body'>, moved: Versioned, at: string): void {
    if (!hasSharedFields(row.kind, moved.body)) return;
    let rest: Versioned | undefined = moved;
    for (const sibling of this.#rows.siblings.all(row.conflictKey, row.target)) {
      const other = versioned(sibling);
      const left = withoutNewerShared(other, moved);
      if (!left) this.#supersede(sibling.changeId, row.changeId, at);
      else this.#place(sibling, { ...other, body: left });
      if (!rest || !left || sibling.heldGuard !== null) continue;
      const body = withoutNewerShared(rest, other);
      rest = body && { ...rest, body };
      if (rest) this.#place(row, rest);
      else this.#supersede(row.changeId, sibling.changeId, at);
    }
  }

  #putUnder(older: LineRow, newer: LineRow, at: string): void {
    const placed = { ...newer, queueSeq: Math.min(older.queueSeq, newer.queueSeq) };
    const merged = mergeVersioned(versioned(older), versioned(newer));
    this.#place(placed, merged);
    this.#supersede(older.changeId, newer.changeId, at);
    // What came back may be older than another sku's word for the same product.
    this.#settleSiblings(placed, merged, at);
  }

  #place(row: Omit<LineRow, 'body'>, { body, versions }: Versioned): void {
    this.#rows.setTarget.run({ ...row, ...bodyColumns(body), fieldVersions: JSON.stringify(versions) });
  }

  /** The id of the row that carries the value; undefined when it must be merged into the waiting one. */
  #upsert(row: NewRow, newest: ChangeBody): number | undefined {
    const { body, fields, priority } = bodyColumns(newest);
    const { changeId, kind, target, conflictKey, basis, sku, subsidiaryId, createdAt } = row;
    const { source, reference, version, zeroedAt, asOfSeq } = row;
    const place = [changeId, target, conflictKey, body, priority, sku, subsidiaryId];
    const { changes, lastInsertRowid } = this.#rows
      .upsert({ kind, source, basis, fields })
      .run(...place, reference, version, zeroedAt, asOfSeq, createdAt, changeId);
    if (changes === 0) return undefined;
    const lastId = this.#lastId;
    this.#lastId = Number(lastInsertRowid);
    // An update leaves the last rowid as it was.
    const isNew = this.#lastId === changeId && lastId !== undefined && lastId !== changeId;
    return isNew ? changeId : this.#rows.waitingId.get(kind, target);
  }

  #putHeld(row: NewRow, body: ChangeBody): number {
    const isFirst = !this.#anyHeld || this.#rows.held.get(row.kind, row.target) === undefined;
    this.#anyHeld = true;
    if (!isFirst) return this.#mergeInto(this.#rows.held, row, body);
    this.#rows.insert.run({ ...row, ...bodyColumns(body), state: 'pending', settledAt: null });
    return row.changeId;
  }

  #mergeInto(slot: LineRows['waiting'], row: NewRow, newest: ChangeBody): number {
    const before = slot.get(row.kind, row.target);
    if (!before) return row.changeId;
    const fresh = Object.fromEntries(valueKeys(newest).map((field) => [field, row.version]));
    this.#rows.merge.run({
      ...row,
      ...bodyColumns(mergeBodies(bodyOf(before), newest)),
      changeId: before.changeId,
      fieldVersions: JSON.stringify({ ...versioned(before).versions, ...fresh }),
    });
    return before.changeId;
  }

  #strip(older: LineRow, newer: ChangeBody, scope: 'all' | 'shared', by: number, at: string): void {
    const body = bodyOf(older);
    const rest = withoutOverruled(body, newer, scope);
    if (!rest) this.#supersede(older.changeId, by, at);
    else if (JSON.stringify(rest) !== older.body) {
      this.#setBody(older.changeId, rest);
    }
  }

  #setBody(changeId: number, rest: ChangeBody): void {
    const { body, fields, priority } = bodyColumns(rest);
    this.#rows.setBody.run(body, fields, priority, changeId);
  }

  #supersede(changeId: number, by: number, at: string): void {
    this.#rows.supersede.run(`Replaced by change ${by}.`, by, at, changeId);
  }
}
