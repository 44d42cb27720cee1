import type { ChangeBody, ChangeKind } from '../../domain/change/change.ts';
import { type Versioned, valueKeys } from '../../domain/change/coalesce.ts';
import type { Guard } from '../../domain/change/guard-rails.ts';
import { priorityOf } from '../../domain/change/plan-batch.ts';

export type OutboxState = 'pending' | 'sending' | 'done' | 'rejected' | 'superseded';

/** The way in that a change took. */
export type ChangeSource = 'inbox' | 'http' | 'cli' | 'hold-back';

export type Basis = 'mirror' | 'as-is' | 'needs-read';

/** One change as people and the POS see it. */
export interface OutboxEntry {
  changeId: number;
  kind: ChangeKind;
  target: string;
  body: ChangeBody;
  state: OutboxState;
  attempts: number;
  message: string | null;
  createdAt: string;
  settledAt: string | null;
  heldGuard: Guard | null;
  source: ChangeSource;
  reference: string | null;
  /** How many earlier values for the target went into this one while it waited. */
  replaced: number;
  /** The change that took its place. */
  supersededBy: number | null;
}

/** What the rules of the line need of a row. `body` is JSON text. */
export interface LineRow {
  changeId: number;
  kind: ChangeKind;
  target: string;
  conflictKey: string;
  body: string;
  queueSeq: number;
  version: number;
  /** JSON text; null when every field has the row's version. */
  fieldVersions: string | null;
  basis: Basis;
  sku: string | null;
  subsidiaryId: string | null;
  heldGuard: Guard | null;
  asOfSeq: number;
}

export interface NewRow extends Omit<LineRow, 'queueSeq' | 'fieldVersions'> {
  message: string | null;
  source: ChangeSource;
  reference: string | null;
  zeroedAt: string | null;
  createdAt: string;
}

/** The columns of a LineRow. */
export const LINE_COLUMNS = `change_id AS changeId, kind, target, conflict_key AS conflictKey, body,
  queue_seq AS queueSeq, version, field_versions AS fieldVersions, basis, sku, subsidiary_id AS subsidiaryId, held_guard AS heldGuard,
  as_of_seq AS asOfSeq`;

/** The body with the version of each of its fields. */
export function versioned(row: Pick<LineRow, 'body' | 'version' | 'fieldVersions'>): Versioned {
  const body = bodyOf(row);
  if (row.fieldVersions !== null) {
    return { body, versions: JSON.parse(row.fieldVersions) as Record<string, number> };
  }
  return { body, versions: Object.fromEntries(valueKeys(body).map((field) => [field, row.version])) };
}

export function bodyOf(row: { body: string }): ChangeBody {
  return JSON.parse(row.body) as ChangeBody;
}

/** What of a row follows from its body. */
export function bodyColumns(body: ChangeBody): { body: string; fields: string; priority: number } {
  return { body: JSON.stringify(body), fields: fieldsOf(body), priority: priorityOf(body) };
}

function fieldsOf(body: ChangeBody): string {
  const keys = valueKeys(body);
  return keys.length === 1 ? (keys[0] as string) : keys.sort().join();
}
