import type Database from 'better-sqlite3';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import {
  type Change,
  type ChangeBody,
  type ChangeKind,
  readChange,
  type StockName,
  type SubmittedChange,
} from '../intake/change.ts';
import { StockLedger } from '../ledger/stock-ledger.ts';
import { valueKeys } from './call-plan.ts';

/** Selects the submission to undo. At least one of the first three fields is given. */
export interface UndoFilter {
  /** Name of the file that was submitted, without its folder. */
  file?: string | undefined;
  /** Reference of the changes, which the submitter chose. */
  reference?: string | undefined;
  /** Earliest time at which the first value of the change was submitted, ISO 8601 UTC. */
  since?: string | undefined;
  /** `subsidiary_id` of the only branch whose changes are undone. */
  branch?: string | undefined;
}

/** Values that a change replaced, as stored in `outbox.value_before`. */
interface ValueBefore {
  qty?: number;
  price?: number;
  name?: string;
  show?: boolean;
  /** Newest order event that the quantity includes. */
  asOfSeq?: number;
  /** Values of another submission that waited to be sent when the change replaced them. */
  waited?: ValueBefore;
}

/**
 * - `undo`: the earlier value is submitted
 * - `changed-since`: the target has a newer change, so its value is left alone unless a person forces the undo
 * - `unknown`: the earlier value is unknown
 * - `same`: the earlier value equals the submitted one
 */
type UndoVerdict = 'undo' | 'changed-since' | 'unknown' | 'same';

/** A stock or product of the submission. */
export interface UndoLine {
  /** The newest change of the submission for this target. */
  changeId: number;
  kind: ChangeKind;
  target: string;
  verdict: UndoVerdict;
  /** Values that the submission set. */
  now: Omit<ValueBefore, 'asOfSeq'>;
  before: ValueBefore | null;
  /** The newest change of the target after the submission; null if there is none. */
  changedBy: number | null;
  item: (Change & { asOfSeq?: number }) | null;
}

interface ChangeRow {
  changeId: number;
  kind: ChangeKind;
  target: string;
  conflictKey: string;
  body: string;
  state: string;
  version: number;
  sku: string | null;
  subsidiaryId: string | null;
  named: string | null;
  valueBefore: string | null;
}

// A change that took another reference over also stands here as it was before: with its values, and with those that it
// replaced while they waited.
// The origin ends in `, NAME` after a command on the files, and in `, file NAME` after a request.
const HANDED_OVER = `
  SELECT o.change_id AS changeId, kind, target, conflict_key AS conflictKey, said.body, state, said.version, sku,
    subsidiary_id AS subsidiaryId, named, valueBefore
  FROM (
    SELECT change_id, body, version, origin, value_before AS valueBefore FROM _outbox
    WHERE @reference IS NULL OR reference = @reference
    UNION ALL
    SELECT m.change_id, m.body, m.version, m.origin, json_set(coalesce(o.value_before, '{}'), '$.waited', json(m.waited))
    FROM _merged_references m JOIN _outbox o USING (change_id) WHERE m.reference = @reference) said
  JOIN _outbox o USING (change_id)
  WHERE state IN ('pending', 'sending', 'done') AND held_guard IS NULL AND source <> 'hold-back'
    AND (@since IS NULL OR created_at >= @since)
    AND (@branch IS NULL OR subsidiary_id = @branch)
    AND (@file IS NULL OR substr(said.origin, -length(@file) - 2) = ', ' || @file
      OR substr(said.origin, -length(@file) - 7) = ', file ' || @file)
  ORDER BY said.version`;
// Each part of the query uses its own index.
const NEWEST = `
  SELECT max(change_id) FROM (
    SELECT change_id FROM _outbox WHERE kind = @kind AND conflict_key = @conflictKey AND target = @target
      AND version > @version AND state IN ('sending', 'done')
    UNION ALL SELECT change_id FROM _outbox WHERE kind = @kind AND target = @target AND version > @version
      AND state = 'pending' AND held_guard IS NULL)`;

// Counts of the stock that an id means now, or meant when the undone count was made.
const NEWER_OF_ID = `
  SELECT change_id AS changeId, target, named FROM (
    SELECT change_id, target, named FROM _outbox WHERE kind = 'stock' AND conflict_key IN (@conflictKey, @key)
      AND version > @version AND state IN ('sending', 'done')
    UNION ALL SELECT change_id, target, named FROM _outbox WHERE kind = 'stock' AND target = @key
      AND version > @version AND state = 'pending' AND held_guard IS NULL)
  ORDER BY change_id DESC`;

/** Returns the key of the one stock that a name means now; undefined if there is none. */
type MeaningOf = (name: StockName) => string | undefined;

