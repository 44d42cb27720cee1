import { setTimeout as pause } from 'node:timers/promises';
import { sampleNotification } from '../../support/order-samples.ts';

// Sends a callback every EVERY_MS, each with its own order and connection, until the time is up; then prints the number
// of each result and the longest duration. Arguments: address, secret, number of the first order, seconds.

const EVERY_MS = 50;
const [url = '', secret = '', first = '1', seconds = '1'] = process.argv.slice(2);
const outcomes: Promise<{ status: string; ms: number }>[] = [];
for (let i = 0; i < (Number(seconds) * 1000) / EVERY_MS; i++) {
  outcomes.push(send(Number(first) + i));
  await pause(EVERY_MS);
}
const done = await Promise.all(outcomes);
const counts: Record<string, number> = {};
for (const { status } of done) counts[status] = (counts[status] ?? 0) + 1;
process.stdout.write(JSON.stringify({ counts, worstMs: Math.max(...done.map(({ ms }) => ms)) }));

async function send(number: number): Promise<{ status: string; ms: number }> {
  const startMs = performance.now();
  const status = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-webhook-secret': secret, connection: 'close' },
    body: JSON.stringify(sampleNotification(number)),
  }).then(
    (response) => String(response.status),
    (error: Error) => `failed: ${String(error.cause ?? error)}`,
  );
  return { status, ms: Math.round(performance.now() - startMs) };
}
