import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it, onTestFinished } from 'vitest';
import { hookReceiver } from '../../src/hooks/receivers.ts';
import { observation, openTestMirror, sampleNotification } from '../orders/open-test-mirror.ts';
import { eventReceiver, hook, until } from './event-receiver.ts';
import { loneHookLoop } from './lone-hook-loop.ts';

const EVENTS = 8_000;
const LOOKS = 8;
/**
 * Maximum growth of memory between two measurements: 50 bytes per event, less than the smallest object that may leak.
 */
const GROWS_BYTES_MAX = 50 * (EVENTS / LOOKS);

it('holds on to nothing of the events that it has sent, however fast it sends', {
  tags: ['bulk'],
  timeout: 120_000,
}, async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const heldBytes = async () => {
    for (let times = 0; times < 3; times++) {
      collect();
      await new Promise((resolve) => setImmediate(resolve));
    }
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const { mirror, clock } = openTestMirror();
  const seen = observation('webhook', sampleNotification(1, { status: 'pending' }));
  await mirror.save([{ kind: 'order', observation: seen }]);
  await mirror.write((db) =>
    db.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${EVENTS})
      INSERT INTO order_events (order_id, status, previous_status, source, observed_at)
      SELECT order_id, 'ready', 'pending', 'webhook', '2026-01-01T00:00:00.000Z' FROM n, orders`),
  );
  const receiver = await eventReceiver();
  let taken = 0;
  const answers: (() => void)[] = [];
  let mayGoOn = true;
  receiver.answer = (response) => {
    receiver.received.length = 0;
    taken += 1;
    const answer = () => void response.writeHead(200).end();
    // The receiver pauses for each measurement, while one event is being sent.
    if (taken % (EVENTS / LOOKS) === 0) mayGoOn = false;
    if (mayGoOn) answer();
    else answers.push(answer);
  };
  const stop = new AbortController();
  const ended = loneHookLoop(
    { mirror, clock },
    {
      hooks: [hook('pos', { url: receiver.url, from: 'start' })],
      receiverOf: (settings) =>
        hookReceiver({ hook: settings, secrets: ['signs'], env: {}, version: '1', clock }),
    },
    stop.signal,
  );
  onTestFinished(() => ended);
  const held: number[] = [];
  for (let look = 1; look <= LOOKS; look++) {
    await until(() => answers.length > 0, 60_000);
    held.push(await heldBytes());
    mayGoOn = true;
    answers.shift()?.();
  }
  stop.abort();
  // The growth between the first two measurements is warm-up and is not checked.
  const grown = held.slice(1).map((bytes, i) => bytes - (held[i] ?? 0));
  console.info(`held MiB ${held.map((bytes) => (bytes / 1024 ** 2).toFixed(2)).join(', ')}`);
  // A leak grows between all measurements, but unfinished garbage collection affects only some. So the smallest growth
  // is checked.
  expect(Math.min(...grown.slice(1))).toBeLessThan(GROWS_BYTES_MAX);
});
