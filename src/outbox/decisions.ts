import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { withoutNewer } from './batch.ts';
import {
  type ChangeBody,
  type ChangeKind,
  type Resolution,
  readProductChange,
  readStockChange,
} from './change.ts';
import { GUARDS_OFF, type Guard } from './guard-rails.ts';
import { type Acceptance, bodyFor, type IntakeItem, OutboxIntake } from './intake.ts';
import {
  bodyOf,
  LINE_COLUMNS,
  type LineRow,
  NewerWords,
  type NewPlace,
  OutboxLine,
  type OutboxState,
  RefusedChanges,
  versioned,
} from './queue.ts';
import type { NamedChange } from './resolve.ts';
import { StockLedger } from './stock-ledger.ts';

/** A change with its own words, so that its target can be looked for (again). */
export type KeptChange = { changeId: number } & NamedChange;

/** Finds the target of a change; `alreadyRead` as in `resolveStock`. */
export type Resolve = (change: KeptChange) => Resolution;

type DecidedRow = LineRow & { state: OutboxState };

/** What people decide about single changes, and targets that become known later. */
export class OutboxDecisions {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #line: OutboxLine;
  readonly #intake: OutboxIntake;
  readonly #refused: RefusedChanges;
  readonly #ledger: StockLedger;
  readonly #row: Database.Statement<[number], DecidedRow>;
  readonly #heldBy: Database.Statement<[string | null], DecidedRow>;
  readonly #unresolved: Database.Statement<[string, number, string, number], DecidedRow>;
  readonly #countUnresolved: Database.Statement<[string], number>;
  readonly #sentSince: Database.Statement<[string, string, number], LineRow>;
  readonly #newer: NewerWords;
  readonly #end: Database.Statement<[string, string, string, number | null, number]>;
  readonly #prune: Database.Statement<[string, number]>;

