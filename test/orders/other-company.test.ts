import { expect, test } from 'vitest';
import { beginOtherCompany } from '../../src/orders/reading/order-queries.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { storeRig } from '../support/store-rig.ts';

const MINUTES_MS = 660_000;

test('orders of another company are told of, until they stop or the store is said to belong to it', async () => {
  const rig = storeRig({ platform: { orders: 0 } as object });
  const daemon = await rig.daemon();
  const raised = () =>
    daemon.services.mirror.health
      .raised()
      .map(({ key }) => key)
      .filter((key) => key === 'auth.other-company');
  const announce = async (number: number, websiteId: string) => {
    await rig.announce(daemon, sampleNotification(number, { websiteId }));
    await rig.clock.advance(MINUTES_MS);
  };
  await announce(1, 'ours');
  await announce(2, 'ours');
  expect(raised()).toEqual([]);
  await announce(3, 'theirs');
  expect(raised()).toEqual(['auth.other-company']);
  await announce(4, 'ours');
  expect(raised()).toEqual([]);

  await announce(5, 'theirs');
  expect(raised()).toEqual(['auth.other-company']);
  await daemon.services.mirror.write(beginOtherCompany);
  await rig.clock.advance(MINUTES_MS);
  expect(raised()).toEqual([]);
  await announce(6, 'theirs');
  expect(raised()).toEqual([]);
});
