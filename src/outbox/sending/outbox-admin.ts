import { TillsyncError } from '../../core/errors.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import {
  type Change,
  countedLater,
  type OutboxChange,
  type Resolution,
  readChange,
  type StockChange,
  type StockName,
} from '../intake/change.ts';
import { GUARDS_OFF, type Guard, type GuardSettings } from '../intake/guards.ts';
import { type Acceptance, bodyFor, OutboxIntake, type OutboxIntakeOptions } from '../intake/intake.ts';
import { StockLedger } from '../ledger/stock-ledger.ts';
import { OutboxQueue } from './queue.ts';

const UNRESOLVED = "basis = ? AND basis <> 'mirror' AND state IN ('pending', 'sending')";

/** Changes that a person decides about together: those that a guard holds, or the rejected ones, perhaps of one origin. */
export type ManyChanges = { guard: Guard } | { state: 'rejected'; origin?: string | undefined };

/** Applies people's decisions to single changes, and moves changes whose target becomes known. */
export class OutboxAdmin {
  readonly #sql: Sql;
  readonly #clock: Clock;
  readonly #queue: OutboxQueue;
  readonly #intake: OutboxIntake;
  readonly #ledger: StockLedger;
  readonly #guards: GuardSettings;

  constructor(options: OutboxIntakeOptions & { guards: GuardSettings }) {
    const { db, clock, guards } = options;
    this.#guards = guards;
    this.#sql = sqlOf(db);
    this.#clock = clock;
    this.#queue = new OutboxQueue(db);
    this.#intake = new OutboxIntake(options);
    this.#ledger = new StockLedger(db);
  }

