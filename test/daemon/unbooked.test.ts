import { expect, it } from 'vitest';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Verdict } from '../../src/health/verdict.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { storeRig } from '../support/store-rig.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

it('an order that the POS does not acknowledge is amber, then red, and over once somebody took it', async () => {
  const rig = storeRig();
  const daemon = await rig.daemon();
  await rig.clock.advance(6 * MINUTE_MS);
  const orderOf = (number: number) => {
    const createdAt = new Date(rig.clock.nowMs()).toISOString();
    return sampleNotification(number, { status: 'picker-pending', createdAt });
  };
  const orders = [1, 2].map(orderOf);
  for (const order of orders) expect(await rig.announce(daemon, order)).toBe(200);
  // Acknowledgements are expected only once a POS has sent its first one, and no POS has done so yet.
  await rig.clock.advance(60 * MINUTE_MS);
  expect(await unbooked(daemon)).toBeUndefined();

  const late = orderOf(3);
  expect(await rig.announce(daemon, late)).toBe(200);
  const ids = orders.map(({ internalOrderId }) => String(internalOrderId));
  await rig.run(daemon.services.outbox.acknowledge(ids, 'http'));
  await rig.clock.advance(9 * MINUTE_MS);
  expect(await unbooked(daemon)).toBeUndefined();
  await rig.clock.advance(6 * MINUTE_MS);
  expect(await unbooked(daemon)).toMatchObject({ level: 'amber' });
  expect((await unbooked(daemon))?.detail).toContain(String(late.code));
  await rig.clock.advance(20 * MINUTE_MS);
  expect(await unbooked(daemon)).toMatchObject({ level: 'red' });
  await rig.run(daemon.services.outbox.acknowledge([String(late.internalOrderId)], 'cli'));
  await rig.clock.advance(5 * MINUTE_MS);
  expect(await unbooked(daemon)).toBeUndefined();
});

it('orders of weeks ago that are read again are left out, but for one that is due', async () => {
  const rig = storeRig();
  const daemon = await rig.daemon();
  await rig.clock.advance(6 * MINUTE_MS);
  const taken = rig.sandbox.control.createOrder({ subsidiaryId: 'sub-1', status: 'inProcess' });
  await rig.clock.advance(MINUTE_MS);
  const today = dayOf(rig.clock.nowMs());
  await rig.run(daemon.services.orderPoll.poll({ window: { startDate: today, endDate: today } }));
  await rig.run(daemon.services.outbox.acknowledge([taken.internalOrderId], 'http'));

  const createdAtMs = rig.clock.nowMs() - 20 * DAY_MS;
  const old = (patch: object) =>
    rig.sandbox.control.createOrder(
      { subsidiaryId: 'sub-1', status: 'inProcess', isScheduled: false, createdAtMs, patch },
      { hidden: true },
    );
  for (const code of [901, 902, 903]) old({ code });
  const window = { startDate: dayOf(createdAtMs - DAY_MS), endDate: dayOf(createdAtMs + DAY_MS) };
  expect((await rig.run(daemon.services.orderPoll.poll({ window }))).created).toBe(3);
  await rig.clock.advance(45 * MINUTE_MS);
  expect(await verdictOf(daemon)).toMatchObject({ level: 'green', findings: [] });

  const scheduledDate = new Date(rig.clock.nowMs() + 30 * MINUTE_MS).toISOString();
  old({ code: 904, isScheduled: true, scheduledDate });
  await rig.run(daemon.services.orderPoll.poll({ window }));
  await rig.clock.advance(15 * MINUTE_MS);
  expect((await unbooked(daemon))?.detail).toContain('904');
  expect((await unbooked(daemon))?.detail).not.toContain('901');
});

const dayOf = (ms: number) => new Date(ms).toISOString().slice(0, 10);

async function unbooked(daemon: Daemon) {
  return (await verdictOf(daemon)).findings.find(({ code }) => code === 'orders.unbooked');
}

async function verdictOf({ localUrl }: Daemon): Promise<Verdict> {
  return ((await (await fetch(`${localUrl}/v1/status`)).json()) as { verdict: Verdict }).verdict;
}
