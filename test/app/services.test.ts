import { expect, it } from 'vitest';
import { chosenBranch, inventoryReport, wholeInventory } from '../../src/app/inventory.ts';
import { sweepNow } from '../../src/catalog/sweep.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { storeRig } from '../support/store-rig.ts';

it.each([
  { cause: 'refused', told: 'The platform refused the refresh token.' },
  { cause: 'reply-lost', told: 'The answer to a token refresh was lost' },
])('auth.locked-out names the cause: $cause', async ({ cause, told }) => {
  const rig = storeRig();
  let isLost = cause === 'reply-lost';
  const { mirror, platform } = await rig.services(async (_request, pass) => {
    const answer = await pass();
    if (!isLost) return answer;
    isLost = false;
    throw new TillsyncError('platform-unreachable', 'The line was cut.');
  });
  if (cause === 'refused') rig.sandbox.control.revokeRefreshTokens();
  const ended = (async () => {
    for (let tries = 0; tries < 2; tries++) await platform.tokens.refresh().catch(() => undefined);
  })();
  await rig.run(ended);
  const auth = mirror.health.freshness().find(({ subject }) => subject === 'auth');
  expect(auth).toMatchObject({ state: 'locked-out', message: expect.stringContaining(told) });
});

it.each([
  ['a count of its own shop where no item names a branch', {}, { branch: 'B1', missing: 0, hold: null }],
  ['one of all shops where an item names a branch', { subsidiaryId: 'sub-1' }, { branch: null }],
])('hub.store: a whole inventory without a branch is %s', async (_name, named, told) => {
  const rig = storeRig({
    config: (config) => ({ ...config, hub: { ...config.hub, nats: 'nats://127.0.0.1:4222', store: 'B1' } }),
  });
  const services = await rig.services();
  const signal = new AbortController().signal;
  await rig.run(sweepNow(services, { signal }));
  const lines = rig
    .rows<{ sku: string; qty: number }>(
      "SELECT DISTINCT sku, qty FROM stocks JOIN integrations USING (sku, subsidiary_id) WHERE subsidiary_id = 'sub-1'",
    )
    .map((change, index) => {
      return {
        index,
        line: null,
        unnamed: `item ${index}`,
        kind: 'stock' as const,
        change: { ...change, ...named },
      };
    });
  const chosen = chosenBranch(services, undefined, 'branch');
  const how = { rows: undefined, names: 'query' } as const;
  const asked = { branch: undefined, chosen, missing: 'zero' as const, ...how };
  const whole = await rig.run(wholeInventory(services, lines, asked, { signal }));
  const plan = await rig.run(whole.plan());
  const report = inventoryReport(plan, whole, asked.missing);
  expect(report).toMatchObject(told);
});
