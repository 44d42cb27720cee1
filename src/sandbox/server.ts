import { Readable } from 'node:stream';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { TillsyncError } from '../core/errors.ts';
import { listenAt, WITHOUT_JSON_SCHEMA } from '../core/listen.ts';
import type { Clock } from '../core/time.ts';
import { addControlRoutes } from './control.ts';
import type { SandboxAnswer } from './exchange.ts';
import { createSandbox, type SandboxCore } from './sandbox.ts';
import type { SandboxServerOptions } from './shop.ts';

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
