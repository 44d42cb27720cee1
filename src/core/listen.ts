import { once } from 'node:events';
import type { FastifyInstance, FastifyRequest } from 'fastify';

/**
 * Options that switch off JSON Schema in Fastify. zod checks all input, and compiling the schemas would take a fifth of
 * the time that a start takes.
 */
export const WITHOUT_JSON_SCHEMA = {
  compilersFactory: { buildValidator: () => noJsonSchema, buildSerializer: () => noJsonSchema },
};

function noJsonSchema(): never {
  throw new Error('No route has a JSON Schema');
}

/** Where a server listens: an address of this machine, a Unix socket, or a socket that systemd has opened. */
type ListenAddress = { host: string; port: number } | { path: string } | { fd: number };

/**
 * Makes a Fastify server listen. Rejects with Node's error, such as EADDRINUSE. For 0.0.0.0, Fastify's own `listen`
 * would open a netlink socket, which the systemd units forbid.
 */
export async function listenAt(app: FastifyInstance, place: ListenAddress): Promise<void> {
  if ('host' in place && place.host === 'localhost') {
    // localhost has two addresses, and Fastify's `listen` opens both.
    await app.listen(place);
    return;
  }
  await app.ready();
  const listening = once(app.server, 'listening');
  app.server.listen(place);
  await listening;
}

/** Returns the host in a Host header without its port; '' if there is none. */
export function hostOf(header: string | undefined): string {
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+)(?::\d+)?$/.exec(header?.trim() ?? '');
  return match?.[1] ?? '';
}

const FORWARDED_HEADERS = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'via'] as const;

/** Whether the request has a header of a proxy that forwarded it. */
export function isPassedOn(request: FastifyRequest): boolean {
  return FORWARDED_HEADERS.some((name) => request.headers[name] !== undefined);
}
