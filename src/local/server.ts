import Fastify, { type FastifyInstance, type FastifyPluginAsync } from 'fastify';
import { TillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import { ORDER_ID_LENGTH_MAX } from '../domain/order/order.ts';
import type { Clock } from '../domain/time/clock.ts';
import { sendError } from './api-error.ts';
import { hostGuard } from './host-guard.ts';
import { isLoopbackName } from './loopback.ts';

export interface LocalServerOptions {
  host: string;
  /** 0 picks a free one. */
  port: number;
  clock: Clock;
  log: Log;
  /** What is served: each a Fastify plugin of its own file, such as `healthRoutes`. */
  plugins: readonly FastifyPluginAsync[];
}

export interface LocalServer {
  /** Throws `config-invalid` when the address cannot be listened on. */
  listen(): Promise<{ url: string; port: number }>;
  /** Takes no new connection, finishes what is under way, and cuts off what is not done after `deadlineMs`. */
  close(deadlineMs?: number): Promise<void>;
}

const CLOSE_DEADLINE_MS = 3_000;
const REQUEST_TIMEOUT_MS = 30_000;

/** The HTTP server for the POS and the operator on this machine. */
export function createLocalServer(options: LocalServerOptions): LocalServer {
  const { host, clock, log, plugins } = options;
  const app = Fastify({
    requestTimeout: REQUEST_TIMEOUT_MS,
    http: { headersTimeout: REQUEST_TIMEOUT_MS, requestTimeout: REQUEST_TIMEOUT_MS },
    return503OnClosing: false,
    exposeHeadRoutes: true,
    // An id may be longer than Fastify's own bound, and each of its characters nine in an address.
    routerOptions: { maxParamLength: 9 * ORDER_ID_LENGTH_MAX },
  }) as unknown as FastifyInstance;
  if (isLoopbackName(host)) app.addHook('onRequest', hostGuard([host]));
  app.setNotFoundHandler(({ method, url }, reply) => sendError(reply, nothingAt(method, url), log));
  app.setErrorHandler((error, _request, reply) => sendError(reply, error, log));
  for (const plugin of plugins) app.register(plugin);

  return {
    listen: () => listen(app, options),
    async close(deadlineMs = CLOSE_DEADLINE_MS) {
      const waiting = new AbortController();
      const tooLate = clock.sleep(deadlineMs, waiting.signal).then(() => {
        if (!waiting.signal.aborted) app.server.closeAllConnections();
      });
      await Promise.race([app.close(), tooLate]);
      waiting.abort();
    },
  };
}

function nothingAt(method: string, url: string): TillsyncError {
  const path = url.split('?', 1)[0];
  return new TillsyncError('not-found', `There is nothing at ${method} ${path}.`, {
    hint: 'GET /v1/openapi.json tells what there is.',
  });
}

async function listen(
  app: FastifyInstance,
  options: LocalServerOptions,
): Promise<{ url: string; port: number }> {
  const { host, port } = options;
  try {
    await app.listen({ host, port });
  } catch (error) {
    await app.close();
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    throw new TillsyncError('config-invalid', `Cannot serve the local API on ${host}:${port} (${code}).`, {
      cause: error,
      hint: 'Another program may use the port, or the address is not of this machine; change local.listen.',
    });
  }
  const address = app.server.address();
  const found = typeof address === 'object' && address !== null ? address.port : port;
  return { url: `http://${host.includes(':') ? `[${host}]` : host}:${found}`, port: found };
}
