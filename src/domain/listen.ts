import { once } from 'node:events';
import type { FastifyInstance } from 'fastify';

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
