import { setImmediate } from 'node:timers/promises';
import type Database from 'better-sqlite3';
import { recordText, scanRecords } from '../../core/json-records.ts';
import type { Clock } from '../../core/time.ts';
import { withoutCustomer } from '../merging/customer.ts';
import { ORDER_FIELDS, type OrderSpellings } from '../merging/field-aliases.ts';
import { holdNotification } from '../merging/held-callbacks.ts';
import { dueMsIn, replay, type Value, withoutContradiction } from '../merging/merge.ts';
import type { OrderReading, OrderSource } from '../merging/order.ts';
import { readOrderText } from '../merging/order-reader.ts';
import {
  addPayload,
  earlierPayloads,
  type KnownRow,
  knownOrder,
  mergeOrder,
  newestPayload,
  previewOf,
  statusIn,
  updateDigest,
} from '../merging/order-rows.ts';
import type { Mirror } from '../reading/mirror.ts';
import {
  ordersReceived,
  type QuarantineDetail,
  quarantinedOrders,
  type ReceivedFilter,
} from '../reading/order-queries.ts';
import { chooseOrders, type ReadingRules } from './order-lists.ts';

/** An order's payload that the mirror has not merged yet. */
interface FoundPayload {
  source: OrderSource;
  /** When the payload was received, ISO 8601 UTC. */
  receivedAt: string;
  raw: string;
  reading: OrderReading;
}

export interface OrderReplayReport {
  orderId: string;
  /** Number of the order's payloads that were read again, including those from quarantine. */
  payloads: number;
  /** Number of those payloads that name no order, or another order, by the present rules. */
  unreadable: number;
  /**
   * Number of payloads from quarantine that would set the order back to an earlier status. They are held, as such
   * callbacks are when they arrive.
   */
  held: number;
  outcome: 'created' | 'changed' | 'unchanged';
  /** Changed fields. `items` stands for all lines of the order. */
  fields: { field: string; before: Value; after: Value }[];
}

interface OrderReplayOptions {
  spellings: OrderSpellings;
  found?: readonly FoundPayload[];
  /** True to report the changes without writing them. */
  dryRun?: boolean;
}

interface Step extends FoundPayload {
  /** Seq of the order's newest event when the payload was merged. */
  seq: number;
  isFound: boolean;
  wasBelieved: boolean;
}

/**
 * Merges all payloads of an order again by the present rules, in the caller's transaction. Writes nothing if the
 * result is the same. The event of a change gets the time of the payload that caused the change.
 */
export function replayOrder(
  db: Database.Database,
  orderId: string,
  { spellings, found: sent = [], dryRun = false }: OrderReplayOptions,
): OrderReplayReport {
  const known = knownOrder(db, orderId);
  const isForgotten = known !== undefined && known.forgottenAt !== null;
  const found = isForgotten ? sent.map((each) => withoutCustomer(each, spellings)) : sent;
  const status = known ? statusIn(known.values) : null;
  const kept = [...earlierPayloads(db, orderId), ...(known ? [newestPayload(known)] : [])];
  const steps: Step[] = [];
  for (const { payload: raw, believedStatus, ...rest } of kept) {
    const reading = readOrderText(raw, spellings, rest.source);
    if ('orderId' in reading && reading.orderId === orderId) {
      const wasBelieved = believedStatus !== null && reading.fields.status === believedStatus;
      steps.push({ ...rest, raw, reading, isFound: false, wasBelieved });
    }
  }
  const report: OrderReplayReport = {
    orderId,
    payloads: kept.length + found.length,
    unreadable: kept.length - steps.length,
    held: 0,
    outcome: 'unchanged',
    fields: [],
  };
  for (const each of found) insertByTime(steps, each);
  const { reading: merged, last, held } = replay(orderId, steps);
  const present = { status, dueMs: known ? dueMsIn(known.values) : null };
  const reading = withoutContradiction(merged, present, Date.parse(last?.receivedAt ?? ''));
  const foundHeld = held.filter(({ isFound }) => isFound);
  report.held = foundHeld.length;
  if (last !== undefined) {
    report.fields = changesOf(db, known, reading);
    if (!known) report.outcome = 'created';
    else if (report.fields.length > 0) report.outcome = 'changed';
  }
  if (dryRun) return report;

  for (const step of foundHeld) {
    holdNotification(db, { ...step, observedAtMs: Date.parse(step.receivedAt) }, status);
    if (known) updateDigest(db, orderId, null);
  }
  if (last === undefined) return report;
  // A payload from quarantine becomes the order's payload only if it is newer than the present one.
  const isNewest = !known || (last.isFound && last.receivedAt >= newestPayload(known).receivedAt);
  if (report.outcome !== 'unchanged' || isNewest) {
    const { source, receivedAt, raw } =
      known && !isNewest ? { ...newestPayload(known), raw: known.payload } : last;
    const observation = { source, observedAtMs: Date.parse(receivedAt), raw, reading, isReplay: true };
    // No digest is stored, so that the next poll reads the order again.
    mergeOrder(db, observation, spellings, null);
  }
  const newestSeq = knownOrder(db, orderId)?.seq ?? 0;
  for (const step of steps) {
    if (!step.isFound || held.includes(step) || (isNewest && step === last)) continue;
    addPayload(db, orderId, { ...step, seq: step.seq || newestSeq, payload: step.raw }, false);
  }
  return report;
}

