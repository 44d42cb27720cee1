import type Database from 'better-sqlite3';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import type { ChangeBody, ChangeKind, OutboxEntry, OutboxState } from '../intake/change.ts';

export interface OutboxFilter {
  /**
   * `held` are pending changes that a guard holds for a person. `waiting` are the other pending changes and those in
   * `sending`.
   */
  state?: OutboxState | 'held' | 'waiting' | undefined;
  kind?: ChangeKind | undefined;
  /** Only changes with a lower id. For the next page, this is the last id of the page before. */
  before?: number | undefined;
  /** Only changes submitted at this time or later, ISO 8601 UTC. */
  since?: string | undefined;
  /** Only changes with this text in an id of their product or branch. */
  target?: string | undefined;
  /** Only changes that were handed over under this reference, which the submitter chose, also in part. */
  reference?: string | undefined;
  limit: number;
}

export interface OutboxCounts {
  /** Number of pending changes, without held ones. */
  pending: number;
  held: number;
  /** Number of changes that wait for a read of their product. */
  needsRead: number;
  sending: number;
  rejected: number;
  /** Time at which the oldest waiting change was submitted; null if none waits. */
  oldestPendingAt: string | null;
}

/** Last outcomes of the changes of one kind that were sent. Changes settled without a call do not count. */
export interface LastSent {
  /** Time at which the platform last accepted a change, ISO 8601 UTC; null if no stored change was accepted. */
  takenAt: string | null;
  /** The newest change that was refused in its own call and that no newer change superseded; null if there is none. */
  refused: { changeId: number; at: string; message: string } | null;
  /** A sent change with an unknown outcome, which waits to be sent again; null if there is none. */
  trouble: { changeId: number; attempts: number; message: string } | null;
}

const COLUMNS = `change_id AS changeId, kind, target, body, state, attempts, message, created_at AS createdAt,
  settled_at AS settledAt, held_guard AS heldGuard, source, origin, reference, counted_at AS countedAt, replaced, superseded_by AS supersededBy,
  settled_seq AS settledSeq`;

// The view `outbox_references` would search the whole table before each page.
const HANDED_OVER_UNDER = `(@reference IS NULL OR reference = @reference
  OR change_id IN (SELECT change_id FROM _merged_references WHERE reference = @reference))`;
const WAITING = "state = 'pending' AND held_guard IS NULL";

// Each number is counted by its own query with its own index, because a scan of the whole table would also read a month
// of settled changes. The plus keeps SQLite from looking for the oldest waiting change by the rowid, past all settled
// ones: with 100,000 changes 8 ms instead of 0.1.
const HELD = "(SELECT count(*) FROM _outbox WHERE state = 'pending' AND held_guard IS NOT NULL) AS held";
const REJECTED = "(SELECT count(*) FROM _outbox WHERE state = 'rejected') AS rejected";
const COUNTS = `
  SELECT
    (SELECT count(*) FROM _outbox WHERE ${WAITING}) AS pending,
    ${HELD},
    (SELECT count(*) FROM _outbox WHERE basis = 'needs-read' AND basis <> 'mirror'
      AND state IN ('pending', 'sending') AND held_guard IS NULL) AS needsRead,
    (SELECT count(*) FROM _outbox WHERE state = 'sending') AS sending,
    ${REJECTED},
    (SELECT created_at FROM _outbox WHERE change_id = (SELECT min(+change_id) FROM _outbox WHERE ${WAITING}))
      AS oldestPendingAt`;

