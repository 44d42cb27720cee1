import type { AddressInfo, Server as NetServer } from 'node:net';
import Fastify, {
  type FastifyInstance,
  type FastifyPluginAsync,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import type * as z from 'zod';
import { asTillsyncError, type ErrorCode, TillsyncError } from '../core/errors.ts';
import { listenAt, WITHOUT_JSON_SCHEMA } from '../core/listen.ts';
import type { Log } from '../core/log.ts';
import { oneAtATime } from '../core/one-at-a-time.ts';
import type { Clock } from '../core/time.ts';
import { ORDER_ID_LENGTH_MAX } from '../orders/merging/order.ts';
import { type GroupSocket, letInto, listenForGroup, listenForOwn } from './access.ts';
import type { errorAnswer } from './schemas.ts';

/** HTTP statuses by error code. A code that is not listed is answered with 500. */
const STATUS: Partial<Record<ErrorCode, number>> = {
  usage: 400,
  'feed-restarted': 400,
  unauthorized: 401,
  forbidden: 403,
  'not-found': 404,
  conflict: 409,
  'rate-limited': 429,
  blocked: 503,
  'auth-required': 503,
  'platform-unreachable': 502,
  'platform-failed': 502,
  'platform-garbled': 502,
  'platform-refused': 502,
  'storage-busy': 503,
  'storage-full': 507,
  'storage-readonly': 507,
  aborted: 503,
};

/** Error codes for requests that the HTTP layer itself refuses, by status. */
const CODE: Partial<Record<number, ErrorCode>> = { 401: 'unauthorized', 403: 'forbidden', 404: 'not-found' };

const HINT: Partial<Record<number, string>> = {
  405: 'The header Allow names what it takes.',
  408: 'Send it again, without a pause in it.',
  413: 'Send it in several parts.',
  415: 'Send application/json. /v1/stock and /v1/products take application/x-ndjson and text/csv, too.',
};

/** Largest JSON body, in bytes, of routes that do not read their body themselves. */
export const JSON_BODY_MAX_BYTES = 2 * 1024 * 1024;
const tooLarge = 'More than 2 MiB came in one request. Nothing was taken.';

function isTooLarge(thrown: Error): boolean {
  return 'code' in thrown && thrown.code === 'FST_ERR_CTP_BODY_TOO_LARGE';
}

/** Statuses of refusals that end the connection, so that whoever has no key has to open one for each request. */
const ENDING: readonly number[] = [401, 405, 408];

const RETRY_AFTER_S = 1;

export function statusOf(code: ErrorCode): number {
  return STATUS[code] ?? 500;
}

/** Returns the body of an error answer. */
export function errorBody({ code, message, hint }: TillsyncError): z.output<typeof errorAnswer> {
  return { error: { code, message, hint: hint ?? null } };
}

/**
 * Answers with an error. An internal error is answered with a general message, so that no detail gets out. From status
 * 500 on, the error is logged.
 */
export function sendError(reply: FastifyReply, thrown: unknown, log: Log): FastifyReply {
  const { status, error } = refusalOf(thrown);
  if (thrown instanceof Error && 'allow' in thrown) reply.header('allow', String(thrown.allow));
  sendRetryAfter(reply, status, error);
  if (ENDING.includes(status)) reply.header('connection', 'close');
  if (error.code === 'internal') {
    log.error({ err: thrown }, 'a local request could not be handled');
    return reply.code(500).send(errorBody(hidden));
  }
  if (status >= 500) log.warn({ err: thrown }, 'a local request could not be answered now');
  return reply.code(status).send(errorBody(error));
}

/** Sets the header Retry-After if the status is 429 or 503. */
export function sendRetryAfter(reply: FastifyReply, status: number, { retryAfterMs }: TillsyncError): void {
  const seconds = retryAfterMs === undefined ? RETRY_AFTER_S : Math.ceil(retryAfterMs / 1000);
  if (status === 429 || status === 503) reply.header('retry-after', String(seconds));
}

const hidden = new TillsyncError('internal', 'The request could not be handled.', {
  hint: 'The log of tillsync has the details.',
});

function refusalOf(thrown: unknown): { status: number; error: TillsyncError } {
  // The HTTP layer itself refuses bodies that are too large or of an unknown type.
  if (thrown instanceof Error && 'statusCode' in thrown) {
    const status = Number(thrown.statusCode);
    const hint = 'hint' in thrown ? String(thrown.hint) : HINT[status];
    const message = isTooLarge(thrown) ? tooLarge : thrown.message;
    const options = { cause: thrown, ...(hint !== undefined && { hint }) };
    if (status >= 400 && status < 500) {
      return { status, error: new TillsyncError(CODE[status] ?? 'usage', message, options) };
    }
  }
  const error = asTillsyncError(thrown);
  return { status: statusOf(error.code), error };
}

/** Longest time without a byte of a body that is still under way. */
const BODY_STALL_MS = 5_000;

/** Answers with 408 a request of whose body nothing arrives for `BODY_STALL_MS`, and ends its connection. */
function bodyGuard(clock: Clock, log: Log) {
  const watch = async ({ raw }: FastifyRequest, reply: FastifyReply, over: AbortSignal) => {
    for (let before = -1; !over.aborted; ) {
      const { bytesRead } = raw.socket;
      // What has arrived and is not read yet is no fault of the sender.
      if (bytesRead === before && raw.readableLength === 0 && !reply.sent) {
        const message = 'Nothing more of the body came for 5 seconds. Nothing was taken.';
        const error = Object.assign(new Error(message), { statusCode: 408 });
        // Node ends a request whose answer has left neither with an error nor otherwise, and who reads it would wait on.
        reply.raw.once('close', () => raw.destroy(error));
        sendError(reply, error, log);
        return;
      }
      before = bytesRead;
      await clock.sleep(BODY_STALL_MS, over);
    }
  };
  return (request: FastifyRequest, reply: FastifyReply, done: () => void) => {
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      const over = new AbortController();
      const end = () => over.abort();
      request.raw.once('end', end).once('close', end);
      reply.raw.once('close', end);
      void watch(request, reply, over.signal);
    }
    done();
  };
}