/** Inserts a payload by its time of receipt, after payloads with the same time. */
function insertByTime(steps: Step[], found: FoundPayload): void {
  const at = steps.findLastIndex(({ receivedAt }) => receivedAt <= found.receivedAt) + 1;
  const seq = (steps[at - 1] ?? steps[0])?.seq ?? 0;
  steps.splice(at, 0, { ...found, seq, isFound: true, wasBelieved: false });
}

function changesOf(
  db: Database.Database,
  known: KnownRow | undefined,
  reading: OrderReading,
): OrderReplayReport['fields'] {
  const { values, items, sameItems } = previewOf(db, known, reading);
  const changes = ORDER_FIELDS.map((field, i) => {
    return { field: field as string, before: known?.values[i] ?? null, after: values[i] ?? null };
  }).filter(({ before, after }) => before !== after);
  if (items && !sameItems) {
    changes.push({ field: 'items', before: null, after: `${items.length} items` });
  }
  return changes;
}

export interface RetryReport {
  /** Ids of orders that are readable now and changed the mirror. */
  kept: string[];
  /** Ids of orders for which the mirror has the same or newer content. The payload is stored with the order. */
  overtaken: string[];
  /** Why the other records are still unreadable, one sentence each. If empty, the entry can be deleted. */
  unreadable: string[];
}

/** Number of a quarantined answer's orders that are merged in one transaction. */
const TOGETHER = 10;

/**
 * Reads a quarantined payload again by the present rules, and merges its orders. An old payload never sets an order
 * back to an earlier status: only its fields that no newer payload has are applied.
 */
export async function retryQuarantined(
  { source, receivedAt, payload }: Pick<QuarantineDetail, 'source' | 'receivedAt' | 'payload'>,
  mirror: Mirror,
  rules: ReadingRules,
): Promise<RetryReport> {
  const report: RetryReport = { kept: [], overtaken: [], unreadable: [] };
  if (source !== 'webhook' && source !== 'poll') {
    report.unreadable.push(`Only orders can be read again, and this came from the ${source}.`);
    return report;
  }
  const found: FoundPayload[] = [];
  for (const { raw, reading } of readingsOf(payload, source, rules)) {
    if ('unreadable' in reading) report.unreadable.push(reading.unreadable);
    else found.push({ source, receivedAt, raw, reading });
  }
  for (let at = 0; at < found.length; at += TOGETHER) {
    const some = found.slice(at, at + TOGETHER);
    const { spellings } = rules;
    const replayed = await mirror.write((db) =>
      some.map((each) => replayOrder(db, each.reading.orderId, { spellings, found: [each] })),
    );
    for (const { orderId, outcome } of replayed) {
      (outcome === 'unchanged' ? report.overtaken : report.kept).push(orderId);
    }
  }
  return report;
}

interface Read {
  raw: string;
  reading: OrderReading | { unreadable: string };
}

/** Returns the orders in a payload. A notification or a single record is one order; a poll's answer is a list. */
function readingsOf(payload: string | Uint8Array, source: OrderSource, rules: ReadingRules): Read[] {
  const bytes = Buffer.from(payload as string);
  const read = (raw: string): Read => ({ raw, reading: readOrderText(raw, rules.spellings, source) });
  const single = read(bytes.toString('utf8'));
  if (source === 'webhook' || 'orderId' in single.reading) return [single];
  try {
    const found = chooseOrders(bytes, scanRecords(bytes), rules);
    if (!found) return [single];
    const { list } = found;
    return Array.from({ length: list.length }, (_, index) => read(recordText(bytes, list, index)));
  } catch {
    return [single];
  }
}

/** Number of orders that are looked up in one read. */
const PAGE = 200;
/** Pause between two transactions, in which the daemon can store callbacks. */
const PAUSE_MS = 2;

