import { setImmediate } from 'node:timers/promises';
import type Database from 'better-sqlite3';
import { type RecordList, recordText, scanRecords } from '../core/json-records.ts';
import type { Clock } from '../core/time.ts';
import { neverBackwards, type ReplayResult, replay } from './merge.ts';
import type { Mirror } from './mirror.ts';
import { type MirrorTables, mirrorTables } from './mirror-file.ts';
import type { OrderKeeper, OrderObservation, OrderReading, OrderSource, Unreadable } from './order.ts';
import {
  getReceived,
  listReceived,
  ordersReceived,
  quarantinedOrders,
  type ReceivedDetail,
  type ReceivedEntry,
  type ReceivedFilter,
} from './order-queries.ts';
import { chooseOrderList, readOrderText } from './order-reader.ts';
import { fieldValues, type KnownRow, ORDER_COLUMNS, STATUS_AT, sameRow, type Value } from './order-rows.ts';
import type { OrderSpellings } from './spellings.ts';

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
  db: Database.Database,
  orderId: string,
  options: { spellings: OrderSpellings; found?: readonly FoundPayload[] },
): OrderReplayReport {
  return plan(mirrorTables(db), orderId, options).report;
}

/**
 * Within a transaction: merges all that was received of an order by today's rules. Writes nothing where that
 * changes nothing; the event of a change has the time of what brought it.
 */
