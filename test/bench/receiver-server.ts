import { createHash, timingSafeEqual } from 'node:crypto';
import Fastify from 'fastify';
import { systemClock } from '../../src/daemon/system-clock.ts';
import { silentLog } from '../../src/domain/log.ts';
import type { OrderKeeper } from '../../src/domain/order-intake.ts';
import { createReceiver } from '../../src/receiver/receiver.ts';
import { openBenchKeeper } from './bench-keeper.ts';
import { readSample } from './sample-order.ts';

/*
 * The servers that the receiver bench compares, each in a process of its own:
 * node receiver-server.ts bare|per-request|tillsync DIRECTORY SECRET
 * Prints its URL; ends in order when standard input does.
 */
const [mode = '', directory = '', secret = ''] = process.argv.slice(2);

const server = mode === 'tillsync' ? await tillsync() : await plain(mode === 'per-request');
process.stdout.write(`${server.url}\n`);
process.stdin.resume().on('end', () => void server.close());

async function tillsync() {
  const { keeper, close } = openBenchKeeper(directory);
  const receiver = createReceiver({
    host: '127.0.0.1',
    port: 0,
    path: '/webhook',
    secrets: () => [secret],
    keeper,
    read: readSample,
    clock: systemClock,
    log: silentLog,
    bodyLimitBytes: 1_048_576,
  });
  const { url } = await receiver.listen();
  return { url, close: () => receiver.close().then(close) };
}

/** Fastify as anyone would write it: check the secret, parse, answer; with `storing` a commit before each answer. */
async function plain(storing: boolean) {
  const store = storing ? openBenchKeeper(directory) : undefined;
  const wanted = createHash('sha256').update(secret).digest();
  const app = Fastify();
  app.addHook('onRequest', async (request, reply) => {
    const offered = createHash('sha256').update(String(request.headers['x-webhook-secret'])).digest();
    if (!timingSafeEqual(offered, wanted)) await reply.code(401).send({ error: 'wrong secret' });
  });
  app.post('/webhook', async (request) => {
    if (store) await keepOne(store.keeper, request.body);
    return { ok: true };
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  return { url: `${url}/webhook`, close: () => app.close().then(() => store?.close()) };
}

async function keepOne(keeper: OrderKeeper, value: unknown): Promise<void> {
  const reading = readSample(value);
  if ('unreadable' in reading) throw new Error(reading.unreadable);
  const observation = {
    source: 'webhook',
    observedAtMs: Date.now(),
    raw: JSON.stringify(value),
    reading,
  } as const;
  await keeper.keep([{ kind: 'order', observation }]);
}
