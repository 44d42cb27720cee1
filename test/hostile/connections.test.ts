/** Lets connections ask for more than the daemon can do. Callbacks must be answered meanwhile. */

import { connect, type Socket } from 'node:net';
import { Agent, request } from 'undici';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { percentile } from '../bench/mirror-samples.ts';
import { openFaultPlace } from '../faults/support/fault-place.ts';
import { residentMib } from '../slow/load/process-watch.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, SECRET, until, type Workplace } from '../support/workplace.ts';
import { openWatchdog } from './watchdog.ts';

const KEY = 'key-of-the-hostile-tests-0123456789';
const ORDERS = 600;
const RESIDENT_MIB_MAX = 400;
/** Time without a sign of life after which systemd would start the daemon anew. The daemon sends three in it. */
const WATCHDOG_MS = limitMs(3_000);
/** Callbacks that are measured for each attack, one after another. */
const CALLBACKS = 200;
const LONGER = { callbacks: 600 };

let place: Workplace;
let daemon: DaemonProcess;
let watchdog: Awaited<ReturnType<typeof openWatchdog>>;
let idleP99Ms: number;
let nextOrder = ORDERS;
const platform = new Agent({ connections: 1 });
const sockets = new Set<Socket>();

beforeAll(async () => {
  place = await openFaultPlace();
  place.env.TILLSYNC_LOCAL_API_KEY = KEY;
  watchdog = await openWatchdog(place.directory, WATCHDOG_MS);
  Object.assign(place.env, watchdog.env);
  daemon = await place.run(watchdog.under);
  for (let n = 0; n < ORDERS; n += 50)
    await Promise.all(Array.from({ length: 50 }, (_, i) => callback(n + i)));
  await measure(CALLBACKS);
  idleP99Ms = percentile(await measure(CALLBACKS), 0.99);
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
});

afterAll(async () => {
  await daemon.end('SIGTERM');
  watchdog.close();
  await place.close();
  await platform.close();
});

/** Sends a callback with a new order. Returns how long its answer took. */
async function callback(n: number): Promise<number> {
  const startMs = performance.now();
  const answer = await request(place.config.webhook.callbackUrl, {
    dispatcher: platform,
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-webhook-secret': SECRET },
    body: JSON.stringify(sampleNotification(n)),
  });
  await answer.body.dump();
  expect(answer.statusCode).toBe(200);
  return performance.now() - startMs;
}

async function measure(count: number): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) times.push(await callback(nextOrder++));
  return times;
}

function send(url: string, text: string, isReading = true): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  sockets.add(socket);
  socket.on('error', () => {}).on('close', () => sockets.delete(socket));
  if (isReading) socket.resume();
  else socket.pause();
  socket.write(text);
  return socket;
}

const PAGE = `GET /v1/orders?limit=500 HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: ${KEY}\r\n\r\n`;

/** Measures callbacks while `attack` goes on, the daemon's memory and its signs of life. */
async function holdsAgainst(
  attack: (over: AbortSignal) => void,
  { p99MaxMs = Math.max(3 * idleP99Ms, limitMs(150)), callbacks = CALLBACKS } = {},
): Promise<void> {
  const pid = daemon.child.pid ?? 0;
  let residentMibMax = 0;
  const over = new AbortController();
  const signs = watchdog.count();
  const watch = setInterval(() => {
    residentMibMax = Math.max(residentMibMax, residentMib(pid));
  }, 20);
  try {
    attack(over.signal);
    const times = await measure(callbacks);
    const health = await request(`${daemon.localUrl}/healthz`, { headersTimeout: limitMs(1_000) });
    await health.body.dump();
    const gapMs = await watchdog.longestGapMs(signs);
    const [p50, p99] = [percentile(times, 0.5), percentile(times, 0.99)];
    console.log(
      `callbacks p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms (idle p99 ${idleP99Ms.toFixed(1)} ms), ${Math.round(residentMibMax)} MiB, signs of life at most ${Math.round(gapMs)} ms apart`,
    );
    expect(health.statusCode).toBe(200);
    expect(p99).toBeLessThan(Math.min(limitMs(1_000), p99MaxMs));
    expect(residentMibMax).toBeLessThan(RESIDENT_MIB_MAX);
    expect(gapMs).toBeLessThan(WATCHDOG_MS / 2);
  } finally {
    over.abort();
    clearInterval(watch);
  }
}

