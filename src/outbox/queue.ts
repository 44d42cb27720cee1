import type Database from 'better-sqlite3';
import { type Sql, sqlOf } from '../db/sqlite.ts';
import {
  hasSharedFields,
  mergeBodies,
  mergeVersioned,
  PRIORITY_OTHERS,
  priorityOf,
  valueKeys,
  WAITING_MAX,
  withoutNewer,
  withoutOverruled,
} from './batch.ts';
import type { ChangeBody, ChangeKind, OutboxChange, Target } from './change.ts';

/** A change that is handed over now: what is not in it follows. */
export type NewChange = Omit<
  OutboxChange,
  | ('state' | 'attempts' | 'settledAt' | 'replaced' | 'supersededBy')
  | ('versions' | 'priority' | 'queueSeq' | 'sentQty' | 'sentAsOfSeq')
>;

const COLUMNS = `change_id AS changeId, kind, target, conflict_key AS conflictKey, sku, subsidiary_id AS subsidiaryId,
  basis, body, version, field_versions AS fieldVersions, state, held_guard AS heldGuard, as_of_seq AS asOfSeq,
  priority, queue_seq AS queueSeq, attempts, sent_qty AS sentQty, sent_as_of_seq AS sentAsOfSeq, message, source, origin,
  reference, created_at AS createdAt, settled_at AS settledAt, replaced, superseded_by AS supersededBy,
  zeroed_at AS zeroedAt, branch`;

type Row = Omit<OutboxChange, 'body' | 'versions'> & { body: string; fieldVersions: string | null };

// INDEXED BY, for otherwise SQLite compares the bound kind with the conditions of other partial indexes and plans the
// statement anew each time, which takes longer than to run it.
const waitingOne = (columns: string) => `
  SELECT ${columns} FROM outbox INDEXED BY outbox_waiting
  WHERE kind = ? AND target = ? AND state = 'pending' AND held_guard IS NULL`;
const WAITING = waitingOne(COLUMNS);
const WAITING_ID = waitingOne('change_id');
const HELD = `
  SELECT ${COLUMNS} FROM outbox INDEXED BY outbox_held
  WHERE kind = ? AND target = ? AND state = 'pending' AND held_guard IS NOT NULL`;
const SIBLINGS = `
  SELECT ${COLUMNS} FROM outbox
  WHERE conflict_key = ? AND state = 'pending' AND kind = 'product' AND target <> ?`;
const REFUSED = `
  SELECT ${COLUMNS} FROM outbox INDEXED BY outbox_rejected_target
  WHERE kind = ? AND target = ? AND state = 'rejected' AND version < ?`;
// In parts, each of which an index answers: what is settled stays for a month.
const NEWER = [
  "target = @target AND state = 'pending' AND held_guard IS NULL",
  "target = @target AND state = 'pending' AND held_guard IS NOT NULL",
  "target = @target AND state = 'rejected'",
  "conflict_key = @conflictKey AND state IN ('sending', 'done')",
  // Other skus of the product; of a stock they have no say.
  `conflict_key = @conflictKey AND target <> @target AND @isShared AND kind = 'product'
    AND state IN ('pending', 'rejected')`,
]
  .map((where) => `SELECT ${COLUMNS} FROM outbox WHERE kind = @kind AND version > @after AND ${where}`)
  .join(' UNION ALL ')
  .concat(' ORDER BY version');

// INDEXED BY and a plus before parameters, for what the queue needs them for: a plan of its own for each value takes much
// longer than the look.
export const FROM_QUEUE = 'outbox INDEXED BY outbox_line';
export const MAY_LEAVE = `kind = +@kind AND state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read'
  AND (basis = 'mirror' OR @sendAsIs)`;
/** Branches of which something may leave, each found by a step in the index. */
const nextBranch = (after: string) =>
  `SELECT min(branch) FROM ${FROM_QUEUE} WHERE ${MAY_LEAVE} AND priority = @priority ${after}`;
