/** Tests src/daemon/alarm-loop.ts and src/daemon/link-loops.ts. */

import { expect, it, onTestFinished } from 'vitest';
import { verdictOn } from '../../src/app/read-only-services.ts';
import { silentLog } from '../../src/core/log.ts';
import { alarmLoops } from '../../src/daemon/alarm-loop.ts';
import { settleRole } from '../../src/daemon/link-loops.ts';
import { Counters } from '../../src/health/counters.ts';
import { FINDINGS } from '../../src/health/findings.ts';
import { openChain } from '../link/chain-rig.ts';
import { seededRandom } from '../support/fake-clock.ts';

const MINUTE_MS = 60_000;

/** Opens a branch with running link and alarm loops, connected to a hub that polls. */
async function running(aheadMs = 0) {
  const { hub, branches, clock, server, settle } = await openChain({ aheadMs });
  await settle();
  const [branch] = branches;
  const { follower, services } = branch;
  const over = new AbortController();
  const options = {
    config: services.config,
    secrets: { webhookSecrets: [] },
    clock: branch.own,
    log: silentLog,
  };
  const loops = alarmLoops({ ...options, random: seededRandom(1) }, services, new Counters());
  const looking = loops.find(({ name }) => name === 'health-checks')?.run(over.signal, () => {});
  const handing = follower.upload(over.signal, () => {});
  onTestFinished(async () => {
    over.abort();
    await Promise.all([looking, handing]);
  });
  const minutes = async (count: number, { hubPolls = true } = {}) => {
    for (let i = 0; i < count; i++) {
      if (hubPolls) hub.services.mirror.health.ok('orders.poll');
      await clock.advance(MINUTE_MS);
    }
  };
  /** Returns the alarms of which a person is notified. */
  const alarms = () => {
    const raised = services.mirror.health.raised();
    const beside = { alarms: raised, tokens: null, outbox: services.outbox.counts(), disk: null };
    const { findings } = verdictOn(services.mirror, { config: services.config, clock: branch.own }, beside);
    const codes = findings.map(({ code }) => code);
    return codes
      .filter((code) => FINDINGS[code].sent !== 'never')
      .filter((code) => !codes.some((other) => FINDINGS[code].follows?.code === other))
      .sort();
  };
  await minutes(5);
  return { hub, server, clock, branch, services, alarms, minutes };
}

it('a branch raises an alarm of a link that stays down and of orders that stop, and lowers both', async () => {
  const { server, clock, services, alarms, minutes } = await running();
  expect(alarms()).toEqual([]);
  server.isDown = true;
  await clock.advance(50_000);
  server.isDown = false;
  await minutes(1);
  server.isDown = true;
  await clock.advance(50_000);
  expect(alarms()).toEqual([]);
  await minutes(1);
  expect(alarms()).toEqual(['hub.link']);
  expect(services.mirror.health.freshness().find(({ subject }) => subject === 'hub.link')?.message).toBe(
    'The link is down.',
  );
  await minutes(13);
  expect(alarms()).toEqual(['hub.link', 'orders.stale']);
  server.isDown = false;
  await minutes(1);
  expect(alarms()).toEqual([]);
});

const judgesByHub = async (aheadMs: number) => {
  const { alarms, minutes } = await running(aheadMs);
  expect(alarms()).toEqual(['clock.off']);
  await minutes(20);
  expect(alarms()).toEqual(['clock.off']);
  await minutes(15, { hubPolls: false });
  expect(alarms().sort()).toEqual(['clock.off', 'orders.stale']);
  await minutes(1);
  expect(alarms()).toEqual(['clock.off']);
};
const WRONG_CLOCK =
  'a branch whose clock is %i ms ahead says so, and judges the orders of its hub as they are';
it.each([20 * MINUTE_MS])(WRONG_CLOCK, judgesByHub);
it.each([-180 * MINUTE_MS])(WRONG_CLOCK, { tags: ['bulk'] }, judgesByHub);

it('a branch waits for orders as long as the schedule of its hub says', async () => {
  const { hub, alarms, minutes } = await running();
  hub.staleAfterMs = 8 * 60 * MINUTE_MS;
  await minutes(1);
  await minutes(30, { hubPolls: false });
  expect(alarms()).toEqual([]);
});

