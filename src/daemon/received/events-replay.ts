import { setImmediate } from 'node:timers/promises';
import type { OrderSpellings } from '../../domain/order/spelling-tree.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { Mirror } from '../../store/mirror/mirror.ts';
import {
  type FoundPayload,
  type OrderReplayReport,
  previewReplay,
  replayOrder,
} from '../../store/mirror/order-replay.ts';
import {
  ordersReceived,
  quarantinedOrders,
  type ReceivedFilter,
} from '../../store/mirror/received-queries.ts';
import { readingsOf } from './quarantine-retry.ts';

export type { OrderReplayReport };

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
    for (const quarantineId of mirror.read(({ db }) => quarantinedOrders(db, rest))) {
      if (this.#isStopped()) return;
      await this.#entry(quarantineId);
    }
  }

  async recorded(): Promise<void> {
    const { mirror, filter } = this.#options;
    for (let after = 0; ; ) {
      const page = mirror.read(({ db }) => ordersReceived(db, filter, { after, limit: PAGE }));
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
      ? mirror.read((tables) => each.map(({ orderId, at }) => previewReplay(tables, orderId, at)))
      : await mirror.write((tables) => each.map(({ orderId, at }) => replayOrder(tables, orderId, at)));
    for (const report of reports) {
      this.#done.add(report.orderId);
      this.#count(report);
    }
    if (!dryRun) await clock.sleep(PAUSE_MS);
  }

  async #order(orderId: string): Promise<void> {
    const { mirror, spellings, dryRun, clock } = this.#options;
    let report = mirror.read((tables) => previewReplay(tables, orderId, { spellings }));
    if (report.outcome !== 'unchanged' && !dryRun) {
      report = await mirror.write((tables) => replayOrder(tables, orderId, { spellings }));
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
