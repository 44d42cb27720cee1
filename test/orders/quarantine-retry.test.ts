import { describe, expect, test } from 'vitest';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { retryQuarantined } from '../../src/orders/receiving/replay.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { heldNotifications, OBSERVED_MS, observation, openTestMirror } from './open-test-mirror.ts';

const RECEIVED = '2026-01-02T03:04:05.000Z';

function rules(fields: Record<string, string[]> = {}) {
  return { spellings: compileSpellings(fields), listPath: '' };
}

const POISON = JSON.stringify({ bestellnummer: 'x-1', status: 'ready', amountToPay: 5 });

describe('a payload from quarantine', () => {
  test('that can be read now becomes an order of its own time', async () => {
    const { mirror } = openTestMirror();
    const entry = { source: 'webhook', receivedAt: RECEIVED, payload: POISON } as const;
    const report = await retryQuarantined(entry, mirror, rules({ orderId: ['bestellnummer'] }));
    expect(report).toEqual({ kept: ['x-1'], overtaken: [], unreadable: [] });
    expect(mirror.orders.get('x-1')).toMatchObject({ status: 'ready', updatedAt: RECEIVED });
    expect(mirror.orders.payload('x-1')).toBe(POISON);
    expect(mirror.orders.eventsAfter(0, 9)).toMatchObject([{ source: 'webhook', observedAt: RECEIVED }]);
  });

  test('that still cannot be read says why', async () => {
    const { mirror } = openTestMirror();
    const entry = { source: 'webhook', receivedAt: RECEIVED, payload: '[1' } as const;
    const report = await retryQuarantined(entry, mirror, rules());
    expect(report).toEqual({ kept: [], overtaken: [], unreadable: ['It is not JSON.'] });
    expect(mirror.orders.newestSeq()).toBe(0);
  });

  test('of a whole poll gives each of its records its own fate', async () => {
    const { mirror } = openTestMirror();
    const record = (orderId: string) => ({ orderId, status: 'ready', code: 7, amountToPay: 5 });
    for (const [orderId, month] of [
      ['old', 0],
      ['newer', 1],
    ] as const) {
      const observedAtMs = Date.UTC(2026, month, 1);
      const known = observation('poll', record(orderId), { observedAtMs });
      await mirror.save([{ kind: 'order', observation: known }]);
    }
    const { orderId: _none, ...nameless } = record('');
    const records = [...['new', 'old', 'newer'].map(record), nameless];
    const payload = Buffer.from(JSON.stringify({ shop: { sales: records } }));
    const report = await retryQuarantined({ source: 'poll', receivedAt: RECEIVED, payload }, mirror, rules());
    expect(report).toMatchObject({ kept: ['new'], overtaken: ['old', 'newer'], unreadable: { length: 1 } });
    expect(mirror.orders.eventsAfter(2, 9)).toMatchObject([{ orderId: 'new', source: 'poll' }]);
  });

  test('of a poll takes no order back that a callback confirmed since, and settles none that is held', async () => {
    const { mirror } = openTestMirror();
    const sent = sampleNotification(1, { status: 'ready' });
    const orderId = String(sent.internalOrderId);
    const call = (status: string, minutes: number) => {
      const observedAtMs = OBSERVED_MS + minutes * 60_000;
      const observed = observation('webhook', { ...sent, status }, { observedAtMs });
      return mirror.save([{ kind: 'order', observation: observed }]);
    };
    expect([await call('ready', 0), await call('ready', 10), await call('pending', 20)]).toEqual([
      ['created'],
      ['confirmed'],
      ['held'],
    ]);
    const receivedAt = new Date(OBSERVED_MS + 5 * 60_000).toISOString();
    const payload = JSON.stringify({ ...sent, status: 'inProcess' });
    const report = await retryQuarantined({ source: 'poll', receivedAt, payload }, mirror, rules());
    expect(report).toEqual({ kept: [], overtaken: [orderId], unreadable: [] });
    expect(mirror.orders.get(orderId)).toMatchObject({ status: 'ready', seq: 1 });
    expect(heldNotifications(mirror)).toMatchObject([{ status: 'pending', resolution: null }]);
  });

  test('that is older than what the mirror has fills in what nothing newer says, and is kept', async () => {
    const { mirror } = openTestMirror();
    const { address, items, ...sent } = sampleNotification(1, { status: 'ready' });
    const newer = observation('poll', { ...sent, status: 'dispatched' }, { observedAtMs: OBSERVED_MS });
    await mirror.save([{ kind: 'order', observation: newer }]);
    const payload = JSON.stringify({ ...sent, address, items });
    const receivedAt = new Date(OBSERVED_MS - 60_000).toISOString();
    const orderId = String(sent.internalOrderId);
    const entry = { source: 'webhook', receivedAt, payload } as const;
    expect(await retryQuarantined(entry, mirror, rules())).toEqual({
      kept: [orderId],
      overtaken: [],
      unreadable: [],
    });
    expect(mirror.orders.get(orderId)).toMatchObject({ status: 'dispatched' });
    const rows = mirror.read((db) => ({
      lines: db.prepare('SELECT 1 FROM order_items').all().length,
      city: db.prepare('SELECT address_city FROM orders').pluck().get(),
      payloads: db.prepare('SELECT payload FROM _order_payloads').pluck().all(),
    }));
    expect(rows).toEqual({
      lines: (items as unknown[]).length,
      city: (address as { city: string }).city,
      payloads: [payload],
    });
    // Retrying the same entry again changes nothing.
    expect(await retryQuarantined(entry, mirror, rules())).toMatchObject({ kept: [], overtaken: [orderId] });
  });

  test('of one record of a poll is read like a notification', async () => {
    const { mirror } = openTestMirror();
    const entry = { source: 'poll', receivedAt: RECEIVED, payload: POISON } as const;
    const report = await retryQuarantined(entry, mirror, rules({ orderId: ['bestellnummer'] }));
    expect(report.kept).toEqual(['x-1']);
  });

  test('of something else than orders is left alone', async () => {
    const { mirror } = openTestMirror();
    const entry = { source: 'inbox', receivedAt: RECEIVED, payload: POISON } as const;
    expect(await retryQuarantined(entry, mirror, rules())).toMatchObject({
      kept: [],
      unreadable: ['Only orders can be read again, and this came from the inbox.'],
    });
  });
});
