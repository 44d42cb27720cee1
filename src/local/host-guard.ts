import type { FastifyReply, FastifyRequest } from 'fastify';
import { TillsyncError } from '../domain/errors.ts';
import { errorBody } from './api-error.ts';
import { isByGroupSocket } from './group-socket.ts';
import { hostOf, isLoopbackName } from './loopback.ts';

/**
 * Refuses requests whose Host header names neither this machine nor one of `names`: with a name of its own
 * pointed at 127.0.0.1, a web page could otherwise read the shop's orders through a visitor's browser.
 */
export function hostGuard(names: readonly string[]) {
  const allowed = new Set(names.map((name) => name.toLowerCase()));
  return (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
    const host = hostOf(request.headers.host);
    // A browser opens no Unix socket.
    if (isByGroupSocket(request) || isLoopbackName(host) || allowed.has(host.toLowerCase())) {
      done();
      return;
    }
    reply.code(403).send(errorBody(refused));
  };
}

const refused = new TillsyncError('forbidden', 'This address is not served under that name.', {
  hint: 'Use 127.0.0.1.',
});
