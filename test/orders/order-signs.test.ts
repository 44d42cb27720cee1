import { describe, expect, it } from 'vitest';
import { fieldNews, missingCodes } from '../../src/orders/merging/incomplete-orders.ts';
import { openTestMirror, poll, receive, sampleNotification } from './open-test-mirror.ts';

const NOW_MS = Date.parse('2026-01-15T12:00:00.000Z');
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const at = (hoursAgo: number) => new Date(NOW_MS - hoursAgo * HOUR_MS).toISOString();

/** Makes a mirror with orders that have these codes and ages in hours. */
async function mirrorOf(
  orders: readonly [code: number, hoursAgo: number, changes?: Record<string, unknown>][],
) {
  const { mirror } = openTestMirror();
  const sent = orders.map(([code, hoursAgo, changes]) =>
    sampleNotification(code, { createdAt: at(hoursAgo), ...changes }),
  );
  await poll(mirror, sent);
  return mirror;
}

/**
 * Returns codes and ages in hours of orders of the previous week, one order every six hours. The codes are the 24 from
 * `first` on, except those in `without`.
 */
const week = (first: number, without: readonly number[] = []) =>
  Array.from({ length: 24 }, (_, i): [number, number] => [first + i, 8 * 24 - 2 - i * 6]).filter(
    ([code]) => !without.includes(code),
  );

describe('numbers that stay missing', () => {
  const signs = async (orders: [number, number][], lookedMs: number | null = NOW_MS) => {
    const mirror = await mirrorOf(orders);
    return mirror.read((db) => missingCodes(db, NOW_MS, lookedMs));
  };

  it('are those between the orders of a day, also behind the last one of the day before', async () => {
    const found = await signs([...week(100), [126, 20], [128, 2], [131, 1]]);
    expect(found.missing).toEqual([130, 129, 127, 125, 124]);
    expect(found).toMatchObject({ codes: 9, usualShare: 0 });
  });

  it('are none before a look far back was made since the order above them', async () => {
    const orders: [number, number][] = [...week(100), [124, 20], [126, 1]];
    expect((await signs(orders)).missing).toEqual([125]);
    expect((await signs(orders, NOW_MS - HOUR_MS)).missing).toEqual([]);
    expect((await signs(orders, null)).missing).toEqual([]);
  });

  it('stand beside the share of the week before, and that of few orders is not known', async () => {
    expect((await signs([...week(100, [105, 110, 115]), [124, 1]])).usualShare).toBeCloseTo(3 / 24);
    expect((await signs([...week(100).slice(0, 5), [105, 1]])).usualShare).toBe(1);
  });

  it('are not those of another numbering', async () => {
    expect((await signs([...week(100), [124, 2], [9_000, 1]])).missing).toEqual([]);
  });
});

describe('fields of orders', () => {
  type Changes = Record<string, unknown>;
  const news = async (before: Changes, now: Changes, count = 6) => {
    const orders = [
      ...week(100).map(([code, hours]): [number, number, Changes] => [code, hours, before]),
      ...Array.from({ length: count }, (_, i): [number, number, Changes] => [200 + i, 6 - i / 2, now]),
    ];
    const mirror = await mirrorOf(orders);
    return { mirror, ...mirror.read((db) => fieldNews(db, NOW_MS)) };
  };

  it('that are the same are no news, whatever stands in them', async () => {
    expect(await news({ tip: 1 }, { tip: null })).toMatchObject({ added: [], gone: [] });
  });

  it('are told by name where all before had them, or nearly all now have them; those within are not told again', async () => {
    const { added, gone, mirror } = await news(
      { deliveryTime: '2026-01-10T13:00:00.000Z' },
      { deliveryTime: undefined, taxes: [{ rate: 19, name: 'IVA' }] },
    );
    expect({ added, gone }).toEqual({ added: ['taxes'], gone: ['deliveryTime'] });
    // A day later, these orders are no longer the day's newest, so nothing is compared.
    const later = mirror.read((db) => fieldNews(db, NOW_MS + DAY_MS));
    expect(later).toEqual({ added: [], gone: [] });
  });

  it('are no news by few orders, nor by keys that are values', async () => {
    expect(await news({}, { taxes: 1 }, 4)).toMatchObject({ added: [] });
    expect(await news({}, { counts: { 65123: 1, 'a b': 2 } })).toMatchObject({ added: ['counts'] });
    expect(await news({ counts: { x: 1 } }, { counts: { x: 1, 65123: 1 } })).toMatchObject({ added: [] });
  });

  it('are no news where a shop sells to be fetched for a day, and then has no address', async () => {
    const { added, gone } = await news({}, { deliveryType: 'pickup', address: undefined });
    expect({ added, gone }).toEqual({ added: [], gone: [] });
    expect((await news({}, { address: undefined })).gone).toEqual(['address']);
  });

  it('of callbacks and of polls are compared apart', async () => {
    const { mirror } = await news({}, {}, 6);
    const sent = Array.from({ length: 6 }, (_, i) =>
      sampleNotification(300 + i, { createdAt: at(1), onlyCallbacks: 1 }),
    );
    await receive(mirror, ...sent);
    expect(mirror.read((db) => fieldNews(db, NOW_MS))).toEqual({ added: [], gone: [] });
  });
});