const BRANCHES = `
  WITH RECURSIVE waiting (branch) AS (
    SELECT (${nextBranch('')})
    UNION ALL SELECT (${nextBranch('AND branch > waiting.branch')}) FROM waiting WHERE branch IS NOT NULL)
  SELECT branch FROM waiting WHERE branch IS NOT NULL`;
const waitingOf = (kind: ChangeKind) => `
  (SELECT count(*) FROM (SELECT 1 FROM ${FROM_QUEUE} WHERE kind = '${kind}' AND priority = ${PRIORITY_OTHERS}
    AND branch = +@branch AND state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read' LIMIT ${WAITING_MAX}))`;

/** What a newer value of the same kind changes; no index of the table contains one of these. */
const REPLACED_COLUMNS = ['version', 'body', 'source', 'origin', 'reference', 'as_of_seq'];
/** What must be the same for that; else the two are merged. */
const SAME_COLUMNS = [
  ...['fields', 'priority', 'basis', 'conflict_key', 'sku', 'subsidiary_id', 'branch', 'zeroed_at'],
];
const BOUND_COLUMNS = [
  ...['change_id', 'target', 'conflict_key', 'body', 'priority', 'sku', 'subsidiary_id', 'branch', 'origin'],
  ...['reference', 'version', 'zeroed_at', 'as_of_seq', 'created_at', 'queue_seq'],
];

/**
 * The rule of the queue: one waiting change for each target, with the last value of every field; beside it at
 * most one that a guard rail holds. Transactions are the caller's.
 */
