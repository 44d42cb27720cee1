/** Tests src/daemon/outgoing.ts. */

import { expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Verdict } from '../../src/health/verdict.ts';
import { type StoreRig, type StoreRigOptions, storeRig } from '../support/store-rig.ts';
import { listener } from '../support/watchers.ts';

const MINUTE_MS = 60_000;

/** Opens a store that does its checks once a minute and polls every two minutes, so that the test is fast. */
function openStore({ config = (same) => same, ...options }: StoreRigOptions = {}): StoreRig {
  return storeRig({
    ...options,
    config: (given) => config({ ...given, orders: { ...given.orders, poll: '*/2 * * * *' } }),
    lookEveryMs: MINUTE_MS,
  });
}

/** Submits a new stock count for each of `count` stocks. */
async function handOver({ rows }: StoreRig, { localUrl }: Daemon, count: number): Promise<void> {
  const sql = `SELECT sku, subsidiary_id AS subsidiaryId, qty + 5 AS qty FROM stocks
    WHERE sku IN (SELECT sku FROM integrations
      WHERE coalesce(ext_id, product_id_pos_a, product_code_pos_b) IS NOT NULL) LIMIT ?`;
  const stocks = rows(sql, count);
  expect(stocks).toHaveLength(count);
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${localUrl}/v1/stock`, {
    method: 'POST',
    headers,
    body: JSON.stringify(stocks),
  });
  expect(answer.ok).toBe(true);
}

async function verdictOf({ localUrl }: Daemon): Promise<Verdict> {
  return ((await (await fetch(`${localUrl}/v1/status`)).json()) as { verdict: Verdict }).verdict;
}

/** Makes a receiver of alarms. Each call advances the clock by some minutes and returns the messages of that time. */
function receiver(store: StoreRig, daemon: Daemon): (minutes: number) => Promise<string[]> {
  const told: string[] = [];
  const look = listener(daemon.services, store.clock, (news, key) => void told.push(`${news} ${key}`));
  return async (minutes) => {
    for (let ms = 0; ms < minutes * MINUTE_MS; ms += MINUTE_MS / 2) {
      await store.clock.advance(MINUTE_MS / 2);
      await look();
    }
    return told.splice(0);
  };
}

it('stock that the platform never takes is red and told, until it takes it', async () => {
  const store = openStore();
  const { control } = store.sandbox;
  const daemon = await store.daemon();
  const after = receiver(store, daemon);
  expect(await after(10)).toEqual([]);
  for (const endpoint of ['product.stock.batch', 'product.stock.put'] as const)
    control.setFault({ kind: 'status', status: 500, endpoint });
  await handOver(store, daemon, 3);
  expect(await after(5)).toEqual(['raised outbox.stuck']);
  const { level, findings } = await verdictOf(daemon);
  expect({ level, first: findings[0] }).toMatchObject({
    level: 'red',
    first: { cause: 'fault', remedy: expect.stringContaining('Ask its support') },
  });
  expect(findings[0]?.detail).toMatch(/^The connection works, because orders still arrive.*HTTP 500/);
  expect(await after(20)).toEqual([]);
  expect(control.violations()).toEqual([]);
  control.clearFaults();
  expect(await after(10)).toEqual(['healed outbox.stuck']);
  expect(await verdictOf(daemon)).toMatchObject({ level: 'green' });
});

it('a long queue that moves is amber at the most, and is told to nobody', { tags: ['bulk'] }, async () => {
  const store = openStore({
    platform: { seed: { products: 150 } },
    // The limit is a hundred changes in eight minutes instead of a hundred in a second.
    config: (given) => ({ ...given, limits: { ...given.limits, endpointIntervalMs: 8 * MINUTE_MS } }),
  });
  const daemon = await store.daemon();
  const after = receiver(store, daemon);
  expect(await after(90)).toEqual([]);
  expect(await verdictOf(daemon)).toMatchObject({ level: 'green' });
  await handOver(store, daemon, 550);
  const told = await after(40);
  const { level, findings } = await verdictOf(daemon);
  expect(findings.map(({ code }) => code)).toEqual(['outbox.stuck']);
  expect({ level, told }).toEqual({ level: 'amber', told: [] });
});

it('changes that wait because the line is cut are not told beside it, nor while they follow', async () => {
  const store = openStore();
  let isCut = false;
  const daemon = await store.daemon((_request, pass) => {
    if (isCut) throw new TillsyncError('platform-unreachable', 'The line is cut.');
    return pass();
  });
  const after = receiver(store, daemon);
  expect(await after(10)).toEqual([]);
  isCut = true;
  await handOver(store, daemon, 3);
  expect(await after(60)).toEqual(['raised orders.stale']);
  expect((await verdictOf(daemon)).findings.map(({ code }) => code)).toContain('outbox.stuck');
  isCut = false;
  expect(await after(15)).toEqual(['healed orders.stale']);
  expect(await verdictOf(daemon)).toMatchObject({ level: 'green' });
});
