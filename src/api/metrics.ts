import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import {
  configuredBranches,
  fromState,
  mirrorCounts,
  preparationContext,
  verdictOn,
} from '../app/read-only-services.ts';
import type { Services } from '../app/services.ts';
import { storagePaths, storageSpace } from '../app/storage.ts';
import { type BranchMapping, branchMappings, MAPPINGS_FOR_MS } from '../catalog/unmapped.ts';
import type { Config } from '../config/config-type.ts';
import { configuredNames, isBranch, isHub } from '../config/roles.ts';
import { FRESHNESS_STATES, type Freshness } from '../core/alarm.ts';
import type { Log } from '../core/log.ts';
import { whenFree } from '../core/loop.ts';
import { type Clock, keptFor } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { Counter, type Counters } from '../health/counters.ts';
import type { DiskSpace } from '../health/facts.ts';
import { FINDINGS } from '../health/findings.ts';
import { by, byState, gauge, type MetricFamily } from '../health/metrics-format.ts';
import type { Verdict } from '../health/verdict.ts';
import type { HookStatus } from '../hooks/hook.ts';
import { statusesOf } from '../hooks/hook-cursors.ts';
import { BRANCH_LEVELS, type BranchStatus, branchBoard } from '../link/branch-status.ts';
import { isKnownStatus } from '../orders/merging/order.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import {
  openOrdersByStatus,
  quarantineBySource,
  quarantineMark,
  WAITING_MAX,
  waitingOrders,
} from '../orders/reading/order-queries.ts';
import type { OutboxService } from '../outbox/sending/outbox.ts';
import type { TokenStatus } from '../platform/tokens.ts';
import { ProcessMetrics } from './process-metrics.ts';

/** Maximum number of events counted per scrape. After a first import, the counters catch up over several scrapes. */
const EVENTS_AT_ONCE = 20_000;

interface EventRow {
  source: string;
  status: string | null;
  isFirst: number;
  events: number;
}

