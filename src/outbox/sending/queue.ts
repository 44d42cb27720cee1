import type Database from 'better-sqlite3';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import type { ChangeBody, ChangeKind, OutboxChange, Target } from '../intake/change.ts';
import { countTime } from '../intake/counted-at.ts';
import {
  fieldsAmong,
  hasSharedFields,
  type LaterVersions,
  mergeBodies,
  mergeVersioned,
  type Newer,
  PRIORITY_OTHERS,
  priorityOf,
  type Rest,
  valueKeys,
  WAITING_MAX,
  withoutNewer,
  withoutOverruled,
  withQtyOf,
} from './call-plan.ts';

/** A newly submitted change, without the columns that the queue sets. */
export type NewChange = Omit<
  OutboxChange,
  | ('state' | 'attempts' | 'settledAt' | 'replaced' | 'supersededBy' | 'settledSeq')
  | ('versions' | 'priority' | 'queueSeq' | 'sentQty' | 'sentAsOfSeq')
>;

const COLUMNS = `change_id AS changeId, kind, target, conflict_key AS conflictKey, sku, subsidiary_id AS subsidiaryId,
  basis, body, version, field_versions AS fieldVersions, state, held_guard AS heldGuard, as_of_seq AS asOfSeq,
  priority, queue_seq AS queueSeq, attempts, sent_qty AS sentQty, sent_as_of_seq AS sentAsOfSeq, message, source, origin,
  reference, created_at AS createdAt, settled_at AS settledAt, replaced, superseded_by AS supersededBy,
  zeroed_at AS zeroedAt, branch, named, counted_at AS countedAt, handed_at AS handedAt`;

type ChangeRow = Omit<OutboxChange, 'body' | 'versions'> & { body: string; fieldVersions: string | null };

// Without INDEXED BY, SQLite compares the bound kind with the conditions of partial indexes and plans the statement
// again each time, which takes longer than the query: with 100,000 changes 54 µs instead of 7.
const waitingOne = (columns: string) => `
  SELECT ${columns} FROM _outbox INDEXED BY outbox_waiting
  WHERE kind = ? AND target = ? AND state = 'pending' AND held_guard IS NULL`;
const WAITING = waitingOne(COLUMNS);
const WAITING_ID = waitingOne('change_id');
const HELD = `
  SELECT ${COLUMNS} FROM _outbox INDEXED BY outbox_held
  WHERE kind = ? AND target = ? AND state = 'pending' AND held_guard IS NOT NULL`;
const SIBLINGS = `
  SELECT ${COLUMNS} FROM _outbox
  WHERE conflict_key = ? AND state = 'pending' AND kind = 'product' AND target <> ?`;
const REFUSED = `
  SELECT ${COLUMNS} FROM _outbox INDEXED BY outbox_rejected_target
  WHERE kind = ? AND target = ? AND state = 'rejected' AND version < ?`;
/** SQL for whether the id by which a row of `table` was named means the row's stock, or the row was named by its sku. */
export const meansItsStock = (table: string) => `(${table}.named IS NULL OR ${table}.sku IS NULL
  OR EXISTS (SELECT 1 FROM integrations i WHERE i.sku = ${table}.sku AND i.subsidiary_id = ${table}.subsidiary_id
    AND json_extract(${table}.named, '$.externalId') IN (i.ext_id, i.product_id_pos_a, i.product_code_pos_b)))`;
/** SQL for changes that say something of the target. A count by an id that means another stock now says nothing. */
export const SENT = `state IN ('sending', 'done') AND ${meansItsStock('_outbox')}`;
// Each condition is a separate query with its own index, because a scan of the whole table would also read a month of
// settled changes.
const NEWER = [
  "target = @target AND state = 'pending' AND held_guard IS NULL",
  "target = @target AND state = 'pending' AND held_guard IS NOT NULL",
  `target = @target AND state = 'rejected' AND ${meansItsStock('_outbox')}`,
  `conflict_key = @conflictKey AND ${SENT}`,
  // Changes of other skus of the same product. A stock change has none.
  ...['pending', 'rejected'].map(
    (state) => `conflict_key = @conflictKey AND target <> @target AND @isShared AND kind = 'product'
      AND state = '${state}'`,
  ),
]
  .map((where) => `SELECT ${COLUMNS} FROM _outbox WHERE kind = @kind AND version > @after AND ${where}`)
  .join(' UNION ALL ')
  .concat(' ORDER BY version');

