import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../core/time.ts';
import { type Sql, sqlOf } from './sqlite.ts';

/** What is noted; programs may branch on it, so a name stays. */
export type AuditAction =
  | 'auth.set'
  | 'backup'
  | 'branch.assign'
  | 'branch.invite'
  | 'branch.remove'
  | 'branch.close'
  | 'branch.rename'
  | 'config.changed'
  | 'events.replay'
  | 'hooks.skip'
  | 'order.ack'
  | 'order.forget'
  | 'outbox.drop'
  | 'outbox.release'
  | 'outbox.retry'
  | 'outbox.undo'
  | 'quarantine.retry'
  | 'restore'
  | 'stock.forget'
  | 'stock.safety'
  | 'sync.orders'
  | 'webhook.rotate-secret'
  | 'webhook.set';

/** One thing that an operator did. No secret and nothing of a customer may stand in it. */
export interface Deed {
  /** The way in and who came by it, such as `cli ana`, `http 127.0.0.1` or `tillsync`. */
  who: string;
  action: AuditAction;
  /** What it was done to, such as `change 12`. */
  subject?: string | null;
  /** What came of it. */
  detail?: string | null;
}

export interface AuditEntry extends Required<Deed> {
  auditId: number;
  /** ISO 8601 UTC. */
  at: string;
}

const TEXT_MAX = 300;
const COLUMNS = 'audit_id AS auditId, at, who, action, subject, detail';

/** Who did what, in the mirror, so that it is durable together with what was done there. */
export class Audit {
  readonly #sql: Sql;
  readonly #clock: Clock;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#sql = sqlOf(db);
    this.#clock = clock;
  }

  /** Within the transaction of what was done. */
  note({ who, action, subject = null, detail = null }: Deed): void {
    this.#sql.run(
      'INSERT INTO audit (at, who, action, subject, detail) VALUES (?, ?, ?, ?, ?)',
      ...[isoUtc(this.#clock.nowMs()), shortened(who), action, shortened(subject), shortened(detail)],
    );
  }

  /** Newest first; `since`: ISO 8601 UTC. */
  list({ since, limit }: { since?: string | undefined; limit: number }): AuditEntry[] {
    return this.#sql.rows<AuditEntry>(
      `SELECT ${COLUMNS} FROM audit WHERE at >= ? ORDER BY audit_id DESC LIMIT ?`,
      ...[since ?? '', limit],
    );
  }

  /** Takes over what another mirror knows since then, for one that takes its place. */
  takeOver(entries: readonly AuditEntry[]): void {
    for (const { at, who, action, subject, detail } of entries) {
      this.#sql.run(
        'INSERT INTO audit (at, who, action, subject, detail) VALUES (?, ?, ?, ?, ?)',
        ...[at, who, action, subject, detail],
      );
    }
  }
}

function shortened(text: string | null): string | null {
  return text !== null && text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX - 1)}…` : text;
}
