import { expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { alarmLoops } from '../../src/daemon/alarm-loop.ts';
import { settleRole } from '../../src/daemon/link-loops.ts';
import { Counters } from '../../src/health/counters.ts';
import { openChain } from '../link/chain-rig.ts';
import { seededRandom } from '../support/fake-clock.ts';

const MINUTE_MS = 60_000;

/** A branch whose loops of the link and of the alarms run, below a hub that polls. */
async function running() {
  const { hub, branches, clock, server, settle } = await openChain();
  await settle();
  const [branch] = branches;
  const { follower, parts } = branch;
  const over = new AbortController();
  const options = { config: parts.config, secrets: { webhookSecrets: [] }, clock, log: silentLog };
  const loops = alarmLoops({ ...options, random: seededRandom(1) }, parts, new Counters());
  const looking = loops.find(({ name }) => name === 'standing')?.run(over.signal, () => {});
  const handing = follower.handUp(over.signal, () => {});
  onTestFinished(async () => {
    over.abort();
    await Promise.all([looking, handing]);
  });
  const minutes = async (count: number) => {
    for (let i = 0; i < count; i++) {
      hub.parts.mirror.freshnessBoard.ok('orders.poll');
      await clock.advance(MINUTE_MS);
    }
  };
  const alarms = () => parts.mirror.raisedAlarms().map(({ key }) => key);
  await minutes(5);
  return { server, clock, branch, parts, alarms, minutes };
}

it('a branch raises an alarm of a link that stays down and of orders that stop, and lowers both', async () => {
  const { server, clock, parts, alarms, minutes } = await running();
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
  expect(parts.mirror.raisedAlarms()[0]?.message).toBe('The link is down.');
  await minutes(13);
  expect(alarms()).toEqual(['hub.link', 'orders.stale']);
  server.isDown = false;
  await minutes(1);
  expect(alarms()).toEqual([]);
});

it('a branch raises an alarm of changes that were refused or are held, as a single store does', async () => {
  const { server, branch, parts, alarms, minutes } = await running();
  server.isDown = true;
  await branch.count('P1', 5, 'count-1');
  await branch.count('P2', 0, 'count-2');
  await parts.mirror.write((db) => {
    db.exec("UPDATE outbox SET state = 'rejected' WHERE reference = 'count-1'");
    db.exec("UPDATE outbox SET held_guard = 'zero-items' WHERE reference = 'count-2'");
  });
  server.isDown = false;
  await minutes(1);
  expect(alarms().sort()).toEqual(['outbox.held', 'outbox.rejected']);
  await parts.mirror.write((db) => db.exec('DELETE FROM outbox'));
  await minutes(1);
  expect(alarms()).toEqual([]);
});

it('a store that is a hub or a branch no more says nothing of a link, nor of branches', async () => {
  const { hub } = await openChain();
  const { mirror, config } = hub.parts;
  const { alarms, freshnessBoard } = mirror;
  for (const key of ['hub.link', 'hub.unassigned', 'hub.unapplied', 'storage.low'] as const)
    alarms.raise(key, key);
  freshnessBoard.report('hub.link', 'failing', 'The link is down.');
  await mirror.write(() => {});
  await settleRole(config, hub.parts);
  expect(mirror.raisedAlarms()).toHaveLength(4);
  await settleRole({ ...config, hub: { ...config.hub, nats: '' } }, hub.parts);
  expect(mirror.raisedAlarms().map(({ key }) => key)).toEqual(['storage.low']);
  expect(mirror.freshness().map(({ subject }) => subject)).not.toContain('hub.link');
});
