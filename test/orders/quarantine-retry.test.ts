import { describe, expect, test } from 'vitest';
import type { IntakeEntry } from '../../src/orders/order.ts';
import { retryInto, retryQuarantined } from '../../src/orders/replay.ts';
import { compileSpellings } from '../../src/orders/spellings.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { OBSERVED_MS, observation, openTestMirror } from './open-test-mirror.ts';

const RECEIVED = '2026-01-02T03:04:05.000Z';

function setup(known: Record<string, string> = {}, fields: Record<string, string[]> = {}, listPath = '') {
  const entries: IntakeEntry[] = [];
  const options = {
    keeper: {
      keep: async (given: readonly IntakeEntry[]) => {
        entries.push(...given);
        return given.map(() => 'created' as const);
      },
    },
    find: (orderId: string) => (known[orderId] === undefined ? undefined : { updatedAt: known[orderId] }),
    mergeUnder: async () => ({ outcome: 'unchanged' as const }),
    spellings: compileSpellings(fields),
    listPath,
  };
  return { entries, options };
}

const POISON = JSON.stringify({ bestellnummer: 'x-1', status: 'ready', amountToPay: 5 });

describe('a payload from quarantine', () => {
  test('that can be read now becomes an observation of its own time', async () => {
    const { entries, options } = setup({}, { orderId: ['bestellnummer'] });
    const report = await retryQuarantined(
      { source: 'webhook', receivedAt: RECEIVED, payload: POISON },
      options,
    );
    expect(report).toEqual({ kept: ['x-1'], overtaken: [], unreadable: [] });
    expect(entries).toMatchObject([
      {
        kind: 'order',
        observation: {
          source: 'webhook',
          observedAtMs: Date.parse(RECEIVED),
          raw: POISON,
          reading: { orderId: 'x-1' },
        },
      },
    ]);
  });

  test('that still cannot be read says why', async () => {
    const { entries, options } = setup();
    const report = await retryQuarantined(
      { source: 'webhook', receivedAt: RECEIVED, payload: '[1' },
      options,
    );
    expect(report).toEqual({ kept: [], overtaken: [], unreadable: ['It is not JSON.'] });
    expect(entries).toEqual([]);
  });

  test('of a whole poll gives each of its records its own fate', async () => {
    const { entries, options } = setup({
      old: '2026-01-01T00:00:00.000Z',
      newer: '2026-02-01T00:00:00.000Z',
    });
    const records = [{ orderId: 'new' }, { orderId: 'old' }, { orderId: 'newer' }, { colour: 'red' }].map(
      (record) => ({ ...record, status: 'ready', code: 7, amountToPay: 5 }),
    );
    const payload = Buffer.from(JSON.stringify({ shop: { sales: records } }));
    const report = await retryQuarantined({ source: 'poll', receivedAt: RECEIVED, payload }, options);
    expect(report).toMatchObject({ kept: ['new', 'old'], overtaken: ['newer'], unreadable: { length: 1 } });
    expect(entries.map((entry) => entry.kind === 'order' && entry.observation.source)).toEqual([
      'poll',
      'poll',
    ]);
  });

  test('that is older than what the mirror has fills in what nothing newer says, and is kept', async () => {
    const { mirror } = openTestMirror();
    const { address, items, ...sent } = sampleNotification(1, { status: 'ready' });
    const newer = observation('poll', { ...sent, status: 'dispatched' }, { observedAtMs: OBSERVED_MS });
    await mirror.keep([{ kind: 'order', observation: newer }]);
    const payload = JSON.stringify({ ...sent, address, items });
    const receivedAt = new Date(OBSERVED_MS - 60_000).toISOString();
    const options = retryInto(mirror, { spellings: compileSpellings(), listPath: '' });
    const orderId = String(sent.internalOrderId);
    const entry = { source: 'webhook', receivedAt, payload } as const;
    expect(await retryQuarantined(entry, options)).toEqual({
      kept: [orderId],
      overtaken: [],
      unreadable: [],
    });
    expect(mirror.order(orderId)).toMatchObject({ status: 'dispatched' });
    const rows = mirror.read((db) => ({
      lines: db.prepare('SELECT 1 FROM order_items').all().length,
      city: db.prepare('SELECT address_city FROM orders').pluck().get(),
      payloads: db.prepare('SELECT payload FROM order_payloads').pluck().all(),
    }));
    expect(rows).toEqual({
      lines: (items as unknown[]).length,
      city: (address as { city: string }).city,
      payloads: [payload],
    });
    // Once more it brings nothing.
    expect(await retryQuarantined(entry, options)).toMatchObject({ kept: [], overtaken: [orderId] });
  });

  test('of one record of a poll is read like a notification', async () => {
    const { options } = setup({}, { orderId: ['bestellnummer'] });
    const report = await retryQuarantined({ source: 'poll', receivedAt: RECEIVED, payload: POISON }, options);
    expect(report.kept).toEqual(['x-1']);
  });

  test('of something else than orders is left alone', async () => {
    const { options } = setup();
    const report = await retryQuarantined(
      { source: 'inbox', receivedAt: RECEIVED, payload: POISON },
      options,
    );
    expect(report).toMatchObject({
      kept: [],
      unreadable: ['Only orders can be read again, and this came from the inbox.'],
    });
  });
});
