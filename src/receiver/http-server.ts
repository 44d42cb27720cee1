import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import Fastify, { type ConnectionError, type FastifyInstance } from 'fastify';
import type { Log } from '../domain/log.ts';
import { answer } from './answer.ts';

export interface TlsFiles {
  cert: string;
  key: string;
}

export interface HttpServerLimits {
  /** From the first byte of a request to its last; a slower one gets 408. */
  requestTimeoutMs: number;
  /** A connection without traffic is cut; above the time that the store may take to answer. */
  connectionTimeoutMs: number;
  /** How long a connection may idle between two requests. */
  keepAliveMs: number;
  /** How often slow requests are looked for. */
  checkEveryMs: number;
  /** Further connections are closed at once. */
  connectionsMax: number;
  /** Of one address, but for a proxy on this machine; further ones are closed at once. */
  connectionsPerAddressMax: number;
  /** From the first byte of a connection to the end of the headers. */
  headersTimeoutMs: number;
}

const DEFAULT_LIMITS: HttpServerLimits = {
  requestTimeoutMs: 15_000,
  connectionTimeoutMs: 60_000,
  keepAliveMs: 30_000,
  checkEveryMs: 2_000,
  connectionsMax: 1_000,
  connectionsPerAddressMax: 200,
  headersTimeoutMs: 5_000,
};

const METHODS_WITH_BODY = ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'QUERY'];

export interface HttpServerOptions {
  /** The only path there is; anything but POST on it is 405. */
  path: string;
  log: Log;
  tls?: TlsFiles | undefined;
  limits: Partial<HttpServerLimits>;
  /** Told of each connection that was closed at once, for there were too many. */
  onDropped?: (() => void) | undefined;
}

/** A Fastify instance for an address that strangers reach: every wait bounded, no answer that tells anything. */
export function createHttpServer(options: HttpServerOptions): FastifyInstance {
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const node = {
    connectionsCheckingInterval: limits.checkEveryMs,
    headersTimeout: Math.min(limits.headersTimeoutMs, limits.requestTimeoutMs),
    requestTimeout: limits.requestTimeoutMs,
  };
  const app = Fastify({
    ...(options.tls ? { https: { ...node, ...options.tls } } : { http: node }),
    requestTimeout: limits.requestTimeoutMs,
    connectionTimeout: limits.connectionTimeoutMs,
    keepAliveTimeout: limits.keepAliveMs,
    // What arrives on an open connection while closing is still kept and answered.
    return503OnClosing: false,
    exposeHeadRoutes: false,
    routerOptions: { ignoreTrailingSlash: true },
    clientErrorHandler,
    frameworkErrors: (_error, _request, reply) => {
      answer(reply.raw, 400, '{"error":"bad request"}');
    },
  }) as unknown as FastifyInstance;
  app.server.maxConnections = limits.connectionsMax;
  app.server.on('drop', () => options.onDropped?.());
  boundEachAddress(app.server, limits.connectionsPerAddressMax, () => options.onDropped?.());

  // The route reads the body itself, whatever its content type says; everywhere else it goes by unread.
  for (const method of METHODS_WITH_BODY)
    app.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  app.setNotFoundHandler(({ url }, { raw }) => {
    if (pathOf(url) !== pathOf(options.path)) answer(raw, 404, '{"error":"not found"}');
    else answer(raw, 405, '{"error":"only POST is allowed here"}', { allow: 'POST' });
  });
  app.setErrorHandler((error, _request, { raw }) => {
    options.log.error({ err: error }, 'a callback could not be handled');
    answer(raw, 500, '{"error":"internal"}');
  });
  return app;
}

/** Where a proxy in front connects from, for everybody. */
const PROXY_HERE: ReadonlySet<string> = new Set(['127.0.0.1', '::1', '::ffff:127.0.0.1']);

/** Nobody may take all connections alone and leave none for the platform. */
function boundEachAddress(server: Server, max: number, onDropped: () => void): void {
  const open = new Map<string, number>();
  server.on('connection', (socket: Socket) => {
    const { remoteAddress: address } = socket;
    if (address === undefined || PROXY_HERE.has(address)) return;
    const count = (open.get(address) ?? 0) + 1;
    if (count > max) {
      socket.destroy();
      onDropped();
      return;
    }
    open.set(address, count);
    socket.once('close', () => {
      const rest = (open.get(address) ?? 1) - 1;
      if (rest === 0) open.delete(address);
      else open.set(address, rest);
    });
  });
}

function pathOf(url: string): string {
  const path = url.split('?', 1)[0] ?? '';
  return path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
}

/** Written out: importing a value from `node:http` loads Node's whole fetch with it. */
const LINE_OF_CLIENT_ERROR: Record<string, string> = {
  // Headers beyond 16 KiB are no secret of ours; what cannot prove itself is refused as such.
  HPE_HEADER_OVERFLOW: '401 Unauthorized',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
};

/** Answers what Node could not take for a request. */
function clientErrorHandler(error: ConnectionError, socket: Socket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed || !socket.writable) {
    socket.destroy();
    return;
  }
  const line = LINE_OF_CLIENT_ERROR[error.code] ?? '400 Bad Request';
  const json = '{"error":"bad request"}';
  socket.end(
    `HTTP/1.1 ${line}\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${json.length}\r\nConnection: close\r\n\r\n${json}`,
    () => socket.destroy(),
  );
}
