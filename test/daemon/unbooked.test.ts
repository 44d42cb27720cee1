import { expect, it } from 'vitest';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Verdict } from '../../src/health/verdict.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { storeRig } from '../support/store-rig.ts';

const MINUTE_MS = 60_000;

it('an order that the POS does not acknowledge is amber, then red, and over once somebody took it', async () => {
  const rig = storeRig();
  const daemon = await rig.daemon();
  await rig.clock.advance(6 * MINUTE_MS);
  const orders = [1, 2].map((number) => sampleNotification(number, { status: 'picker-pending' }));
  for (const order of orders) expect(await rig.announce(daemon, order)).toBe(200);
  // Nobody has acknowledged anything yet, so nobody is expected to.
  await rig.clock.advance(60 * MINUTE_MS);
  expect(await unbooked(daemon)).toBeUndefined();

  const late = sampleNotification(3, { status: 'picker-pending' });
  expect(await rig.announce(daemon, late)).toBe(200);
  const ids = orders.map(({ internalOrderId }) => String(internalOrderId));
  await rig.run(daemon.parts.outbox.acknowledge(ids, 'http'));
  await rig.clock.advance(9 * MINUTE_MS);
  expect(await unbooked(daemon)).toBeUndefined();
  await rig.clock.advance(6 * MINUTE_MS);
  expect(await unbooked(daemon)).toMatchObject({ level: 'amber' });
  expect((await unbooked(daemon))?.detail).toContain(String(late.code));
  await rig.clock.advance(20 * MINUTE_MS);
  expect(await unbooked(daemon)).toMatchObject({ level: 'red' });
  await rig.run(daemon.parts.outbox.acknowledge([String(late.internalOrderId)], 'cli'));
  await rig.clock.advance(5 * MINUTE_MS);
  expect(await unbooked(daemon)).toBeUndefined();
});

async function unbooked({ localUrl }: Daemon) {
  const answer = await fetch(`${localUrl}/v1/status`);
  const { verdict } = (await answer.json()) as { verdict: Verdict };
  return verdict.findings.find(({ code }) => code === 'orders.unbooked');
}
