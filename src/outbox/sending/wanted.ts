import type Database from 'better-sqlite3';
import { isoUtc } from '../../core/time.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import type { ChangeBody, OutboxChange } from '../intake/change.ts';
import { SHARED_FIELDS, valueKeys } from './call-plan.ts';

/** What a change is about. */
export type About = Pick<OutboxChange, 'kind' | 'target' | 'conflictKey'>;
type Standing = 'open' | 'held' | 'given-up';

/** The newest value of a field, which another change has. */
export interface Rival {
  field: string;
  version: number;
  changeId: number;
  isHeld: 0 | 1;
  /** When the change's count was made, as the POS said, and when it was handed over. */
  countedAt: string | null;
  handedAt: string;
}

/** The versions of the fields of which a change has the newest values. */
export type Own = Readonly<Record<string, number>>;

/** SQL for whether the id by which a row of `table` was named means the row's stock, or the row was named by its sku. */
export const meansItsStock = (table: string) => `(${table}.named IS NULL OR ${table}.sku IS NULL
  OR EXISTS (SELECT 1 FROM integrations i WHERE i.sku = ${table}.sku AND i.subsidiary_id = ${table}.subsidiary_id
    AND json_extract(${table}.named, '$.externalId') IN (i.ext_id, i.product_id_pos_a, i.product_code_pos_b)))`;
const PUT = `
  INSERT INTO _wanted (kind, subject, field, standing, version, change_id) VALUES (?, ?, ?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET version = max(version, excluded.version), change_id = excluded.change_id`;
/**
 * SQL for the version of a value. That of a change of one field is the change's own, so that a newer count in the same row
 * of the outbox needs no second row to be written.
 */
export const VERSION = 'CASE WHEN o.fields = w.field THEN max(w.version, o.version) ELSE w.version END';
const IS_FIELD = 'kind = ? AND subject = ? AND field = ?';
/** SQL for the changes that have the newest value of a field; one by an id that means another stock now says nothing. */
const RIVALS = `
  SELECT w.field, ${VERSION} AS version, w.change_id AS changeId, w.standing = 'held' AS isHeld,
    o.counted_at AS countedAt, o.handed_ms AS handedMs, o.state IN ('pending', 'sending') OR ${meansItsStock('o')} AS isMeant
  FROM _wanted w CROSS JOIN _outbox o USING (change_id)
  WHERE w.kind = ? AND w.subject = ? AND w.field = ? AND w.standing <> 'given-up' AND w.change_id <> ?
    AND o.state <> 'counted' ORDER BY 2`;
const OF_CHANGE = 'kind = ? AND subject IN (?, ?) AND change_id = ?';
/** SQL for the newest change that was sent or refused and has a field. */
const LAST_SAID = `
  SELECT version, change_id AS changeId FROM (
    SELECT o.version, change_id FROM _outbox o WHERE kind = @kind AND conflict_key = @conflictKey
      AND (target = @target OR @isShared) AND state IN ('sending', 'done') AND ${meansItsStock('o')}
      AND instr(',' || fields || ',', ',' || @field || ',')
    UNION ALL SELECT o.version, change_id FROM _outbox o WHERE kind = @kind AND target = @target
      AND state = 'rejected' AND ${meansItsStock('o')} AND instr(',' || fields || ',', ',' || @field || ','))
  ORDER BY version DESC LIMIT 1`;

/**
 * Knows of each field of a stock, a SKU or a product which change has its newest value (`_wanted`), so that an older
 * value loses by one comparison, whenever it comes: late from the inbox, after its call failed, once its product is
 * found, or once a person lets it go. The caller opens the transaction.
 */
