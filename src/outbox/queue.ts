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
} from './call-plan.ts';
import type { ChangeBody, ChangeKind, OutboxChange, Target } from './change.ts';

/** A newly submitted change, without the fields that are derived. */
export type NewChange = Omit<
  OutboxChange,
  | ('state' | 'attempts' | 'settledAt' | 'replaced' | 'supersededBy' | 'settledSeq')
  | ('versions' | 'priority' | 'queueSeq' | 'sentQty' | 'sentAsOfSeq')
>;

const COLUMNS = `change_id AS changeId, kind, target, conflict_key AS conflictKey, sku, subsidiary_id AS subsidiaryId,
  basis, body, version, field_versions AS fieldVersions, state, held_guard AS heldGuard, as_of_seq AS asOfSeq,
  priority, queue_seq AS queueSeq, attempts, sent_qty AS sentQty, sent_as_of_seq AS sentAsOfSeq, message, source, origin,
  reference, created_at AS createdAt, settled_at AS settledAt, replaced, superseded_by AS supersededBy,
  zeroed_at AS zeroedAt, branch`;

type ChangeRow = Omit<OutboxChange, 'body' | 'versions'> & { body: string; fieldVersions: string | null };

// INDEXED BY saves time, because without it SQLite compares the bound kind with other partial indexes' conditions and
// plans the statement again each time, which takes longer than running it.
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
// The conditions are separate so that each uses one index, because settled changes are stored for a month.
const NEWER = [
  "target = @target AND state = 'pending' AND held_guard IS NULL",
  "target = @target AND state = 'pending' AND held_guard IS NOT NULL",
  "target = @target AND state = 'rejected'",
  "conflict_key = @conflictKey AND state IN ('sending', 'done')",
  // Other skus of the same product; they never matter for a stock.
  `conflict_key = @conflictKey AND target <> @target AND @isShared AND kind = 'product'
    AND state IN ('pending', 'rejected')`,
]
  .map((where) => `SELECT ${COLUMNS} FROM outbox WHERE kind = @kind AND version > @after AND ${where}`)
  .join(' UNION ALL ')
  .concat(' ORDER BY version');

// INDEXED BY, and a plus before parameters, keep SQLite from planning again for each value, which takes much longer
// than the query.
export const FROM_QUEUE = 'outbox INDEXED BY outbox_line';
export const MAY_LEAVE = `kind = +@kind AND state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read'
  AND (basis = 'mirror' OR +@sendAsIs)`;
/** Finds branches with changes to send, each by one step in the index. */
const nextBranch = (after: string) =>
  `SELECT min(branch) FROM ${FROM_QUEUE} WHERE ${MAY_LEAVE} AND priority = +@priority ${after}`;
const BRANCHES = `
  WITH RECURSIVE waiting (branch) AS (
    SELECT (${nextBranch('')})
    UNION ALL SELECT (${nextBranch('AND branch > waiting.branch')}) FROM waiting WHERE branch IS NOT NULL)
  SELECT branch FROM waiting WHERE branch IS NOT NULL`;
const waitingOf = (kind: ChangeKind) => `
  (SELECT count(*) FROM (SELECT 1 FROM ${FROM_QUEUE} WHERE kind = '${kind}' AND priority = ${PRIORITY_OTHERS}
    AND branch = +@branch AND state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read' LIMIT ${WAITING_MAX}))`;

/**
 * No two waiting changes have the same place, so a branch has at most as many as the distance between its first and
 * last place.
 */
const spanOf = (kind: ChangeKind) => {
  const end = (which: string) => `(SELECT ${which}(queue_seq) FROM ${FROM_QUEUE} WHERE kind = '${kind}'
    AND priority = ${PRIORITY_OTHERS} AND branch = +@branch AND state = 'pending' AND held_guard IS NULL
    AND basis <> 'needs-read')`;
  return `coalesce(${end('max')} - ${end('min')} + 1, 0)`;
};

/** Columns that a newer value of the same fields updates; no index of the table contains them. */
const REPLACED_COLUMNS = ['version', 'body', 'source', 'origin', 'reference', 'as_of_seq'];
/** Columns that must be equal for such an update; otherwise the two changes are merged. */
const SAME_COLUMNS = [
  ...['fields', 'priority', 'basis', 'conflict_key', 'sku', 'subsidiary_id', 'branch', 'zeroed_at'],
];
const BOUND_COLUMNS = [
  ...['change_id', 'target', 'conflict_key', 'body', 'priority', 'sku', 'subsidiary_id', 'branch', 'origin'],
  ...['reference', 'version', 'zeroed_at', 'as_of_seq', 'created_at', 'queue_seq'],
];