  constructor(options: { db: Database.Database; clock: Clock }) {
    const { db } = options;
    this.#db = db;
    this.#clock = options.clock;
    this.#line = new OutboxLine(db);
    this.#intake = new OutboxIntake(options);
    this.#refused = new RefusedChanges(db);
    this.#ledger = new StockLedger(db);
    this.#row = db.prepare(`SELECT ${LINE_COLUMNS}, state FROM outbox WHERE change_id = ?`);
    this.#heldBy = db.prepare(`
      SELECT ${LINE_COLUMNS}, state FROM outbox
      WHERE state = 'pending' AND held_guard IS NOT NULL AND held_guard = coalesce(?, held_guard)
      ORDER BY version`);
    this.#unresolved = db.prepare(`
      SELECT ${LINE_COLUMNS}, state FROM outbox
      WHERE basis = ? AND basis <> 'mirror' AND state IN ('pending', 'sending') AND change_id > ?
        AND created_at <= ?
      ORDER BY change_id LIMIT ?`);
    this.#countUnresolved = db
      .prepare<[string], number>(
        `SELECT count(*) FROM outbox
         WHERE basis = ? AND basis <> 'mirror' AND state IN ('pending', 'sending')`,
      )
      .pluck();
    this.#sentSince = db.prepare(`
      SELECT ${LINE_COLUMNS} FROM outbox
      WHERE kind = ? AND conflict_key = ? AND version > ? AND state IN ('sending', 'done')
      ORDER BY version`);
    this.#newer = new NewerWords(db);
    this.#end = db.prepare(`
      UPDATE outbox SET state = ?, message = ?, settled_at = ?, superseded_by = ?, held_guard = NULL
      WHERE change_id = ?`);
    this.#prune = db.prepare(`
      DELETE FROM outbox WHERE change_id IN (
        SELECT change_id FROM outbox
        WHERE settled_at IS NOT NULL AND settled_at < ? AND state IN ('done', 'superseded') LIMIT ?)`);
  }

  /** Lets held changes go: one, those of a guard rail, or all. Returns how many. */
  release(which: { changeId: number } | { guard: Guard | null }): number {
    return this.#transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      this.#line.begin();
      const rows = 'changeId' in which ? [this.#held(which.changeId)] : this.#heldBy.all(which.guard);
      let released = 0;
      for (const { changeId } of rows) {
        // Letting one go may have taken its place from another.
        const row = this.#row.get(changeId);
        if (row?.state !== 'pending' || row.heldGuard === null) continue;
        this.#line.release(row, 'Released by a person.', at);
        released += 1;
      }
      return released;
    });
  }

  /** Gives up a change that waits, is held or was rejected. One that is under way cannot be called back. */
  drop(changeId: number): void {
    this.#transaction(() => {
      const row = this.#find(changeId);
      if (row.state !== 'pending' && row.state !== 'rejected') {
        throw refusal(changeId, `is ${row.state}; only what waits, is held or was rejected can be dropped`);
      }
      this.#end.run('superseded', 'Dropped by a person.', isoUtc(this.#clock.nowMs()), null, changeId);
      this.#ledger.giveUp(changeId);
    });
  }

  /** Hands a rejected change over once more: what of it no newer one for its target has overruled since. */
  retry(changeId: number, resolve: Resolve): Acceptance {
    return this.#transaction(() => {
      const row = this.#find(changeId);
      if (row.state !== 'rejected')
        throw refusal(changeId, `is ${row.state}; only a rejected one is retried`);
      const kept = keptChange(row);
      if (!kept) throw refusal(changeId, 'cannot be read; hand it over again, corrected');
      const resolution = resolve(kept);
      const { key: target, conflictKey } =
        'target' in resolution ? resolution.target : { key: row.target, conflictKey: row.conflictKey };
      const rest = this.#newer.restOf(row, { target, conflictKey });
      if ('overruledBy' in rest) {
        throw refusal(changeId, `is older than change ${rest.overruledBy} for the same target`);
      }
      const left = keptChange({ ...row, body: JSON.stringify(rest.body) }) ?? kept;
      const item: IntakeItem = { ...left, resolution };
      const [acceptance] = this.#intake.accept([item], {
        source: 'cli',
        guards: GUARDS_OFF,
        asOfSeq: row.asOfSeq,
      });
      if (!acceptance) throw refusal(changeId, 'was not taken');
      const message = `Tried again as change ${acceptance.changeId}.`;
      const at = isoUtc(this.#clock.nowMs());
      this.#end.run('superseded', message, at, acceptance.changeId, changeId);
      return acceptance;
    });
  }

  /** Changes whose target the mirror did not know; ids above `after`, oldest first. */
  unresolved(
    basis: 'as-is' | 'needs-read',
    options: { after?: number; handedOverUntilMs?: number; limit: number },
  ): KeptChange[] {
    const { after = 0, handedOverUntilMs, limit } = options;
    const until = handedOverUntilMs === undefined ? '9999' : isoUtc(handedOverUntilMs);
    return this.#unresolved.all(basis, after, until, limit).flatMap((row) => keptChange(row) ?? []);
  }

  countUnresolved(basis: 'as-is' | 'needs-read'): number {
    return this.#countUnresolved.get(basis) ?? 0;
  }

  /** Puts a change where the mirror now says it belongs; it may join or replace what waits there. */
  retarget(kept: KeptChange, resolution: Resolution): void {
    this.#transaction(() => {
      const row = this.#row.get(kept.changeId);
      if (!row || row.basis === 'mirror' || (row.state !== 'pending' && row.state !== 'sending')) return;
      const at = isoUtc(this.#clock.nowMs());
      if (resolution.state === 'needs-read') return;
      if (resolution.state === 'rejected') {
        if (row.state !== 'pending') return;
        this.#end.run('rejected', resolution.message, at, null, row.changeId);
        this.#refused.outlived(row, bodyOf(row), at);
        return;
      }
      const { target, address } = resolution;
      // Other values may have joined it since it was read.
      const body = bodyFor({ change: keptChange(row)?.change ?? kept.change }, address);
      const { key, conflictKey, sku, subsidiaryId } = target;
      const basis = resolution.state === 'resolved' ? 'mirror' : 'as-is';
      if (row.basis === basis && row.target === key) return;
      const place = { target: key, conflictKey, sku, subsidiaryId, basis, body } as const;
      if (row.state === 'sending') this.#line.move(row, place, true, at);
      else this.#moveUnlessOutdated(row, place, at);
    });
  }

  /** While it waited for its target, a newer value for that may have been sent under another name. */
  #moveUnlessOutdated(row: DecidedRow, place: NewPlace, at: string): void {
    const own = versioned({ ...row, body: JSON.stringify(place.body) });
    const oldest = Math.min(...Object.values(own.versions));
    let rest: ChangeBody = place.body;
    for (const sent of this.#sentSince.all(row.kind, place.conflictKey, oldest)) {
      if (sent.changeId === row.changeId) continue;
      const scope = sent.target === place.target ? 'all' : 'shared';
      const left = withoutNewer({ ...own, body: rest }, versioned(sent), scope);
      if (!left) {
        const message = `Replaced by change ${sent.changeId}.`;
        this.#end.run('superseded', message, at, sent.changeId, row.changeId);
        return;
      }
      rest = left;
    }
    this.#line.move(row, { ...place, body: rest }, false, at);
  }

  /** Deletes at most `limit` changes that were done with before `beforeMs`; rejected ones wait for a person. */
  prune(beforeMs: number, limit = 5000): number {
    return this.#transaction(() => this.#prune.run(isoUtc(beforeMs), limit).changes);
  }

  #held(changeId: number): DecidedRow {
    const row = this.#find(changeId);
    if (row.state === 'pending' && row.heldGuard !== null) return row;
    throw refusal(changeId, 'is not held');
  }

  #find(changeId: number): DecidedRow {
    const row = this.#row.get(changeId);
    if (row) return row;
    throw new TillsyncError('not-found', `There is no change ${changeId} in the outbox.`, {
      hint: '`{tillsync} outbox list` shows them.',
    });
  }

  #transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }
}

function refusal(changeId: number, why: string): TillsyncError {
  return new TillsyncError('usage', `Change ${changeId} ${why}. Nothing was changed.`);
}

function keptChange(row: { changeId: number; kind: ChangeKind; body: string }): KeptChange | undefined {
  const body: ChangeBody = bodyOf(row);
  const { changeId } = row;
  if (row.kind === 'stock') {
    const reading = readStockChange(body);
    return 'change' in reading ? { changeId, kind: 'stock', change: reading.change } : undefined;
  }
  const reading = readProductChange(body);
  return 'change' in reading ? { changeId, kind: 'product', change: reading.change } : undefined;
}
