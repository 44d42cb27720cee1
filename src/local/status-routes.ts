import { whenFree } from '../domain/busy.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { DiskSpace } from '../domain/health/disk-space.ts';
import type { Freshness } from '../domain/health/freshness.ts';
import { verdictOf } from '../domain/health/verdict.ts';
import { typedWords } from '../domain/installation.ts';
import type { Wait } from '../domain/platform/call.ts';
import type { LockOut } from '../domain/platform/tokens.ts';
import { type Clock, isoUtc } from '../domain/time/clock.ts';
import type { ApiFamily, RouteDoc } from './api-route.ts';
import { statusAnswer } from './schemas/status.ts';

/** Without any secret. */
export interface TokenReport {
  state: 'none' | 'ok' | 'locked-out';
  savedAtMs: number | null;
  /** Milliseconds from now, on the platform's clock; negative: over; null: unknown. */
  accessExpiresInMs: number | null;
  refreshExpiresInMs: number | null;
  lockedOut: LockOut | null;
}

/** What the status tells; each a short read that may throw `storage-…`. */
export interface StatusSource {
  freshness(): readonly Freshness[];
  raisedAlarms(): readonly { key: string; message: string; raisedAt: string; changedAt: string }[];
  tokens(): TokenReport;
  waits(): readonly Wait[];
  counts(): { orders: number; openOrders: number; events: number; quarantine: number; products: number };
  outboxCounts(): {
    pending: number;
    held: number;
    needsRead: number;
    sending: number;
    rejected: number;
    oldestPendingAt: string | null;
  };
  /** Of the storage directory; null where the system does not tell. */
  disk(): DiskSpace | null;
}

export interface StatusRoutesOptions {
  status: StatusSource;
  shop: string;
  versions: { tillsync: string; node: string };
  clock: Clock;
  /** False: nobody said yet which platform this store is at. */
  isSetUp?: boolean | undefined;
  /** How old the last good order poll may be before orders count as missing. */
  ordersStaleAfterMs?: (() => number) | undefined;
}

const docs = (): readonly RouteDoc[] => [
  {
    method: 'get',
    path: '/status',
    operationId: 'getStatus',
    summary: 'How every flow fares, what is wrong, what is waited for',
    answers: { 200: statusAnswer },
  },
];

/** `GET /status`. */
export function statusRoutes(options: StatusRoutesOptions): ApiFamily {
  const { status, shop, versions, clock, isSetUp, ordersStaleAfterMs } = options;
  const report = () => {
    const nowMs = clock.nowMs();
    const facts = {
      freshness: status.freshness(),
      alarms: status.raisedAlarms(),
      ...tokensAndWaits(status),
      counts: status.counts(),
      outbox: status.outboxCounts(),
      disk: status.disk(),
    };
    const { quarantine } = facts.counts;
    const verdict = verdictOf({
      ...facts,
      quarantine,
      nowMs,
      isSetUp,
      ordersStaleAfterMs: ordersStaleAfterMs?.(),
      stateFault: facts.tokensFault,
    });
    return { at: isoUtc(nowMs), shop, commands: typedWords(), verdict, versions, ...facts };
  };
  return {
    docs,
    plugin: async (app) => {
      app.get('/status', () => whenFree(clock, report));
    },
  };
}

/** They live in another file than the mirror; what is wrong with it must not hide the rest. */
function tokensAndWaits(status: StatusSource) {
  try {
    const { state, savedAtMs, accessExpiresInMs, refreshExpiresInMs, lockedOut } = status.tokens();
    const tokens = {
      state,
      savedAt: savedAtMs === null ? null : isoUtc(savedAtMs),
      accessExpiresInMs,
      refreshExpiresInMs,
      lockedOutBy: lockedOut?.cause ?? null,
    };
    return { tokens, tokensFault: null, waits: status.waits() };
  } catch (error) {
    if (!(error instanceof TillsyncError) || error.code === 'storage-busy') throw error;
    return { tokens: null, tokensFault: error.message, waits: [] };
  }
}
