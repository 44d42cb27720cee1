import { mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { isoUtc } from '../../src/core/time.ts';
import { type BenchOptions, type BenchResult, median, spread } from './bench-result.ts';
import { LoneClient } from './lone-callback.ts';
import { sampleOrder } from './sample-order.ts';
import { SECRET, startServer } from './server-process.ts';

const KNOWN = 5_000;
const CONNECTIONS = 50;
const OPENED_MS = Date.UTC(2026, 0, 15, 12);
/** Statuses that each known order gets, one after the other. */
const STATUSES = ['inProcess', 'ready', 'dispatched'];

/** Measures changes of existing orders against new orders. Each change also stores the order's previous payload. */
export async function measureStatusChanges(parent: string, options: BenchOptions): Promise<BenchResult> {
  const rounds = options.quick ? 1 : 7;
  const speeds: { created: number; changed: number }[] = [];
  for (let round = 1; round <= rounds; round++) {
    options.progress(`changes of ${KNOWN} orders beside new ones, round ${round} of ${rounds}`);
    speeds.push(await measureOnce(mkdtempSync(path.join(parent, 'status-'))));
  }
  const ratios = speeds.map(({ created, changed }) => changed / created);
  const perSecond = (which: 'created' | 'changed') =>
    Math.round(median(speeds.map((each) => each[which])) * 1000);
  return {
    name: `callbacks that change the status of one of ${KNOWN} orders / callbacks with new orders`,
    ratio: median(ratios),
    bound: '',
    detail: `${perSecond('changed')}/s, new ${perSecond('created')}/s; ${CONNECTIONS} kept-alive connections; ${spread(ratios)}`,
  };
}

/** Returns how many callbacks with new orders and with changes are answered in a millisecond. */
async function measureOnce(directory: string): Promise<{ created: number; changed: number }> {
  const server = await startServer('receiver-server.ts', 'tillsync', directory, SECRET);
  const clients = await Promise.all(
    Array.from({ length: CONNECTIONS }, () => LoneClient.connect(server.url)),
  );
  try {
    await deliver(clients, 0, 'picker-pending');
    // New orders and changes alternate, so that both find the machine in the same state.
    let created = 0;
    let changed = 0;
    for (const [n, status] of STATUSES.entries()) {
      created += await deliver(clients, (n + 1) * KNOWN, 'picker-pending');
      changed += await deliver(clients, 0, status);
    }
    const callbacks = STATUSES.length * KNOWN;
    return { created: callbacks / created, changed: callbacks / changed };
  } finally {
    for (const client of clients) client.close();
    await server.stop();
    rmSync(directory, { recursive: true });
  }
}

/** Delivers `KNOWN` callbacks, the oldest order first; returns the time that this took, in ms. */
async function deliver(clients: readonly LoneClient[], first: number, status: string): Promise<number> {
  const bodies = Array.from({ length: KNOWN }, (_, i) => {
    const number = first + i;
    const id = `64b0c2${number.toString(16).padStart(18, '0')}`;
    return sampleOrder(id, 10_000 + number, status, isoUtc(OPENED_MS + number * 60_000));
  });
  let next = 0;
  const beganMs = performance.now();
  await Promise.all(
    clients.map(async (client) => {
      for (let body = bodies[next++]; body !== undefined; body = bodies[next++]) await client.post(body);
    }),
  );
  return performance.now() - beganMs;
}
