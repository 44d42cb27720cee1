import type { ChangeKind } from '../../domain/change/change.ts';
import type { Wait } from '../../domain/platform/call.ts';
import { ENDPOINTS } from '../../domain/platform/limits.ts';
import { Counter, Histogram, type MetricFamily } from '../../local/metrics/metric-family.ts';
import type { InboxTaken } from '../../sync/inbox-loop.ts';
import { InboxBacklog } from './inbox-backlog.ts';

const CALL_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];
const CALLBACK_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5];
const PUSH_SECONDS = [0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600];
const BATCH_ITEMS = [1, 2, 5, 10, 20, 50, 100];

/** How a call can end. */
export const CALL_OUTCOMES = [
  'ok',
  'unauthorized',
  'forbidden',
  'rate_limited',
  'client_error',
  'server_error',
  'unreachable',
  'garbled',
  'aborted',
] as const;
export type CallOutcome = (typeof CALL_OUTCOMES)[number];

/** What this process counts from its start, beside what it looks up at a scrape. */
export class Counters {
  readonly calls = new Counter({
    name: 'tillsync_platform_calls_total',
    help: 'Calls sent to the platform, by endpoint and outcome.',
    labels: ['endpoint', 'outcome'],
  });
  readonly callSeconds = new Histogram({
    name: 'tillsync_platform_call_duration_seconds',
    help: 'From sending a call to the last byte of its answer, or to its failure.',
    labels: ['endpoint'],
    buckets: CALL_SECONDS,
  });
  readonly waitSeconds = new Counter({
    name: 'tillsync_platform_wait_seconds_total',
    help: 'Time that calls waited for the rate budget, by endpoint and reason.',
    labels: ['endpoint', 'reason'],
  });
  readonly callbacks = new Counter({
    name: 'tillsync_callbacks_total',
    help: 'Callbacks of the platform by HTTP status of the answer; 200 kept, 401 wrong secret, 503 put off, none: cut off.',
    labels: ['status'],
  });
  readonly droppedConnections = new Counter({
    name: 'tillsync_callback_connections_dropped_total',
    help: 'Connections to the receiver closed at once: too many were open, in all or of one address.',
    labels: [],
  });
  readonly callbackSeconds = new Histogram({
    name: 'tillsync_callback_duration_seconds',
    help: 'From a callback that was kept to its answer, the commit to disk included.',
    buckets: CALLBACK_SECONDS,
  });
  readonly pushedItems = new Counter({
    name: 'tillsync_outbox_items_total',
    help: 'Changes that were in a call, by kind and outcome; a retry counts each time.',
    labels: ['kind', 'outcome'],
  });
  readonly pushCalls = new Histogram({
    name: 'tillsync_outbox_batch_items',
    help: 'Changes in one call that sent some.',
    labels: ['kind'],
    buckets: BATCH_ITEMS,
  });
  readonly pushSeconds = new Histogram({
    name: 'tillsync_outbox_push_delay_seconds',
    help: 'From a change being handed over to the platform having taken it.',
    labels: ['kind'],
    buckets: PUSH_SECONDS,
  });
  readonly inboxRows = new Counter({
    name: 'tillsync_inbox_rows_total',
    help: 'Rows that the POS put into inbox.db: changes taken in, changes refused, orders acknowledged, and those of them that the mirror does not know (unheard).',
    labels: ['outcome'],
  });
  readonly inbox = new InboxBacklog();
  readonly alarmMessages = new Counter({
    name: 'tillsync_alarm_messages_total',
    help: 'Alarms told to a command or an address, by outcome of the try.',
    labels: ['channel', 'outcome'],
  });

  /** A figure that is there before it first rises: Prometheus sees no rise in one that begins at 1. */
  constructor() {
    for (const endpoint of [...ENDPOINTS, 'other']) {
      for (const outcome of CALL_OUTCOMES) this.calls.add(0, { endpoint, outcome });
    }
    for (const channel of ['command', 'url']) {
      for (const outcome of ['ok', 'failed']) this.alarmMessages.add(0, { channel, outcome });
    }
    for (const status of ['200', '400', '401', '413', '503', 'none']) this.callbacks.add(0, { status });
    for (const outcome of ['taken', 'refused', 'acknowledged', 'unheard']) this.inboxRows.add(0, { outcome });
    for (const kind of ['stock', 'product']) {
      for (const outcome of ['done', 'rejected', 'retry']) this.pushedItems.add(0, { kind, outcome });
    }
  }

  families(): MetricFamily[] {
    return [
      this.calls,
      this.callSeconds,
      this.waitSeconds,
      this.callbacks,
      this.droppedConnections,
      this.callbackSeconds,
      this.pushedItems,
      this.pushCalls,
      this.pushSeconds,
      this.inboxRows,
      this.alarmMessages,
    ];
  }

  readonly waited = ({ endpoint, reason, waitMs }: Wait): void => {
    this.waitSeconds.add(waitMs / 1000, { endpoint, reason });
  };

  /** `status` null: the other side was gone before an answer. */
  readonly answered = (status: number | null, durationMs: number): void => {
    this.callbacks.add(1, { status: status === null ? 'none' : String(status) });
    if (status === 200) this.callbackSeconds.observe(durationMs / 1000, {});
  };

  readonly tookIn = (report: Omit<InboxTaken, 'more' | 'trouble'>): void => {
    this.inboxRows.add(report.taken - report.rejected, { outcome: 'taken' });
    this.inboxRows.add(report.rejected, { outcome: 'refused' });
    this.inboxRows.add(report.acknowledged, { outcome: 'acknowledged' });
    this.inboxRows.add(report.unheard.length, { outcome: 'unheard' });
  };

  readonly settled = (
    kind: ChangeKind,
    outcomes: readonly { state: 'done' | 'rejected' | 'retry'; delayMs: number | null }[],
  ): void => {
    this.pushCalls.observe(outcomes.length, { kind });
    for (const { state, delayMs } of outcomes) {
      this.pushedItems.add(1, { kind, outcome: state });
      if (state === 'done' && delayMs !== null) this.pushSeconds.observe(delayMs / 1000, { kind });
    }
  };
}