  /**
   * Releases one held change, those of one guard, or all held changes, without the fields for which newer values
   * wait or were sent. Returns how many a person's decision let go.
   */
  release(which: { changeId: number } | { guard: Guard | null }): number {
    return this.#sql.transaction(() => {
      this.#queue.begin();
      const held =
        'changeId' in which
          ? [this.#held(which.changeId)]
          : this.#queue.all(
              `WHERE state = 'pending' AND held_guard IS NOT NULL AND held_guard = coalesce(?, held_guard)
               ORDER BY version DESC`,
              which.guard,
            );
      let released = 0;
      for (const { changeId } of held) {
        // Releasing a newer change may have replaced this one.
        const change = this.#queue.get(changeId);
        if (change?.state !== 'pending' || change.heldGuard === null) continue;
        if (this.#queue.release(change, 'Released by a person.', this.#now())) released += 1;
      }
      return released;
    });
  }

  /**
   * Returns the ids of the changes that a guard holds or that were rejected, the oldest first. `origin` is a whole
   * origin, or one of its parts: `http 127.0.0.1, file counts.csv` is found by `file counts.csv`.
   */
  idsOf(which: ManyChanges): number[] {
    if ('guard' in which) {
      const held =
        "SELECT change_id FROM _outbox WHERE state = 'pending' AND held_guard = ? ORDER BY change_id";
      return this.#sql.values<number>(held, which.guard);
    }
    return this.#sql.values<number>(
      `SELECT change_id FROM _outbox WHERE state = 'rejected'
         AND (@origin IS NULL OR instr(', ' || coalesce(origin, source) || ', ', ', ' || @origin || ', ') > 0)
       ORDER BY change_id`,
      { origin: which.origin ?? null },
    );
  }

  /** Discards a change that waits, is held or was rejected. Throws for a change in a call. */
  discard(changeId: number): void {
    this.#sql.transaction(() => {
      const { state } = this.#find(changeId);
      if (state !== 'pending' && state !== 'rejected') {
        throw refusal(changeId, `is ${state}; only what waits, is held or was rejected can be discarded`);
      }
      this.#discard(changeId);
    });
  }

  /** Discards those of the changes that are still `which`, as others may have decided about them meanwhile. */
  discardStill(changeIds: readonly number[], which: ManyChanges): number {
    return this.#sql.transaction(() => {
      const isStill =
        'guard' in which
          ? "SELECT 1 FROM _outbox WHERE change_id = ? AND state = 'pending' AND held_guard = ?"
          : "SELECT 1 FROM _outbox WHERE change_id = ? AND state = 'rejected'";
      const still = changeIds.filter(
        (changeId) =>
          this.#sql.value(isStill, ...('guard' in which ? [changeId, which.guard] : [changeId])) !==
          undefined,
      );
      for (const changeId of still) this.#discard(changeId);
      return still.length;
    });
  }

  #discard(changeId: number): void {
    const change = this.#find(changeId);
    this.#end(changeId, 'superseded', 'Discarded by a person.');
    this.#queue.giveUp(change);
    this.#ledger.giveUp(changeId);
  }

  /** Submits a rejected change again, without the fields that newer changes of its target set. */
  retry(changeId: number, origin?: string): Acceptance {
    return this.#sql.transaction(() => {
      const change = this.#find(changeId);
      if (change.state !== 'rejected') {
        throw refusal(changeId, `is ${change.state}; only a rejected one is retried`);
      }
      const kept = asNamed(change);
      if (!kept) throw refusal(changeId, 'cannot be read; hand it over again, corrected');
      const resolution = this.#intake.resolve(kept);
      const target =
        'target' in resolution ? resolution.target : { key: change.target, conflictKey: change.conflictKey };
      // A count whose time is known is compared by it when it is accepted again.
      const rest = change.countedAt === null ? this.#queue.restOf(change, target) : change;
      if ('overruledBy' in rest) {
        throw refusal(changeId, `is older than change ${rest.overruledBy} for the same target`);
      }
      const left = asNamed(rest) ?? kept;
      const how = { source: 'cli', origin, guards: GUARDS_OFF, asOfSeq: rest.asOfSeq } as const;
      const [acceptance] = this.#intake.accept([{ ...left, countedAt: rest.countedAt }], how);
      if (!acceptance) throw refusal(changeId, 'was not taken');
      const by = acceptance.changeId;
      this.#end(changeId, 'superseded', `Tried again as change ${by}.`, by);
      return acceptance;
    });
  }

  /** Returns changes with an unknown target and an id above `after`, the oldest first. */
  unresolved(
    basis: 'as-is' | 'needs-read',
    {
      after = 0,
      handedOverUntilMs,
      limit,
    }: { after?: number; handedOverUntilMs?: number | undefined; limit: number },
  ): (Change & { changeId: number })[] {
    const until = handedOverUntilMs === undefined ? '9999' : isoUtc(handedOverUntilMs);
    const which = `WHERE ${UNRESOLVED} AND change_id > ? AND created_at <= ? ORDER BY change_id LIMIT ?`;
    return this.#queue.all(which, basis, after, until, limit).flatMap((change) => inOwnWords(change) ?? []);
  }

  countUnresolved(basis: 'as-is' | 'needs-read'): number {
    return this.#sql.value(`SELECT count(*) FROM _outbox WHERE ${UNRESOLVED}`, basis) ?? 0;
  }

  /** Marks a change for a read of its product, because it may not be sent with its own ids. */
  askFor({ changeId }: { changeId: number }): void {
    const sql =
      "UPDATE _outbox SET basis = 'needs-read' WHERE change_id = ? AND basis = 'as-is' AND state = 'pending'";
    this.#sql.run(sql, changeId);
  }

  /** Moves a change to its resolved target, where it is merged with a waiting change or replaces it. */
  retarget({ changeId }: { changeId: number }, resolution: Resolution): void {
    this.#sql.transaction(() => {
      this.#intake.followIds();
      const change = this.#queue.get(changeId);
      if (!change || change.basis === 'mirror') return;
      const { state } = change;
      if ((state !== 'pending' && state !== 'sending') || resolution.state === 'needs-read') return;
      if (resolution.state === 'rejected') {
        if (state !== 'pending') return;
        this.#end(changeId, 'rejected', resolution.message);
        this.#queue.supersedeRejected(change, this.#now());
        return;
      }
      const { key: target, conflictKey, sku, subsidiaryId } = resolution.target;
      const basis = resolution.state === 'resolved' ? 'mirror' : 'as-is';
      if (change.basis === basis && change.target === target) return;
      // Values may have been merged into the change since it was read, so the new body is made from its present values.
      const words = inOwnWords(change)?.change;
      const body = words ? bodyFor(words, resolution.address) : change.body;
      const moved: OutboxChange = { ...change, target, conflictKey, sku, subsidiaryId, basis, body };
      if (state === 'sending') this.#queue.move(moved, this.#now());
      else this.#moveUnlessOutdated(moved);
    });
  }

  /** Moves a change to its target, unless that has newer values of all its fields. */
  #moveUnlessOutdated(change: OutboxChange): void {
    const isDated = change.kind === 'stock' && this.#queue.hasDated(change);
    const rest = isDated ? this.#queue.restOfCount(change, change) : change;
    if ('overruledBy' in rest) {
      const { changeId: by } = rest.overruledBy;
      this.#end(change.changeId, 'superseded', countedLater(change, rest.overruledBy), by);
      return;
    }
    // A guard can judge the change only now that its product is known.
    const { hold, zeroedAt } =
      rest.heldGuard === null
        ? this.#intake.judgeFound(rest, this.#guards)
        : { hold: undefined, zeroedAt: rest.zeroedAt };
    this.#queue.move({ ...rest, zeroedAt }, this.#now(), { hold, isLastCount: isDated });
  }

  /**
   * Forgets at most `limit` changes that were settled before `beforeMs`. Rejected ones stay, because they wait for a
   * person. Of the last count of a stock stays what the ledger reads.
   */
  prune(beforeMs: number, limit = 5000): number {
    const ids = this.#sql.values<number>(
      `SELECT change_id FROM _outbox
       WHERE settled_at IS NOT NULL AND settled_at < ? AND state IN ('done', 'superseded') LIMIT ?`,
      ...[isoUtc(beforeMs), limit],
    );
    for (const changeId of ids) {
      const keep = `UPDATE _outbox SET state = 'counted', message = NULL, settled_at = NULL, settled_seq = NULL,
          value_before = NULL, reference = NULL, zeroed_at = NULL
        WHERE change_id = @changeId AND (EXISTS (SELECT 1 FROM _stock_counts WHERE change_id = @changeId)
          OR EXISTS (SELECT 1 FROM _id_counts WHERE change_id = @changeId))`;
      const { changes } = this.#sql.run(keep, { changeId });
      const forget = changes > 0 ? 'DELETE FROM _merged_references' : 'DELETE FROM _outbox';
      this.#sql.run(`${forget} WHERE change_id = ?`, changeId);
    }
    return ids.length;
  }

  #end(changeId: number, state: 'superseded' | 'rejected', message: string, by: number | null = null): void {
    this.#queue.end(changeId, { state, message, at: this.#now(), by });
  }

  #held(changeId: number): OutboxChange {
    const change = this.#find(changeId);
    if (change.state === 'pending' && change.heldGuard !== null) return change;
    throw refusal(changeId, 'is not held');
  }

  #find(changeId: number): OutboxChange {
    const change = this.#queue.get(changeId);
    if (change) return change;
    throw new TillsyncError('not-found', `There is no change ${changeId} in the outbox.`, {
      hint: '`{tillsync} outbox list` shows them.',
    });
  }

  #now(): string {
    return isoUtc(this.#clock.nowMs());
  }
}

function refusal(changeId: number, why: string): TillsyncError {
  return new TillsyncError('conflict', `Change ${changeId} ${why}. Nothing was changed.`);
}

/**
 * Returns the change as a submission with the ids and values of its body, so that its target can be resolved again;
 * undefined if the body is unreadable.
 */
function inOwnWords({ changeId, kind, body }: OutboxChange): (Change & { changeId: number }) | undefined {
  const reading = readChange(kind, body);
  // A body has a time of counting only if that time was refused, so the count must not be taken without it.
  if (!('change' in reading) || reading.countedAt != null) return undefined;
  return { changeId, ...reading };
}

/**
 * Returns a change with the name by which it was handed over. A count by a sku belongs to that sku and one by an id to
 * that id, but the body has the ids for the platform, which may mean another stock now.
 */
function asNamed(change: OutboxChange): Change | undefined {
  const words = inOwnWords(change);
  const { sku, subsidiaryId, named } = change;
  if (words?.kind !== 'stock' || (named === null && sku === null)) return words;
  const bySku = { sku, ...(subsidiaryId !== null && { subsidiaryId }) };
  const name = named === null ? bySku : (JSON.parse(named) as StockName);
  return { kind: 'stock', change: bodyFor(words.change, name) as StockChange };
}
