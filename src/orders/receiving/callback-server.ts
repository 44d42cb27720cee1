import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import Fastify, { type ConnectionError, type FastifyInstance } from 'fastify';
import { TillsyncError } from '../../core/errors.ts';
import { listenAt, WITHOUT_JSON_SCHEMA } from '../../core/listen.ts';
import { oneAtATime } from '../../core/one-at-a-time.ts';
import type { OrderSink } from '../merging/order.ts';
import { answer, type CallbackRouteOptions, callbackRoute, refuse, SecretGate } from './callback-route.ts';
import { GroupCommit, type Saved } from './group-commit.ts';

interface HttpServerLimits {
  /** Longest time from the first to the last byte of a request; a slower request is answered with 408. */
  requestTimeoutMs: number;
  /** Time after which a connection without traffic is closed. It exceeds the time that a commit may take. */
  connectionTimeoutMs: number;
  /** Longest idle time of a connection between two requests. */
  keepAliveMs: number;
  /** Interval at which slow requests are searched for. */
  checkEveryMs: number;
  /** Maximum number of open connections. Further connections are closed at once. */
  connectionsMax: number;
  /**
   * Maximum number of open connections of one address, except a proxy on this machine. Further ones are closed at once.
   */
  connectionsPerAddressMax: number;
  /** Longest time from a connection's first byte to the end of its headers. */
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

/** Creates a Fastify server for a public address: every wait is limited, and no answer reveals internals. */
function createHttpServer(options: ReceiverOptions): FastifyInstance {
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
    // While the server closes, a request on an open connection is still stored and answered.
    return503OnClosing: false,
    schemaController: WITHOUT_JSON_SCHEMA,
    exposeHeadRoutes: false,
    routerOptions: { ignoreTrailingSlash: true },
    clientErrorHandler,
    frameworkErrors: (_error, _request, reply) => {
      refuse(reply.raw, 400, '{"error":"bad request"}');
    },
  }) as unknown as FastifyInstance;
  app.server.maxConnections = limits.connectionsMax;
  app.server.on('drop', () => options.onDropped?.());
  boundEachAddress(app.server, limits.connectionsPerAddressMax, () => options.onDropped?.());
  cutIdle(app.server);

  app.addHook('onRequest', oneAtATime());
  // The route itself reads the body, of any content type. On other paths no body is read.
  for (const method of METHODS_WITH_BODY)
    app.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  app.setNotFoundHandler(({ url }, { raw }) => {
    if (pathOf(url) !== pathOf(options.path)) refuse(raw, 404, '{"error":"not found"}');
    else refuse(raw, 405, '{"error":"only POST is allowed here"}', { allow: 'POST' });
  });
  app.setErrorHandler((error, _request, { raw }) => {
    options.log.error({ err: error }, 'a callback could not be handled');
    answer(raw, 500, '{"error":"internal"}');
  });
  return app;
}

/**
 * Closes a connection on its timeout, unless a byte arrived that was not read yet. After the event loop was blocked,
 * timers fire before data is read, so the connection may have a callback that would be lost by a reset.
 */
function cutIdle(server: Server): void {
  server.on('timeout', (socket: Socket) => {
    const { bytesRead } = socket;
    setImmediate(() => {
      if (socket.bytesRead === bytesRead) socket.destroy();
    });
  });
}

/** Addresses of a proxy on this machine, which forwards the requests of all senders. */
const PROXY_HERE: ReadonlySet<string> = new Set(['127.0.0.1', '::1', '::ffff:127.0.0.1']);

/** Limits the connections of each address, so that one client cannot use all of them and lock the platform out. */
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

/**
 * Status lines by error code. They are written out, because importing `STATUS_CODES` from `node:http` would load
 * fetch.
 */
const LINE_OF_CLIENT_ERROR: Record<string, string> = {
  // A secret never needs headers beyond 16 KiB, so the sender is refused as if the secret were wrong.
  HPE_HEADER_OVERFLOW: '401 Unauthorized',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
};

/** Answers a request that Node could not parse or that took too long. */
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

/**
 * Keeps idle connections open when the server closes, because a request may be on its way and would be lost with its
 * connection. Returns a function that closes idle connections, to be called after the grace period.
 */