it('a store that becomes a branch says nothing more of a platform that it calls no more', async () => {
  const { branches } = await openChain();
  const { mirror, config } = branches[0].services;
  mirror.health.note('auth.other-company', 'The platform takes the tokens no more.');
  mirror.health.note('storage.low', 'The disk is almost full.');
  mirror.health.report('auth', 'locked-out', 'The platform takes the tokens no more.');
  await mirror.health.flush();
  await settleRole(config, branches[0].services);
  expect(mirror.health.raised().map(({ key }) => key)).toEqual(['storage.low']);
  expect(mirror.health.freshness().find(({ subject }) => subject === 'auth')?.state).not.toBe('locked-out');
});

it('a hub raises an alarm of a server that answers and keeps nothing, and lowers it', async () => {
  const { hub, clock, server, settle } = await openChain();
  await settle();
  const { mirror } = hub.services;
  const alarms = () => {
    const beside = { alarms: mirror.health.raised(), tokens: null, outbox: null, disk: null };
    const { findings } = verdictOn(mirror, { config: hub.services.config, clock }, beside);
    return findings.map(({ code }) => code).filter((code) => code.startsWith('hub.'));
  };
  const over = new AbortController();
  const running = hub.hub.run(over.signal, () => {});
  onTestFinished(async () => {
    over.abort();
    await running;
  });
  await hub.order(1, 'B1');
  await clock.advance(MINUTE_MS);
  server.isFull = true;
  await hub.order(2, 'B1');
  await clock.advance(MINUTE_MS / 2);
  expect(alarms()).toEqual([]);
  for (let minute = 0; minute < 10; minute++) await clock.advance(MINUTE_MS);
  expect(alarms()).toEqual(['hub.link']);
  expect(mirror.health.freshness().find(({ subject }) => subject === 'hub.link')?.state).toBe('failing');
  server.isFull = false;
  await clock.advance(MINUTE_MS / 2);
  expect(alarms()).toEqual([]);
  expect(hub.rows('SELECT 1 FROM _feed WHERE published = 0')).toEqual([]);
});

it('a branch does not tell of changes that wait beside a link that is down', async () => {
  const { server, branch, services, alarms, minutes } = await running();
  server.isDown = true;
  await branch.count('P1', 5, 'count-1');
  await minutes(1);
  // The first change is being uploaded, and the second one waits.
  await branch.count('P2', 5, 'count-2');
  await minutes(45);
  expect(services.outbox.counts().pending).toBe(1);
  expect(alarms()).toEqual(['hub.link', 'orders.stale']);
  server.isDown = false;
  await minutes(2);
  expect(alarms()).toEqual([]);
});

it('a branch raises an alarm of changes that were refused or are held, as a single store does', async () => {
  const { server, branch, services, alarms, minutes } = await running();
  server.isDown = true;
  await branch.count('P1', 5, 'count-1');
  await branch.count('P2', 0, 'count-2');
  await services.mirror.write((db) => {
    db.exec("UPDATE _outbox SET state = 'rejected' WHERE reference = 'count-1'");
    db.exec("UPDATE _outbox SET held_guard = 'zero-items' WHERE reference = 'count-2'");
  });
  server.isDown = false;
  await minutes(1);
  expect(alarms().sort()).toEqual(['outbox.held', 'outbox.rejected']);
  await services.mirror.write((db) => db.exec('DELETE FROM _outbox'));
  await minutes(1);
  expect(alarms()).toEqual([]);
});

it('a store that is a hub or a branch no more says nothing of a link, nor of branches', async () => {
  const { hub } = await openChain();
  const { mirror, config } = hub.services;
  const { health } = mirror;
  for (const key of ['hub.unassigned', 'hub.unapplied', 'storage.low'] as const) health.note(key, key);
  health.report('hub.link', 'failing', 'The link is down.');
  await mirror.write(() => {});
  await settleRole(config, hub.services);
  expect(mirror.health.raised()).toHaveLength(3);
  await settleRole({ ...config, hub: { ...config.hub, nats: '' } }, hub.services);
  expect(mirror.health.raised().map(({ key }) => key)).toEqual(['storage.low']);
  expect(mirror.health.freshness().map(({ subject }) => subject)).not.toContain('hub.link');
});