/** Counts the feed's events since the start of this process, whichever process wrote them. */
class EventCounts {
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
function statusLabel(status: string | null): string {
  if (status === null) return 'none';
  return isKnownStatus(status) ? status : 'other';
}

/** Counts quarantine entries by source. Counts again only after a change, because entries may be many and large. */
class QuarantineCounts {
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
function verdictFamilies({ level, findings }: Verdict): MetricFamily[] {
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

const TOKEN_STATES = ['none', 'ok', 'locked-out'] as const satisfies readonly TokenStatus['state'][];

/** Returns the metrics of the mirror and its flows. Uses short indexed reads. */
function mirrorFamilies(mirror: Mirror, nowMs: number): MetricFamily[] {
  const { orders, openOrders, events, quarantine } = mirrorCounts(mirror);
  const byStatus: Record<string, number> = {};
  for (const { status, orders: count } of mirror.read((db) => openOrdersByStatus(db))) {
    const label = statusLabel(status);
    byStatus[label] = (byStatus[label] ?? 0) + count;
  }
  const waiting = mirror.read((db) => waitingOrders(db, nowMs, WAITING_MAX));
  const oldestMs = waiting[0] ? nowMs - Date.parse(waiting[0].since) : 0;
  const flows = mirror.health.freshness();
  const times = (of: (flow: Freshness) => string | null) =>
    by(
      'flow',
      Object.fromEntries(flows.map((flow) => [flow.subject, Date.parse(of(flow) ?? '') / 1000 || null])),
    );
  return [
    gauge('tillsync_orders', 'Orders in the mirror.', orders),
    gauge('tillsync_orders_open', 'Orders that have not ended.', openOrders),
    gauge(
      'tillsync_orders_open_by_status',
      'Of the 500 newest orders that have not ended, those of each status.',
      by('status', byStatus),
    ),
    gauge(
      'tillsync_orders_unbooked',
      'Open, paid orders that the POS has not acknowledged; 0 where no POS acknowledges.',
      waiting.length,
    ),
    gauge(
      'tillsync_orders_unbooked_oldest_age_seconds',
      'How long the first of them has waited; 0: none waits.',
      Math.max(0, oldestMs) / 1000,
    ),
    gauge('tillsync_order_event_newest_seq', 'Number of the newest entry of the change feed.', events),
    gauge(
      'tillsync_quarantine_entries',
      'Entries kept in quarantine, for nobody could read them.',
      quarantine,
    ),
    gauge(
      'tillsync_flow_last_success_timestamp_seconds',
      'When the flow last worked, since the epoch; absent: never.',
      times(({ lastOkAt }) => lastOkAt),
    ),
    gauge(
      'tillsync_flow_last_try_timestamp_seconds',
      'When the flow was last tried, since the epoch.',
      times(({ lastTryAt }) => lastTryAt),
    ),
    gauge(
      'tillsync_flow_state',
      'State of the flow: 1 for the one it is in.',
      flows.flatMap(({ subject, state }) => byState(FRESHNESS_STATES, state, { flow: subject })),
    ),
  ];
}

function outboxFamilies(outbox: Pick<OutboxService, 'counts'>, clock: Clock): MetricFamily[] {
  const { pending, sending, held, rejected, needsRead, oldestPendingAt } = outbox.counts();
  const ageMs = clock.nowMs() - Date.parse(oldestPendingAt ?? '');
  return [
    gauge(
      'tillsync_outbox_changes',
      'Changes that are not settled, or that the platform refused, by state.',
      by('state', { pending, sending, held, rejected, 'needs-read': needsRead }),
    ),
    gauge(
      'tillsync_outbox_oldest_pending_age_seconds',
      'Age of the oldest change in line; 0: none.',
      Math.max(0, ageMs || 0) / 1000,
    ),
  ];
}

/** Returns the number of unmapped products, for branches where most shown products have an id of the POS. */
function unmappedFamily(mappings: readonly BranchMapping[]): MetricFamily {
  return gauge(
    'tillsync_catalog_unmapped_products',
    'Products that customers can see in the branch and that have no id of the POS; absent where hardly any has one.',
    by(
      'branch',
      Object.fromEntries(
        mappings
          .filter(({ isMapping, unmapped }) => isMapping || unmapped === 0)
          .map(({ branch, unmapped }) => [branch.externalId ?? branch.subsidiaryId ?? '', unmapped]),
      ),
    ),
  );
}

function hookFamilies(
  mirror: Mirror,
  config: Pick<Config, 'hooks' | 'branches' | 'link' | 'orders'>,
  clock: Clock,
): MetricFamily[] {
  const { hooks } = config;
  if (hooks.length === 0) return [];
  const context = preparationContext(config, mirror, clock);
  const found = mirror.read((db) => statusesOf(db, hooks, context));
  // A hook that gets several kinds of events has one value for all of them.
  const each = (of: (hook: HookStatus) => number, join: (...values: number[]) => number) => {
    const values = hooks.map(({ name }) => [name, join(...found.filter((one) => one.name === name).map(of))]);
    return by('hook', Object.fromEntries(values));
  };
  const sum = (...values: number[]) => values.reduce((total, value) => total + value, 0);
  const ageMs = ({ waitsSince }: HookStatus) =>
    waitsSince === null ? 0 : Math.max(0, clock.nowMs() - Date.parse(waitsSince));
  return [
    gauge(
      'tillsync_hook_waiting_events',
      'Events that wait for the hook, as far as they are counted: 10,000 at most.',
      each(({ waiting }) => waiting, sum),
    ),
    gauge(
      'tillsync_hook_oldest_waiting_age_seconds',
      'Age of the oldest event that waits for the hook; 0: none.',
      each((hook) => ageMs(hook) / 1000, Math.max),
    ),
    gauge(
      'tillsync_hook_failures',
      'Tries of the hook that failed since it last took an event.',
      each(({ failures }) => failures, sum),
    ),
  ];
}

/** Returns the metrics of a hub's branches; empty elsewhere. */
function branchFamilies({ mirror, state }: Pick<Services, 'mirror' | 'state'>, config: Config, clock: Clock) {
  if (!isHub(config)) return [];
  const names = state.hub.open(configuredNames(config.branches));
  const nowMs = clock.nowMs();
  const invited = state.hub.branches();
  const board = mirror.read((db) => branchBoard(db, names, invited, nowMs));
  const each = (of: (branch: BranchStatus) => number | null) =>
    by('branch', Object.fromEntries(board.map((branch) => [branch.branch, of(branch)])));
  const ageSeconds = (iso: string | null) => (iso === null ? 0 : Math.max(0, nowMs - Date.parse(iso)) / 1000);
  const levels = BRANCH_LEVELS.map((level) => [
    level,
    board.filter((branch) => branch.level === level).length,
  ]);
  return [
    gauge(
      'tillsync_branches',
      'Branches of this hub by their verdict, as the status page shows them.',
      by('verdict', Object.fromEntries(levels)),
    ),
    gauge(
      'tillsync_branch_behind_entries',
      'Entries of its feed that the branch did not have yet when it last told, twice a minute.',
      each(({ behind }) => behind),
    ),
    gauge(
      'tillsync_branch_behind_age_seconds',
      'Age of the first of these entries; 0: none.',
      each(({ behind, behindSince }) => (behind === null ? null : ageSeconds(behindSince))),
    ),
    gauge(
      'tillsync_branch_waiting_changes',
      'Changes and acknowledgements that wait at the branch for the hub, as it last told.',
      each(({ waiting }) => waiting),
    ),
    gauge(
      'tillsync_branch_oldest_waiting_age_seconds',
      'Age of the oldest change that waits at the branch, as it last told; 0: none.',
      each(({ waiting, oldestWaitingAt }) => (waiting === null ? null : ageSeconds(oldestWaitingAt))),
    ),
    gauge(
      'tillsync_branch_last_seen_timestamp_seconds',
      'When the branch last told of itself, since the epoch; absent: never.',
      each(({ seenAt }) => (seenAt === null ? null : Date.parse(seenAt) / 1000)),
    ),
  ];
}

/** Returns the metrics of the tokens, without any secret. */
function tokenFamilies({ state, accessExpiresInMs, refreshExpiresInMs }: TokenStatus): MetricFamily[] {
  const seconds = (ms: number | null) => (ms === null ? null : ms / 1000);
  return [
    gauge(
      'tillsync_token_state',
      'State of the platform tokens: 1 for the one they are in; locked-out and none need a person.',
      byState(TOKEN_STATES, state),
    ),
    gauge(
      'tillsync_token_remaining_seconds',
      'Time until a token ends, on the clock of the platform; negative: over; absent: not known.',
      by('token', { access: seconds(accessExpiresInMs), refresh: seconds(refreshExpiresInMs) }),
    ),
  ];
}

function storageFamilies(directory: string, disk: DiskSpace | null): MetricFamily[] {
  const { mirror, state, inbox } = storagePaths(directory);
  const size = (path: string) => statSync(path, { throwIfNoEntry: false })?.size;
  return [
    gauge(
      'tillsync_storage_file_size_bytes',
      'Size of each database file and of the write-ahead log of the mirror.',
      by('file', {
        mirror: size(mirror),
        'mirror-wal': size(`${mirror}-wal`),
        state: size(state),
        inbox: size(inbox),
      }),
    ),
    gauge(
      'tillsync_storage_disk_free_bytes',
      'What tillsync may still write on its disk.',
      disk?.freeBytes ?? null,
    ),
    gauge(
      'tillsync_storage_disk_size_bytes',
      'Size of the disk of the storage directory.',
      disk?.totalBytes ?? null,
    ),
  ];
}

/** The last report of a loop to the watchdog. */
export interface LoopBeat {
  name: string;
  /** Monotonic time of the loop's last report. */
  lastBeatMs: number;
}

interface MetricsOptions {
  services: Pick<Services, 'mirror' | 'state' | 'outbox' | 'platform'>;
  config: Config;
  counters: Counters;
  loopsAlive: () => readonly LoopBeat[];
  version: string;
  clock: Clock;
  log: Log;
}

const READ_WITHIN_MS = 2_000;

/**
 * Collects all metrics for `/metrics`. If mirror.db or state.db cannot be read, `tillsync_source_readable` reports it,
 * and the other metrics are still collected.
 */
export class Metrics {
  readonly #options: MetricsOptions;
  readonly #process = new ProcessMetrics();
  readonly #quarantine = new QuarantineCounts();
  readonly #events: EventCounts;
  readonly #mappings: () => BranchMapping[] | undefined;

  constructor(options: MetricsOptions) {
    this.#options = options;
    const { services, config, clock } = options;
    this.#events = new EventCounts(services.mirror.orders.newestSeq());
    this.#mappings = keptFor(MAPPINGS_FOR_MS, clock, () => {
      const found = services.mirror.read((db) => branchMappings(db, configuredBranches(config)));
      // Before the first sweep there is no result to cache.
      return found.length === 0 ? undefined : found;
    });
  }