it.each([
  ['60 pages asked for at once on one connection', 1, 60],
  ['400 pages asked for at once on one connection', 1, 400],
  ['200 pages asked for at once on each of ten connections', 10, 200],
])('%s', async (_what, connections, pages) => {
  await holdsAgainst(() => {
    for (let i = 0; i < connections; i++) send(daemon.localUrl, PAGE.repeat(pages));
  });
});

it('ten readers that read on and on', async () => {
  const readers = new Agent({ connections: 10 });
  const running: Promise<void>[] = [];
  const statuses = new Set<number>();
  const read = async (over: AbortSignal) => {
    while (!over.aborted) {
      const url = `${daemon.localUrl}/v1/orders?limit=500`;
      const page = await request(url, { dispatcher: readers, headers: { 'x-api-key': KEY } });
      statuses.add(page.statusCode);
      // Nothing is parsed, because callbacks are measured in this process.
      let end = '';
      for await (const chunk of page.body) end = (end + chunk.toString().slice(-40)).slice(-40);
      expect(end).toContain('"trimmedTo":');
    }
  };
  await holdsAgainst((over) => {
    for (let i = 0; i < 10; i++) running.push(read(over));
  });
  await Promise.all(running);
  await readers.close();
  expect([...statuses]).toEqual([200]);
});

it('100 pages that nobody reads', async () => {
  await holdsAgainst(() => {
    for (let i = 0; i < 100; i++) send(daemon.localUrl, PAGE, false);
  });
});

it.each([1, 5])(
  '5,000 callbacks without the secret at once on each of %d connections',
  async (connections) => {
    const { callbackUrl } = place.config.webhook;
    const { pathname, host } = new URL(callbackUrl);
    const stranger = `POST ${pathname} HTTP/1.1\r\nhost: ${host}\r\ncontent-length: 2\r\n\r\n{}`;
    const opened: Socket[] = [];
    // A connection's requests are all parsed before it closes, which takes the daemon a part of a second.
    await holdsAgainst(
      () => {
        for (let i = 0; i < connections; i++) opened.push(send(callbackUrl, stranger.repeat(5_000)));
      },
      connections > 1 ? { p99MaxMs: limitMs(1_000) } : {},
    );
    await until('their connections are closed', () => opened.every(({ closed }) => closed));
  },
);

it('strangers that come again and again, each time with a hundred callbacks without the secret', async () => {
  const { callbackUrl } = place.config.webhook;
  const { pathname, host } = new URL(callbackUrl);
  const stranger = `POST ${pathname} HTTP/1.1\r\nhost: ${host}\r\ncontent-length: 2\r\n\r\n{}`;
  await holdsAgainst((over) => {
    const come = () => {
      if (!over.aborted) send(callbackUrl, stranger.repeat(100)).once('close', () => setTimeout(come, 5));
    };
    for (let i = 0; i < 5; i++) come();
  });
});

it('1,000 connections on which nothing comes', async () => {
  const addresses = [place.config.webhook.callbackUrl, daemon.localUrl];
  await holdsAgainst(() => {
    for (let i = 0; i < 1_000; i++) send(addresses[i % 2] as string, '');
  }, LONGER);
});

it('300 bodies of which a byte comes now and then', async () => {
  const { callbackUrl } = place.config.webhook;
  const { pathname, host } = new URL(callbackUrl);
  const size = 'content-type: application/json\r\ncontent-length: 100000\r\n\r\n[';
  const callbackOf = `POST ${pathname} HTTP/1.1\r\nhost: ${host}\r\nx-webhook-secret: ${SECRET}\r\n${size}`;
  const counts = `POST /v1/stock HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: ${KEY}\r\n${size}`;
  await holdsAgainst((over) => {
    for (let i = 0; i < 300; i++) {
      const socket = i % 2 === 0 ? send(callbackUrl, callbackOf) : send(daemon.localUrl, counts);
      const drip = setInterval(() => socket.writable && socket.write(' '), 500);
      over.addEventListener('abort', () => clearInterval(drip));
    }
  }, LONGER);
});
