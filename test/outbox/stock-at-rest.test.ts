import { expect, it } from 'vitest';
import { holding, send } from './held-back-steps.ts';
import { order } from './outbox-fixture.ts';
import { TEA } from './swept-outbox.ts';

const DAY_MS = 24 * 3_600_000;

it('a refused stock does not stay dirty, whatever its orders do, until it is counted again', () => {
  const out = holding();
  const dirty = () => out.db.prepare('SELECT total(dirty) FROM _stock_counts').pluck().get();
  order(out, 'o1', 'B1', [['B', 2]]);
  out.accept('stock', [{ externalId: 'B', qty: 10 }]);
  expect(send(out, 'rejected')).toEqual([8]);
  expect(dirty()).toBe(0);
  expect(out.reservations.acknowledge(['o1'], 'http')).toMatchObject([{ state: 'new' }]);
  order(out, 'o2', 'B1', [['B', 1]]);
  order(out, 'o2', 'B1', [['B', 1]], 'cancel');
  expect(send(out)).toEqual([]);
  expect(dirty()).toBe(0);
  out.accept('stock', [{ externalId: 'B', qty: 9 }]);
  expect(send(out)).toEqual([9]);
});

it('steps of an acknowledged order of an article that is never counted again are forgotten after 90 days', () => {
  const out = holding();
  const steps = () => out.db.prepare('SELECT DISTINCT order_id FROM _stock_steps ORDER BY 1').pluck().all();
  order(out, 'o1', 'B1', [['B', 2]]);
  order(out, 'o2', 'B1', [['B', 1]]);
  expect(send(out)).toEqual([]);
  out.reservations.acknowledge(['o1'], 'http');
  out.clock.jumpWall(90 * DAY_MS - 1_000);
  out.sweep([TEA]);
  expect(out.reservations.collect()).toBe(0);
  expect(steps()).toEqual(['o1', 'o2']);
  out.clock.jumpWall(2_000);
  // The order that nobody booked stays.
  expect(out.reservations.collect()).toBe(1);
  expect(steps()).toEqual(['o2']);
});

it('what an order took that the last count cannot contain is taken off it when the order is forgotten', () => {
  const out = holding();
  out.accept('stock', [{ externalId: 'B', qty: 10 }]);
  expect(send(out)).toEqual([10]);
  order(out, 'o1', 'B1', [['B', 2]]);
  expect(send(out)).toEqual([8]);
  out.reservations.acknowledge(['o1'], 'http');
  out.clock.jumpWall(91 * DAY_MS);
  out.sweep([TEA]);
  const wanted = () => out.db.prepare('SELECT wanted_qty FROM _stock_ledger').pluck().get();
  expect(wanted()).toBe(8);
  expect(out.reservations.collect()).toBe(1);
  expect(wanted()).toBe(8);
});
