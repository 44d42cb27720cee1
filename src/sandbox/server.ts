import { Readable } from 'node:stream';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { TillsyncError } from '../core/errors.ts';
import { listenAt, WITHOUT_JSON_SCHEMA } from '../core/listen.ts';
import { silentLog } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import { addControlRoutes, type SandboxControl, sandboxControl } from './control.ts';
import { buildEndpoints } from './endpoints.ts';
import { Engine, type Rules } from './engine.ts';
import { CallJournal, LimitKeeper, type SandboxAnswer, type SandboxRequest } from './exchange.ts';
import { Faults } from './faults.ts';
import { DEFAULT_SETTINGS, type SandboxEnvironment, type SandboxSettings } from './settings.ts';
import { type SandboxOptions, type SandboxServerOptions, Shop } from './shop.ts';
import { type IssuedPair, TokenOffice } from './tokens.ts';
import { httpWebhookTransport } from './webhook.ts';

const HOUR_MS = 3_600_000;
const DEFAULT_COMPANY = 'company-1';

/** The platform without a socket. */
export interface SandboxCore {
  /** Processes one call by every rule. The caller itself waits for a slow body (`slowMs`). */
  handle(request: SandboxRequest): Promise<SandboxAnswer>;
  /** Issues a new pair for the company, as its panel does. */
  issueTokens(): IssuedPair;
  readonly control: SandboxControl;
  /** Signs the JWTs (HS256); exposed for tests that verify them. */
  readonly signingSecret: string;
  /** Returns the control of another company on the same platform. */
  controlOf(company: string): SandboxControl;
  /** Ends hangs and running notifications. */
  close(): Promise<void>;
}

/** Builds the sandbox in memory, for simulations in the same process and for the server. */
export function createSandbox(options: SandboxOptions): SandboxCore {
  const { clock, random, log = silentLog, limits, seed = {} } = options;
  const settings = settingsOf(options);
  const closing = new AbortController();
  const http = options.webhookTransport ? undefined : httpWebhookTransport();
  const transport = options.webhookTransport ?? http?.send ?? (() => Promise.reject(new Error('closed')));
  const environment: SandboxEnvironment = { clock, random, settings, log, closing: closing.signal };
  const { accessTokenLifetimeMs = HOUR_MS, refreshTokenLifetimeMs = 30 * 24 * HOUR_MS } = options;
  const rules: Rules = {
    tokens: new TokenOffice(environment, accessTokenLifetimeMs, refreshTokenLifetimeMs),
    limits: new LimitKeeper(limits, settings),
    journal: new CallJournal(),
    faults: new Faults(random),
  };
  const shops = new Map<string, Shop>();
  const shopOf = (company: string): Shop => {
    const shop = shops.get(company) ?? new Shop(environment, company, seed, transport);
    shops.set(company, shop);
    return shop;
  };
  const engine = new Engine(environment, rules, buildEndpoints(settings, rules.tokens, shopOf));
  const controlOf = (company: string) => sandboxControl(settings, rules, shopOf(company));
  const control = controlOf(options.company ?? DEFAULT_COMPANY);
  return {
    control,
    controlOf,
    signingSecret: rules.tokens.signingSecret,
    handle: (request) => engine.handle(request),
    issueTokens: () => control.issueTokens(),
    close: async () => {
      closing.abort();
      await http?.close();
    },
  };
}

function settingsOf(options: SandboxOptions): SandboxSettings {
  const settings = { ...DEFAULT_SETTINGS, blockMs: options.limits.windowMs };
  const given = Object.entries(options).filter(
    ([key, value]) => key in DEFAULT_SETTINGS && value !== undefined,
  );
  Object.assign(settings, Object.fromEntries(given));
  settings.shape = { ...DEFAULT_SETTINGS.shape, ...options.shape };
  return settings;
}

const BODY_MAX_BYTES = 10 * 1024 * 1024;
const SLOW_BODY_PIECES = 10;

/** The sandbox with its own port. */
export interface Sandbox extends SandboxCore {
  /** Base address, such as `http://127.0.0.1:40123`. */
  readonly url: string;
}

/**
 * Starts the sandbox as an HTTP server, with its control under `/_sandbox`. Rejects with `config-invalid` when the
 * port cannot be opened.
 */
export async function startSandbox(options: SandboxServerOptions): Promise<Sandbox> {
  const core = createSandbox(options);
  const server = Fastify({
    forceCloseConnections: true,
    bodyLimit: BODY_MAX_BYTES,
    schemaController: WITHOUT_JSON_SCHEMA,
  });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  addControlRoutes(server, core.control);
  server.all('/*', (request, reply) => carry(request, reply, core, options.clock));
  const { host = '127.0.0.1', port = 0 } = options;
  try {
    await listenAt(server, { host, port });
  } catch (cause) {
    await closeAll(core, server);
    throw new TillsyncError('config-invalid', `The sandbox cannot listen on ${host}:${port}.`, {
      hint: 'Choose a port that is free, or 0 for any.',
      cause,
    });
  }
  return { ...core, url: addressOf(server), close: () => closeAll(core, server) };
}

async function closeAll(core: SandboxCore, server: FastifyInstance): Promise<void> {
  await core.close();
  await server.close();
}

function addressOf(server: FastifyInstance): string {
  const at = server.server.address();
  if (at === null || typeof at === 'string') throw new Error('The sandbox is not listening on a port');
  return `http://${at.family === 'IPv6' ? `[${at.address}]` : at.address}:${at.port}`;
}

async function carry(
  request: FastifyRequest,
  reply: FastifyReply,
  core: SandboxCore,
  clock: Clock,
): Promise<FastifyReply> {
  const gone = new AbortController();
  reply.raw.once('close', () => gone.abort());
  const headers = Object.fromEntries(
    Object.entries(request.headers).map(([name, value]) => [name, Array.isArray(value) ? value[0] : value]),
  );
  const body = Buffer.isBuffer(request.body) ? request.body : undefined;
  const { method, url } = request;
  const answer = await core.handle({ method, url, headers, body, signal: gone.signal });
  if (answer.kind === 'dropped') return drop(reply, answer);
  reply.code(answer.status).headers(answer.headers);
  if (answer.slowMs <= 0) return reply.send(answer.body);
  return reply.send(Readable.from(trickle(answer, clock, gone.signal)));
}

async function* trickle(
  answer: Extract<SandboxAnswer, { kind: 'answer' }>,
  clock: Clock,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const bytes = Buffer.from(answer.body);
  const step = Math.max(1, Math.ceil(bytes.length / SLOW_BODY_PIECES));
  for (let at = 0; at < bytes.length && !signal.aborted; at += step) {
    await clock.sleep(answer.slowMs / SLOW_BODY_PIECES, signal);
    yield bytes.subarray(at, at + step);
  }
}

/** Ends the connection, perhaps after a part of a longer answer. */
function drop(reply: FastifyReply, answer: Extract<SandboxAnswer, { kind: 'dropped' }>): FastifyReply {
  reply.hijack();
  const { partial } = answer;
  if (!partial) {
    reply.raw.socket?.destroy();
    return reply;
  }
  const promised = String(Buffer.byteLength(partial.body) * 2);
  reply.raw.writeHead(partial.status, { ...partial.headers, 'content-length': promised });
  reply.raw.write(partial.body, () => reply.raw.socket?.destroy());
  return reply;
}
