import { expect, it } from 'vitest';
import { cursorOf, HookCursors } from '../../src/hooks/hook-cursors.ts';
import { beginOwnOrders } from '../../src/orders/own-orders.ts';
import { observation, openTestMirror, sampleNotification } from './open-test-mirror.ts';

it("a shop's hooks keep their place in the order feed, but not in the hub's feed of settled changes", async () => {
  const hub = openTestMirror();
  await hub.mirror.save([{ kind: 'order', observation: observation('webhook', sampleNotification(1)) }]);
  const cursors = new HookCursors(hub.mirror);
  const begin = { begun: undefined, from: 'now', at: '2026-01-15T12:00:00.000Z' } as const;
  await cursors.begin({ ...begin, name: 'printer', event: 'order', seq: 1 });
  await cursors.begin({ ...begin, name: 'printer', event: 'change.rejected', seq: 88 });
  const own = openTestMirror();
  await beginOwnOrders(own.mirror, { from: hub.path, stores: [], hooks: ['printer'] });
  const places = (['order', 'change.rejected'] as const).map(
    (event) => own.mirror.read((db) => cursorOf(db, { name: 'printer', event }))?.seq,
  );
  expect(places).toEqual([1, undefined]);
});