interface LocalServerOptions {
  host: string;
  /** Port to listen on; 0 picks a free port. */
  port: number;
  /** Further addresses to listen on. */
  others?: readonly { host: string; port: number }[];
  /** Unix socket on which the server listens too. */
  groupSocket?: GroupSocket | undefined;
  /** Path of the Unix socket for commands. Without it the server works too, so a failure is only logged. */
  ownSocket?: string | undefined;
  clock: Clock;
  log: Log;
  /** Plugins that serve the routes, such as `healthRoutes`. */
  plugins: readonly FastifyPluginAsync[];
}

interface LocalServer {
  /** Opens the addresses. Throws `config-invalid` if one cannot be opened. */
  listen(): Promise<{ url: string; port: number }>;
  /** Accepts no new connection, finishes running requests, and cuts the remaining connections after `deadlineMs`. */
  close(deadlineMs?: number): Promise<void>;
}

const CLOSE_DEADLINE_MS = 3_000;
const REQUEST_TIMEOUT_MS = 30_000;
const HEADERS_TIMEOUT_MS = 5_000;
/** Interval at which slow requests are searched for. */
const CHECK_EVERY_MS = 2_000;

/** Creates the HTTP server for the POS and the operator. */
export function createLocalServer(options: LocalServerOptions): LocalServer {
  const { clock, log, plugins } = options;
  const app = Fastify({
    requestTimeout: REQUEST_TIMEOUT_MS,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_EVERY_MS,
    },
    return503OnClosing: false,
    schemaController: WITHOUT_JSON_SCHEMA,
    exposeHeadRoutes: true,
    // A malformed URL gets an error answer in the usual form. The limit of a parameter's length is raised, because
    // order ids may be longer than Fastify's limit, and each character takes up to nine in a URL.
    frameworkErrors: (error, _request, reply) => sendError(reply as unknown as FastifyReply, error, log),
    routerOptions: { maxParamLength: 9 * ORDER_ID_LENGTH_MAX },
  }) as unknown as FastifyInstance;
  app.addHook('onRequest', oneAtATime());
  app.addHook('onRequest', bodyGuard(clock, log));
  app.setNotFoundHandler(({ method, url }, reply) => {
    const message = `There is nothing at ${method} ${url.split('?', 1)[0]}.`;
    const hint = 'GET /v1/openapi.json tells what there is.';
    reply.header('connection', 'close');
    return sendError(reply, new TillsyncError('not-found', message, { hint }), log);
  });
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

/** Closes the server and its other sockets after running requests are finished. */
async function closeAll(app: FastifyInstance, doors: readonly NetServer[]): Promise<void> {
  const shut = doors.map((door) => new Promise((resolve) => door.close(resolve)));
  await app.close();
  // Fastify closes idle connections only of its own port.
  app.server.closeIdleConnections();
  await Promise.all(shut);
}

async function listen(
  app: FastifyInstance,
  options: LocalServerOptions,
  doors: NetServer[],
): Promise<{ url: string; port: number }> {
  const { host, port, others = [], groupSocket, ownSocket, log } = options;
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
    if (ownSocket !== undefined) {
      await listenForOwn(app.server, ownSocket).then(
        (door) => doors.push(door),
        (err) => log.warn({ err, path: ownSocket }, 'commands cannot ask this tillsync by its socket'),
      );
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
  const { port: found } = app.server.address() as AddressInfo;
  return { url: `http://${host.includes(':') ? `[${host}]` : host}:${found}`, port: found };
}