/**
 * The queue has at most one waiting change per target, with the last value of each field, and one beside it
 * that a guard holds. [price 5, name a] + [price 6] → [price 6, name a]. The caller opens the transaction.
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

  /** `which` is the end of a SELECT. */
  all(which: string, ...params: unknown[]): OutboxChange[] {
    return this.#rows(`SELECT ${COLUMNS} FROM outbox ${which}`, ...params);
  }

  /** Returns the branches with changes to send, in order. */
  branches(which: { kind: ChangeKind; priority: number; sendAsIs: number }): string[] {
    return this.#sql.values<string>(BRANCHES, which);
  }

  /**
   * Returns how many more changes a branch's queue has room for; sold-out changes do not count. Only if the span of its
   * places does not show that `needed` fit, they are counted, which takes a millisecond.
   */
  roomOf(branch: string, needed: number): number {
    const atMost =
      this.#sql.value<number>(`SELECT ${spanOf('stock')} + ${spanOf('product')}`, { branch }) ?? 0;
    if (WAITING_MAX - atMost >= needed) return WAITING_MAX - atMost;
    const waiting = `SELECT ${waitingOf('stock')} + ${waitingOf('product')}`;
    return Math.max(0, WAITING_MAX - (this.#sql.value<number>(waiting, { branch }) ?? 0));
  }

  /** Whether a value for the target would replace a waiting change that is not sold out. */
  isWaiting(kind: ChangeKind, target: string): boolean {
    return this.#sql.value(`${WAITING_ID} AND priority = ${PRIORITY_OTHERS}`, kind, target) !== undefined;
  }

  /**
   * Starts each transaction that queues changes. Until its end, only these changes and rows with other ids may be
   * inserted.
   */
  begin(): void {
    const start = this.#sql.row<{ anyHeld: number; lastId: number }>(`
      SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'pending' AND held_guard IS NOT NULL) AS anyHeld,
        last_insert_rowid() AS lastId`);
    this.#anyHeld = start?.anyHeld !== 0;
    this.#lastId = start?.lastId;
  }

  /** Queues the newest change of a target, over a waiting one. Returns the id of the row that has it. */
  putNewest(change: NewChange): number {
    if (change.heldGuard !== null) return this.#putHeld(change);
    const changeId = this.#upsert(change) ?? this.#mergeInto(WAITING, change);
    if (this.#anyHeld || hasSharedFields(change.kind, change.body)) {
      this.#overrule({ ...change, changeId }, change.createdAt);
    }
    return changeId;
  }

  /** Stores a change as rejected from the start. `isReadable`: its fields are known. */
  putRejected({ body, ...change }: Omit<NewChange, 'body'> & { body: unknown }, isReadable: boolean): void {
    const columns = isReadable
      ? bodyColumns(body as ChangeBody)
      : { body: JSON.stringify(body) ?? 'null', fields: '', priority: 1 };
    this.#insert({ ...change, ...columns, state: 'rejected', settledAt: change.createdAt });
  }

  /**
   * Returns what is left of a change that was submitted before others (versions `first` to `last`) but accepted after
   * them. A count of 40 by SQL, accepted after a command's 5, leaves nothing.
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

  /** Stores a change that a newer one had superseded before it was accepted. */
  putOutlived({ body, ...change }: NewChange, by: number): void {
    this.#insert({ ...change, ...bodyColumns(body), state: 'superseded', settledAt: change.createdAt });
    this.#supersede(change.changeId, by, change.createdAt);
  }

  /** Requeues a change that was sent and did not arrive, at its old place and under all newer values. */
  putBack(change: OutboxChange, message: string, at: string): 'waiting' | 'superseded' {
    const newer = this.#rows(WAITING, change.kind, change.target)[0];
    if (newer) {
      const placed = { ...newer, queueSeq: Math.min(change.queueSeq, newer.queueSeq) };
      const merged = mergeVersioned(change, newer);
      this.#place({ ...placed, ...merged });
      this.#supersede(change.changeId, newer.changeId, at);
      // A requeued change may be older than another sku's value for the same product.
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

  /** Queues a change that a guard held; it replaces changes that already waited when it was submitted. */
  release(change: OutboxChange, message: string, at: string): void {
    const before = this.#rows(WAITING, change.kind, change.target)[0];
    const released = before ? this.#join(change, before, at) : change;
    if (before) this.#place(released);
    this.#wait(released, message);
    this.#overrule(released, at);
  }

  /** Moves a waiting or sent change to its target, now known, and merges it there; each field's newest value stays. */
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
   * Supersedes refused changes. A refused change stays for a person until a newer change of its target arrives or is
   * refused itself, so that only present refusals are shown.
   */
  supersedeRejected(
    newer: Pick<OutboxChange, 'kind' | 'target' | 'changeId' | 'version' | 'body'>,
    at: string,
  ): void {
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
   * Returns a change without the fields that later changes of the same target set, even if those were rejected. A
   * stock's `show` is sent with the newest quantity. Changes with a version above `lastVersion` do not count.
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
    // A guard holds the quantity, and the older change's show must not release it.
    return last && last.heldGuard !== null ? { overruledBy: last.changeId } : rest;
  }

  #rows(text: string, ...params: unknown[]): OutboxChange[] {
    return this.#sql.rows<ChangeRow>(text, ...params).map(({ fieldVersions, ...row }) => {
      const body = JSON.parse(row.body) as ChangeBody;
      const versions =
        fieldVersions === null
          ? versionsOf(body, row.version)
          : (JSON.parse(fieldVersions) as Record<string, number>);
      return { ...row, body, versions };
    });
  }

  /** Merges another change in: each field's newest value, at the better place in the queue. */
  #join(change: OutboxChange, other: OutboxChange, at: string): OutboxChange {
    const { version, asOfSeq } = other.version > change.version ? other : change;
    const queueSeq = Math.min(change.queueSeq, other.queueSeq);
    this.#supersede(other.changeId, change.changeId, at);
    return { ...change, ...mergeVersioned(change, other), queueSeq, version, asOfSeq };
  }

  /** Returns waiting changes of the product's other skus, if they have shared fields. */
  #siblings(change: Pick<OutboxChange, 'kind' | 'body' | 'conflictKey' | 'target'>): OutboxChange[] {
    if (!hasSharedFields(change.kind, change.body)) return [];
    return this.#rows(SIBLINGS, change.conflictKey, change.target);
  }

  /** Removes the fields that a newer change sets from held changes and from changes of the product's other skus. */
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

  /** Removes from the waiting changes of a product's skus every shared field except its newest value. */
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
        changeId,
        target,
        conflictKey,
        basis,
        sku,
        subsidiaryId,
        queueSeq,
        version,
        asOfSeq,
        heldGuard,
        zeroedAt,
        message,
        ...bodyColumns(body),
        fieldVersions: JSON.stringify(versions),
      },
    );
  }

  /** Returns the id of the row with the value; undefined if it must be merged into the waiting one. */
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
    // An update leaves the last rowid unchanged.
    const isNew = this.#lastId === changeId && lastId !== undefined && lastId !== changeId;
    return isNew ? changeId : this.#sql.value(WAITING_ID, kind, target);
  }

  /**
   * Parameters in the order of BOUND_COLUMNS. Changes no row if the waiting one must be merged. There is one
   * statement per combination of values that most changes of a submission share, because binding them for each row
   * takes a tenth of the time. No RETURNING, because SQLite would make a temporary table each time.
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
/** The part of a change from which a newer change may remove fields. */
type Rest = Pick<
  OutboxChange,
  'changeId' | 'kind' | 'target' | 'body' | 'version' | 'versions' | 'asOfSeq' | 'zeroedAt'
>;
/** Range of submissions by their versions, both ends included. */
export interface Versions {
  first: number;
  last: number;
}

/** Returns the change without the fields submitted after `lastVersion`. */
function asOfVersion(change: OutboxChange, lastVersion: number): OutboxChange {
  const body: Record<string, unknown> = { ...change.body };
  for (const field of valueKeys(change.body)) {
    if ((change.versions[field] ?? 0) > lastVersion) delete body[field];
  }
  return { ...change, body: body as unknown as ChangeBody };
}

/**
 * Completes what a newer change has left of an older one. The platform accepts a stock's show only with a quantity,
 * so it takes the newer quantity and is as new as that.
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

/** Returns the columns that follow from the body. */
function bodyColumns(body: ChangeBody): { body: string; fields: string; priority: number } {
  const keys = valueKeys(body);
  const fields = keys.length === 1 ? (keys[0] as string) : keys.sort().join();
  return { body: JSON.stringify(body), fields, priority: priorityOf(body) };
}

function versionsOf(body: ChangeBody, version: number): Record<string, number> {
  return Object.fromEntries(valueKeys(body).map((field) => [field, version]));
}
