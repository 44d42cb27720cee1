import type { ServerResponse } from 'node:http';

/**
 * Sends a short JSON answer that tells nothing of the inside. Straight to Node: nothing here needs what Fastify
 * does to a reply, and the endpoint is measured by how little an answer costs.
 */
export function answer(
  response: ServerResponse,
  status: number,
  json: string,
  headers: Record<string, string> = {},
): void {
  if (response.headersSent) return;
  response.writeHead(status, {
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(json),
    ...headers,
  });
  response.end(json);
}