export class WantedValues {
  readonly #sql: Sql;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
  }

  /** Notes that a change has the newest values of these fields. */
  put(change: About & Pick<OutboxChange, 'changeId' | 'heldGuard'>, own: Own): void {
    const standing: Standing = change.heldGuard === null ? 'open' : 'held';
    for (const [field, version] of Object.entries(own)) {
      const key = [change.kind, subjectOf(change, field), field];
      this.#sql.run(PUT, ...key, standing, version, change.changeId);
    }
  }

  /**
   * Notes that a change that was just handed over, in the row of `changeId`, has the newest values of all its fields. It
   * does what `put` does, without objects for each field, because it runs for each count.
   */
  putNewest(change: About & Pick<OutboxChange, 'heldGuard' | 'body' | 'version'>, changeId: number): void {
    const { kind, version, heldGuard } = change;
    const standing: Standing = heldGuard === null ? 'open' : 'held';
    for (const field of valueKeys(change.body)) {
      this.#sql.run(PUT, kind, subjectOf(change, field), field, standing, version, changeId);
    }
  }

  /** Returns the fields of which a change has the newest values, open or held. */
  of({ kind, target, conflictKey, changeId }: About & { changeId: number }): Own {
    const text = `SELECT field, ${VERSION} AS version
      FROM _wanted w CROSS JOIN _outbox o USING (change_id)
      WHERE w.kind = ? AND w.subject IN (?, ?) AND w.change_id = ? AND standing <> 'given-up'`;
    const rows = this.#sql.rows<{ field: string; version: number }>(
      text,
      kind,
      target,
      conflictKey,
      changeId,
    );
    return Object.fromEntries(rows.map(({ field, version }) => [field, version]));
  }

  /** Returns the newest values that other changes have of a field, the older one first: an open and a held one. */
  rivals(change: About & { changeId: number }, field: string): Rival[] {
    const { kind, changeId } = change;
    const key = [kind, subjectOf(change, field), field, changeId];
    const rows = this.#rivals(key);
    if (rows.every(({ isMeant }) => isMeant === 1)) return rows;
    this.#fallBack(change, field);
    return this.#rivals(key).filter(({ isMeant }) => isMeant === 1);
  }

  #rivals(key: readonly unknown[]): (Rival & { isMeant: 0 | 1 })[] {
    const rows = this.#sql.rows<Omit<Rival, 'handedAt'> & { handedMs: number; isMeant: 0 | 1 }>(
      RIVALS,
      ...key,
    );
    return rows.map(({ handedMs, ...rival }) => ({ ...rival, handedAt: isoUtc(handedMs) }));
  }

  /** Gives what one change has of these fields to another one of the same target, which took its values over. */
  give(from: About & { changeId: number }, to: number): void {
    const { kind, target, conflictKey, changeId } = from;
    this.#sql.run(
      `UPDATE _wanted SET change_id = ? WHERE ${OF_CHANGE}`,
      to,
      kind,
      target,
      conflictKey,
      changeId,
    );
  }

  /** Forgets what a change has, because it moves to another target or its guard's hold ends. */
  leave({ kind, target, conflictKey, changeId }: About & { changeId: number }): void {
    this.#sql.run(`DELETE FROM _wanted WHERE ${OF_CHANGE}`, kind, target, conflictKey, changeId);
  }

  /** Forgets held values, because newer ones came. */
  outlive(held: About & { changeId: number }, fields: readonly string[]): void {
    for (const field of fields) {
      const text = `DELETE FROM _wanted WHERE ${IS_FIELD} AND standing = 'held'`;
      this.#sql.run(text, held.kind, subjectOf(held, field), field);
    }
  }

  /** Notes that a person discarded a change. The value before it is the newest again. */
  giveUp(change: OutboxChange): void {
    for (const [field, version] of Object.entries(this.of(change))) {
      const key = [change.kind, subjectOf(change, field), field];
      this.#sql.run(PUT, ...key, 'given-up', version, change.changeId);
      if (change.heldGuard === null) this.#fallBack(change, field);
      else this.outlive(change, [field]);
    }
  }

  /** Makes the newest value that was sent or refused the newest of a field, in place of one that says nothing any more. */
  #fallBack(about: About, field: string): void {
    const { kind, target, conflictKey } = about;
    const key = [kind, subjectOf(about, field), field];
    this.#sql.run(`DELETE FROM _wanted WHERE ${IS_FIELD} AND standing = 'open'`, ...key);
    const isShared = Number(isSharedField(kind, field));
    const last = this.#sql.row<{ version: number; changeId: number }>(LAST_SAID, {
      ...{ kind, target, conflictKey, isShared, field },
    });
    if (last) this.#sql.run(PUT, ...key, 'open', last.version, last.changeId);
  }
}

function isSharedField(kind: About['kind'], field: string): boolean {
  return kind === 'product' && (SHARED_FIELDS as readonly string[]).includes(field);
}

function subjectOf({ kind, target, conflictKey }: About, field: string): string {
  return isSharedField(kind, field) ? conflictKey : target;
}

/** Returns for each field of a body that it is as new as this. */
export function asNewAs(body: ChangeBody, version: number): Own {
  return Object.fromEntries(valueKeys(body).map((field) => [field, version]));
}
