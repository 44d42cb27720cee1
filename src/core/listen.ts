import { once } from 'node:events';
import { isIPv4 } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';

/**
 * Options of Fastify without JSON Schema, because zod checks all input and the schema compilers would take a fifth of
 * the start.
 */
export const WITHOUT_JSON_SCHEMA = {
  compilersFactory: { buildValidator: () => noJsonSchema, buildSerializer: () => noJsonSchema },
};

function noJsonSchema(): never {
  throw new Error('No route has a JSON Schema');
}

/** An address of this machine, or a socket that already listens. */
type ListenAddress = { host: string; port: number } | { path: string } | { fd: number };

/**
 * Makes a Fastify server listen. Rejects with Node's error, such as EADDRINUSE. It avoids Fastify's `listen` for
 * 0.0.0.0, which lists the machine's addresses through a netlink socket that the systemd units forbid.
 */
export async function listenAt(app: FastifyInstance, place: ListenAddress): Promise<void> {
  if ('host' in place && place.host === 'localhost') {
    // localhost is two addresses, and Fastify opens both.
    await app.listen(place);
    return;
  }
  await app.ready();
  const listening = once(app.server, 'listening');
  app.server.listen(place);
  await listening;
}

/** Whether an address or name, from a config or a Host header, certainly means this machine. */
export function isLoopbackName(name: string): boolean {
  const bare = name.replace(/^\[(.*)\]$/, '$1').toLowerCase();
  if (bare === 'localhost' || bare === '::1') return true;
  const mapped = bare.startsWith('::ffff:') ? bare.slice('::ffff:'.length) : bare;
  return isIPv4(mapped) && mapped.startsWith('127.');
}

/** Returns the host of a Host header without its port; empty if there is none. */
export function hostOf(header: string | undefined): string {
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+)(?::\d+)?$/.exec(header?.trim() ?? '');
  return match?.[1] ?? '';
}

const FORWARDED_HEADERS = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'via'] as const;

/**
 * Whether a program on this machine sent the request, under this machine's name. False for a request that a proxy
 * forwards, and for a web page whose name was rebound to 127.0.0.1.
 */
export function isFromThisMachine(request: FastifyRequest): boolean {
  return (
    isLoopbackName(request.socket.remoteAddress ?? '') &&
    isLoopbackName(hostOf(request.headers.host)) &&
    !isPassedOn(request)
  );
}

/** Whether a proxy's header says that the request was forwarded. */
export function isPassedOn(request: FastifyRequest): boolean {
  return FORWARDED_HEADERS.some((name) => request.headers[name] !== undefined);
}
