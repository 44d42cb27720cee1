import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../core/time.ts';
import { type Sql, sqlOf } from './sqlite.ts';

/** Names of actions in the audit log. A name never changes, because programs may compare it. */
export type AuditAction =
  | 'auth.set'
  | 'backup'
  | 'branch.assign'
  | 'branch.invite'
  | 'branch.revoke'
  | 'branch.close'
  | 'branch.rename'
  | 'store.aside'
  | 'config.changed'
  | 'order.replay'
  | 'hooks.send'
  | 'hooks.skip'
  | 'key.add'
  | 'key.remove'
  | 'order.ack'
  | 'order.forget'
  | 'outbox.discard'
  | 'outbox.release'
  | 'outbox.retry'
  | 'outbox.undo'
  | 'quarantine.delete'
  | 'quarantine.retry'
  | 'restore'
  | 'stock.forget'
  | 'stock.safety'
  | 'sync.orders'
  | 'webhook.rotate-secret'
  | 'webhook.set';

/** An action of an operator, without secrets or customer data. */
export interface AuditEvent {
  /** Interface and user, such as `cli ana`, `http 127.0.0.1` or `tillsync`. */
  who: string;
  action: AuditAction;
  /** What the action was applied to, such as `change 12`. */
  subject?: string | null;
  /** Result of the action. */
  detail?: string | null;
}

export interface AuditEntry extends Required<AuditEvent> {
  auditId: number;
  /** ISO 8601 UTC. */
  at: string;
}

const TEXT_MAX = 300;
const COLUMNS = 'audit_id AS auditId, at, who, action, subject, detail';

/** The audit log in the mirror. A record is written in the transaction of its action, so both are durable together. */
export class Audit {
  readonly #sql: Sql;
  readonly #clock: Clock;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#sql = sqlOf(db);
    this.#clock = clock;
  }

  /** Writes a record. Must be called in the transaction of the action. */
  note({ who, action, subject = null, detail = null }: AuditEvent): void {
    this.#sql.run(
      'INSERT INTO _audit (at, who, action, subject, detail) VALUES (?, ?, ?, ?, ?)',
      ...[isoUtc(this.#clock.nowMs()), shortened(who), action, shortened(subject), shortened(detail)],
    );
  }

  /** Returns records, the newest first. `since` is ISO 8601 UTC. */
  list({ since, limit }: { since?: string | undefined; limit: number }): AuditEntry[] {
    return this.#sql.rows<AuditEntry>(
      `SELECT ${COLUMNS} FROM _audit WHERE at >= ? ORDER BY audit_id DESC LIMIT ?`,
      ...[since ?? '', limit],
    );
  }

  /** Copies into this restored mirror the newer records of the mirror that it replaces. */
  takeOver(entries: readonly AuditEntry[]): void {
    for (const { at, who, action, subject, detail } of entries) {
      this.#sql.run(
        'INSERT INTO _audit (at, who, action, subject, detail) VALUES (?, ?, ?, ?, ?)',
        ...[at, who, action, subject, detail],
      );
    }
  }
}

function shortened(text: string | null): string | null {
  return text !== null && text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX - 1)}…` : text;
}