function holdIdleConnections(server: Server): () => void {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  const endIdle = server.closeIdleConnections.bind(server);
  // Node and Fastify call this method when closing begins, which is before the grace period, so it does nothing.
  server.closeIdleConnections = () => {};
  return () => {
    endIdle();
    // Node counts a connection that never sent a byte as busy, and would wait for it until the deadline.
    for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy();
  };
}

export interface ReceiverOptions extends CallbackRouteOptions {
  host: string;
  /** Port to listen on; 0 picks a free port. */
  port: number;
  /**
   * Returns all valid secrets: one, or several during a rotation. Called for each request; if it throws, the answer is
   * 503.
   */
  secrets: () => readonly string[];
  sink: OrderSink;
  /** TLS certificate and key, as PEM texts. Without them the server speaks plain HTTP, for a proxy in front of it. */
  tls?: { cert: string; key: string } | undefined;
  /** File descriptor of a listening socket that systemd opened (socket activation), used instead of host and port. */
  listenFd?: number | undefined;
  /** Called once per commit with the entries that became durable, after their answers were sent. */
  onSaved?: (kept: readonly Saved[]) => void;
  /** Called when a disk fault prevented storing notifications, after their senders were asked to send them again. */
  onPutOff?: (error: TillsyncError) => void;
  /** Called with the reason for each authenticated notification that was put into quarantine. */
  onUnreadable?: (reason: string) => void;
  limits?: Partial<HttpServerLimits>;
  /** Called for each connection that was closed because too many were open. */
  onDropped?: (() => void) | undefined;
}

interface Listening {
  url: string;
  /** The address on which the server listens, or the path of a Unix socket. */
  host: string;
  port: number;
}

export interface Receiver {
  /** Throws `config-invalid` if the server cannot listen on the address. */
  listen(): Promise<Listening>;
  /**
   * Accepts no new connection, and answers running requests and those that arrive within a second on open connections.
   * After `deadlineMs` the remaining connections are cut.
   */
  close(deadlineMs?: number): Promise<void>;
}

const CLOSE_DEADLINE_MS = 5_000;
const IDLE_GRACE_MS = 1_000;

/** Creates the server for callbacks. A notification answered with 2xx is on the disk and visible in the mirror. */
export function createReceiver(options: ReceiverOptions): Receiver {
  const { clock, log, sink, onPutOff } = options;
  const onSaved = (kept: readonly Saved[]) => {
    log.debug({ kept: kept.length }, 'notifications kept');
    for (const { entry } of kept) {
      if (entry.kind === 'unreadable') options.onUnreadable?.(entry.unreadable.reason);
    }
    options.onSaved?.(kept);
  };
  const commits = new GroupCommit({ sink, clock, log, onSaved, onPutOff });
  const gate = new SecretGate(options.secrets);
  const app = createHttpServer(options);
  const endIdle = holdIdleConnections(app.server);
  let closing = false;
  app.route(callbackRoute(options, gate, commits, () => closing));

  return {
    listen: () => listen(app, options),
    async close(deadlineMs = CLOSE_DEADLINE_MS) {
      closing = true;
      const finished = app.close().then(() => commits.drained());
      const waiting = new AbortController();
      const after = async (delayMs: number, act: () => void) => {
        await clock.sleep(delayMs, waiting.signal);
        if (!waiting.signal.aborted) act();
      };
      void after(IDLE_GRACE_MS, endIdle);
      await Promise.race([finished, after(deadlineMs, () => app.server.closeAllConnections())]);
      waiting.abort();
    },
  };
}

async function listen(app: FastifyInstance, options: ReceiverOptions): Promise<Listening> {
  const { host, port, path, listenFd } = options;
  try {
    await listenAt(app, listenFd === undefined ? { host, port } : { fd: listenFd });
  } catch (error) {
    await app.close();
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    throw new TillsyncError('config-invalid', `Cannot listen for callbacks on ${host}:${port} (${code}).`, {
      cause: error,
      hint: 'Another program may use the port, or the address is not of this machine; change webhook.listen.',
    });
  }
  const address = app.server.address();
  const found =
    typeof address === 'object' && address !== null
      ? { host: address.address, port: address.port }
      : { host: address ?? host, port };
  const name = host.includes(':') ? `[${host}]` : host;
  return { url: `${options.tls ? 'https' : 'http'}://${name}:${found.port}${path}`, ...found };
}