export class OutboxQueue {
  readonly #sql: Sql;
  readonly #upserts = new Map<string, string>();
  #anyHeld = true;
  /** Rowid of the connection's last insert. */
  #lastId: number | undefined;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
  }

  get(changeId: number): OutboxChange | undefined {
    return this.all('WHERE change_id = +?', changeId)[0];
  }

  /** `which`: the end of a SELECT. */
  all(which: string, ...params: unknown[]): OutboxChange[] {
    return this.#rows(`SELECT ${COLUMNS} FROM outbox ${which}`, ...params);
  }

  /** Branches of which something may leave, in their order. */
  branches(which: { kind: ChangeKind; priority: number; sendAsIs: number }): string[] {
    return this.#sql.values<string>(BRANCHES, which);
  }

  /** How many more changes the line of a branch has room for; what is sold out needs none. */
  roomOf(branch: string): number {
    const waiting = `SELECT ${waitingOf('stock')} + ${waitingOf('product')}`;
    return Math.max(0, WAITING_MAX - (this.#sql.value<number>(waiting, { branch }) ?? 0));
  }

  /** Whether a value for the target takes the place of one that waits, and is not sold out. */
  isWaiting(kind: ChangeKind, target: string): boolean {
    return this.#sql.value(`${WAITING_ID} AND priority = ${PRIORITY_OTHERS}`, kind, target) !== undefined;
  }

  /**
   * To be called at the start of each transaction that puts changes in the queue; until its end nothing else inserts
   * rows, but for changes of other ids.
   */
  begin(): void {
    const start = this.#sql.row<{ anyHeld: number; lastId: number }>(`
      SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'pending' AND held_guard IS NOT NULL) AS anyHeld,
        last_insert_rowid() AS lastId`);
    this.#anyHeld = start?.anyHeld !== 0;
    this.#lastId = start?.lastId;
  }

  /** The newest word for its target: goes over what waits. Returns the id of the row that carries it. */
  putNewest(change: NewChange): number {
    if (change.heldGuard !== null) return this.#putHeld(change);
    const changeId = this.#upsert(change) ?? this.#mergeInto(WAITING, change);
    if (this.#anyHeld || hasSharedFields(change.kind, change.body)) {
      this.#overrule({ ...change, changeId }, change.createdAt);
    }
    return changeId;
  }

  /** Keeps a change as rejected from its beginning; `fields`: of a change that could be read. */
  putRejected({ body, ...change }: Omit<NewChange, 'body'> & { body: unknown }, isReadable: boolean): void {
    const columns = isReadable
      ? bodyColumns(body as ChangeBody)
      : { body: JSON.stringify(body) ?? 'null', fields: '', priority: 1 };
    this.#insert({ ...change, ...columns, state: 'rejected', settledAt: change.createdAt });
  }

  /**
   * What is left of a change that was handed over before others and is taken in after them: these have the versions
   * `first` to `last`. A count of 40 by SQL, taken in after 5 by a command, leaves nothing.
   */
  restOfLate(change: NewChange, { first, last }: Versions): Rest | { overruledBy: number } {
    const version = first - 1;
    const versions = versionsOf(change.body, version);
    return this.restOf(
      { ...change, version, versions },
      { key: change.target, conflictKey: change.conflictKey },
      last,
    );
  }

  /** Keeps a change that a newer one had outlived before it was taken in. */
  putOutlived({ body, ...change }: NewChange, by: number): void {
    this.#insert({ ...change, ...bodyColumns(body), state: 'superseded', settledAt: change.createdAt });
    this.#supersede(change.changeId, by, change.createdAt);
  }

  /** A change that was under way and did not arrive: back to its place in the queue, under everything newer. */
  putBack(change: OutboxChange, message: string, at: string): 'waiting' | 'superseded' {
    const newer = this.#rows(WAITING, change.kind, change.target)[0];
    if (newer) {
      const placed = { ...newer, queueSeq: Math.min(change.queueSeq, newer.queueSeq) };
      const merged = mergeVersioned(change, newer);
      this.#place({ ...placed, ...merged });
      this.#supersede(change.changeId, newer.changeId, at);
      // What came back may be older than another sku's word for the same product.
      this.#settleSiblings({ ...placed, ...merged }, at);
      return 'superseded';
    }
    let rest: ChangeBody | undefined = change.body;
    let by = change.changeId;
    for (const sibling of this.#siblings(change)) {
      if (rest === undefined || sibling.heldGuard !== null) continue;
      rest = withoutOverruled(rest, sibling.body, 'shared');
      by = sibling.changeId;
    }
    if (rest === undefined) {
      this.#supersede(change.changeId, by, at);
      return 'superseded';
    }
    this.#setBody(change, rest);
    this.#wait(change, message);
    return 'waiting';
  }

  /** A change that a guard held goes into the queue, over what waited when it was handed over. */
  release(change: OutboxChange, message: string, at: string): void {
    const before = this.#rows(WAITING, change.kind, change.target)[0];
    const released = before ? this.#join(change, before, at) : change;
    if (before) this.#place(released);
    this.#wait(released, message);
    this.#overrule(released, at);
  }

  /** A waiting or sent change with its target, now known; joins what waits there, each field's newest value. */
  move(change: OutboxChange, at: string): void {
    const isSending = change.state === 'sending';
    const there = isSending
      ? undefined
      : this.#rows(change.heldGuard === null ? WAITING : HELD, change.kind, change.target)[0];
    const isOther = there !== undefined && there.changeId !== change.changeId;
    const moved = isOther ? this.#join(change, there, at) : change;
    this.#place(moved);
    if (change.heldGuard === null && !isSending) this.#settleSiblings(moved, at);
  }

  /**
   * Refused changes stay for a person to see. One that a newer change for the same target has outlived, arrived or
   * refused itself, is no longer news: it is superseded, so that what is refused is what is wrong now.
   */
  outlive(newer: Pick<OutboxChange, 'kind' | 'target' | 'changeId' | 'version' | 'body'>, at: string): void {
    for (const refused of this.#rows(REFUSED, newer.kind, newer.target, newer.version)) {
      if (withoutOverruled(refused.body, newer.body, 'all') !== undefined) continue;
      this.#sql.run(
        `UPDATE outbox SET state = 'superseded', message = message || ?, superseded_by = ?, settled_at = ?
         WHERE change_id = ?`,
        ...[` Replaced by change ${newer.changeId}.`, newer.changeId, at, refused.changeId],
      );
      this.#sql.run(
        `UPDATE outbox SET refused_since = (SELECT coalesce(refused_since, version) FROM outbox WHERE change_id = ?)
         WHERE change_id = ?`,
        ...[refused.changeId, newer.changeId],
      );
    }
  }

  /**
   * What is left of a change: what was handed over for the same thing since, whatever became of it, overrules the
   * fields it names; a stock's show takes the newest quantity with it. `lastVersion`: what is
   * newer than that says nothing.
   */
  restOf<T extends Rest>(
    change: T,
    { key: target, conflictKey }: Pick<Target, 'key' | 'conflictKey'>,
    lastVersion = Number.MAX_SAFE_INTEGER,
  ): T | { overruledBy: number } {
    const { kind, changeId, version, versions } = change;
    const after = Math.min(version, ...Object.values(versions));
    const isShared = Number(hasSharedFields(kind, change.body));
    let rest = change;
    let last: OutboxChange | undefined;
    for (const newer of this.#rows(NEWER, { kind, after, isShared, target, conflictKey })) {
      if (newer.changeId === changeId) continue;
      const said = lastVersion < newer.version ? asOfVersion(newer, lastVersion) : newer;
      const left = withoutNewer(rest, said, newer.target === target ? 'all' : 'shared');
      if (left === undefined) return { overruledBy: newer.changeId };
      if (kind === 'stock' && !('qty' in left)) last = newer;
      rest = withQtyOf(said, rest, left);
    }
    // A guard rail holds the quantity, and the show that came with the older one must not let it go.
    return last && last.heldGuard !== null ? { overruledBy: last.changeId } : rest;
  }

  #rows(text: string, ...params: unknown[]): OutboxChange[] {
    return this.#sql.rows<Row>(text, ...params).map(({ fieldVersions, ...row }) => {
      const body = JSON.parse(row.body) as ChangeBody;
      const versions =
        fieldVersions === null
          ? versionsOf(body, row.version)
          : (JSON.parse(fieldVersions) as Record<string, number>);
      return { ...row, body, versions };
    });
  }

  /** Takes another one along: each field's newest value, at the better place in the line. */
  #join(change: OutboxChange, other: OutboxChange, at: string): OutboxChange {
    const { version, asOfSeq } = other.version > change.version ? other : change;
    const queueSeq = Math.min(change.queueSeq, other.queueSeq);
    this.#supersede(other.changeId, change.changeId, at);
    return { ...change, ...mergeVersioned(change, other), queueSeq, version, asOfSeq };
  }

  /** Other skus of the product that wait, where they could overrule each other. */
  #siblings(change: Pick<OutboxChange, 'kind' | 'body' | 'conflictKey' | 'target'>): OutboxChange[] {
    if (!hasSharedFields(change.kind, change.body)) return [];
    return this.#rows(SIBLINGS, change.conflictKey, change.target);
  }

  /** Takes out of held changes and of other skus of the product what a newer change has decided. */
  #overrule(
    newer: Newer & Pick<OutboxChange, 'kind' | 'target' | 'conflictKey' | 'changeId'>,
    at: string,
  ): void {
    const strip = (older: OutboxChange, scope: 'all' | 'shared') => {
      const rest = withoutOverruled(older.body, newer.body, scope);
      if (!rest) this.#supersede(older.changeId, newer.changeId, at);
      else if (newer.kind === 'stock') this.#place(withQtyOf(newer, older, rest));
      else this.#setBody(older, rest);
    };
    const held = this.#anyHeld ? this.#rows(HELD, newer.kind, newer.target)[0] : undefined;
    if (held && held.changeId !== newer.changeId) strip(held, 'all');
    for (const sibling of this.#siblings(newer)) strip(sibling, 'shared');
  }

  /** Of the skus of one product, the newest value of a shared field stays. */
  #settleSiblings(moved: OutboxChange, at: string): void {
    let rest: OutboxChange | undefined = moved;
    for (const sibling of this.#siblings(moved)) {
      const left = withoutNewer(sibling, moved, 'shared');
      if (left) this.#place({ ...sibling, body: left });
      else this.#supersede(sibling.changeId, moved.changeId, at);
      if (!rest || !left || sibling.heldGuard !== null) continue;
      const body = withoutNewer(rest, sibling, 'shared');
      rest = body && { ...rest, body };
      if (rest) this.#place(rest);
      else this.#supersede(moved.changeId, sibling.changeId, at);
    }
  }

  #place({ body, versions, ...change }: OutboxChange): void {
    const { changeId, target, conflictKey, basis, sku, subsidiaryId, queueSeq, version, asOfSeq } = change;
    const { heldGuard, zeroedAt, message } = change;
    this.#sql.run(
      `UPDATE outbox SET target = @target, conflict_key = @conflictKey, basis = @basis, sku = @sku,
         subsidiary_id = @subsidiaryId, branch = coalesce(@subsidiaryId, branch), body = @body, fields = @fields,
         priority = @priority, queue_seq = @queueSeq,
         field_versions = @fieldVersions, version = @version, as_of_seq = @asOfSeq,
         held_guard = @heldGuard, zeroed_at = @zeroedAt, message = @message
       WHERE change_id = @changeId`,
      {
        ...{ changeId, target, conflictKey, basis, sku, subsidiaryId, queueSeq, version, asOfSeq },
        ...{ heldGuard, zeroedAt, message },
        ...bodyColumns(body),
        fieldVersions: JSON.stringify(versions),
      },
    );
  }

  /** The id of the row that carries the value; undefined when it must be merged into the waiting one. */
  #upsert(change: NewChange): number | undefined {
    const { changeId, kind, target, conflictKey, basis, sku, subsidiaryId, createdAt } = change;
    const { source, origin, reference, version, zeroedAt, asOfSeq, branch } = change;
    const { body, fields, priority } = bodyColumns(change.body);
    const place = [changeId, target, conflictKey, body, priority, sku, subsidiaryId, branch, origin];
    const { changes, lastInsertRowid } = this.#sql.run(
      this.#upsertText(`'${kind}', '${source}', '${basis}', '${fields}'`),
      ...place,
      ...[reference, version, zeroedAt, asOfSeq, createdAt, changeId],
    );
    if (changes === 0) return undefined;
    const lastId = this.#lastId;
    this.#lastId = Number(lastInsertRowid);
    // An update leaves the last rowid as it was.
    const isNew = this.#lastId === changeId && lastId !== undefined && lastId !== changeId;
    return isNew ? changeId : this.#sql.value(WAITING_ID, kind, target);
  }

  /**
   * Parameters in the order of BOUND_COLUMNS. Changes no row when the waiting one must be merged. One statement for
   * each combination of what most changes of a hand-over have in common: binding that for every row would take a tenth
   * of the time. Without RETURNING, for which SQLite would make a temporary table each time.
   */
  #upsertText(shared: string): string {
    const known = this.#upserts.get(shared);
    if (known !== undefined) return known;
    const text = `
      INSERT INTO outbox (kind, source, basis, fields, ${BOUND_COLUMNS}, state)
      VALUES (${shared}, ${BOUND_COLUMNS.map(() => '?')}, 'pending')
      ON CONFLICT (kind, target) WHERE state = 'pending' AND held_guard IS NULL DO UPDATE SET
        ${REPLACED_COLUMNS.map((column) => `${column} = excluded.${column}`)},
        message = NULL, field_versions = NULL, replaced = replaced + 1
      WHERE ${SAME_COLUMNS.map((column) => `${column} IS excluded.${column}`).join(' AND ')}`;
    this.#upserts.set(shared, text);
    return text;
  }

  #putHeld(change: NewChange): number {
    const isFirst = !this.#anyHeld || !this.#rows(HELD, change.kind, change.target)[0];
    this.#anyHeld = true;
    if (!isFirst) return this.#mergeInto(HELD, change);
    this.#insert({ ...change, ...bodyColumns(change.body), state: 'pending', settledAt: null });
    return change.changeId;
  }

  #insert(values: Record<string, unknown>): void {
    this.#sql.run(
      `INSERT INTO outbox (change_id, kind, target, conflict_key, body, fields, state, message, created_at, settled_at,
         priority, queue_seq, basis, sku, subsidiary_id, branch, held_guard, source, origin, reference, version, zeroed_at, as_of_seq)
       VALUES (@changeId, @kind, @target, @conflictKey, @body, @fields, @state, @message, @createdAt, @settledAt,
         @priority, @changeId, @basis, @sku, @subsidiaryId, @branch, @heldGuard, @source, @origin, @reference, @version, @zeroedAt,
         @asOfSeq)`,
      values,
    );
  }

  #mergeInto(slot: string, change: NewChange): number {
    const before = this.#rows(slot, change.kind, change.target)[0];
    if (!before) return change.changeId;
    this.#sql.run(
      `UPDATE outbox SET body = @body, fields = @fields, priority = @priority, version = @version, source = @source,
         origin = @origin, reference = @reference, message = @message, held_guard = @heldGuard, as_of_seq = @asOfSeq,
         zeroed_at = @zeroedAt, basis = @basis, sku = @sku, subsidiary_id = @subsidiaryId,
         branch = @branch, conflict_key = @conflictKey, field_versions = @fieldVersions, replaced = replaced + 1
       WHERE change_id = @changeId`,
      {
        ...change,
        ...bodyColumns(mergeBodies(before.body, change.body)),
        changeId: before.changeId,
        fieldVersions: JSON.stringify({ ...before.versions, ...versionsOf(change.body, change.version) }),
      },
    );
    return before.changeId;
  }

  #setBody({ changeId, body: before }: OutboxChange, rest: ChangeBody): void {
    const { body, fields, priority } = bodyColumns(rest);
    if (body === JSON.stringify(before)) return;
    const columns = 'body = ?, fields = ?, priority = ?';
    this.#sql.run(`UPDATE outbox SET ${columns} WHERE change_id = ?`, body, fields, priority, changeId);
  }

  #wait({ changeId, queueSeq }: OutboxChange, message: string): void {
    this.#sql.run(
      `UPDATE outbox SET state = 'pending', message = ?, queue_seq = ?, call_id = NULL, held_guard = NULL
       WHERE change_id = ?`,
      ...[message, queueSeq, changeId],
    );
  }

  #supersede(changeId: number, by: number, at: string): void {
    this.#sql.run(
      `UPDATE outbox SET state = 'superseded', message = ?, superseded_by = ?, settled_at = ?, call_id = NULL,
         zeroed_at = NULL
       WHERE change_id = ?`,
      ...[`Replaced by change ${by}.`, by, at, changeId],
    );
  }
}

type Newer = Pick<OutboxChange, 'body' | 'version' | 'asOfSeq'>;
/** What of a change a newer one may take or leave. */
type Rest = Pick<
  OutboxChange,
  'changeId' | 'kind' | 'target' | 'body' | 'version' | 'versions' | 'asOfSeq' | 'zeroedAt'
>;
/** Of hand-overs, both included. */
export interface Versions {
  first: number;
  last: number;
}

/** Without the fields that were handed over later. */
function asOfVersion(change: OutboxChange, lastVersion: number): OutboxChange {
  const body: Record<string, unknown> = { ...change.body };
  for (const field of valueKeys(change.body)) {
    if ((change.versions[field] ?? 0) > lastVersion) delete body[field];
  }
  return { ...change, body: body as unknown as ChangeBody };
}

/**
 * A change of which a newer one has left `rest`. The platform takes a stock's show only with a quantity: it takes the
 * newer one's along, and is as new as that.
 */
export function withQtyOf<T extends Rest>(
  { body: newer, version, asOfSeq }: Newer,
  older: T,
  rest: ChangeBody,
): T {
  if (!('qty' in newer) || 'qty' in rest) return { ...older, body: rest };
  const body = { ...rest, qty: newer.qty } as ChangeBody;
  return { ...older, body, versions: { ...older.versions, qty: version }, version, asOfSeq, zeroedAt: null };
}

/** What of a row follows from its body. */
function bodyColumns(body: ChangeBody): { body: string; fields: string; priority: number } {
  const keys = valueKeys(body);
  const fields = keys.length === 1 ? (keys[0] as string) : keys.sort().join();
  return { body: JSON.stringify(body), fields, priority: priorityOf(body) };
}

function versionsOf(body: ChangeBody, version: number): Record<string, number> {
  return Object.fromEntries(valueKeys(body).map((field) => [field, version]));
}
