import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';
import { shopName } from '../app/installation.ts';
import { fromState, holdBackStates, lineOf, mirrorCounts, verdictOn } from '../app/read-only-services.ts';
import { storageSpace } from '../app/storage.ts';
import { roleOf } from '../config/roles.ts';
import { typedWords } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { CONTENT_TYPES, exposition, type MetricFamily, wantedFormat } from '../health/metrics-format.ts';
import { AccessGate, type AccessOptions, requireRight } from './access.ts';
import { type ApiFamily, type LocalApiOptions, route } from './api.ts';
import type { LoopBeat } from './metrics.ts';
import { statusAnswer } from './status-schemas.ts';

/** Returns the route `GET /status`. */
export function statusRoutes(options: LocalApiOptions): ApiFamily {
  const { services, version, clock } = options;
  const { mirror, stores, outbox, config } = services;
  const shop = shopName(config);
  const role = roleOf(config);
  const currency = config.shop.currency || null;
  const versions = { tillsync: version, node: process.version };
  const report = () => {
    const nowMs = clock.nowMs();
    const counts = mirrorCounts(mirror);
    const products = stores.read(({ catalogQueries }) => catalogQueries.counts().products);
    const { found, stateFault } = fromState(config, () => stored(services));
    const { tokens, waits } = found ?? { tokens: null, waits: [] };
    const facts = {
      alarms: mirror.health.raised(),
      tokens,
      outbox: outbox.counts(),
      disk: storageSpace(config.storage.directory),
    };
    const isLineUp = lineOf(() => services.state.alarms.heartbeat());
    const verdict = verdictOn(mirror, { config, clock }, { ...facts, stateFault, isLineUp });
    return {
      at: isoUtc(nowMs),
      shop,
      role,
      currency,
      timezone: config.orders.timezone,
      commands: typedWords(),
      verdict,
      versions,
      ...facts,
      tokensFault: stateFault,
      waits,
      freshness: mirror.health.freshness(),
      holdBack: holdBackStates(mirror, config),
      counts: { ...counts, products },
    };
  };
  const status = route({
    method: 'get',
    path: '/status',
    operationId: 'getStatus',
    may: [],
    summary: 'How every flow fares, what is wrong, what is waited for',
    answer: statusAnswer,
    handle: () => whenFree(clock, report),
  });
  return { tag: 'status', routes: [status] };
}

function stored({ platform, state, config }: LocalApiOptions['services']) {
  const tokens = platform.tokens.describe();
  const { savedAtMs, accessExpiresInMs, refreshExpiresInMs, lockedOut } = tokens;
  const savedAt = savedAtMs === null ? null : isoUtc(savedAtMs);
  const lockedOutBy = lockedOut?.cause ?? null;
  return {
    tokens: { state: tokens.state, savedAt, accessExpiresInMs, refreshExpiresInMs, lockedOutBy },
    waits: state.ledger.waits(config.limits),
  };
}

interface HealthOptions extends AccessOptions {
  clock: Clock;
  loopsAlive: () => readonly LoopBeat[];
  /** Returns why no work can be accepted now, one sentence each; empty if it can. */
  notReady: () => readonly string[];
  /** Path of the storage directory, by which this tillsync differs from others on the machine. */
  storage: string;
}

const MAX_SILENCE_MS = 10 * 60_000;

/**
 * Serves `GET /healthz` (the loops run; if not, a restart may help) and `GET /readyz` (mirror and servers are open; if
 * not, waiting may help). Both answer 200 or 503 to everybody, `/healthz` with the storage directory, by which a
 * command knows its own tillsync. Loops and reasons are shown only to clients with access to the API.
 */
export function healthRoutes(options: HealthOptions): FastifyPluginAsync {
  const { clock, loopsAlive, notReady, storage } = options;
  const gate = new AccessGate(options);
  const answer = (reply: FastifyReply, isGood: boolean, details: object, known = {}) => {
    const status = { status: isGood ? 'ok' : 'failing', ...known };
    reply.code(isGood ? 200 : 503).header('cache-control', 'no-store');
    return reply.send(gate.admits(reply.request) ? { ...status, ...details } : status);
  };
  return async (app) => {
    app.get('/healthz', (_request, reply) => {
      const stalled = stalledLoops(options);
      const nowMs = clock.monotonicMs();
      const loops = loopsAlive().map(({ name, lastBeatMs }) => ({
        name,
        silentMs: Math.round(nowMs - lastBeatMs),
      }));
      return answer(reply, stalled.length === 0, { loops, stalled, notReady: notReady() }, { storage });
    });
    app.get('/readyz', (_request, reply) => {
      const reasons = notReady();
      return answer(reply, reasons.length === 0, { reasons });
    });
  };
}

/** Returns the names of loops that reported nothing for too long. The systemd watchdog depends on the result. */
export function stalledLoops({ clock, loopsAlive }: Pick<HealthOptions, 'clock' | 'loopsAlive'>): string[] {
  const nowMs = clock.monotonicMs();
  return loopsAlive()
    .filter(({ lastBeatMs }) => nowMs - lastBeatMs > MAX_SILENCE_MS)
    .map(({ name }) => name);
}

/**
 * Serves `GET /metrics` for Prometheus, as text format or OpenMetrics. Access is the same as for the API, so a scrape
 * must send an API key (`authorization: credentials_file`). `collect` leaves out what cannot be
 * read.
 */
export function metricsRoutes(
  access: AccessOptions,
  collect: () => Promise<readonly MetricFamily[]>,
): FastifyPluginAsync {
  const gate = new AccessGate(access);
  return async (app) => {
    const onRequest = async (request: FastifyRequest) => {
      gate.check(request);
      requireRight(request, ['screen']);
    };
    app.get('/metrics', { onRequest }, async (request, reply) => {
      const format = wantedFormat(request.headers.accept);
      reply.header('cache-control', 'no-store').header('x-content-type-options', 'nosniff');
      reply.type(CONTENT_TYPES[format]);
      return exposition(await collect(), format);
    });
  };
}
