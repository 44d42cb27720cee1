import type { FastifyPluginAsync, FastifyReply } from 'fastify';
import type { Clock } from '../domain/time/clock.ts';
import { AccessGate } from './access-gate.ts';

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
  /** Left out: only this machine is told more than the verdict. */
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
      return verdict(gate.admits(request), reply, stalled.length === 0, {
        storage: options.storage,
        loops: loopReport(options),
        stalled,
        notReady: options.notReady(),
      });
    });
    app.get('/readyz', (request, reply) => {
      const reasons = options.notReady();
      return verdict(gate.admits(request), reply, reasons.length === 0, { reasons });
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

function verdict(isTrusted: boolean, reply: FastifyReply, good: boolean, details: object): FastifyReply {
  const status = good ? 'ok' : 'failing';
  reply.code(good ? 200 : 503).header('cache-control', 'no-store');
  return reply.send(isTrusted ? { status, ...details } : { status });
}