  async collect(): Promise<MetricFamily[]> {
    const { services, config, counters, clock, log } = this.#options;
    const { mirror, outbox, platform } = services;
    const startMs = clock.monotonicMs();
    const disk = storageSpace(config.storage.directory);
    const readable = { mirror: 1, state: 1 };
    const families: MetricFamily[] = [];
    const read = async (source: keyof typeof readable, look: () => MetricFamily[]) => {
      try {
        families.push(...(await whenFree(clock, look, READ_WITHIN_MS)));
      } catch (error) {
        readable[source] = 0;
        log.debug({ source, err: error }, 'a source of the metrics cannot be read');
      }
    };
    await read('mirror', () => [
      ...mirrorFamilies(mirror, clock.nowMs()),
      mirror.read((db) => this.#quarantine.family(db)),
      ...outboxFamilies(outbox, clock),
      unmappedFamily(this.#mappings() ?? []),
      ...hookFamilies(mirror, config, clock),
      ...mirror.read((db) => this.#events.families(db, mirror.orders.newestSeq())),
    ]);
    // A branch has no tokens.
    if (!isBranch(config)) await read('state', () => tokenFamilies(platform.tokens.describe()));
    await read('state', () => branchFamilies(services, config, clock));
    await read('mirror', () => {
      const { found: tokens, stateFault } = fromState(config, () => platform.tokens.describe());
      const beside = { alarms: mirror.health.raised(), outbox: outbox.counts(), tokens, stateFault, disk };
      return verdictFamilies(verdictOn(mirror, this.#options, beside));
    });
    const tookSeconds = (clock.monotonicMs() - startMs) / 1000;
    return [
      ...this.#about(readable),
      ...families,
      ...storageFamilies(config.storage.directory, disk),
      ...counters.families(),
      ...counters.inbox.families(clock),
      ...this.#process.families(),
      gauge('tillsync_scrape_duration_seconds', 'Time that looking these figures up took.', tookSeconds),
    ];
  }

  close(): void {
    this.#process.close();
  }

  #about(readable: Record<string, number>): MetricFamily[] {
    const { loopsAlive, version, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    return [
      gauge('tillsync_build_info', 'Always 1; the versions are in the labels.', [
        { labels: { version, node: process.version }, value: 1 },
      ]),
      gauge(
        'tillsync_source_readable',
        'Whether the database could be read for this scrape; where it is 0, its figures are absent.',
        by('source', readable),
      ),
      gauge(
        'tillsync_loop_silent_seconds',
        'Time since the last sign of life of each loop; systemd restarts tillsync after ten minutes.',
        by(
          'loop',
          Object.fromEntries(
            loopsAlive().map(({ name, lastBeatMs }) => [name, Math.max(0, nowMs - lastBeatMs) / 1000]),
          ),
        ),
      ),
    ];
  }
}
