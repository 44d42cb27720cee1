import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import type { OrderSink } from '../../src/orders/merging/order.ts';
import { createReceiver } from '../../src/orders/receiving/callback-server.ts';
import { openBenchSink } from './bench-sink.ts';
import { plainReceiver } from './plain-receiver.ts';
import { readSample } from './sample-order.ts';

/**
 * The servers that the receiver bench compares, each in its own process: node receiver-server.ts
 * bare|per-request|tillsync DIRECTORY SECRET. Prints its URL, and closes the server when standard input ends.
 */
const [mode = '', directory = '', secret = ''] = process.argv.slice(2);

const server = mode === 'tillsync' ? await tillsync() : await plain(mode === 'per-request');
process.stdout.write(`${server.url}\n`);
process.stdin.resume().on('end', () => void server.close());

async function tillsync() {
  const { sink, close } = openBenchSink(directory);
  const receiver = createReceiver({
    host: '127.0.0.1',
    port: 0,
    path: '/webhook',
    secrets: () => [secret],
    sink,
    read: readSample,
    clock: systemClock,
    log: silentLog,
    bodyLimitBytes: 1_048_576,
  });
  const { url } = await receiver.listen();
  return { url, close: () => receiver.close().then(close) };
}

async function plain(storing: boolean) {
  const store = storing ? openBenchSink(directory) : undefined;
  const server = await plainReceiver(secret, store && ((body) => keepOne(store.sink, body)));
  return { url: server.url, close: () => server.close().then(() => store?.close()) };
}

async function keepOne(sink: OrderSink, value: unknown): Promise<void> {
  const reading = readSample(value);
  if ('unreadable' in reading) throw new Error(reading.unreadable);
  const observation = {
    source: 'webhook',
    observedAtMs: Date.now(),
    raw: JSON.stringify(value),
    reading,
  } as const;
  await sink.save([{ kind: 'order', observation }]);
}
