import { expect, it } from 'vitest';
import { storeRig } from '../support/store-rig.ts';

const ADDRESS = 'https://store.example/webhook';

it('a platform that answers 403 to the read that the document does not show is not asked each hour, and tells nobody', async () => {
  let reads = 0;
  const rig = storeRig({
    config: (same) => ({ ...same, webhook: { ...same.webhook, callbackUrl: ADDRESS } }),
  });
  const { control } = rig.sandbox;
  await rig.daemon(async (request, pass) => {
    if (request.method !== 'GET' || request.path !== '/webhook') return pass();
    reads += 1;
    const headers = { 'content-type': 'application/json' };
    return { status: 403, headers, bytes: Buffer.from('{"message":"Missing Authentication Token"}') };
  });
  const told = new Set<string>();
  for (let hour = 0; hour < 3; hour++) {
    await rig.clock.advance(3_600_000);
    for (const { key } of rig.rows<{ key: string }>('SELECT key FROM alarms')) told.add(key);
  }
  expect(control.webhook()).toMatchObject({ callbackUrl: ADDRESS, active: true });
  expect([...told]).toEqual([]);
  expect(reads).toBe(1);
});

it('a shop without a secret gets one with its registration, and is not told that instant orders are off', async () => {
  const rig = storeRig({
    secrets: { webhookSecrets: [] },
    config: (same) => ({ ...same, webhook: { ...same.webhook, callbackUrl: ADDRESS } }),
  });
  await rig.daemon();
  const state = () => rig.rows("SELECT state FROM freshness WHERE subject = 'orders.webhook'");
  expect(state()).toEqual([{ state: 'unknown' }]);
  await rig.clock.advance(5_000);
  expect(rig.sandbox.control.webhook()).toMatchObject({ callbackUrl: ADDRESS, active: true });
  expect(state()).toEqual([{ state: 'unknown' }]);
});

it('callbacks that somebody switched off in the panel are switched on again at the next start', async () => {
  const rig = storeRig({
    config: (same) => ({ ...same, webhook: { ...same.webhook, callbackUrl: ADDRESS } }),
  });
  const { control } = rig.sandbox;
  const first = await rig.daemon();
  await rig.clock.advance(5_000);
  expect(control.webhook()).toMatchObject({ callbackUrl: ADDRESS, active: true });
  await rig.run(first.stop());
  const registered = control.webhook();
  control.setWebhook(registered && { ...registered, active: false });
  await rig.daemon();
  await rig.clock.advance(5_000);
  expect(control.webhook()).toMatchObject({ callbackUrl: ADDRESS, active: true });
});
