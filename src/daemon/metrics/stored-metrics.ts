import { statSync } from 'node:fs';
import type { Config } from '../../config/config-type.ts';
import type { DiskSpace } from '../../domain/health/disk-space.ts';
import type { Freshness } from '../../domain/health/freshness.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { gauge, type MetricFamily, plainGauge, type Sample } from '../../local/metrics/metric-family.ts';
import type { TokenStatus } from '../../platform/token-status.ts';
import { openOrdersByStatus } from '../../store/mirror/metric-queries.ts';
import type { Mirror } from '../../store/mirror/mirror.ts';
import type { ChangeDesk } from '../changes/change-desk.ts';
import { mirrorCounts } from '../reading/mirror-counts.ts';
import { storagePaths } from '../storage/storage-directory.ts';
import { statusLabel } from './event-counts.ts';

const FLOW_STATES = [
  'unknown',
  'ok',
  'waiting',
  'degraded',
  'failing',
  'blocked',
  'locked-out',
  'off',
] as const satisfies readonly Freshness['state'][];
const TOKEN_STATES = ['none', 'ok', 'locked-out'] as const satisfies readonly TokenStatus['state'][];

/** What the mirror holds and how its flows fare: short indexed reads. */
export function mirrorFamilies(mirror: Mirror): MetricFamily[] {
  const { orders, openOrders, events, quarantine } = mirrorCounts(mirror);
  const byStatus = new Map<string, number>();
  for (const { status, orders: count } of mirror.read(({ db }) => openOrdersByStatus(db))) {
    const label = statusLabel(status);
    byStatus.set(label, (byStatus.get(label) ?? 0) + count);
  }
  return [
    plainGauge('tillsync_orders', 'Orders in the mirror.', orders),
    plainGauge('tillsync_orders_open', 'Orders that have not ended.', openOrders),
    gauge(
      'tillsync_orders_open_by_status',
      'Of the 500 newest orders that have not ended, those of each status.',
      [...byStatus].map(([status, value]) => ({ labels: { status }, value })),
    ),
    plainGauge('tillsync_order_event_newest_seq', 'Number of the newest entry of the change feed.', events),
    plainGauge(
      'tillsync_quarantine_entries',
      'Entries kept in quarantine, for nobody could read them.',
      quarantine,
    ),
    ...flowFamilies(mirror.freshness()),
  ];
}

function flowFamilies(flows: readonly Freshness[]): MetricFamily[] {
  const times = (of: (flow: Freshness) => string | null): Sample[] =>
    flows.flatMap((flow) => {
      const value = Date.parse(of(flow) ?? '') / 1000;
      return Number.isNaN(value) ? [] : [{ labels: { flow: flow.subject }, value }];
    });
  return [
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
      flows.flatMap(({ subject, state }) =>
        FLOW_STATES.map((one) => ({ labels: { flow: subject, state: one }, value: one === state ? 1 : 0 })),
      ),
    ),
  ];
}

export function outboxFamilies(desk: Pick<ChangeDesk, 'counts'>, clock: Clock): MetricFamily[] {
  const { pending, sending, held, rejected, needsRead, oldestPendingAt } = desk.counts();
  const states = { pending, sending, held, rejected, 'needs-read': needsRead };
  const sinceMs = Date.parse(oldestPendingAt ?? '');
  const ageSeconds = Number.isNaN(sinceMs) ? 0 : Math.max(0, clock.nowMs() - sinceMs) / 1000;
  return [
    gauge(
      'tillsync_outbox_changes',
      'Changes that are not settled, or that the platform refused, by state.',
      Object.entries(states).map(([state, value]) => ({ labels: { state }, value })),
    ),
    plainGauge(
      'tillsync_outbox_oldest_pending_age_seconds',
      'Age of the oldest change in line; 0: none.',
      ageSeconds,
    ),
  ];
}

/** Without any secret. */
export function tokenFamilies(tokens: TokenStatus): MetricFamily[] {
  const { state, accessExpiresInMs, refreshExpiresInMs } = tokens;
  const ends = { access: accessExpiresInMs, refresh: refreshExpiresInMs };
  return [
    gauge(
      'tillsync_token_state',
      'State of the platform tokens: 1 for the one they are in; locked-out and none need a person.',
      TOKEN_STATES.map((one) => ({ labels: { state: one }, value: one === state ? 1 : 0 })),
    ),
    gauge(
      'tillsync_token_remaining_seconds',
      'Time until a token ends, on the clock of the platform; negative: over; absent: not known.',
      Object.entries(ends).flatMap(([token, ms]) =>
        ms === null ? [] : [{ labels: { token }, value: ms / 1000 }],
      ),
    ),
  ];
}

export function storageFamilies(config: Pick<Config, 'storage'>, disk: DiskSpace | null): MetricFamily[] {
  const paths = storagePaths(config.storage.directory);
  const files = {
    mirror: paths.mirror,
    'mirror-wal': `${paths.mirror}-wal`,
    state: paths.state,
    inbox: paths.inbox,
  };
  return [
    gauge(
      'tillsync_storage_file_size_bytes',
      'Size of each database file and of the write-ahead log of the mirror.',
      Object.entries(files).flatMap(([file, path]) => {
        const size = statSync(path, { throwIfNoEntry: false })?.size;
        return size === undefined ? [] : [{ labels: { file }, value: size }];
      }),
    ),
    plainGauge(
      'tillsync_storage_disk_free_bytes',
      'What tillsync may still write on its disk.',
      disk?.freeBytes ?? null,
    ),
    plainGauge(
      'tillsync_storage_disk_size_bytes',
      'Size of the disk of the storage directory.',
      disk?.totalBytes ?? null,
    ),
  ];
}
