import type { FastifyPluginAsync, FastifyReply } from 'fastify';
import { z } from 'zod';
import { FRESHNESS_SUBJECTS, type Freshness } from '../core/alarm.ts';
import { TillsyncError, typedWords, whenFree } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import type { DiskSpace } from '../health/disk-space.ts';
import { FINDING_SENTENCES, type FindingCode } from '../health/finding.ts';
import { CONTENT_TYPES, exposition, type MetricFamily, wantedFormat } from '../health/metric-family.ts';
import { verdictOf } from '../health/verdict.ts';
import type { Wait } from '../platform/platform.ts';
import type { LockOut } from '../platform/tokens.ts';
import { AccessGate } from './access.ts';
import { type ApiFamily, isoTime, type RouteDoc, text } from './api.ts';
import { outboxCounts } from './outbox-routes.ts';

const ms = z.number().nullable();

const FINDING_CODES = Object.keys(FINDING_SENTENCES) as FindingCode[];

const verdict = z.object({
  level: z
    .enum(['green', 'amber', 'red'])
    .describe('`amber`: somebody should look today; `red`: orders or changes do not get through'),
  findings: z
    .array(
      z.object({
        code: z.enum(FINDING_CODES).describe('Stays the same; branch on it, never on a sentence'),
        level: z.enum(['amber', 'red']),
        message: z.string().describe('What is wrong'),
        remedy: z.string().describe('What to do about it; empty where it ends with what is told before it'),
        detail: text.describe('The words of the part that noticed it'),
        count: z.number().int().nullable(),
        since: isoTime.nullable(),
      }),
    )
    .describe('Worst first'),
});

export const statusAnswer = z.object({
  at: isoTime,
  shop: z.string().describe('What the shop is called: `alarms.name`, or the name of the machine'),
  commands: z
    .object({
      tillsync: z.string(),
      start: z.string(),
      restart: z.string(),
      stop: z.string(),
      enable: z.string(),
      journal: z.string(),
      storage: z.string().describe('The storage directory'),
    })
    .describe('How the commands that texts name are typed on this machine'),
  verdict: verdict.describe('Whether everything is all right, and if not, what to do'),
  versions: z.object({ tillsync: z.string(), node: z.string() }),
  freshness: z
    .array(
      z.object({
        subject: z.enum(FRESHNESS_SUBJECTS),
        lastOkAt: isoTime.nullable(),
        lastTryAt: isoTime.nullable(),
        state: z.enum(['unknown', 'ok', 'waiting', 'degraded', 'failing', 'blocked', 'locked-out', 'off']),
        message: z.string().describe('What happened and what to do; empty when all is well'),
      }),
    )
    .describe('One for each flow'),
  alarms: z
    .array(z.object({ key: z.string(), message: z.string(), raisedAt: isoTime, changedAt: isoTime }))
    .describe('Those that are up, oldest first'),
  tokens: z
    .object({
      state: z.enum(['none', 'ok', 'locked-out']),
      savedAt: isoTime.nullable(),
      accessExpiresInMs: ms.describe('On the platform\u2019s clock; negative: over; null: unknown'),
      refreshExpiresInMs: ms,
      lockedOutBy: z.enum(['refused', 'reply-lost']).nullable(),
    })
    .nullable()
    .describe('null when they cannot be looked up; `tokensFault` says why'),
  tokensFault: text,
  waits: z
    .array(z.object({ endpoint: z.string(), reason: z.string(), waitMs: z.number() }))
    .describe('Which endpoints of the platform may not be called yet, and why'),
  counts: z.object({
    orders: z.number().int(),
    openOrders: z.number().int(),
    events: z.number().int().describe('Newest seq of the change feed'),
    quarantine: z.number().int(),
    products: z.number().int(),
  }),
  outbox: outboxCounts,
  disk: z
    .object({ freeBytes: z.number().int(), totalBytes: z.number().int() })
    .nullable()
    .describe('Of the disk that holds the storage directory; null when the system does not tell'),
});

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

/** A loop's sign of life. */
export interface LoopBeat {
  name: string;
  /** Monotonic time of the last one. */
  lastBeatMs: number;
  /** How long it may be silent in good health; the default allows for the longest ordinary wait. */
  maxSilenceMs?: number;
}

export interface HealthOptions {
  clock: Clock;
  loopsAlive: () => readonly LoopBeat[];
  /** Why work cannot be taken now, one sentence each; empty when it can. */
  notReady: () => readonly string[];
  /** The storage directory, by which this tillsync is told from others of the same machine. */
  storage: string;
  /** Left out: only this machine is told more than the healthAnswer. */
  apiKey?: string | undefined;
}

const MAX_SILENCE_MS = 10 * 60_000;

/**
 * `GET /healthz`: the process answers and its loops are alive; if not, a restart may help.
 * `GET /readyz`: the mirror is open and the listeners are up; if not, waiting may help.
 * 200 or 503, for everybody. Which storage, loop and reason is told to whom the API lets in.
 */
export function healthRoutes(options: HealthOptions): FastifyPluginAsync {
  const gate = new AccessGate(options);
  return async (app) => {
    app.get('/healthz', (request, reply) => {
      const stalled = stalledLoops(options);
      return healthAnswer(gate.admits(request), reply, stalled.length === 0, {
        storage: options.storage,
        loops: loopReport(options),
        stalled,
        notReady: options.notReady(),
      });
    });
    app.get('/readyz', (request, reply) => {
      const reasons = options.notReady();
      return healthAnswer(gate.admits(request), reply, reasons.length === 0, { reasons });
    });
  };
}

/** Names of the loops that were silent for longer than they may; what a watchdog ping depends on. */
export function stalledLoops({ clock, loopsAlive }: Pick<HealthOptions, 'clock' | 'loopsAlive'>): string[] {
  const nowMs = clock.monotonicMs();
  return loopsAlive()
    .filter(({ lastBeatMs, maxSilenceMs = MAX_SILENCE_MS }) => nowMs - lastBeatMs > maxSilenceMs)
    .map(({ name }) => name);
}

function loopReport({ clock, loopsAlive }: HealthOptions): { name: string; silentMs: number }[] {
  const nowMs = clock.monotonicMs();
  return loopsAlive().map(({ name, lastBeatMs }) => ({ name, silentMs: Math.round(nowMs - lastBeatMs) }));
}

function healthAnswer(isTrusted: boolean, reply: FastifyReply, good: boolean, details: object): FastifyReply {
  const status = good ? 'ok' : 'failing';
  reply.code(good ? 200 : 503).header('cache-control', 'no-store');
  return reply.send(isTrusted ? { status, ...details } : { status });
}

export interface MetricsRoutesOptions {
  /** The key that is asked of everybody; left out: only this machine is let in. */
  apiKey?: string | undefined;
  /** Looks everything up; what cannot be is left out. */
  collect: () => Promise<readonly MetricFamily[]>;
}

/**
 * `GET /metrics` for Prometheus, in its text format or in OpenMetrics as it asks. Behind the same gate as the
 * local API: a scrape from another machine sends the key (`authorization: credentials_file`).
 */
export function metricsRoutes({ apiKey, collect }: MetricsRoutesOptions): FastifyPluginAsync {
  const gate = new AccessGate({ apiKey });
  return async (app) => {
    app.get('/metrics', { onRequest: async (request) => gate.check(request) }, async (request, reply) => {
      const format = wantedFormat(request.headers.accept);
      reply.header('cache-control', 'no-store').header('x-content-type-options', 'nosniff');
      reply.type(CONTENT_TYPES[format]);
      return exposition(await collect(), format);
    });
  };
}
