import { expect, it } from 'vitest';
import { rig } from './rig.ts';

const HOUR_MS = 3_600_000;

it('tells of a forbidden endpoint until that one answers, whatever others do', async () => {
  const r = await rig();
  const platform = r.client();
  const { ledger } = r.state;
  const order = { startDate: '2026-01-14', endDate: '2026-01-16' };
  const fault = r.sandbox.control.setFault({ kind: 'forbid', endpoint: 'order.all' });
  expect((await r.fault(platform.orderAll(order))).code).toBe('blocked');
  // A block of all endpoints is not listed here, because each flow that it stops reports it.
  expect(ledger.forbidden()).toEqual([]);
  await r.run(platform.productGet({ sku: '1' }));
  expect((await r.fault(platform.orderAll(order))).code).toBe('forbidden');
  expect(ledger.forbidden()).toEqual([{ endpoint: 'order.all', message: expect.any(String) }]);
  await r.run(platform.productGet({ sku: '1' }));
  expect(ledger.forbidden()).toHaveLength(1);
  r.sandbox.control.clearFaults(fault);
  await r.clock.advance(HOUR_MS);
  await r.run(platform.orderAll(order));
  expect(ledger.forbidden()).toEqual([]);
});

it('does not tell of a read of the webhook, which a platform may not have', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.setFault({ kind: 'forbid', endpoint: 'webhook.get' });
  await r.fault(platform.webhookGet());
  await r.run(platform.productGet({ sku: '1' }));
  expect((await r.fault(platform.webhookGet())).code).toBe('forbidden');
  expect(r.state.ledger.forbidden()).toEqual([]);
});
