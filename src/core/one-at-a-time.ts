import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { onRequestHookHandler } from 'fastify';

/** Requests that may wait on one connection until those before them are answered. */
const WAITING_MAX = 8;

interface Waiting {
  response: ServerResponse<IncomingMessage>;
  begin: () => void;
}

/**
 * Returns Fastify's hook `onRequest` that handles the requests of a connection one after another: the next begins when
 * the answer before has left, and none begins once the connection has ended. Node itself hands over all requests that
 * arrive in one piece at once, so that one connection could ask for the work of thousands. A connection with more than
 * `WAITING_MAX` waiting requests is closed after the last of them is answered.
 */
export function oneAtATime(): onRequestHookHandler {
  const lines = new WeakMap<Socket, Waiting[]>();
  const begin = (socket: Socket, { response, begin: handle }: Waiting): void => {
    response.once('close', () => {
      const next = lines.get(socket)?.shift();
      if (next === undefined) lines.delete(socket);
      // Other connections get their turn before.
      else setImmediate(beginIfOpen, socket, next);
    });
    handle();
  };
  const beginIfOpen = (socket: Socket, next: Waiting): void => {
    if (socket.writable) begin(socket, next);
  };
  return ({ raw: { socket } }, { raw: response }, done) => {
    const line = lines.get(socket);
    if (line === undefined) {
      lines.set(socket, []);
      begin(socket, { response, begin: done });
    } else if (line.length < WAITING_MAX) {
      line.push({ response, begin: done });
    } else {
      const last = line.at(-1)?.response;
      if (last) last.shouldKeepAlive = false;
      // Nothing more is read from it.
      socket.pause();
    }
  };
}
