import { hasCode } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import type { ChangeKind } from '../outbox/intake/change.ts';
import { COUNTED_MAX, type InboxWaiting } from '../outbox/intake/inbox.ts';
import type { InboxTaken } from '../outbox/intake/inbox-loop.ts';
import { ENDPOINTS, type Wait } from '../platform/platform.ts';
import type { Transport } from '../platform/transport.ts';
import { gauge, type MetricFamily, type Sample } from './metrics-format.ts';

interface MetricOptions<L extends string> {
  name: string;
  help: string;
  /** Names of the labels. A label must have only few values. */
  labels?: readonly L[];
}

const NO_LABELS: Readonly<Record<string, string>> = {};

/** A counter, which starts at 0 with this process. */
export class Counter<L extends string = never> implements MetricFamily {
  readonly type = 'counter';
  readonly name: string;
  readonly help: string;
  readonly #series: Series<L, { value: number }>;

  constructor({ name, help, labels = [] }: MetricOptions<L>) {
    this.name = name;
    this.help = help;
    this.#series = new Series(labels, () => ({ value: 0 }));
    // A counter without labels exists from the start, so that Prometheus sees its first rise.
    if (labels.length === 0) this.add(0, NO_LABELS as Record<L, string>);
  }

  add(by: number, labels: Record<L, string>): void {
    this.#series.of(labels).value += by;
  }

  *samples(): Iterable<Sample> {
    for (const { labels, held } of this.#series) yield { labels, value: held.value };
  }
}

interface Distribution {
  /** Number of values in each bucket, not cumulated. The last bucket has no upper bound. */
  counts: number[];
  sum: number;
}

/** A histogram of values since the start of this process. */
export class Histogram<L extends string = never> implements MetricFamily {
  readonly type = 'histogram';
  readonly name: string;
  readonly help: string;
  readonly #bounds: readonly number[];
  readonly #series: Series<L, Distribution>;

  /** `buckets` are upper bounds in ascending order, without the infinite one. */
  constructor({ name, help, labels = [], buckets }: MetricOptions<L> & { buckets: readonly number[] }) {
    this.name = name;
    this.help = help;
    this.#bounds = buckets;
    this.#series = new Series(labels, () => ({ counts: new Array(buckets.length + 1).fill(0), sum: 0 }));
    if (labels.length === 0) this.#series.of(NO_LABELS as Record<L, string>);
  }

  observe(value: number, labels: Record<L, string>): void {
    const held = this.#series.of(labels);
    const found = this.#bounds.findIndex((bound) => value <= bound);
    const at = found === -1 ? this.#bounds.length : found;
    held.counts[at] = (held.counts[at] ?? 0) + 1;
    held.sum += value;
  }

  *samples(): Iterable<Sample> {
    for (const { labels, held } of this.#series) {
      let count = 0;
      for (const [i, inBucket] of held.counts.entries()) {
        count += inBucket;
        const le = this.#bounds[i] === undefined ? '+Inf' : String(this.#bounds[i]);
        yield { suffix: '_bucket', labels: { ...labels, le }, value: count };
      }
      yield { suffix: '_sum', labels, value: held.sum };
      yield { suffix: '_count', labels, value: count };
    }
  }
}

/** Holds one value for each set of labels. */
class Series<L extends string, T> {
  readonly #names: readonly L[];
  readonly #make: () => T;
  readonly #held = new Map<string, { labels: Record<L, string>; held: T }>();

  constructor(names: readonly L[], make: () => T) {
    this.#names = names;
    this.#make = make;
  }

  of(labels: Record<L, string>): T {
    const key = this.#names.map((name) => labels[name]).join('\u0000');
    const known = this.#held.get(key);
    if (known) return known.held;
    const held = this.#make();
    this.#held.set(key, { labels: { ...labels }, held });
    return held;
  }

  [Symbol.iterator]() {
    return this.#held.values();
  }
}

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
