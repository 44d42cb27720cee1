import { createHash, timingSafeEqual } from 'node:crypto';
import Fastify from 'fastify';

/** Starts a usual Fastify server that checks the secret, parses, stores with `keep` if given, and answers. */
export async function plainReceiver(
  secret: string,
  keep?: (body: unknown) => Promise<void>,
): Promise<{ url: string; close(): Promise<void> }> {
  const wanted = createHash('sha256').update(secret).digest();
  const app = Fastify();
  app.addHook('onRequest', async (request, reply) => {
    const offered = createHash('sha256').update(String(request.headers['x-webhook-secret'])).digest();
    if (!timingSafeEqual(offered, wanted)) await reply.code(401).send({ error: 'wrong secret' });
  });
  app.post('/webhook', async (request) => {
    if (keep) await keep(request.body);
    return { ok: true };
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  return { url: `${url}/webhook`, close: () => app.close() };
}
