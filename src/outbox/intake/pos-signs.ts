import type Database from 'better-sqlite3';
import type { Branch } from '../../catalog/product.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { noteSeen, seen } from '../../db/seen.ts';
import { sqlOf } from '../../db/sqlite.ts';

/**
 * Stores signs of life of each store's POS in the mirror, by the hour. No hour is learned of acknowledgements, because
 * they come with orders.
 */

/** Time for which signs count: the weeks by which a silence is judged, and one more. */
const KEPT_MS = 4 * 7 * 24 * 3_600_000;
/** Time between two notes of one store, so that a POS that calls each second does not write each second. */
const NOTE_EVERY_MS = 60_000;
/** Length of an hour such as 2026-01-15T12, behind which a name of `pos-hour` has a blank and the store. */
const HOUR_LENGTH = 13;

/** Notes a sign of life of a store's POS, in the caller's transaction. `store` is '' if the sign names none. */
function notePosSign(db: Database.Database, store: string, at: string): void {
  sqlOf(db).run(noteSeen('pos-hour'), { name: `${at.slice(0, HOUR_LENGTH)} ${store}`, at });
}

/**
 * Returns the signs of each configured store; without configured branches, of each store that gave one. The two ids of
 * one branch are one store; with one branch, so is all.
 */
export function posSigns(
  db: Database.Database,
  branches: readonly Branch[],
  nowMs: number,
): { store: string; lastAt: string; hours: Set<string> }[] {
  const sql = `SELECT substr(name, ${HOUR_LENGTH + 2}) AS store, substr(name, 1, ${HOUR_LENGTH}) AS hour, last_at AS lastAt
    FROM ${seen('pos-hour')} UNION ALL SELECT name, NULL, last_at FROM ${seen('acknowledging-store')} AND last_at >= ?
    ORDER BY lastAt`;
  const found = new Map<string, { store: string; lastAt: string; hours: Set<string> }>();
  const rows = sqlOf(db).rows<{ store: string; hour: string | null; lastAt: string }>(
    sql,
    isoUtc(nowMs - KEPT_MS),
  );
  for (const { store: id, hour, lastAt } of rows) {
    const branch =
      branches.length === 1
        ? branches[0]
        : branches.find(({ subsidiaryId, externalId }) => id === subsidiaryId || id === externalId);
    // A branch that was renamed or taken out of the configuration gives no sign any more.
    if (branch === undefined && branches.length > 0 && id !== '') continue;
    const store = branch ? (branch.externalId ?? branch.subsidiaryId ?? '') : id;
    const known = found.get(store) ?? { store, lastAt, hours: new Set() };
    known.lastAt = lastAt;
    if (hour !== null) known.hours.add(hour);
    found.set(store, known);
  }
  return [...found.values()];
}

/** Notes signs of life that come through the inbox, the API and commands. */
export class PosLife {
  readonly #mirror: { write<T>(action: (db: Database.Database) => T): Promise<T> };
  readonly #clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly #notedMs = new Map<string, number>();

  constructor(
    mirror: { write<T>(action: (db: Database.Database) => T): Promise<T> },
    clock: Pick<Clock, 'nowMs' | 'monotonicMs'>,
  ) {
    this.#mirror = mirror;
    this.#clock = clock;
  }

  /** Notes a sign of each of these stores, at most once a minute. An error is ignored, because the next sign follows. */
  async note(stores: Iterable<string>): Promise<void> {
    const monoMs = this.#clock.monotonicMs();
    const due = [...new Set(stores)].filter(
      (store) => monoMs - (this.#notedMs.get(store) ?? Number.NEGATIVE_INFINITY) >= NOTE_EVERY_MS,
    );
    if (due.length === 0) return;
    for (const store of due) this.#notedMs.set(store, monoMs);
    const nowMs = this.#clock.nowMs();
    const at = isoUtc(nowMs);
    const before = isoUtc(nowMs - KEPT_MS).slice(0, HOUR_LENGTH);
    await this.#mirror
      .write((db) => {
        for (const store of due) notePosSign(db, store, at);
        sqlOf(db).run(`DELETE FROM ${seen('pos-hour')} AND name < ?`, before);
      })
      .catch(() => undefined);
  }
}
