import { readdirSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type Database from 'better-sqlite3';
import { hasCode } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { isKnownStatus } from '../orders/merging/order.ts';
import { quarantineBySource, quarantineMark } from '../orders/reading/order-queries.ts';
import type { ChangeKind } from '../outbox/intake/change.ts';
import { COUNTED_MAX, type InboxWaiting } from '../outbox/intake/inbox.ts';
import type { InboxTaken } from '../outbox/intake/inbox-loop.ts';
import { ENDPOINTS, type Wait } from '../platform/platform.ts';
import type { Transport } from '../platform/transport.ts';
import { FINDINGS } from './findings.ts';
import { by, Counter, gauge, Histogram, type MetricFamily } from './metrics-format.ts';
import type { Verdict } from './verdict.ts';

/**
 * Age of the last read of the inbox above which a POS or the disk must be blocking reads. Normally, the inbox is read
 * twice a second.
 */
const UNREAD_MS = 10_000;

/** Remembers how many rows waited in the inbox at its last read. */
class InboxBacklog {
  #last: (InboxWaiting & { lookedMs: number }) | undefined;

  saw(waiting: InboxWaiting, clock: Pick<Clock, 'monotonicMs'>): void {
    this.#last = { ...waiting, lookedMs: clock.monotonicMs() };
  }

  families(clock: Pick<Clock, 'monotonicMs' | 'nowMs'>): MetricFamily[] {
    let ageMs: number | null = null;
    if (this.#last) {
      const { rows, oldest, lookedMs } = this.#last;
      const unreadMs = clock.monotonicMs() - lookedMs;
      const ownMs = rows === 0 ? 0 : clock.nowMs() - (Date.parse(oldest ?? '') || clock.nowMs());
      ageMs = Math.max(0, ownMs, unreadMs > UNREAD_MS ? unreadMs : 0);
    }
    return [
      gauge(
        'tillsync_inbox_waiting_rows',
        `Rows that wait in inbox.db, as the last look found them; no more than ${COUNTED_MAX} of each table are counted.`,
        this.#last?.rows ?? null,
      ),
      gauge(
        'tillsync_inbox_oldest_row_age_seconds',
        'Age of the oldest row that waits in inbox.db; while the file is locked or damaged at least the time since the last look into it; 0: none.',
        ageMs === null ? null : ageMs / 1000,
      ),
    ];
  }
}

/** Maximum number of events counted per scrape. After a first import, the counters catch up over several scrapes. */
const EVENTS_AT_ONCE = 20_000;

interface EventRow {
  source: string;
  status: string | null;
  isFirst: number;
  events: number;
}

/** Counts the feed's events since the start of this process, whichever process wrote them. */
export class EventCounts {
  readonly #orders = new Counter({
    name: 'tillsync_orders_received_total',
    help: 'Orders seen for the first time since the start, by the way they came.',
    labels: ['source'],
  });
  readonly #events = new Counter({
    name: 'tillsync_order_events_total',
    help: 'Entries of the change feed since the start, by the way they came and the status they brought.',
    labels: ['source', 'status'],
  });
  #seq: number;

  constructor(newestSeq: number) {
    this.#seq = newestSeq;
    for (const source of ['webhook', 'poll']) this.#orders.add(0, { source });
  }

  families(db: Database.Database, newestSeq: number): MetricFamily[] {
    const to = Math.min(newestSeq, this.#seq + EVENTS_AT_ONCE);
    if (to > this.#seq) {
      const rows = sqlOf(db).rows<EventRow>(
        `SELECT source, status, previous_status IS NULL AS isFirst, count(*) AS events FROM order_events
         WHERE seq > ? AND seq <= ? GROUP BY source, status, isFirst`,
        this.#seq,
        to,
      );
      this.#seq = to;
      for (const { source, status, isFirst, events } of rows) {
        this.#events.add(events, { source, status: statusLabel(status) });
        if (isFirst === 1) this.#orders.add(events, { source });
      }
    }
    return [this.#orders, this.#events];
  }
}

/** Returns the label for a status. Only documented statuses become labels, because the platform may send any text. */
export function statusLabel(status: string | null): string {
  if (status === null) return 'none';
  return isKnownStatus(status) ? status : 'other';
}

/** Counts quarantine entries by source. Counts again only after a change, because entries may be many and large. */
export class QuarantineCounts {
  #mark: string | undefined;
  #bySource: Record<string, number> = {};

  family(db: Database.Database): MetricFamily {
    const mark = quarantineMark(db);
    if (mark !== this.#mark) {
      this.#bySource = Object.fromEntries(
        quarantineBySource(db).map(({ source, entries }) => [source, entries]),
      );
      this.#mark = mark;
    }
    return gauge(
      'tillsync_quarantine_entries_by_source',
      'Entries in quarantine, by where they came from.',
      by('source', this.#bySource),
    );
  }
}

const LEVELS: Record<Verdict['level'], number> = { green: 0, amber: 1, red: 2 };

/** Returns the verdict of the status page as metrics, so that a Prometheus rule need not compute it. */
export function verdictFamilies({ level, findings }: Verdict): MetricFamily[] {
  const codes = Object.keys(FINDINGS).map((code) => [code, 0]);
  const found = findings.map((finding) => [finding.code, LEVELS[finding.level]]);
  return [
    gauge(
      'tillsync_verdict',
      'What the status page says: 0 green, 1 amber (look at it today), 2 red (orders or changes do not get through).',
      LEVELS[level],
    ),
    gauge(
      'tillsync_finding',
      'What is wrong now, by the code that the status page and `tillsync doctor` use: 0 no, 1 amber, 2 red.',
      by('code', Object.fromEntries([...codes, ...found])),
    ),
  ];
}

const SAMPLE_EVERY_MS = 100;

/** Metrics of this process, under the usual names of Prometheus clients. */
export class ProcessMetrics {
  readonly #startedAtSeconds = Date.now() / 1000 - process.uptime();
  #delay: ReturnType<typeof monitorEventLoopDelay> | undefined;

  families(): MetricFamily[] {
    const { user, system } = process.cpuUsage();
    const { rss, heapTotal, heapUsed, external } = process.memoryUsage();
    return [
      counted('process_cpu_user_seconds_total', 'User CPU time spent.', user / 1e6),
      counted('process_cpu_system_seconds_total', 'System CPU time spent.', system / 1e6),
      counted('process_cpu_seconds_total', 'User and system CPU time spent.', (user + system) / 1e6),
      gauge('process_start_time_seconds', 'Start of the process since the epoch.', this.#startedAtSeconds),
      gauge('process_resident_memory_bytes', 'Resident memory.', rss),
      gauge('process_open_fds', 'Open file descriptors.', openFiles()),
      gauge('nodejs_heap_size_total_bytes', 'Size of the JavaScript heap.', heapTotal),
      gauge('nodejs_heap_size_used_bytes', 'Used part of the JavaScript heap.', heapUsed),
      gauge('nodejs_external_memory_bytes', 'Memory of objects bound to JavaScript.', external),
      ...this.#eventLoop(),
    ];
  }

  close(): void {
    this.#delay?.disable();
  }

  /**
   * Returns the delay of the event loop since the last scrape. Measuring starts with the first scrape, so that it
   * costs nothing without Prometheus.
   */
  #eventLoop(): MetricFamily[] {
    if (!this.#delay) {
      this.#delay = monitorEventLoopDelay({ resolution: SAMPLE_EVERY_MS });
      this.#delay.enable();
      return [];
    }
    const { count, max, mean } = this.#delay;
    if (count === 0) return [];
    const p99 = this.#delay.percentile(99);
    this.#delay.reset();
    const lag = (name: string, help: string, nanoseconds: number) =>
      gauge(
        `nodejs_eventloop_lag_${name}_seconds`,
        help,
        Math.max(0, nanoseconds / 1e9 - SAMPLE_EVERY_MS / 1000),
      );
    return [
      lag('mean', 'Mean delay of the event loop since the last scrape.', mean),
      lag('p99', '99th percentile of it.', p99),
      lag('max', 'Longest delay of the event loop since the last scrape.', max),
    ];
  }
}

function counted(name: string, help: string, value: number): MetricFamily {
  return { ...gauge(name, help, value), type: 'counter' };
}

function openFiles(): number | null {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return null;
  }
}

