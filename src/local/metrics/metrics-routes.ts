import type { FastifyPluginAsync } from 'fastify';
import { AccessGate } from '../access-gate.ts';
import { CONTENT_TYPES, exposition, wantedFormat } from './exposition.ts';
import type { MetricFamily } from './metric-family.ts';

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
