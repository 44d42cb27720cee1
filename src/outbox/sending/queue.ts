import type Database from 'better-sqlite3';
import { isoUtc } from '../../core/time.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import {
  type ChangeBody,
  type ChangeKind,
  countTime,
  type OutboxChange,
  type Target,
} from '../intake/change.ts';
import type { GuardReason } from '../intake/guards.ts';
import {
  hasSharedFields,
  mergeBodies,
  PRIORITY_OTHERS,
  priorityOf,
  valueKeys,
  WAITING_MAX,
  withoutOverruled,
} from './call-plan.ts';
import { type About, asNewAs, type Own, type Rival, WantedValues } from './wanted.ts';

/** A newly submitted change, without the columns that the queue sets. */
export type NewChange = Omit<
  OutboxChange,
  | ('state' | 'attempts' | 'settledAt' | 'replaced' | 'supersededBy' | 'settledSeq')
  | ('priority' | 'queueSeq' | 'callId' | 'sentQty' | 'sentAsOfSeq')
>;

const COLUMNS = `change_id AS changeId, kind, target, conflict_key AS conflictKey, sku, subsidiary_id AS subsidiaryId,
  basis, body, version, state, held_guard AS heldGuard, as_of_seq AS asOfSeq,
  priority, queue_seq AS queueSeq, attempts, call_id AS callId, sent_qty AS sentQty, sent_as_of_seq AS sentAsOfSeq, message, source, origin,
  reference, created_at AS createdAt, settled_at AS settledAt, replaced, superseded_by AS supersededBy,
  zeroed_at AS zeroedAt, branch, named, counted_at AS countedAt, handed_ms AS handedMs`;

type ChangeRow = Omit<OutboxChange, 'body' | 'handedAt'> & { body: string; handedMs: number };

/** How a change arrives at its target. */
interface ArriveOptions {
  /** Whether its count is known to be the last made, whatever its version. */
  isLastCount?: boolean;
  /** Why a guard holds it, unless the values that the guard judges are lost to newer ones. */
  hold?: GuardReason | undefined;
}

/** The values of a change that other changes may have newer values for. */
type Values = About & Pick<OutboxChange, 'changeId' | 'body' | 'version' | 'countedAt' | 'handedAt'>;

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
const REFUSED = `
  SELECT ${COLUMNS} FROM _outbox INDEXED BY outbox_rejected_target
  WHERE kind = ? AND target = ? AND state = 'rejected' AND version < ?`;
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

