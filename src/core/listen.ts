import { once } from 'node:events';
import { isIPv4 } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';

/** For Fastify: zod reads what arrives, and the compilers of JSON Schema would be a fifth of its start. */
export const WITHOUT_JSON_SCHEMA = {
  compilersFactory: { buildValidator: () => noJsonSchema, buildSerializer: () => noJsonSchema },
};

function noJsonSchema(): never {
  throw new Error('No route has a JSON Schema');
}

/** An address of this machine, or a socket that listens already. */
export type ListenPlace = { host: string; port: number } | { path: string } | { fd: number };

/**
 * Has a Fastify server take connections. Rejects with Node's error, such as EADDRINUSE. Fastify's own `listen` lists
 * the machine's addresses to log 0.0.0.0, for which it needs a netlink socket, and the systemd units allow none.
 */
export async function listenAt(app: FastifyInstance, place: ListenPlace): Promise<void> {
  if ('host' in place && place.host === 'localhost') {
    // Which is two addresses, and Fastify opens both.
    await app.listen(place);
    return;
  }
  await app.ready();
  const listening = once(app.server, 'listening');
  app.server.listen(place);
  await listening;
}

/** Whether an address or name as written in a config or a Host header means this machine and nothing else. */
export function isLoopbackName(name: string): boolean {
  const bare = name.replace(/^\[(.*)\]$/, '$1').toLowerCase();
  if (bare === 'localhost' || bare === '::1') return true;
  const mapped = bare.startsWith('::ffff:') ? bare.slice('::ffff:'.length) : bare;
  return isIPv4(mapped) && mapped.startsWith('127.');
}

/** The host part of a Host header, without its port; empty when there is none. */
export function hostOf(header: string | undefined): string {
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+)(?::\d+)?$/.exec(header?.trim() ?? '');
  return match?.[1] ?? '';
}

const FORWARDED_HEADERS = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'via'] as const;

/**
 * Whether a request comes from a program on this machine that asked for this machine. One that a proxy passes
 * on is not, though its connection is; neither is a web page's under a name that was rebound to 127.0.0.1.
 */
export function isFromThisMachine(request: FastifyRequest): boolean {
  return (
    isLoopbackName(request.socket.remoteAddress ?? '') &&
    isLoopbackName(hostOf(request.headers.host)) &&
    !isPassedOn(request)
  );
}

/** Whether a proxy says that it passes the request on for somebody else. */
export function isPassedOn(request: FastifyRequest): boolean {
  return FORWARDED_HEADERS.some((name) => request.headers[name] !== undefined);
}
