import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import { withoutOverruled } from '../../domain/change/coalesce.ts';
import { bodyOf, type LineRow } from './outbox-row.ts';

type Refused = Pick<LineRow, 'changeId' | 'body'>;

/**
 * Refused changes stay for a person to see. One that a newer change for the same target has outlived, arrived or
 * refused itself, is no longer news: it is superseded, so that what is refused is what is wrong now. Transactions
 * are the caller's.
 */
export class RefusedChanges {
  readonly #of: Database.Statement<[string, string, number], Refused>;
  readonly #supersede: Database.Statement<[string, number, string, number]>;

  constructor(db: Database.Database) {
    this.#of = db.prepare(`
      SELECT change_id AS changeId, body FROM outbox INDEXED BY outbox_rejected_target
      WHERE kind = ? AND target = ? AND state = 'rejected' AND version < ?`);
    this.#supersede = db.prepare(`
      UPDATE outbox SET state = 'superseded', message = message || ?, superseded_by = ?, settled_at = ?
      WHERE change_id = ?`);
  }

  /** To be called when a change has arrived or was refused. */
  outlived(
    newer: Pick<LineRow, 'kind' | 'target' | 'changeId' | 'version'>,
    body: ChangeBody,
    at: string,
  ): void {
    for (const refused of this.#of.all(newer.kind, newer.target, newer.version)) {
      if (withoutOverruled(bodyOf(refused), body, 'all') !== undefined) continue;
      this.#supersede.run(` Replaced by change ${newer.changeId}.`, newer.changeId, at, refused.changeId);
    }
  }
}