const CALL_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];
const CALLBACK_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5];
const PUSH_SECONDS = [0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600];
const BATCH_ITEMS = [1, 2, 5, 10, 20, 50, 100];

/** Outcomes of a call to the platform, as labels. */
const CALL_OUTCOMES = [
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
type CallOutcome = (typeof CALL_OUTCOMES)[number];

/** Counters of this process. Other metrics are read at the time of a scrape. */
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
  readonly wrongKeys = new Counter({
    name: 'tillsync_local_wrong_keys_total',
    help: 'Requests to the local API, /metrics or /healthz that were refused for a wrong key.',
    labels: [],
  });
  readonly alarmMessages = new Counter({
    name: 'tillsync_alarm_messages_total',
    help: 'Alarms told to a command or an address, by outcome of the try.',
    labels: ['channel', 'outcome'],
  });

  readonly hookTries = new Counter({
    name: 'tillsync_hook_tries_total',
    help: 'Events sent to a hook, by outcome of the try.',
    labels: ['hook', 'outcome'],
  });
  readonly heartbeats = new Counter({
    name: 'tillsync_heartbeats_total',
    help: 'Signs of life sent to the watcher outside, by outcome of the try.',
    labels: ['outcome'],
  });

  /** Creates each series with 0, because Prometheus sees no rise in a series that begins at 1. */
  constructor() {
    for (const endpoint of [...ENDPOINTS, 'other']) {
      for (const outcome of CALL_OUTCOMES) this.calls.add(0, { endpoint, outcome });
    }
    for (const channel of ['command', 'url']) {
      for (const outcome of ['ok', 'failed']) this.alarmMessages.add(0, { channel, outcome });
    }
    for (const outcome of ['ok', 'failed']) this.heartbeats.add(0, { outcome });
    for (const status of ['200', '400', '401', '413', '503', 'none']) this.callbacks.add(0, { status });
    for (const outcome of ['taken', 'refused', 'acknowledged', 'unheard']) this.inboxRows.add(0, { outcome });
    for (const kind of ['stock', 'product']) {
      for (const outcome of ['done', 'rejected', 'retry']) this.pushedItems.add(0, { kind, outcome });
    }
  }

  /** Returns the metric families in the order of their declaration. */
  families(): MetricFamily[] {
    return Object.values(this).filter((each) => each instanceof Counter || each instanceof Histogram);
  }

  readonly waited = ({ endpoint, reason, waitMs }: Wait): void => {
    this.waitSeconds.add(waitMs / 1000, { endpoint, reason });
  };

  /** Counts an answered callback. `status` is null if the sender had disconnected before the answer. */
  readonly answered = (status: number | null, durationMs: number): void => {
    this.callbacks.add(1, { status: status === null ? 'none' : String(status) });
    if (status === 200) this.callbackSeconds.observe(durationMs / 1000, {});
  };

  readonly dropped = (): void => this.droppedConnections.add(1, {});

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

/** Returns a transport that counts and times every request, including token refreshes. */
export function measuredTransport(
  transport: Transport,
  { calls, callSeconds }: Counters,
  clock: Clock,
): Transport {
  return {
    async send(request) {
      const endpoint = request.endpoint ?? 'other';
      const startMs = clock.monotonicMs();
      let outcome: CallOutcome = 'unreachable';
      try {
        const answer = await transport.send(request);
        outcome = outcomeOf(answer.status);
        return answer;
      } catch (error) {
        if (hasCode(error, 'aborted')) outcome = 'aborted';
        else if (hasCode(error, 'platform-garbled')) outcome = 'garbled';
        throw error;
      } finally {
        calls.add(1, { endpoint, outcome });
        callSeconds.observe((clock.monotonicMs() - startMs) / 1000, { endpoint });
      }
    },
    close: () => transport.close(),
  };
}

function outcomeOf(status: number): CallOutcome {
  if (status >= 200 && status < 300) return 'ok';
  if (status === 401) return 'unauthorized';
  if (status === 403) return 'forbidden';
  if (status === 429) return 'rate_limited';
  return status >= 500 ? 'server_error' : 'client_error';
}
