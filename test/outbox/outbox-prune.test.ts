import { expect, it } from 'vitest';
import { OutboxMaintenance } from '../../src/outbox/sending/maintenance.ts';
import { order, outgoing, product } from './outbox-fixture.ts';

type OutboxMaintenanceOptions = ConstructorParameters<typeof OutboxMaintenance>[0];

it('forgets what is done with, and keeps what was rejected until a person decides', () => {
  const out = outgoing();
  out.sweep([product('p1', 'Tea', [{ sku: '11', price: 2000, stocks: { s1: ['B', 3] } }])]);
  const [dropped] = out.accept('stock', [{ externalId: 'B', qty: 1 }]);
  const [rejected] = out.accept('stock', [{ externalId: 'B', qty: -1e300 }]);
  out.admin.discard(dropped?.changeId ?? 0);
  expect(rejected?.state).toBe('rejected');
  out.clock.jumpWall(400 * 86_400_000);
  expect(out.admin.prune(out.clock.nowMs())).toBe(1);
  expect(out.queries.list({ limit: 9 }).map(({ changeId }) => changeId)).toEqual([rejected?.changeId]);
  out.admin.discard(rejected?.changeId ?? 0);
  out.clock.jumpWall(1_000);
  expect(out.admin.prune(out.clock.nowMs())).toBe(1);
});

it('goes on while there are orders to be forgotten', async () => {
  const out = outgoing();
  out.reservations.begin(true);
  for (let i = 0; i < 251; i++) order(out, `o${i}`, 'B1', [], 'cancel');
  while (out.dispatcher.catchUp({ holdBack: true }));
  out.sweep([]);
  class Pruning extends OutboxMaintenance {
    override prune = () => super.prune();
  }
  const stores = { write: async (action: (stores: object) => unknown) => action(out) };
  const pruning = new Pruning({ ...out, stores, keptMs: 0 } as unknown as OutboxMaintenanceOptions);
  expect([await pruning.prune(), await pruning.prune()]).toEqual([true, false]);
});