/** SQL for the newest of the counts of a stock that were sent. A stock may have thousands, so it is one step in an index. */
const lastSent = (madeAt: string, dated: string) => `
  SELECT * FROM (SELECT ${COLUMNS} FROM _outbox
    WHERE kind = 'stock' AND conflict_key = @conflictKey AND ${SENT} AND counted_at IS ${dated}
      AND ${madeAt} > @at AND change_id <> @changeId
    ORDER BY ${madeAt} DESC, version DESC LIMIT 1)`;
/** SQL for the count of a stock that was made last, if it was made after `@at`. */
const LAST_COUNTED = `SELECT * FROM (${[
  ...[
    "state = 'pending' AND held_guard IS NULL",
    "state = 'pending' AND held_guard IS NOT NULL",
    `state = 'rejected' AND ${meansItsStock('_outbox')}`,
  ].map(
    (
      where,
    ) => `SELECT ${COLUMNS} FROM _outbox WHERE kind = 'stock' AND target = @target AND change_id <> @changeId
      AND coalesce(counted_at, handed_at) > @at AND ${where}`,
  ),
  lastSent('counted_at', 'NOT NULL'),
  lastSent('handed_at', 'NULL'),
].join(' UNION ALL ')}) ORDER BY coalesce(countedAt, handedAt) DESC, version DESC LIMIT 1`;

/** SQL for one count of a stock that says when it was made. Each part has its own index, as in NEWER. */
const ANY_DATED = [
  "target = @target AND state = 'pending' AND held_guard IS NULL",
  "target = @target AND state = 'pending' AND held_guard IS NOT NULL",
  "conflict_key = @conflictKey AND state IN ('sending', 'done')",
]
  .map((where) => `SELECT 1 FROM _outbox WHERE ${where} AND kind = 'stock' AND counted_at IS NOT NULL`)
  .join(' UNION ALL ')
  .concat(' LIMIT 1');

// Without the plus before parameters, SQLite plans the statement again for each value, which takes longer than the
// query: with 100,000 changes 72 µs instead of 17.
export const MAY_LEAVE = `kind = +@kind AND state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read'
  AND (basis = 'mirror' OR +@sendAsIs)`;
/**
 * SQL for the first branch with changes to send, or for the next one. So BRANCHES finds each branch by one step in the
 * index.
 */
const nextBranch = (after: string) =>
  `SELECT min(branch) FROM _outbox WHERE ${MAY_LEAVE} AND priority = +@priority ${after}`;
const BRANCHES = `
  WITH RECURSIVE waiting (branch) AS (
    SELECT (${nextBranch('')})
    UNION ALL SELECT (${nextBranch('AND branch > waiting.branch')}) FROM waiting WHERE branch IS NOT NULL)
  SELECT branch FROM waiting WHERE branch IS NOT NULL`;
const waitingOf = (kind: ChangeKind) => `
  (SELECT count(*) FROM (SELECT 1 FROM _outbox WHERE kind = '${kind}' AND priority = ${PRIORITY_OTHERS}
    AND branch = @branch AND state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read' LIMIT ${WAITING_MAX}))`;

/**
 * SQL for the number of places between a branch's first and last waiting change. The branch cannot have more waiting
 * changes, because no two have the same place.
 */
const spanOf = (kind: ChangeKind) => {
  const end = (which: string) => `(SELECT ${which}(queue_seq) FROM _outbox WHERE kind = '${kind}'
    AND priority = ${PRIORITY_OTHERS} AND branch = +@branch AND state = 'pending' AND held_guard IS NULL
    AND basis <> 'needs-read')`;
  return `coalesce(${end('max')} - ${end('min')} + 1, 0)`;
};

