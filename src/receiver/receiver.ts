import type { FastifyInstance } from 'fastify';
import { TillsyncError } from '../domain/errors.ts';
import { listenAt } from '../domain/listen.ts';
import type { Log } from '../domain/log.ts';
import type { OrderKeeper } from '../domain/order/order-intake.ts';
import type { Clock } from '../domain/time/clock.ts';
import { callbackRoute, type OnAnswered } from './callback-route.ts';
import { GroupCommit, type Kept } from './group-commit.ts';
import { createHttpServer, type HttpServerLimits, type TlsFiles } from './http-server.ts';
import { holdIdleConnections } from './idle-connections.ts';
import type { NotificationReader } from './notification.ts';
import { SecretGate } from './secret-gate.ts';

export interface ReceiverOptions {
  host: string;
  /** 0 picks a free one. */
  port: number;
  /** Where callbacks arrive, such as `/webhook`. */
  path: string;
  /** Every secret valid now: one, or more during a rotation; asked for each request. May throw: 503 then. */
  secrets: () => readonly string[];
  /** Accept callbacks without a secret while none is configured (default false); see SecretGate. */
  allowUnsigned?: boolean;
  keeper: OrderKeeper;
  read: NotificationReader;
  clock: Clock;
  log: Log;
  bodyLimitBytes: number;
  /** PEM texts; without them plain HTTP, for a proxy in front. */
  tls?: TlsFiles | undefined;
  /** A listening socket that is already open (systemd socket activation), instead of host and port. */
  listenFd?: number | undefined;
  /** Told of everything that became durable, one call per commit, after the answers. */
  onKept?: (kept: readonly Kept[]) => void;
  /** Told when notifications could not be kept for a fault of the disk, and were put off. */
  onPutOff?: (error: TillsyncError) => void;
  /** Told of each authenticated notification that is in quarantine now, with the reason. */
  onUnreadable?: (reason: string) => void;
  limits?: Partial<HttpServerLimits>;
  /** Told of each connection that was closed at once, for there were too many. */
  onDropped?: (() => void) | undefined;
  /** Told of each request to the path, once it is over. */
  onAnswered?: OnAnswered | undefined;
}

export interface Listening {
  url: string;
  /** The address found open, or the path of a Unix socket. */
  host: string;
  port: number;
}

export interface Receiver {
  /** Throws `config-invalid` when the address cannot be listened on. */
  listen(): Promise<Listening>;
  /**
   * Takes no new connection, answers what is under way or arrives within a second on an open one, and cuts off what
   * is not done after `deadlineMs`.
   */
  close(deadlineMs?: number): Promise<void>;
}

const CLOSE_DEADLINE_MS = 5_000;
const IDLE_GRACE_MS = 1_000;

/** The endpoint for the platform's callbacks: what it answers 2xx is on the disk and visible in the mirror. */
export function createReceiver(options: ReceiverOptions): Receiver {
  const { clock, log, keeper } = options;
  const commits = new GroupCommit({
    keeper,
    clock,
    log,
    onKept: (kept) => tell(options, kept),
    onPutOff: options.onPutOff,
  });
  const gate = new SecretGate({ secrets: options.secrets, allowUnsigned: options.allowUnsigned ?? false });
  const app = createHttpServer({
    path: options.path,
    log,
    tls: options.tls,
    limits: options.limits ?? {},
    onDropped: options.onDropped,
  });
  const endIdle = holdIdleConnections(app.server);
  const { path, read, bodyLimitBytes, onAnswered } = options;
  let closing = false;
  const isClosing = () => closing;
  app.route(callbackRoute({ path, gate, read, commits, clock, log, bodyLimitBytes, isClosing, onAnswered }));

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

function tell(options: ReceiverOptions, kept: readonly Kept[]): void {
  options.log.debug({ kept: kept.length }, 'notifications kept');
  for (const { entry } of kept) {
    if (entry.kind === 'unreadable') options.onUnreadable?.(entry.unreadable.reason);
  }
  options.onKept?.(kept);
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
