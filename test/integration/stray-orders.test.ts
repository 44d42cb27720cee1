import { afterEach, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
let daemon: Daemon;

afterEach(async () => {
  await daemon.stop();
  await place.close();
});

it('a store with one branch is told of an order without a store, and of no store that it does not know', async () => {
  place = await openWorkplace(41);
  daemon = await startDaemon({
    config: { ...place.config, branches: place.config.branches.slice(0, 1) },
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET] },
    clock: systemClock,
    random: seededRandom(3),
    log: silentLog,
    lookEveryMs: 50,
  });
  const send = async (code: number, store: object | null) => {
    const { status } = await fetch(daemon.webhookUrl ?? '', {
      method: 'POST',
      headers: { 'x-webhook-secret': SECRET, 'content-type': 'application/json' },
      body: JSON.stringify({
        internalOrderId: `stray-${code}`,
        code,
        status: 'pending',
        store,
        createdAt: new Date(systemClock.nowMs()).toISOString(),
        items: [{ product: { name: 'Tea' }, amount: 1 }],
      }),
    });
    expect(status).toBe(200);
  };
  const told = () =>
    daemon.services.mirror.health.raised().find(({ key }) => key === 'orders.unassigned')?.message;
  await send(1, { externalId: 'elsewhere' });
  await send(2, null);
  await until('the order without a store is told', () => told() === 'Orders and stores: 2 (-).');
});
