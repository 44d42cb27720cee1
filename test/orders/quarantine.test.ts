import { describe, expect, it } from 'vitest';
import type { Unreadable } from '../../src/orders/merging/order.ts';
import { OBSERVED_MS, openTestMirror } from './open-test-mirror.ts';

const unreadable = (payload: string | Uint8Array, source: Unreadable['source'] = 'webhook') => ({
  kind: 'unreadable' as const,
  unreadable: { source, receivedAtMs: OBSERVED_MS, reason: 'No order id was found.', payload },
});

describe('quarantine', () => {
  it('keeps text and bytes as they came, once each, and counts', async () => {
    const { mirror } = openTestMirror();
    const bytes = new Uint8Array([0xff, 0x00, 0x7b]);
    const outcomes = await mirror.save([unreadable('{"a":1}'), unreadable(bytes), unreadable('{"a":1}')]);
    expect(outcomes).toEqual(['quarantined', 'quarantined', 'quarantined']);
    const list = mirror.quarantine.list(9);
    expect(list).toEqual([
      {
        quarantineId: 2,
        source: 'webhook',
        receivedAt: '2026-01-15T12:00:00.000Z',
        reason: 'No order id was found.',
        seen: 1,
        bytes: 3,
      },
      {
        quarantineId: 1,
        source: 'webhook',
        receivedAt: '2026-01-15T12:00:00.000Z',
        reason: 'No order id was found.',
        seen: 2,
        bytes: 7,
      },
    ]);
    expect(mirror.quarantine.get(1)?.payload).toBe('{"a":1}');
    expect(Buffer.from(mirror.quarantine.get(2)?.payload as Uint8Array)).toEqual(Buffer.from(bytes));
  });

  it('tells sources apart', async () => {
    const { mirror } = openTestMirror();
    await mirror.save([unreadable('x', 'poll'), unreadable('x', 'webhook'), unreadable('x', 'poll')]);
    expect(mirror.quarantine.list(9).map(({ source, seen }) => [source, seen])).toEqual([
      ['webhook', 1],
      ['poll', 1],
    ]);
  });

  it('lets go of polls before callbacks when there is too much, for those are not sent again', async () => {
    const { mirror } = openTestMirror();
    await mirror.save([unreadable('only once', 'webhook')]);
    for (let i = 0; i < 5; i++) await mirror.save([unreadable(`${i}`, 'poll')]);
    await mirror.write((db) => db.exec("UPDATE _quarantine SET bytes = 30000000 WHERE source = 'poll'"));
    await mirror.save([unreadable('6', 'poll')]);
    const list = mirror.quarantine.list(9);
    expect(list.length).toBeLessThan(7);
    expect(list.at(-1)).toMatchObject({ source: 'webhook', bytes: 9 });
  });

  it('lets go of what was settled', async () => {
    const { mirror } = openTestMirror();
    await mirror.save([unreadable('x')]);
    expect(await mirror.quarantine.remove(1)).toBe(true);
    expect(await mirror.quarantine.remove(1)).toBe(false);
    expect(mirror.quarantine.get(1)).toBeUndefined();
  });
});
