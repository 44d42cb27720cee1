import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Keeps connections that wait for a request open when the server closes: the request may be on its way already, and
 * its sender would see a reset. Returns what ends them, for when the moment of grace is over.
 */
export function holdIdleConnections(server: Server): () => void {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  const endIdle = server.closeIdleConnections.bind(server);
  // Node and Fastify both call it as soon as they close.
  server.closeIdleConnections = () => {};
  return () => {
    endIdle();
    // Node counts a connection that never sent a byte as busy, and would wait for it to the deadline.
    for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy();
  };
}
