import { describe, expect, it } from 'vitest';
import { UnsettledStocks } from '../../../src/store/outbox/unsettled-stocks.ts';
import { outgoing, product, SEND_ALL } from './outbox-fixture.ts';

function shop() {
  const out = outgoing();
  const sweep = () =>
    out.sweep([
      product('p1', 'Coffee', [{ sku: '1', stocks: { s1: ['C1', 5], s2: ['C2', 5] } }]),
      product('p2', 'Tea', [{ sku: '2', stocks: { s1: ['T', 5], s2: ['T', 5] } }]),
    ]);
  sweep();
  const sell = (orderId: string, externalId: string | null, name: string) => {
    out.db
      .prepare(
        `INSERT INTO order_events (order_id, status, previous_status, source, observed_at)
         VALUES (?, 'pending', NULL, 'webhook', '2026-01-15T12:00:00.000Z')`,
      )
      .run(orderId);
    out.db
      .prepare(
        `INSERT INTO order_items (order_id, line, product_external_id, product_name, quantity)
         VALUES (?, 1, ?, ?, 1)`,
      )
      .run(orderId, externalId, name);
  };
  const keys = (holdBack = false, subsidiaryIds?: ReadonlySet<string>) =>
    [...new UnsettledStocks(out.db).keys({ holdBack, subsidiaryIds })].sort();
  return { ...out, sweep, sell, keys };
}

describe('stocks of which the mirror does not have the last word', () => {
  it('are those with a change in line or under way, whatever it is named by', () => {
    const { accept, claims, settlement, keys } = shop();
    expect(keys()).toEqual([]);
    accept('stock', [{ externalId: 'C1', qty: 9 }]);
    expect(keys()).toEqual(['sku:1@s1']);
    const { callId, items } = claims.claim('stock', 100, SEND_ALL);
    expect(keys()).toEqual(['sku:1@s1']);
    settlement.settle(
      callId ?? 0,
      items.map(({ changeId }) => ({ changeId, state: 'done' })),
    );
    expect(keys()).toEqual([]);
  });

  it('are those that an order took from since a sweep, by id, by name, or all', () => {
    const { sell, keys, sweep } = shop();
    sell('o1', 'C2', 'Coffee');
    expect(keys()).toEqual(['sku:1@s2']);
    expect(keys(false, new Set(['s1', 's2']))).toEqual(['sku:1@s2']);
    sell('o2', null, 'Tea');
    expect(keys()).toEqual(['sku:1@s2', 'sku:2@s1', 'sku:2@s2']);
    sweep();
    expect(keys()).toEqual([]);
    sell('o3', null, 'A name nobody knows');
    expect(keys(false, new Set(['s1']))).toHaveLength(4);
  });

  it('are those of orders that are not booked, where these reduce a count', () => {
    const { sell, keys, sweep, acks } = shop();
    sell('o1', 'T', 'Tea');
    sweep();
    expect(keys(false)).toEqual([]);
    expect(keys(true)).toEqual(['sku:2@s1', 'sku:2@s2']);
    acks.correct();
    expect(keys(true)).toEqual(['sku:2@s1', 'sku:2@s2']);
  });
});
