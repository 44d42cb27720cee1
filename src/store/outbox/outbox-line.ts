import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import {
  hasSharedFields,
  mergeBodies,
  mergeVersioned,
  type Versioned,
  valueKeys,
  withoutNewerShared,
  withoutOverruled,
} from '../../domain/change/coalesce.ts';
import { LineRows } from './line-rows.ts';
import { bodyColumns, bodyOf, type LineRow, type NewRow, versioned } from './outbox-row.ts';

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
