import type { Server as NetServer } from 'node:net';
import Fastify, { type FastifyInstance, type FastifyPluginAsync } from 'fastify';
import { TillsyncError } from '../domain/errors.ts';
import { listenAt } from '../domain/listen.ts';
import type { Log } from '../domain/log.ts';
import { ORDER_ID_LENGTH_MAX } from '../domain/order/order.ts';
import type { Clock } from '../domain/time/clock.ts';
import { sendError } from './api-error.ts';
import { type GroupSocket, letInto, listenForGroup } from './group-socket.ts';
import { hostGuard } from './host-guard.ts';
import { isLoopbackName } from './loopback.ts';

export interface LocalServerOptions {
  host: string;
  /** 0 picks a free one. */
  port: number;
  /** Further addresses. */
  others?: readonly { host: string; port: number }[];
  /** A Unix socket beside them. */
  groupSocket?: GroupSocket | undefined;
  /** Whether a key is asked of everybody; then it may be served under any name. */
  hasKey?: boolean;
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
const HEADERS_TIMEOUT_MS = 5_000;
/** How often slow requests are looked for. */
const CHECK_EVERY_MS = 2_000;

/** The HTTP server for the POS and the operator on this machine. */
export function createLocalServer(options: LocalServerOptions): LocalServer {
  const { host, others = [], hasKey = false, clock, log, plugins } = options;
  const app = Fastify({
    requestTimeout: REQUEST_TIMEOUT_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_EVERY_MS,
    },
    return503OnClosing: false,
    exposeHeadRoutes: true,
    // An id may be longer than Fastify's own bound, and each of its characters nine in an address.
    routerOptions: { maxParamLength: 9 * ORDER_ID_LENGTH_MAX },
  }) as unknown as FastifyInstance;
  const hosts = [host, ...others.map((other) => other.host)];
  if (!hasKey && hosts.every(isLoopbackName)) app.addHook('onRequest', hostGuard(hosts));
  app.setNotFoundHandler(({ method, url }, reply) => sendError(reply, nothingAt(method, url), log));
  app.setErrorHandler((error, _request, reply) => sendError(reply, error, log));
  for (const plugin of plugins) app.register(plugin);

  const doors: NetServer[] = [];
  return {
    listen: () => listen(app, options, doors),
    async close(deadlineMs = CLOSE_DEADLINE_MS) {
      const waiting = new AbortController();
      const tooLate = clock.sleep(deadlineMs, waiting.signal).then(() => {
        if (!waiting.signal.aborted) app.server.closeAllConnections();
      });
      await Promise.race([closeAll(app, doors), tooLate]);
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

/** Ends all of them once what is under way is done. */
async function closeAll(app: FastifyInstance, doors: readonly NetServer[]): Promise<void> {
  const shut = doors.map((door) => new Promise((resolve) => door.close(resolve)));
  await app.close();
  // Fastify looks at its own port alone.
  app.server.closeIdleConnections();
  await Promise.all(shut);
}

async function listen(
  app: FastifyInstance,
  options: LocalServerOptions,
  doors: NetServer[],
): Promise<{ url: string; port: number }> {
  const { host, port, others = [], groupSocket } = options;
  let at = `${host}:${port}`;
  let hint = 'Another program may use the port, or the address is not of this machine; change local.listen.';
  try {
    await listenAt(app, { host, port });
    for (const other of others) {
      at = `${other.host}:${other.port}`;
      doors.push(await letInto(app.server, other));
    }
    if (groupSocket) {
      at = groupSocket.path;
      hint = 'Its directory must be there and the user of tillsync may write in it; change local.socket.';
      doors.push(await listenForGroup(app.server, groupSocket));
    }
  } catch (error) {
    await closeAll(app, doors);
    if (error instanceof TillsyncError) throw error;
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    throw new TillsyncError('config-invalid', `Cannot serve the local API on ${at} (${code}).`, {
      cause: error,
      hint,
    });
  }
  const address = app.server.address();
  const found = typeof address === 'object' && address !== null ? address.port : port;
  return { url: `http://${host.includes(':') ? `[${host}]` : host}:${found}`, port: found };
}