export function replayOrder(
  db: Database.Database,
  orderId: string,
  options: { spellings: OrderSpellings; found?: readonly FoundPayload[] },
): OrderReplayReport {
  const { report, known, result, reading, steps } = plan(mirrorTables(db), orderId, options);
  const { merge } = mirrorTables(db);
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

/** What lies in quarantine. */
export interface Quarantined {
  source: Unreadable['source'];
  /** ISO 8601 UTC. */
  receivedAt: string;
  payload: string | Uint8Array;
}

export interface QuarantineRetryOptions {
  keeper: OrderKeeper;
  /** What the mirror has of an order. */
  find: (orderId: string) => { updatedAt: string } | undefined;
  /** Merges a payload under what the mirror has of its order since, and keeps it with the order. */
  mergeUnder: (found: FoundPayload) => Promise<{ outcome: 'created' | 'changed' | 'unchanged' }>;
  spellings: OrderSpellings;
  listPath: string;
}

/** The mirror as `retryQuarantined` wants it. */
export function retryInto(
  mirror: Pick<Mirror, 'keep' | 'order' | 'write'>,
  { spellings, listPath }: Pick<QuarantineRetryOptions, 'spellings' | 'listPath'>,
): QuarantineRetryOptions {
  return {
    keeper: mirror,
    find: (orderId) => mirror.order(orderId),
    mergeUnder: (found) =>
      mirror.write((db) => replayOrder(db, found.reading.orderId, { spellings, found: [found] })),
    ...{ spellings, listPath },
  };
}

export interface RetryReport {
  /** Orders that can be read now and brought something into the mirror. */
  kept: string[];
  /** Orders of which the mirror has everything newer; the payload is kept with the order. */
  overtaken: string[];
  /** Why the rest still cannot be read, one sentence each; empty: the entry has served its purpose. */
  unreadable: string[];
}

/**
 * Reads a quarantined payload once more, by today's spellings, and merges the orders in it. An old payload
 * never takes an order back: where the mirror heard of the order since, only what nothing newer says is taken.
 */
export async function retryQuarantined(
  entry: Quarantined,
  options: QuarantineRetryOptions,
): Promise<RetryReport> {
  const report: RetryReport = { kept: [], overtaken: [], unreadable: [] };
  const { source, receivedAt } = entry;
  if (source !== 'webhook' && source !== 'poll') {
    report.unreadable.push(`Only orders can be read again, and this came from the ${source}.`);
    return report;
  }
  const observations = [];
  for (const { raw, reading } of readingsOf(entry.payload, source, options)) {
    if ('unreadable' in reading) report.unreadable.push(reading.unreadable);
    else if ((options.find(reading.orderId)?.updatedAt ?? '') > receivedAt) {
      const { outcome } = await options.mergeUnder({ source, receivedAt, raw, reading });
      (outcome === 'unchanged' ? report.overtaken : report.kept).push(reading.orderId);
    } else observations.push({ source, observedAtMs: Date.parse(receivedAt), raw, reading });
  }
  if (observations.length > 0) {
    await options.keeper.keep(observations.map((observation) => ({ kind: 'order', observation })));
    report.kept.push(...observations.map(({ reading }) => reading.orderId));
  }
  return report;
}

interface Read {
  raw: string;
  reading: OrderReading | { unreadable: string };
}

/** A notification or a single record is one order; an answer of a poll is a list of them. */
export function readingsOf(
  payload: string | Uint8Array,
  source: OrderSource,
  { spellings, listPath }: Pick<QuarantineRetryOptions, 'spellings' | 'listPath'>,
): Read[] {
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const raw = typeof payload === 'string' ? payload : Buffer.from(payload).toString('utf8');
  const single = { raw, reading: readOrderText(raw, spellings) };
  if (source === 'webhook' || !('unreadable' in single.reading)) return [single];
  const read = (list: RecordList, index: number): Read => {
    const text = recordText(bytes, list, index);
    return { raw: text, reading: readOrderText(text, spellings) };
  };
  const list = listIn(bytes, listPath, (inside, index) => {
    const { reading } = read(inside, index);
    return 'unreadable' in reading ? undefined : reading;
  });
  return list ? Array.from({ length: list.length }, (_, index) => read(list, index)) : [single];
}

function listIn(
  bytes: Uint8Array,
  listPath: string,
  read: (list: RecordList, index: number) => OrderReading | undefined,
): RecordList | undefined {
  try {
    return chooseOrderList(scanRecords(bytes), { listPath, read });
  } catch {
    return undefined;
  }
}

/** Orders looked up in one read, and orders of one quarantined answer that share a transaction. */
const PAGE = 200;
const TOGETHER = 10;
/** Between two transactions, so that a daemon's callbacks always find the file free. */
const PAUSE_MS = 2;

export interface EventsReplayOptions {
  mirror: Mirror;
  clock: Clock;
  spellings: OrderSpellings;
  listPath: string;
  filter: ReceivedFilter;
  /** Only what lies in quarantine; otherwise that too. */
  quarantinedOnly: boolean;
  /** Looks and writes nothing. */
  dryRun: boolean;
  /** Ends it between two orders. */
  signal: AbortSignal;
  onOrder?: (report: OrderReplayReport, done: number) => void;
}

export interface EventsReplayReport {
  dryRun: boolean;
  /** False: it was stopped before its end; what was replayed until then stays. */
  isComplete: boolean;
  orders: number;
  payloads: number;
  created: number;
  changed: number;
  unchanged: number;
  /** Quarantined webhooks that would take an order back, noted and not merged. */
  held: number;
  /** Kept payloads that name no order, or another one, by today's rules. */
  unreadable: number;
  /** Entries that left the quarantine, or would. */
  released: number;
  /** Entries that stay there, and why. */
  stay: { quarantineId: number; reasons: string[] }[];
  /** Every order that was or would be created or changed. */
  changes: OrderReplayReport[];
}

/**
 * Merges what was received anew by today's rules, order by order, the quarantine first. To be repeated at will: what
 * changed nothing the first time writes nothing.
 */
export async function replayEvents(options: EventsReplayOptions): Promise<EventsReplayReport> {
  const replay = new EventsReplay(options);
  await replay.quarantined();
  if (!options.quarantinedOnly) await replay.recorded();
  return replay.report;
}

class EventsReplay {
  readonly report: EventsReplayReport;
  readonly #options: EventsReplayOptions;
  /** Orders that something in quarantine was of, all of whose payloads were read with it. */
  readonly #done = new Set<string>();

  constructor(options: EventsReplayOptions) {
    this.#options = options;
    const counts = { orders: 0, payloads: 0, created: 0, changed: 0, unchanged: 0, held: 0, unreadable: 0 };
    this.report = { dryRun: options.dryRun, isComplete: true, ...counts, released: 0, stay: [], changes: [] };
  }

  async quarantined(): Promise<void> {
    const { mirror, filter } = this.#options;
    // Which order an entry is of shows only when it is read.
    const { orderId: _any, ...rest } = filter;
    for (const quarantineId of mirror.read((db) => quarantinedOrders(db, rest))) {
      if (this.#isStopped()) return;
      await this.#entry(quarantineId);
    }
  }

  async recorded(): Promise<void> {
    const { mirror, filter } = this.#options;
    for (let after = 0; ; ) {
      const page = mirror.read((db) => ordersReceived(db, filter, { after, limit: PAGE }));
      for (const { orderId } of page) {
        if (this.#isStopped()) return;
        if (!this.#done.has(orderId)) await this.#order(orderId);
      }
      if (page.length < PAGE) return;
      after = page.at(-1)?.row ?? after;
    }
  }

  async #entry(quarantineId: number): Promise<void> {
    const { mirror, filter, dryRun } = this.#options;
    const entry = mirror.quarantineGet(quarantineId);
    if (entry === undefined || (entry.source !== 'webhook' && entry.source !== 'poll')) return;
    const { source, receivedAt, payload } = entry;
    const found: FoundPayload[] = [];
    const reasons: string[] = [];
    for (const { raw, reading } of readingsOf(payload, source, this.#options)) {
      if ('unreadable' in reading) reasons.push(reading.unreadable);
      else if (filter.orderId === undefined || reading.orderId === filter.orderId)
        found.push({ source, receivedAt, raw, reading });
    }
    for (let at = 0; at < found.length; at += TOGETHER) {
      if (this.#isStopped()) return;
      await this.#found(found.slice(at, at + TOGETHER));
    }
    if (reasons.length > 0) {
      if (filter.orderId === undefined || found.length > 0) this.report.stay.push({ quarantineId, reasons });
    } else if (filter.orderId === undefined || source === 'webhook') {
      if (found.length === 0 && filter.orderId !== undefined) return;
      this.report.released += 1;
      if (!dryRun) await mirror.quarantineRemove(quarantineId);
    }
  }

  async #found(payloads: readonly FoundPayload[]): Promise<void> {
    const { mirror, spellings, dryRun, clock } = this.#options;
    const each = payloads.map((one) => ({ orderId: one.reading.orderId, at: { spellings, found: [one] } }));
    const reports = dryRun
      ? mirror.read((db) => each.map(({ orderId, at }) => previewReplay(db, orderId, at)))
      : await mirror.write((db) => each.map(({ orderId, at }) => replayOrder(db, orderId, at)));
    for (const report of reports) {
      this.#done.add(report.orderId);
      this.#count(report);
    }
    if (!dryRun) await clock.sleep(PAUSE_MS);
  }

  async #order(orderId: string): Promise<void> {
    const { mirror, spellings, dryRun, clock } = this.#options;
    let report = mirror.read((db) => previewReplay(db, orderId, { spellings }));
    if (report.outcome !== 'unchanged' && !dryRun) {
      report = await mirror.write((db) => replayOrder(db, orderId, { spellings }));
      await clock.sleep(PAUSE_MS);
    }
    this.#count(report);
    // Ctrl-C is heard.
    if (this.report.orders % TOGETHER === 0) await setImmediate();
  }

  #count(report: OrderReplayReport): void {
    const sums = this.report;
    sums.orders += 1;
    sums.payloads += report.payloads;
    sums.unreadable += report.unreadable;
    sums.held += report.held;
    sums[report.outcome] += 1;
    if (report.outcome !== 'unchanged') sums.changes.push(report);
    this.#options.onOrder?.(report, sums.orders);
  }

  #isStopped(): boolean {
    if (this.#options.signal.aborted) this.report.isComplete = false;
    return this.#options.signal.aborted;
  }
}

export type { ReceivedDetail, ReceivedEntry, ReceivedFilter };

/** What was received of orders, the newest first. */
export function listEvents(
  mirror: Pick<Mirror, 'read'>,
  filter: ReceivedFilter,
  options: { limit: number; quarantinedOnly: boolean },
): ReceivedEntry[] {
  return mirror.read((db) => listReceived(db, filter, options));
}

/** undefined: nothing has this id, or no longer. */
export function getEvent(mirror: Pick<Mirror, 'read'>, id: string): ReceivedDetail | undefined {
  return mirror.read((db) => getReceived(db, id));
}