/**
 * Returns the lines that would undo a submission, one for each stock or product. A count by an id is undone where the id
 * is now. Writes nothing.
 */
export function undoLines(
  db: Database.Database,
  filter: UndoFilter,
  meaningOf: MeaningOf = () => undefined,
): UndoLine[] {
  const sql = sqlOf(db);
  const { file = null, reference = null, since = null, branch = null } = filter;
  const rows = sql.rows<ChangeRow>(HANDED_OVER, { file, reference, since, branch });
  const targets = Map.groupBy(rows, ({ kind, target }) => `${kind} ${target}`);
  // An undo by time alone does not use them, because they may be of the undone time too.
  const isNamed = file !== null || reference !== null;
  const ledger = new StockLedger(db);
  return [...targets.values()].map((changes) => lineOf(sql, changes, { isNamed, meaningOf, ledger }));
}

function lineOf(
  sql: Sql,
  changes: readonly ChangeRow[],
  { isNamed, meaningOf, ledger }: { isNamed: boolean; meaningOf: MeaningOf; ledger: StockLedger },
): UndoLine {
  const last = changes.at(-1) as ChangeRow;
  const { changeId, kind, conflictKey, version } = last;
  const name = last.named === null ? null : (JSON.parse(last.named) as StockName);
  const key = name === null ? undefined : meaningOf(name);
  const target = key ?? last.target;
  const now: Record<string, unknown> = {};
  // The oldest earlier value of each field: [price 5→6, price 6→7] → undo to 5.
  const found: Record<string, unknown> = {};
  for (const change of changes) {
    const body = JSON.parse(change.body) as ChangeBody;
    const stored: ValueBefore = JSON.parse(change.valueBefore ?? '{}');
    const known = { ...waitingBefore(ledger, change), ...stored };
    const before: Record<string, unknown> = isNamed ? { ...known, ...stored.waited } : known;
    for (const field of valueKeys(body)) {
      now[field] = body[field as keyof typeof body];
      if (before[field] === undefined || field in found) continue;
      found[field] = before[field];
      if (field === 'qty') found.asOfSeq = before.asOfSeq;
    }
  }
  const { asOfSeq, ...values } = found;
  const isQtyUnknown = kind === 'stock' && values.qty === undefined;
  const before = Object.keys(values).length === 0 || isQtyUnknown ? null : (found as ValueBefore);
  const changedBy =
    key === undefined
      ? (sql.value<number | null>(NEWEST, { kind, conflictKey, target, version }) ?? null)
      : changedByName(sql, { conflictKey, key, version }, meaningOf);
  const base = { changeId, kind, target, now, before, changedBy };
  const words = key === undefined ? undefined : name;
  const item = before && itemOf(last, { ...words, ...values }, asOfSeq as number | undefined);
  if (!before || !item) return { ...base, verdict: 'unknown', item: null };
  if (Object.keys(values).every((field) => values[field] === now[field])) {
    return { ...base, verdict: 'same', item: null };
  }
  return { ...base, verdict: changedBy === null ? 'undo' : 'changed-since', item };
}

/** Returns the newest count after a version that belongs to the stock `key` now; null if there is none. */
function changedByName(
  sql: Sql,
  which: { conflictKey: string; key: string; version: number },
  meaningOf: MeaningOf,
): number | null {
  const rows = sql.rows<{ changeId: number; target: string; named: string | null }>(NEWER_OF_ID, which);
  // A count by a sku stays with the sku, and one by an id goes where the id goes.
  const isOfStock = ({ target, named }: { target: string; named: string | null }) =>
    ((named === null ? undefined : meaningOf(JSON.parse(named) as StockName)) ?? target) === which.key;
  return rows.find(isOfStock)?.changeId ?? null;
}

/** Returns the present count, which a change that was not sent yet would replace. */
function waitingBefore(
  ledger: StockLedger,
  { changeId, state, sku, subsidiaryId }: ChangeRow,
): ValueBefore | null {
  if (state !== 'pending' || sku === null || subsidiaryId === null) return null;
  const last = ledger.lastCount({ sku, subsidiaryId });
  return !last || last.changeId === changeId ? null : { qty: last.qty, asOfSeq: last.asOfSeq };
}

function itemOf(row: ChangeRow, values: object, asOfSeq: number | undefined): UndoLine['item'] {
  const { kind, sku, subsidiaryId } = row;
  if (sku === null) return null;
  const branch = kind === 'stock' && subsidiaryId !== null ? { subsidiaryId } : {};
  const words = 'externalId' in values ? {} : { sku, ...branch };
  const reading: SubmittedChange = readChange(kind, { ...words, ...values });
  if (!('change' in reading)) return null;
  return asOfSeq === undefined ? reading : { ...reading, asOfSeq };
}
