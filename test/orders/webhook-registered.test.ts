import { expect, it } from 'vitest';
import { storeRig } from '../support/store-rig.ts';

const ADDRESS = 'https://store.example/webhook';

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
