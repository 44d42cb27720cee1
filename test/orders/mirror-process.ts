import { setTimeout as sleep } from 'node:timers/promises';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import type { OrderReading } from '../../src/orders/merging/order.ts';
import { readOrder } from '../../src/orders/merging/order-reader.ts';
import { sampleNotification } from '../support/order-samples.ts';

/**
 * Stores orders one after the other and prints each order's number when it is on the disk. Arguments: path of the
 * mirror, number of the first order, and `stop COUNT` (close after COUNT orders) or `on` (never stop).
 */
const [, , path = '', first = '1', mode = 'on', count = '1'] = process.argv;
const mirror = openMirror({ path, clock: systemClock });
const spellings = compileSpellings();

async function keep(number: number): Promise<void> {
  const sent = sampleNotification(number);
  const reading = readOrder(sent, spellings) as OrderReading;
  const raw = JSON.stringify(sent);
  await mirror.save([
    { kind: 'order', observation: { source: 'webhook', observedAtMs: systemClock.nowMs(), raw, reading } },
  ]);
  process.stdout.write(`${number}\n`);
}

const end = mode === 'stop' ? Number(first) + Number(count) : Number.POSITIVE_INFINITY;
for (let number = Number(first); number < end; number++) {
  await keep(number);
  await sleep(0);
}
await mirror.close();