/** Columns that a newer change of the same fields overwrites in the waiting change. No index contains them. */
const REPLACED_COLUMNS = [
  ...['version', 'body', 'source', 'origin', 'reference', 'as_of_seq', 'counted_at', 'handed_at', 'named'],
];
/**
 * SQL that stores the overwritten values for `outbox undo`, unless both changes are of one submission. Values that a
 * guard held are not stored, because they were never to be sent.
 */
const keepWaiting = (newer: { reference: string; origin: string }) => `value_before =
  CASE WHEN held_guard IS NOT NULL OR (reference IS ${newer.reference} AND origin IS ${newer.origin}) THEN value_before
    ELSE json_set(coalesce(value_before, '{}'), '$.waited', json_set(body, '$.asOfSeq', as_of_seq)) END`;
/** Columns that must be equal in both changes for an overwrite; otherwise the two are merged. */
const SAME_COLUMNS = [
  ...['fields', 'priority', 'basis', 'conflict_key', 'sku', 'subsidiary_id', 'branch', 'zeroed_at'],
];
const BOUND_COLUMNS = [
  ...['change_id', 'target', 'conflict_key', 'body', 'priority', 'sku', 'subsidiary_id', 'branch', 'origin'],
  ...[
    'reference',
    'version',
    'zeroed_at',
    'as_of_seq',
    'counted_at',
    'handed_at',
    'created_at',
    'queue_seq',
    'named',
  ],
];

