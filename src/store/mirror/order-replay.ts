import type { OrderObservation, OrderReading, OrderSource } from '../../domain/order/order.ts';
import { readOrderText } from '../../domain/order/order-reader.ts';
import { neverBackwards, type ReplayResult, replay } from '../../domain/order/replay.ts';
import type { OrderSpellings } from '../../domain/order/spelling-tree.ts';
import type { MirrorTables } from './mirror-tables.ts';
import { fieldValues, ORDER_COLUMNS, STATUS_AT, sameRow, type Value } from './order-columns.ts';
import type { KnownRow } from './order-rows.ts';

/** A payload of an order that the mirror has not merged yet. */
export interface FoundPayload {
  source: OrderSource;
  /** ISO 8601 UTC. */
  receivedAt: string;
  raw: string;
  reading: OrderReading;
}

export interface ReplayedField {
  /** `items` stands for the whole. */
  field: string;
  before: Value;
  after: Value;
}

export interface OrderReplayReport {
  orderId: string;
  /** Payloads of the order that were read again, those that were found included. */
  payloads: number;
  /** Of these, those that name no order, or another one, by today's rules. */
  unreadable: number;
  /** Found webhooks that would take the order back; they are noted, as when they had come in. */
  held: number;
  outcome: 'created' | 'changed' | 'unchanged';
  fields: ReplayedField[];
}

interface Step extends FoundPayload {
  /** Newest event of the order when it was merged. */
  seq: number;
  found: boolean;
}

interface Plan {
  report: OrderReplayReport;
  known: KnownRow | undefined;
  result: ReplayResult<Step>;
  reading: OrderReading;
  steps: Step[];
}

/** What a replay of the order would do now; only reads. */
export function previewReplay(
  tables: MirrorTables,
  orderId: string,
  options: { spellings: OrderSpellings; found?: readonly FoundPayload[] },
): OrderReplayReport {
  return plan(tables, orderId, options).report;
}

/**
 * Within a transaction: merges all that was received of an order by today's rules. Writes nothing where that
 * changes nothing; the event of a change has the time of what brought it.
 */
export function replayOrder(
  tables: MirrorTables,
  orderId: string,
  options: { spellings: OrderSpellings; found?: readonly FoundPayload[] },
): OrderReplayReport {
  const { report, known, result, reading, steps } = plan(tables, orderId, options);
  const { merge } = tables;
  for (const step of result.held.filter(({ found }) => found)) {
    merge.held.hold(observationOf(step, step.reading), (known?.values[STATUS_AT] ?? null) as string | null);
    if (known) merge.rows.updateDigest(orderId, null);
  }
  const { last } = result;
  if (last === undefined) return report;
  // Without a digest the next poll reads the order again, whatever rules it was read by before.
  const newest = known && !isNewer(last, known) ? newestOf(orderId, known) : last;
  if (report.outcome !== 'unchanged' || newest === last) merge.apply(observationOf(newest, reading), null);
  const newestSeq = merge.rows.known(orderId)?.seq ?? 0;
  for (const step of steps) {
    if (!step.found || step === newest || result.held.includes(step)) continue;
    const { source, receivedAt, raw: payload, seq } = step;
    merge.payloads.add({ orderId, seq: seq || newestSeq, applied: false, source, receivedAt, payload });
  }
  return report;
}

function plan(
  { merge }: MirrorTables,
  orderId: string,
  { spellings, found = [] }: { spellings: OrderSpellings; found?: readonly FoundPayload[] },
): Plan {
  const known = merge.rows.known(orderId);
  const kept = merge.payloads
    .ofOrder(orderId)
    .map(({ payload, ...rest }) => ({ ...rest, raw: payload }))
    .concat(known ? [newestOf(orderId, known)] : []);
  const steps: Step[] = [];
  for (const { seq, source, receivedAt, raw } of kept) {
    const reading = readOrderText(raw, spellings);
    if ('unreadable' in reading || reading.orderId !== orderId) continue;
    steps.push({ seq, source, receivedAt, raw, reading, found: false });
  }
  const payloads = kept.length + found.length;
  const unreadable = kept.length - steps.length;
  for (const each of found) insert(steps, each);
  const result = replay(orderId, steps);
  const status = (known?.values[STATUS_AT] ?? null) as string | null;
  const reading = neverBackwards(result.reading, status);
  const held = result.held.filter((step) => step.found).length;
  const fields = result.last === undefined ? [] : changes(merge.rows, known, reading);
  const outcome =
    result.last === undefined || (known && fields.length === 0) ? 'unchanged' : known ? 'changed' : 'created';
  return {
    report: { orderId, payloads, unreadable, held, outcome, fields },
    ...{ known, result, reading, steps },
  };
}

/** Whether it was found and takes the place of the payload that the order has. */
function isNewer({ found, receivedAt }: Step, { payloadAt, updatedAt }: KnownRow): boolean {
  return found && receivedAt >= (payloadAt ?? updatedAt);
}

function newestOf(orderId: string, known: KnownRow) {
  const { seq, payloadSource: source, payloadAt, updatedAt, payload: raw } = known;
  return { orderId, seq, applied: true, source, receivedAt: payloadAt ?? updatedAt, raw };
}

/** By the time it was received, behind what came at the same time. */
function insert(steps: Step[], found: FoundPayload): void {
  let at = steps.length;
  while (at > 0 && (steps[at - 1] as Step).receivedAt > found.receivedAt) at -= 1;
  const seq = steps[at - 1]?.seq ?? steps[0]?.seq ?? 0;
  steps.splice(at, 0, { ...found, seq, found: true });
}

function changes(
  rows: MirrorTables['merge']['rows'],
  known: KnownRow | undefined,
  { orderId, fields, items }: OrderReading,
): ReplayedField[] {
  const values = fieldValues(fields, known?.values);
  const found: ReplayedField[] = [];
  if (!known || !sameRow(values, known.values)) {
    for (const [i, [field]] of ORDER_COLUMNS.entries()) {
      const [before, after] = [known?.values[i] ?? null, values[i] ?? null];
      if (before !== after) found.push({ field, before, after });
    }
  }
  if (items && !rows.hasItems(orderId, items)) {
    found.push({ field: 'items', before: null, after: `${items.length} items` });
  }
  return found;
}

function observationOf(
  { source, receivedAt, raw }: Pick<FoundPayload, 'source' | 'receivedAt' | 'raw'>,
  reading: OrderReading,
): OrderObservation {
  return { source, observedAtMs: Date.parse(receivedAt), raw, reading, isReplay: true };
}