/** Columns that a newer change of the same fields overwrites in the waiting change. No index of waiting ones has them. */
const REPLACED_COLUMNS = [
  ...['version', 'body', 'source', 'origin', 'reference', 'as_of_seq', 'counted_at', 'handed_ms', 'named'],
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
    'handed_ms',
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
  readonly #wanted: WantedValues;
  readonly #upserts = new Map<string, string>();
  #anyHeld = true;
  /** Rowid of the connection's last insert. */
  #lastId: number | undefined;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
    this.#wanted = new WantedValues(db);
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
    const { kind, body, version, createdAt } = change;
    if (change.heldGuard !== null) this.#anyHeld = true;
    const isPut = change.heldGuard === null ? this.#upsert(change) : undefined;
    const changeId = isPut ?? this.#mergeInto(change);
    if (change.heldGuard === null && (this.#anyHeld || hasSharedFields(kind, body))) {
      this.#overrule({ ...change, changeId }, asNewAs(body, version), createdAt);
    }
    // A newer value in a row with the same field is known to be the newest by the row's version.
    const isInPlace = isPut !== undefined && isPut !== change.changeId && valueKeys(body).length === 1;
    if (!isInPlace) this.#wanted.putNewest(change, changeId);
    return changeId;
  }

  /** Stores a change that is rejected at once. Its fields count as newest values only if `isReadable` is true. */
  putRejected({ body, ...change }: Omit<NewChange, 'body'> & { body: unknown }, isReadable: boolean): void {
    const columns = isReadable
      ? bodyColumns(body as ChangeBody)
      : { body: JSON.stringify(body) ?? 'null', fields: '', priority: 1 };
    this.#insert({ ...change, ...columns, state: 'rejected', settledAt: change.createdAt });
    if (!isReadable) return;
    const own = Object.entries(asNewAs(body as ChangeBody, change.version));
    const isLost = isNewerThan(Object.fromEntries(own));
    const newest = own.filter(([field]) => !this.#wanted.rivals(change, field).some(isLost));
    this.#wanted.put(change, Object.fromEntries(newest));
  }

  /** Stores a change of tillsync itself that is settled at once: what it says was done to another table. */
  putDone({ body, ...change }: NewChange): void {
    this.#insert({ ...change, ...bodyColumns(body), state: 'done', settledAt: change.createdAt });
    this.#wanted.put(change, asNewAs(body, change.version));
  }

  /**
   * Returns a count without its quantity if a count of its target was made later, and else the whole. The visibility is
   * no count, so the newest one handed over stays.
   */
  restOfCount<T extends NewChange | OutboxChange>(
    change: T,
    about: Pick<OutboxChange, 'target' | 'conflictKey'>,
  ): T | { overruledBy: OutboxChange } {
    const madeAt = countTime(change);
    const later = this.#wanted
      .rivals({ ...change, ...about }, 'qty')
      .filter((rival) => countTime(rival) > madeAt)
      .toSorted((one, other) => (countTime(one) < countTime(other) ? -1 : 1))
      .at(-1);
    const last = later && this.get(later.changeId);
    if (last === undefined) return change;
    const rest = withoutOverruled(change.body, { qty: 0 } as ChangeBody, 'all');
    if (rest === undefined || last.heldGuard !== null || !('qty' in last.body)) return { overruledBy: last };
    const { countedAt, handedAt, asOfSeq, named } = last;
    const body = { ...rest, qty: last.body.qty } as ChangeBody;
    return { ...change, body, asOfSeq, countedAt, handedAt, named };
  }

  /** Whether a count says when it was made, or the newest one of its target does. */
  hasDated(change: Values): boolean {
    return (
      change.countedAt !== null ||
      this.#wanted.rivals(change, 'qty').some(({ countedAt }) => countedAt !== null)
    );
  }

  /** Stores a change as superseded, because a newer change of its target was accepted before it. */
  putSuperseded({ body, ...change }: NewChange, by: number, message = `Replaced by change ${by}.`): void {
    this.#insert({ ...change, ...bodyColumns(body), state: 'superseded', settledAt: change.createdAt });
    this.supersede(change.changeId, by, change.createdAt, message);
  }

  /** Requeues a change that was sent and did not arrive. It keeps its place, and newer values of its fields win. */
  putBack(change: OutboxChange, message: string, at: string): 'waiting' | 'superseded' {
    const isLost = isNewerThan(this.#wanted.of(change));
    const rest = this.#restOf(change, change, (rival) => rival.isHeld === 0 && isLost(rival));
    const waiting = this.#rows(WAITING, change.kind, change.target)[0];
    if (waiting) {
      const body = 'body' in rest ? mergeBodies(rest.body, waiting.body) : waiting.body;
      this.#place({ ...waiting, body, queueSeq: Math.min(change.queueSeq, waiting.queueSeq) });
      this.#wanted.give(change, waiting.changeId);
      this.supersede(change.changeId, waiting.changeId, at);
      return 'superseded';
    }
    if ('overruledBy' in rest) {
      this.supersede(change.changeId, rest.overruledBy, at);
      return 'superseded';
    }
    this.#place({ ...change, ...rest, state: 'pending', callId: null, message });
    return 'waiting';
  }

  /**
   * Queues a change that a guard held, without the fields for which newer values came. Returns whether any is left. It is
   * merged with the waiting change of its target.
   */
  release(change: OutboxChange, message: string, at: string): boolean {
    return this.#arrive({ ...change, heldGuard: null, message }, this.#had(change), at) !== undefined;
  }

  /** Moves a waiting or sent change to its target, which is known now, as `#arrive` does. */
  move(change: OutboxChange, at: string, how: ArriveOptions = {}): void {
    const before = this.get(change.changeId) ?? change;
    const had = this.#had(before);
    this.#wanted.leave(before);
    this.#arrive(change, had, at, how);
  }

  /** Returns how new the values of a change are. What is sent already may have lost some to newer ones. */
  #had(change: OutboxChange): Own {
    const own = this.#wanted.of(change);
    return change.state === 'sending' ? own : { ...asNewAs(change.body, change.version), ...own };
  }

  /** Notes that a person discarded a change, which has ended. The value before it is the newest again. */
  giveUp(change: OutboxChange): void {
    this.#wanted.giveUp(change);
  }

  /**
   * Puts a change where it belongs, without the fields for which that has newer values. It takes its own from the changes
   * there, and is merged with one that waits. Returns the change as it is then; undefined if nothing is left of it.
   */
  #arrive(
    given: OutboxChange,
    had: Own,
    at: string,
    { isLastCount = false, hold }: ArriveOptions = {},
  ): OutboxChange | undefined {
    const isNewer = isNewerThan(had);
    const isLostAs =
      ({ heldGuard }: Pick<OutboxChange, 'heldGuard'>) =>
      (rival: Rival) =>
        (rival.isHeld === 0 || heldGuard !== null) &&
        !(isLastCount && rival.field === 'qty') &&
        isNewer(rival);
    this.#wanted.leave(given);
    let rest = this.#restOf(given, given, isLostAs(given));
    let change = given;
    if (hold && 'body' in rest && ('price' in rest.body || rest.zeroedAt !== null)) {
      change = { ...given, heldGuard: hold.guard, message: hold.message };
      rest = this.#restOf(change, change, isLostAs(change));
    }
    const isSent = change.state === 'sending';
    // What a call has sent is not changed any more.
    if (!isSent) {
      if ('overruledBy' in rest) {
        this.supersede(change.changeId, rest.overruledBy, at);
        return undefined;
      }
      change = rest;
    }
    const isLost = isLostAs(change);
    let own: Own = Object.fromEntries(
      Object.entries(had).filter(([field]) => !this.#wanted.rivals(change, field).some(isLost)),
    );
    const other = isSent ? undefined : this.#there(change, at);
    if (other) ({ change, own } = this.#join({ change, own }, other, isLastCount, at));
    this.#overrule(change, own, at);
    this.#place(change);
    this.#wanted.put(change, own);
    return change;
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
      this.supersede(
        refused.changeId,
        newer.changeId,
        at,
        `${refused.message ?? ''} Replaced by change ${newer.changeId}.`,
      );
      this.#sql.run(
        `UPDATE _outbox SET refused_since = (SELECT coalesce(refused_since, version) FROM _outbox WHERE change_id = ?)
         WHERE change_id = ?`,
        ...[refused.changeId, newer.changeId],
      );
    }
  }

  /**
   * Returns what is left of a change without the fields that later changes of its target set, even those that the platform rejected. A stock
   * change with only `show` left gets the newest quantity, which the platform demands. `isLater` tells which values came
   * later; left out, by their versions.
   */
  restOf<T extends Values & Rest>(
    change: T,
    { key: target, conflictKey }: Pick<Target, 'key' | 'conflictKey'>,
    isLater?: (rival: Rival) => boolean,
  ): T | { overruledBy: number } {
    const about = { ...change, target, conflictKey };
    // A value that was handed over later may have been counted earlier.
    const isCounted = ({ countedAt }: Rival) => countedAt === null || countedAt > countTime(change);
    if (isLater) return this.#restOf(change, about, (rival) => isLater(rival) && isCounted(rival));
    const stored = this.get(change.changeId);
    const own = stored ? this.#wanted.of(stored) : {};
    const isHere = stored?.target === target && stored.conflictKey === conflictKey;
    return this.#restOf(
      change,
      about,
      isNewerThan(isHere ? own : { ...asNewAs(change.body, change.version), ...own }),
    );
  }

  #restOf<T extends Values & Rest>(
    change: T,
    about: About,
    isLost: (rival: Rival) => boolean,
  ): T | { overruledBy: number } {
    const lost = valueKeys(change.body).flatMap((field) =>
      this.#wanted
        .rivals({ ...change, ...about }, field)
        .filter(isLost)
        .slice(-1),
    );
    const [newest] = lost.toSorted((one, other) => other.version - one.version);
    if (!newest) return change;
    const said = Object.fromEntries(lost.map(({ field }) => [field, true])) as unknown as ChangeBody;
    const left = withoutOverruled(change.body, said, 'all');
    if (left === undefined) return { overruledBy: newest.changeId };
    const counted = lost.find(({ field }) => field === 'qty');
    const newer = counted && this.get(counted.changeId);
    if (!newer) return { ...change, body: left };
    // A guard holds back the newest quantity. The older change's `show` would send that quantity too, so it is not sent.
    if (newer.heldGuard !== null) return { overruledBy: newer.changeId };
    return withQtyOf(newer, change, left);
  }

  #rows(text: string, ...params: unknown[]): OutboxChange[] {
    const rows = this.#sql.rows<ChangeRow>(text, ...params);
    return rows.map(({ handedMs, ...row }) => ({
      ...row,
      handedAt: isoUtc(handedMs),
      body: JSON.parse(row.body) as ChangeBody,
    }));
  }

  /** Returns the other change that waits where this one belongs, or that a guard holds there as it holds this one. */
  #there(change: NewChange, at: string): OutboxChange | undefined {
    const { changeId, kind, target, conflictKey, basis, sku, subsidiaryId } = change;
    const find = () => {
      const slot = change.heldGuard === null ? WAITING : HELD;
      return this.#rows(slot, kind, target).find((each) => each.changeId !== changeId);
    };
    const other = find();
    if (!other || other.conflictKey === conflictKey) return other;
    // Its product has become known, or is not known any more.
    this.move({ ...other, conflictKey, basis, sku, subsidiaryId }, at);
    return find();
  }

  /** Merges another change of the target into one: the newest value of each field, at the earlier place in the queue. */
  #join(
    { change, own }: { change: OutboxChange; own: Own },
    other: OutboxChange,
    isLastCount: boolean,
    at: string,
  ): { change: OutboxChange; own: Own } {
    const body: Record<string, unknown> = { ...mergeBodies(change.body, other.body) };
    const all: Record<string, number> = { ...own };
    let isNewest = change.version > other.version;
    for (const [field, theirs] of Object.entries(this.#had(other))) {
      const ours = own[field];
      const isOurs = ours !== undefined && (ours > theirs || (isLastCount && field === 'qty'));
      // The versions and times of a stock change are those of its count.
      if (field === 'qty') isNewest = isOurs;
      if (isOurs) body[field] = change.body[field as keyof ChangeBody];
      all[field] = isOurs ? Math.max(ours, theirs) : theirs;
    }
    this.supersede(other.changeId, change.changeId, at);
    this.#wanted.leave(other);
    const { version, asOfSeq, countedAt, handedAt, named } = isNewest ? change : other;
    const merged = { version, asOfSeq, countedAt, handedAt, named, body: body as unknown as ChangeBody };
    return {
      change: { ...change, ...merged, queueSeq: Math.min(change.queueSeq, other.queueSeq) },
      own: all,
    };
  }

  /**
   * Removes the fields `own` of a change from the waiting changes that had their newest values, and from the held change
   * of its target.
   */
  #overrule(newer: NewChange & { changeId: number }, own: Own, at: string): void {
    const fields = Object.keys(own);
    const said = Object.fromEntries(fields.map((field) => [field, true])) as unknown as ChangeBody;
    const rivals = fields.flatMap((field) => this.#wanted.rivals(newer, field));
    const isOutlived = (rival: Rival) => newer.heldGuard === null && rival.version < (own[rival.field] ?? 0);
    for (const changeId of new Set(
      rivals.filter((each) => each.isHeld === 0 || isOutlived(each)).map((each) => each.changeId),
    )) {
      const older = this.get(changeId);
      if (older?.state !== 'pending' || (older.heldGuard === null && newer.heldGuard !== null)) continue;
      const rest = withoutOverruled(older.body, said, older.target === newer.target ? 'all' : 'shared');
      if (!rest) this.supersede(changeId, newer.changeId, at);
      else this.#place(newer.kind === 'stock' ? withQtyOf(newer, older, rest) : { ...older, body: rest });
    }
    if (newer.heldGuard === null)
      this.#wanted.outlive(
        newer,
        rivals.filter((each) => each.isHeld === 1 && isOutlived(each)).map(({ field }) => field),
      );
  }

  #place({ body, handedAt, ...change }: OutboxChange): void {
    this.#sql.run(
      `UPDATE _outbox SET target = @target, conflict_key = @conflictKey, basis = @basis, sku = @sku,
         subsidiary_id = @subsidiaryId, branch = coalesce(@subsidiaryId, branch), body = @body, fields = @fields,
         priority = @priority, queue_seq = @queueSeq, version = @version, as_of_seq = @asOfSeq, counted_at = @countedAt,
         handed_ms = @handedMs, held_guard = @heldGuard, zeroed_at = @zeroedAt, message = @message, named = @named,
         state = @state, call_id = @callId
       WHERE change_id = @changeId`,
      { ...change, ...bodyColumns(body), handedMs: msOf(handedAt) },
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
      ...[reference, version, zeroedAt, asOfSeq, countedAt, msOf(handedAt), createdAt, changeId, named],
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
        message = NULL, replaced = replaced + 1
      WHERE ${SAME_COLUMNS.map((column) => `${column} IS excluded.${column}`).join(' AND ')}`;
    this.#upserts.set(shared, text);
    return text;
  }

  #insert(values: Record<string, unknown> & { handedAt: string }): void {
    this.#sql.run(
      `INSERT INTO _outbox (change_id, kind, target, conflict_key, body, fields, state, message, created_at, settled_at,
         priority, queue_seq, basis, sku, subsidiary_id, branch, held_guard, source, origin, reference, version, zeroed_at, as_of_seq,
         counted_at, handed_ms, named)
       VALUES (@changeId, @kind, @target, @conflictKey, @body, @fields, @state, @message, @createdAt, @settledAt,
         @priority, @changeId, @basis, @sku, @subsidiaryId, @branch, @heldGuard, @source, @origin, @reference, @version, @zeroedAt,
         @asOfSeq, @countedAt, @handedMs, @named)`,
      { ...values, handedMs: msOf(values.handedAt) },
    );
  }

  #mergeInto(change: NewChange): number {
    const before = this.#there(change, change.createdAt);
    if (!before) {
      this.#insert({ ...change, ...bodyColumns(change.body), state: 'pending', settledAt: null });
      return change.changeId;
    }
    this.#sql.run(
      `UPDATE _outbox SET body = @body, fields = @fields, priority = @priority, version = @version, source = @source,
         origin = @origin, reference = @reference, message = @message, held_guard = @heldGuard, as_of_seq = @asOfSeq,
         counted_at = @countedAt, handed_ms = @handedMs, zeroed_at = @zeroedAt, basis = @basis, sku = @sku, subsidiary_id = @subsidiaryId, named = @named,
         branch = @branch, conflict_key = @conflictKey, replaced = replaced + 1,
         ${keepWaiting({ reference: '@reference', origin: '@origin' })}
       WHERE change_id = @changeId`,
      {
        ...change,
        ...bodyColumns(mergeBodies(before.body, change.body)),
        changeId: before.changeId,
        handedMs: msOf(change.handedAt),
      },
    );
    return before.changeId;
  }

  /** Ends a change, because another has newer values of its fields. */
  supersede(changeId: number, by: number, at: string, message = `Replaced by change ${by}.`): void {
    this.end(changeId, { state: 'superseded', message, at, by });
  }

  /** Ends a change. `by` is the change that replaced it. */
  end(
    changeId: number,
    {
      by = null,
      ...how
    }: { state: 'done' | 'rejected' | 'superseded'; message: string | null; at: string; by?: number | null },
  ): void {
    this.#sql.run(
      `UPDATE _outbox SET state = @state, message = @message, superseded_by = @by, settled_at = @at, call_id = NULL,
         held_guard = NULL, zeroed_at = CASE @state WHEN 'done' THEN zeroed_at END
       WHERE change_id = @changeId`,
      { ...how, by, changeId },
    );
  }
}

/** A POS may have written anything as the time of its row. */
function msOf(time: string): number {
  return Date.parse(time) || 0;
}

/** Returns the columns that are computed from the body. */
function bodyColumns(body: ChangeBody): { body: string; fields: string; priority: number } {
  const keys = valueKeys(body);
  const fields = keys.length === 1 ? (keys[0] as string) : keys.sort().join();
  return { body: JSON.stringify(body), fields, priority: priorityOf(body) };
}

/** Returns a test for values that are newer than a change's own; any value is newer than one that it lost. */
function isNewerThan(own: Own): (rival: Rival) => boolean {
  return ({ field, version }) => version > (own[field] ?? 0);
}

type Newer = Pick<OutboxChange, 'body' | 'version' | 'asOfSeq' | 'countedAt' | 'handedAt' | 'named'>;
/** The fields of a change from which newer changes may remove values. */
type Rest = Newer & Pick<OutboxChange, 'zeroedAt'>;

/**
 * Returns an older change with what a newer one left of it. The platform accepts a stock's `show` only with a
 * quantity, so a lone `show` gets the quantity of the newer change, with its version, its times and its name.
 */
function withQtyOf<T extends Rest>(
  { body: newer, version, asOfSeq, countedAt, handedAt, named }: Newer,
  older: T,
  rest: ChangeBody,
): T {
  if (!('qty' in newer) || 'qty' in rest) return { ...older, body: rest };
  const body = { ...rest, qty: newer.qty } as ChangeBody;
  return { ...older, body, version, asOfSeq, countedAt, handedAt, named, zeroedAt: null };
}