/**
 * Queue with at most two pending changes per target: a waiting one, which has the newest value of each field, and one
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
    return this.all('WHERE change_id = ?', changeId)[0];
  }

  /** Returns changes. `which` is the SQL after `FROM _outbox`. */
  all(which: string, ...params: unknown[]): OutboxChange[] {
    return this.#rows(`SELECT ${COLUMNS} FROM _outbox ${which}`, ...params);
  }

  /** Returns the names of branches with changes to send, sorted. */
  branches(which: { kind: ChangeKind; priority: number; sendAsIs: number }): string[] {
    return this.#sql.values<string>(BRANCHES, which);
  }

  /**
   * Returns how many more changes fit into a branch's queue; sold-out changes do not count. It counts exactly, which
   * takes a millisecond, only if the span of places is too large to prove that `needed` fit.
   */
  roomOf(branch: string, needed: number): number {
    const atMost =
      this.#sql.value<number>(`SELECT ${spanOf('stock')} + ${spanOf('product')}`, { branch }) ?? 0;
    if (WAITING_MAX - atMost >= needed) return WAITING_MAX - atMost;
    const waiting = `SELECT ${waitingOf('stock')} + ${waitingOf('product')}`;
    return Math.max(0, WAITING_MAX - (this.#sql.value<number>(waiting, { branch }) ?? 0));
  }

  /** Whether the target has a waiting change, not sold out, that a newer value would replace. */
  isWaiting(kind: ChangeKind, target: string): boolean {
    return this.#sql.value(`${WAITING_ID} AND priority = ${PRIORITY_OTHERS}`, kind, target) !== undefined;
  }

  /**
   * Must be called at the start of each transaction that queues changes. After the call, the transaction must not
   * insert a row into another table with a rowid that is the id of one of its changes.
   */
  begin(): void {
    const start = this.#sql.row<{ anyHeld: number; lastId: number }>(`
      SELECT EXISTS (SELECT 1 FROM _outbox WHERE state = 'pending' AND held_guard IS NOT NULL) AS anyHeld,
        last_insert_rowid() AS lastId`);
    this.#anyHeld = start?.anyHeld !== 0;
    this.#lastId = start?.lastId;
  }

  /**
   * Queues the newest change of a target and replaces or merges a waiting one. Returns the id of the row with the
   * change.
   */
  putNewest(change: NewChange): number {
    if (change.heldGuard !== null) return this.#putHeld(change);
    const changeId = this.#upsert(change) ?? this.#mergeInto(WAITING, change);
    if (this.#anyHeld || hasSharedFields(change.kind, change.body)) {
      this.#overrule({ ...change, changeId }, change.createdAt);
    }
    return changeId;
  }

  /** Stores a change that is rejected at once. `isReadable` means that its fields are known. */
  putRejected({ body, ...change }: Omit<NewChange, 'body'> & { body: unknown }, isReadable: boolean): void {
    const columns = isReadable
      ? bodyColumns(body as ChangeBody)
      : { body: JSON.stringify(body) ?? 'null', fields: '', priority: 1 };
    this.#insert({ ...change, ...columns, state: 'rejected', settledAt: change.createdAt });
  }

  /**
   * Returns a change without the fields set by the changes with these versions, which were submitted after it but
   * accepted before it. Example: nothing is left of the inbox's 40 after a command's later 5.
   */
  restOfLate(change: NewChange, later: LaterVersions): Rest | { overruledBy: number } {
    const version = later.first - 1;
    const versions = versionsOf(change.body, version);
    return this.restOf(
      { ...change, version, versions },
      { key: change.target, conflictKey: change.conflictKey },
      later,
    );
  }

  /** Stores a change of tillsync itself that is settled at once: what it says was done to another table. */
  putDone({ body, ...change }: NewChange): void {
    this.#insert({ ...change, ...bodyColumns(body), state: 'done', settledAt: change.createdAt });
  }

  /**
   * Returns a count without its quantity if a count of its target was made later, and else the whole. The visibility is
   * no count, so the newest one handed over stays.
   */
  restOfCount<T extends NewChange | OutboxChange>(
    change: T,
    { target, conflictKey }: Pick<OutboxChange, 'target' | 'conflictKey'>,
  ): T | { overruledBy: OutboxChange } {
    const at = countTime(change);
    const [last] = this.#rows(LAST_COUNTED, { changeId: change.changeId, at, target, conflictKey });
    if (last === undefined) return change;
    const rest = withoutOverruled(change.body, { qty: 0 } as ChangeBody, 'all');
    if (rest === undefined || last.heldGuard !== null || !('qty' in last.body)) return { overruledBy: last };
    const { countedAt, handedAt, asOfSeq, named } = last;
    return {
      ...change,
      body: { ...rest, qty: last.body.qty } as ChangeBody,
      asOfSeq,
      countedAt,
      handedAt,
      named,
    };
  }

  /** Whether a count says when it was made, or another one of its target does. */
  hasDated({ countedAt, target, conflictKey }: OutboxChange): boolean {
    return countedAt !== null || this.#sql.row(ANY_DATED, { target, conflictKey }) !== undefined;
  }

  /**
   * Moves a waiting change to its target as the newest count there, as it is by the time at which it was counted. Its
   * visibility is as old as its hand-over.
   */
  moveNewest(change: OutboxChange, at: string): void {
    const next = "UPDATE marks SET value = value + 1 WHERE name = 'outbox.version' RETURNING value";
    const version = this.#sql.value<number>(next) ?? change.version;
    this.move({ ...change, version, versions: { ...change.versions, qty: version } }, at);
  }

  /** Stores a change as superseded, because a newer change of its target was accepted before it. */
  putSuperseded({ body, ...change }: NewChange, by: number, message = `Replaced by change ${by}.`): void {
    this.#insert({ ...change, ...bodyColumns(body), state: 'superseded', settledAt: change.createdAt });
    this.supersede(change.changeId, by, change.createdAt, message);
  }

  /** Requeues a change that was sent and did not arrive. It keeps its place, and newer values of its fields win. */
  putBack(change: OutboxChange, message: string, at: string): 'waiting' | 'superseded' {
    const newer = this.#rows(WAITING, change.kind, change.target)[0];
    if (newer) {
      const placed = { ...newer, queueSeq: Math.min(change.queueSeq, newer.queueSeq) };
      const merged = mergeVersioned(change, newer);
      this.#place({ ...placed, ...merged });
      this.supersede(change.changeId, newer.changeId, at);
      // The requeued change may be older than a value of another sku for the same product.
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
      this.supersede(change.changeId, by, at);
      return 'superseded';
    }
    this.#setBody(change, rest);
    this.#wait(change, message);
    return 'waiting';
  }

  /**
   * Queues a change that a guard held. It is merged with the waiting change of its target: the newest value of each
   * field wins.
   */
  release(change: OutboxChange, message: string, at: string): void {
    const before = this.#rows(WAITING, change.kind, change.target)[0];
    const released = before ? this.#join(change, before, at) : change;
    this.#place(released);
    this.#wait(released, message);
    this.#overrule(released, at);
  }

  /**
   * Moves a waiting or sent change to its target, which is known now, and merges it with a change there. The newest
   * value of each field wins, also over a change that a guard holds there.
   */
  move(change: OutboxChange, at: string): void {
    const isSending = change.state === 'sending';
    const there = isSending
      ? undefined
      : this.#rows(change.heldGuard === null ? WAITING : HELD, change.kind, change.target)[0];
    const isOther = there !== undefined && there.changeId !== change.changeId;
    const moved = isOther ? this.#join(change, there, at) : change;
    this.#place(moved);
    if (change.heldGuard === null) this.#overruleHeld(moved, at);
    if (change.heldGuard === null && !isSending) this.#settleSiblings(moved, at);
  }

  /**
   * Supersedes each rejected change of the target if `newer` sets all its fields. Otherwise the rejected change stays,
   * for a person to decide.
   */
  supersedeRejected(
    newer: Pick<OutboxChange, 'kind' | 'target' | 'changeId' | 'version' | 'body'>,
    at: string,
  ): void {
    for (const refused of this.#rows(REFUSED, newer.kind, newer.target, newer.version)) {
      if (withoutOverruled(refused.body, newer.body, 'all') !== undefined) continue;
      this.#sql.run(
        `UPDATE _outbox SET state = 'superseded', message = message || ?, superseded_by = ?, settled_at = ?
         WHERE change_id = ?`,
        ...[` Replaced by change ${newer.changeId}.`, newer.changeId, at, refused.changeId],
      );
      this.#sql.run(
        `UPDATE _outbox SET refused_since = (SELECT coalesce(refused_since, version) FROM _outbox WHERE change_id = ?)
         WHERE change_id = ?`,
        ...[refused.changeId, newer.changeId],
      );
    }
  }

  /**
   * Returns a change without the fields that later changes of its target set, even rejected ones. A stock change with
   * only `show` left gets the newest quantity, which the platform demands. With `among`, other versions are ignored.
   */
  restOf<T extends Rest>(
    change: T,
    { key: target, conflictKey }: Pick<Target, 'key' | 'conflictKey'>,
    among?: LaterVersions,
  ): T | { overruledBy: number } {
    const { kind, changeId, version, versions } = change;
    const after = Math.min(version, ...Object.values(versions));
    const isShared = Number(hasSharedFields(kind, change.body));
    let rest = change;
    let last: OutboxChange | undefined;
    for (const newer of this.#rows(NEWER, { kind, after, isShared, target, conflictKey })) {
      if (newer.changeId === changeId) continue;
      // It was handed over later, but counted earlier.
      if (among && newer.countedAt !== null && newer.countedAt <= countTime(change)) continue;
      const said = among ? fieldsAmong(newer, among) : newer;
      const left = withoutNewer(rest, said, newer.target === target ? 'all' : 'shared');
      if (left === undefined) return { overruledBy: newer.changeId };
      if (kind === 'stock' && !('qty' in left)) last = newer;
      rest = withQtyOf(said, rest, left);
    }
    // A guard holds back the newest quantity. The older change's `show` would send that quantity too, so it is not
    // sent.
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

  /** Merges `other` into a change: the newest value of each field, at the earlier place in the queue. */
  #join(change: OutboxChange, other: OutboxChange, at: string): OutboxChange {
    const { version, asOfSeq, countedAt, handedAt, named } = other.version > change.version ? other : change;
    const queueSeq = Math.min(change.queueSeq, other.queueSeq);
    this.supersede(other.changeId, change.changeId, at);
    const merged = mergeVersioned(change, other);
    return { ...change, ...merged, queueSeq, version, asOfSeq, countedAt, handedAt, named };
  }

  /** Returns waiting changes of the product's other skus, if the change sets fields that they share. */
  #siblings(change: Pick<OutboxChange, 'kind' | 'body' | 'conflictKey' | 'target'>): OutboxChange[] {
    if (!hasSharedFields(change.kind, change.body)) return [];
    return this.#rows(SIBLINGS, change.conflictKey, change.target);
  }

  /**
   * Removes the fields that `newer` sets from the held change of its target, and the shared fields from the waiting
   * changes of the product's other skus.
   */
  #overrule(
    newer: Newer & Pick<OutboxChange, 'kind' | 'target' | 'conflictKey' | 'changeId'>,
    at: string,
  ): void {
    const strip = (older: OutboxChange, scope: 'all' | 'shared') => {
      const rest = withoutOverruled(older.body, newer.body, scope);
      if (!rest) this.supersede(older.changeId, newer.changeId, at);
      else if (newer.kind === 'stock') this.#place(withQtyOf(newer, older, rest));
      else this.#setBody(older, rest);
    };
    const held = this.#anyHeld ? this.#rows(HELD, newer.kind, newer.target)[0] : undefined;
    if (held && held.changeId !== newer.changeId) strip(held, 'all');
    for (const sibling of this.#siblings(newer)) strip(sibling, 'shared');
  }

  /** Removes from the held change of a target the fields for which a change that was found late has newer values. */
  #overruleHeld(found: OutboxChange, at: string): void {
    const held = this.#rows(HELD, found.kind, found.target)[0];
    if (!held) return;
    const left = withoutNewer(held, found, 'all');
    if (left) this.#place(withQtyOf(found, held, left));
    else this.supersede(held.changeId, found.changeId, at);
  }

  /** Removes shared fields from the waiting changes of a product's skus, except the newest value of each. */
  #settleSiblings(moved: OutboxChange, at: string): void {
    let rest: OutboxChange | undefined = moved;
    for (const sibling of this.#siblings(moved)) {
      const left = withoutNewer(sibling, moved, 'shared');
      if (left) this.#place({ ...sibling, body: left });
      else this.supersede(sibling.changeId, moved.changeId, at);
      if (!rest || !left || sibling.heldGuard !== null) continue;
      const body = withoutNewer(rest, sibling, 'shared');
      rest = body && { ...rest, body };
      if (rest) this.#place(rest);
      else this.supersede(moved.changeId, sibling.changeId, at);
    }
  }

  #place({ body, versions, ...change }: OutboxChange): void {
    const { changeId, target, conflictKey, basis, sku, subsidiaryId, queueSeq, version, asOfSeq } = change;
    const { countedAt, handedAt, heldGuard, zeroedAt, message, named } = change;
    this.#sql.run(
      `UPDATE _outbox SET target = @target, conflict_key = @conflictKey, basis = @basis, sku = @sku,
         subsidiary_id = @subsidiaryId, branch = coalesce(@subsidiaryId, branch), body = @body, fields = @fields,
         priority = @priority, queue_seq = @queueSeq,
         field_versions = @fieldVersions, version = @version, as_of_seq = @asOfSeq,
         counted_at = @countedAt, handed_at = @handedAt, held_guard = @heldGuard, zeroed_at = @zeroedAt, message = @message, named = @named
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
        countedAt,
        handedAt,
        heldGuard,
        zeroedAt,
        message,
        named,
        ...bodyColumns(body),
        fieldVersions: JSON.stringify(versions),
      },
    );
  }

  /**
   * Inserts a change, or overwrites the waiting one if it sets the same fields. Returns the id of its row, or
   * undefined if the two must be merged.
   */
  #upsert(change: NewChange): number | undefined {
    const { changeId, kind, target, conflictKey, basis, sku, subsidiaryId, createdAt } = change;
    const { source, origin, reference, version, zeroedAt, asOfSeq, countedAt, handedAt, branch, named } =
      change;
    const { body, fields, priority } = bodyColumns(change.body);
    const place = [changeId, target, conflictKey, body, priority, sku, subsidiaryId, branch, origin];
    const { changes, lastInsertRowid } = this.#sql.run(
      this.#upsertText(`'${kind}', '${source}', '${basis}', '${fields}'`),
      ...place,
      ...[reference, version, zeroedAt, asOfSeq, countedAt, handedAt, createdAt, changeId, named],
    );
    if (changes === 0) return undefined;
    const lastId = this.#lastId;
    this.#lastId = Number(lastInsertRowid);
    // An update does not change the last rowid, so a new rowid means an insert.
    const isNew = this.#lastId === changeId && lastId !== undefined && lastId !== changeId;
    return isNew ? changeId : this.#sql.value(WAITING_ID, kind, target);
  }

  /**
   * Returns the upsert, with parameters in the order of BOUND_COLUMNS. It changes no row if the waiting change must
   * be merged. Values that most changes of a submission share are part of the text, which makes it ten times as fast.
   * It has no RETURNING, for which SQLite would make a temporary table each time.
   */
  #upsertText(shared: string): string {
    const known = this.#upserts.get(shared);
    if (known !== undefined) return known;
    const text = `
      INSERT INTO _outbox (kind, source, basis, fields, ${BOUND_COLUMNS}, state)
      VALUES (${shared}, ${BOUND_COLUMNS.map(() => '?')}, 'pending')
      ON CONFLICT (kind, target) WHERE state = 'pending' AND held_guard IS NULL DO UPDATE SET
        ${REPLACED_COLUMNS.map((column) => `${column} = excluded.${column}`)},
        ${keepWaiting({ reference: 'excluded.reference', origin: 'excluded.origin' })},
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
      `INSERT INTO _outbox (change_id, kind, target, conflict_key, body, fields, state, message, created_at, settled_at,
         priority, queue_seq, basis, sku, subsidiary_id, branch, held_guard, source, origin, reference, version, zeroed_at, as_of_seq,
         counted_at, handed_at, named)
       VALUES (@changeId, @kind, @target, @conflictKey, @body, @fields, @state, @message, @createdAt, @settledAt,
         @priority, @changeId, @basis, @sku, @subsidiaryId, @branch, @heldGuard, @source, @origin, @reference, @version, @zeroedAt,
         @asOfSeq, @countedAt, @handedAt, @named)`,
      values,
    );
  }

  #mergeInto(slot: string, change: NewChange): number {
    const before = this.#rows(slot, change.kind, change.target)[0];
    if (!before) return change.changeId;
    this.#sql.run(
      `UPDATE _outbox SET body = @body, fields = @fields, priority = @priority, version = @version, source = @source,
         origin = @origin, reference = @reference, message = @message, held_guard = @heldGuard, as_of_seq = @asOfSeq,
         counted_at = @countedAt, handed_at = @handedAt, zeroed_at = @zeroedAt, basis = @basis, sku = @sku, subsidiary_id = @subsidiaryId, named = @named,
         branch = @branch, conflict_key = @conflictKey, field_versions = @fieldVersions, replaced = replaced + 1,
         ${keepWaiting({ reference: '@reference', origin: '@origin' })}
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
    this.#sql.run(`UPDATE _outbox SET ${columns} WHERE change_id = ?`, body, fields, priority, changeId);
  }

  #wait({ changeId, queueSeq }: OutboxChange, message: string): void {
    this.#sql.run(
      `UPDATE _outbox SET state = 'pending', message = ?, queue_seq = ?, call_id = NULL, held_guard = NULL
       WHERE change_id = ?`,
      ...[message, queueSeq, changeId],
    );
  }

  /** Ends a change, because another has newer values of its fields. */
  supersede(changeId: number, by: number, at: string, message = `Replaced by change ${by}.`): void {
    this.#sql.run(
      `UPDATE _outbox SET state = 'superseded', message = ?, superseded_by = ?, settled_at = ?, call_id = NULL,
         zeroed_at = NULL
       WHERE change_id = ?`,
      ...[message, by, at, changeId],
    );
  }
}

/** Returns the columns that are computed from the body. */
function bodyColumns(body: ChangeBody): { body: string; fields: string; priority: number } {
  const keys = valueKeys(body);
  const fields = keys.length === 1 ? (keys[0] as string) : keys.sort().join();
  return { body: JSON.stringify(body), fields, priority: priorityOf(body) };
}

function versionsOf(body: ChangeBody, version: number): Record<string, number> {
  return Object.fromEntries(valueKeys(body).map((field) => [field, version]));
}