interface EventsReplayOptions extends ReadingRules {
  mirror: Mirror;
  clock: Clock;
  filter: ReceivedFilter;
  /** True to replay only quarantined payloads, not those of known orders. */
  quarantinedOnly: boolean;
  /** True to report the changes without writing them. */
  dryRun: boolean;
  /** Ends the replay between two orders. */
  signal: AbortSignal;
  onOrder?: (report: OrderReplayReport, done: number) => void;
}

export interface EventsReplayReport {
  dryRun: boolean;
  /** False if the replay was stopped early. The results until then are kept. */
  isComplete: boolean;
  orders: number;
  payloads: number;
  created: number;
  changed: number;
  unchanged: number;
  /**
   * Number of quarantined callbacks that would set an order back to an earlier status. They are stored as held and not
   * merged.
   */
  held: number;
  /** Number of stored payloads that name no order, or another order, by the present rules. */
  unreadable: number;
  /** Number of entries that were readable and left the quarantine; in a dry run, that would leave it. */
  released: number;
  /** Entries that stay in quarantine, with the reasons. */
  stay: { quarantineId: number; reasons: string[] }[];
  /** Orders that were created or changed; in a dry run, that would be. */
  changes: OrderReplayReport[];
}

/**
 * Merges all received payloads again by the present rules: the quarantine first, then order by order. A second run
 * writes nothing.
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
  /** Ids of orders that had a quarantined entry; all their payloads were replayed together with the entry. */
  readonly #done = new Set<string>();

  constructor(options: EventsReplayOptions) {
    this.#options = options;
    const counts = { orders: 0, payloads: 0, created: 0, changed: 0, unchanged: 0, held: 0, unreadable: 0 };
    this.report = { dryRun: options.dryRun, isComplete: true, ...counts, released: 0, stay: [], changes: [] };
  }

  async quarantined(): Promise<void> {
    const { mirror, filter } = this.#options;
    // The filter by order is left out, because the order of an entry is known only after reading the entry.
    for (const quarantineId of mirror.read((db) =>
      quarantinedOrders(db, { ...filter, orderId: undefined }),
    )) {
      if (this.#isStopped()) return;
      await this.#entry(quarantineId);
    }
  }

  async recorded(): Promise<void> {
    const { mirror, filter, spellings } = this.#options;
    for (let after = 0; ; ) {
      const page = mirror.read((db) => ordersReceived(db, filter, { after, limit: PAGE }));
      for (const { orderId } of page) {
        if (this.#isStopped()) return;
        if (this.#done.has(orderId)) continue;
        const preview = mirror.read((db) => replayOrder(db, orderId, { spellings, dryRun: true }));
        if (preview.outcome === 'unchanged') this.#count(preview);
        else await this.#replay([{ orderId }]);
        // Lets the event loop run, so that Ctrl-C can end the replay.
        if (this.report.orders % TOGETHER === 0) await setImmediate();
      }
      if (page.length < PAGE) return;
      after = page.at(-1)?.row ?? after;
    }
  }

  async #entry(quarantineId: number): Promise<void> {
    const { mirror, filter, dryRun } = this.#options;
    const entry = mirror.quarantine.get(quarantineId);
    if (entry === undefined || (entry.source !== 'webhook' && entry.source !== 'poll')) return;
    const { source, receivedAt, payload } = entry;
    const found: { orderId: string; found: FoundPayload[] }[] = [];
    const reasons: string[] = [];
    for (const { raw, reading } of readingsOf(payload, source, this.#options)) {
      if ('unreadable' in reading) reasons.push(reading.unreadable);
      else if (filter.orderId === undefined || reading.orderId === filter.orderId) {
        found.push({ orderId: reading.orderId, found: [{ source, receivedAt, raw, reading }] });
      }
    }
    for (let at = 0; at < found.length; at += TOGETHER) {
      if (this.#isStopped()) return;
      const some = found.slice(at, at + TOGETHER);
      await this.#replay(some);
      for (const { orderId } of some) this.#done.add(orderId);
    }
    const isMeant = filter.orderId === undefined || found.length > 0;
    if (!isMeant) return;
    if (reasons.length > 0) this.report.stay.push({ quarantineId, reasons });
    else if (filter.orderId === undefined || source === 'webhook') {
      this.report.released += 1;
      if (!dryRun) await mirror.quarantine.remove(quarantineId);
    }
  }

  async #replay(orders: readonly { orderId: string; found?: FoundPayload[] }[]): Promise<void> {
    const { mirror, spellings, dryRun, clock } = this.#options;
    const run = (db: Database.Database) =>
      orders.map(({ orderId, found = [] }) => replayOrder(db, orderId, { spellings, found, dryRun }));
    const reports = dryRun ? mirror.read(run) : await mirror.write(run);
    for (const report of reports) this.#count(report);
    if (!dryRun) await clock.sleep(PAUSE_MS);
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
