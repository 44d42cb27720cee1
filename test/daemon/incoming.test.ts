import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { loadSetup } from '../../src/config/config.ts';
import { silentLog } from '../../src/core/log.ts';
import { startDaemon } from '../../src/daemon/daemon.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { storeRig } from '../support/store-rig.ts';

it('incomingOrders refuses a certificate that cannot be read, and never takes callbacks in clear text instead', async () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-tls-'));
  const file = path.join(directory, 'config.toml');
  const certificate = path.join(directory, 'none.pem');
  writeFileSync(
    file,
    `[platform]\nbase_url = "https://platform.test"\n[storage]\ndirectory = "${directory}/storage"\n` +
      `[webhook]\nlisten = "127.0.0.1:0"\ntls_cert_file = "${certificate}"\ntls_key_file = "${certificate}"\n` +
      '[local]\nlisten = "127.0.0.1:0"\n[[branches]]\nexternal_id = "B1"\n',
  );
  const env = { TILLSYNC_REFRESH_TOKEN: 'a-refresh-token' };
  const starting = startDaemon({
    ...loadSetup({ file, env }),
    clock: new FakeClock(),
    random: seededRandom(1),
    log: silentLog,
  });
  await expect(starting).rejects.toMatchObject({
    code: 'config-invalid',
    message: 'The certificate or its key cannot be read.',
    hint: expect.stringContaining('webhook.tls_cert_file'),
  });
});

it('incomingOrders takes callbacks that come after the poll for late ones, not for silence', async () => {
  const rig = storeRig({
    config: (given) => ({ ...given, orders: { ...given.orders, poll: '*/2 * * * *' } }),
  });
  const daemon = await rig.daemon();
  await rig.clock.advance(5 * 60_000);
  for (let i = 0; i < 5; i++) {
    const order = rig.sandbox.control.createOrder({}, { hidden: true });
    await rig.clock.advance(2 * 60_000);
    const { internalOrderId, code } = order;
    expect(rig.rows('SELECT 1 FROM orders WHERE order_id = ?', internalOrderId)).toHaveLength(1);
    expect(await rig.announce(daemon, sampleNotification(code, { internalOrderId, code }))).toBe(200);
  }
  await rig.clock.advance(10 * 60_000);
  expect(daemon.services.mirror.health.raised().map(({ key }) => key)).not.toContain('webhook.silent');
});