/** Reads the outbox for people, the local API and waiting commands. */
export class OutboxQueries {
  readonly #sql: Sql;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
  }

  /** Returns changes, the newest first. */
  list(filter: OutboxFilter): OutboxEntry[] {
    const { state, kind = null, since = null, target = null, reference = null, limit } = filter;
    return this.#entries(
      `WHERE change_id < @before AND state <> 'counted' AND (@state IS NULL OR state IN (@state, @orState)) AND (@kind IS NULL OR kind = @kind)
         AND (@held IS NULL OR (held_guard IS NOT NULL) = @held)
         AND (@since IS NULL OR created_at >= @since) AND ${HANDED_OVER_UNDER}
         AND (@target IS NULL OR instr(target, @target) > 0 OR instr(body, @target) > 0)
       ORDER BY change_id DESC LIMIT @limit`,
      {
        kind,
        since,
        target,
        reference,
        limit,
        before: filter.before ?? Number.MAX_SAFE_INTEGER,
        state: state === 'held' || state === 'waiting' ? 'pending' : (state ?? null),
        orState: state === 'waiting' ? 'sending' : null,
        held: state === 'held' ? 1 : state === 'waiting' ? 0 : null,
      },
    );
  }

  /** Returns settled changes with a `settledSeq` above `after`, the oldest first. */
  settledAfter(
    after: number,
    filter: Pick<OutboxFilter, 'state' | 'kind' | 'reference' | 'limit'>,
  ): OutboxEntry[] {
    const { state = null, kind = null, reference = null, limit } = filter;
    return this.#entries(
      `WHERE settled_seq > @after AND (@state IS NULL OR state = @state) AND (@kind IS NULL OR kind = @kind)
         AND ${HANDED_OVER_UNDER}
       ORDER BY settled_seq LIMIT @limit`,
      { after, state, kind, reference, limit },
    );
  }

  /** Returns the highest `settledSeq`; 0 if no change was settled yet. */
  newestSettled(): number {
    return this.#sql.value("SELECT value FROM marks WHERE name = 'outbox.settled'") ?? 0;
  }

  /** Returns the last changes of these skus, the newest first. */
  lastOf(skus: readonly string[], limit: number): OutboxEntry[] {
    return this.#entries(
      "WHERE sku IN (SELECT value FROM json_each(?)) AND state <> 'counted' ORDER BY change_id DESC LIMIT ?",
      ...[JSON.stringify(skus), limit],
    );
  }

  get(changeId: number): OutboxEntry | undefined {
    return this.#entries("WHERE change_id = ? AND state <> 'counted'", changeId)[0];
  }

  /** Returns the version of the last submission. */
  newestVersion(): number {
    return this.#sql.value("SELECT value FROM marks WHERE name = 'outbox.version'") ?? 0;
  }

  /** Returns every change that is not settled, and whether a guard holds it for a person. */
  open(): Map<number, { isHeld: boolean }> {
    const rows = this.#sql.rows<{ changeId: number; isHeld: number }>(
      `SELECT change_id AS changeId, 0 AS isHeld FROM _outbox WHERE ${WAITING}
       UNION ALL SELECT change_id, 1 FROM _outbox WHERE state = 'pending' AND held_guard IS NOT NULL
       UNION ALL SELECT change_id, 0 FROM _outbox WHERE state = 'sending'`,
    );
    return new Map(rows.map(({ changeId, isHeld }) => [changeId, { isHeld: isHeld === 1 }]));
  }

  /** Returns the change, or the change that replaced it in the end. */
  follow(changeId: number): OutboxEntry | undefined {
    let entry = this.get(changeId);
    // The loop ends, because a change is superseded only by one with a newer version.
    while (entry?.supersededBy != null) {
      const next = this.get(entry.supersededBy);
      if (!next) break;
      entry = next;
    }
    return entry;
  }

  /**
   * Returns when a change was last accepted, the last refused change, and a change that is failing now. Too slow for a
   * loop, because it searches the settled changes from the newest back.
   */
  lastSent(kind: ChangeKind): LastSent {
    const one = <T>(columns: string, where: string, order: string) =>
      this.#sql.row<T>(
        `SELECT ${columns} FROM _outbox WHERE kind = ? AND attempts > 0 AND ${where} ORDER BY ${order} LIMIT 1`,
        kind,
      );
    const settled = (state: OutboxState) => `settled_at IS NOT NULL AND state = '${state}'`;
    const message = "coalesce(message, '') AS message";
    const taken = one<{ at: string }>('settled_at AS at', settled('done'), 'settled_at DESC');
    const refused = `change_id AS changeId, settled_at AS at, ${message}`;
    const waiting = `change_id AS changeId, attempts, ${message}`;
    return {
      takenAt: taken?.at ?? null,
      refused: one(refused, settled('rejected'), 'settled_at DESC') ?? null,
      trouble: one(waiting, WAITING, 'change_id') ?? null,
    };
  }

  /** Returns the number of changes that wait for a person. It is fast, however many changes the outbox has. */
  forPeople(): Pick<OutboxCounts, 'held' | 'rejected'> {
    return (
      this.#sql.row<{ held: number; rejected: number }>(`SELECT ${HELD}, ${REJECTED}`) ?? {
        held: 0,
        rejected: 0,
      }
    );
  }

  counts(): OutboxCounts {
    const none = { pending: 0, held: 0, needsRead: 0, sending: 0, rejected: 0, oldestPendingAt: null };
    return this.#sql.row<OutboxCounts>(COUNTS) ?? none;
  }

  #entries(which: string, ...params: unknown[]): OutboxEntry[] {
    return this.#sql
      .rows<Omit<OutboxEntry, 'body'> & { body: string }>(
        `SELECT ${COLUMNS} FROM _outbox ${which}`,
        ...params,
      )
      .map((row) => ({ ...row, body: JSON.parse(row.body) as ChangeBody }));
  }
}
