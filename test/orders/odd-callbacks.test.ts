import { describe, expect, it } from 'vitest';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { strayOrders } from '../../src/orders/merging/incomplete-orders.ts';
import { readOrderText, readSentOrder } from '../../src/orders/merging/order-reader.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { readSeed } from '../support/run-settings.ts';
import { post } from './http-client.ts';
import { type Found, type Row, Verdict } from './odd-callback-oracle.ts';
import { type OddCallback, oddCallback, SHOP_TIMEZONE } from './odd-callbacks.ts';
import { OBSERVED_MS, openTestMirror } from './open-test-mirror.ts';
import { startReceiver } from './start-receiver.ts';

const SEED = readSeed(process.env.TILLSYNC_SEED);
const spellings = compileSpellings({}, SHOP_TIMEZONE);

/** Stores a callback as the receiver does, without HTTP. Returns the order's id if it is readable. */
async function receiveText(mirror: Mirror, raw: string): Promise<string | undefined> {
  const reading = readOrderText(raw, spellings);
  const observedAtMs = OBSERVED_MS;
  if ('unreadable' in reading) {
    const unreadable = {
      source: 'webhook',
      receivedAtMs: observedAtMs,
      reason: reading.unreadable,
      payload: raw,
    } as const;
    await mirror.save([{ kind: 'unreadable', unreadable }]);
    return undefined;
  }
  await mirror.save([{ kind: 'order', observation: { source: 'webhook', observedAtMs, raw, reading } }]);
  return reading.orderId;
}

function lookAt(mirror: Mirror, orderId: string | undefined, raw: string): Found {
  return mirror.read((db) => {
    const id = orderId ?? '';
    const rows = (table: string, by: string) =>
      db.prepare<[string], Row>(`SELECT * FROM ${table} WHERE order_id = ? ${by}`).all(id);
    const told = db
      .prepare<[string], { reason: string }>(
        `SELECT incomplete_reason AS reason FROM _orders WHERE order_id = ? AND incomplete_reason IS NOT NULL`,
      )
      .all(id);
    return {
      order: rows('orders', '')[0],
      lines: rows('order_items', 'ORDER BY line'),
      modifiers: rows('order_item_modifiers', 'ORDER BY line, modifier'),
      reasons: told.map(({ reason }) => reason.replace(/.* is incomplete: /, '')).join(),
      isStray: strayOrders(db, null, OBSERVED_MS).some((stray) => stray.orderId === id),
      payloadInQuarantine: db.prepare('SELECT 1 FROM quarantine WHERE payload = ?').get(raw) !== undefined,
    };
  });
}

/** Returns the lost or wrong values of a case as sentences; empty if each value is in the mirror or reported. */
async function breachesOf(mirror: Mirror, { title, before, raw }: OddCallback): Promise<string[]> {
  const earlierId = before === undefined ? undefined : await receiveText(mirror, before);
  const earlier = earlierId === undefined ? undefined : lookAt(mirror, earlierId, '');
  const orderId = await receiveText(mirror, raw);
  const found = lookAt(mirror, orderId, raw);
  const { breaches } = new Verdict(JSON.parse(raw), found, orderId === earlierId ? earlier : undefined);
  if (found.order && found.order.payload !== raw) breaches.push('payload is not what came');
  return breaches.map((breach) => `seed ${SEED}, ${title}: ${breach}\n    ${raw.slice(0, 3000)}`);
}

async function allBreaches(from: number, to: number): Promise<string[]> {
  const { mirror } = openTestMirror({ timezone: SHOP_TIMEZONE });
  const breaches: string[] = [];
  for (let number = from; number < to; number++)
    breaches.push(...(await breachesOf(mirror, oddCallback(SEED, number))));
  return breaches;
}

describe('an odd callback', () => {
  it('is whole in the mirror, or told, in each of 60 cases', async () => {
    expect(await allBreaches(1, 61)).toEqual([]);
  });

  it('is whole in the mirror, or told, in each of 500 cases', { tags: ['bulk'] }, async () => {
    expect(await allBreaches(61, 561)).toEqual([]);
  });

  it('is answered 200 over HTTP, and is as whole or told', async () => {
    const { mirror } = openTestMirror({ timezone: SHOP_TIMEZONE });
    const read = (value: unknown, raw: string) => readSentOrder(value, raw, spellings);
    const { url, receiver } = await startReceiver({ sink: mirror, read });
    try {
      for (let number = 1; number <= 8; number++) {
        const { title, raw } = oddCallback(SEED, number);
        expect((await post(url, raw)).status, title).toBe(200);
        const reading = readOrderText(raw, spellings);
        const orderId = 'orderId' in reading ? reading.orderId : undefined;
        const { breaches } = new Verdict(JSON.parse(raw), lookAt(mirror, orderId, raw), undefined);
        expect(breaches, `seed ${SEED}, ${title}: ${raw}`).toEqual([]);
      }
    } finally {
      await receiver.close();
    }
  });
});
