/** Tests src/link/hub-hello.ts. */

import { cpSync, rmSync } from 'node:fs';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { SEED } from '../support/seed.ts';
import { openChain } from './chain-rig.ts';

const ACTIONS = ['order', 'settle', 'copy', 'kill', 'stop', 'go back', 'hub restarts'] as const;

/** Number of random walks of sixty steps with restarts. The everyday tests run one walk of twenty steps. */
const WALKS = Math.ceil(Number(process.env.TILLSYNC_RUNS ?? 10) / 10);
const STEPS = process.env.TILLSYNC_RUNS === undefined ? 20 : 60;

it.each(Array.from({ length: WALKS }, (_, i) => SEED + i))(
  'a number of the feed is given once, whatever is killed, stopped or put back to an older copy (seed %i)',
  async (seed) => {
    const [actions = []] = fc.sample(
      fc.array(fc.constantFrom(...ACTIONS), { minLength: STEPS, maxLength: STEPS }),
      {
        seed,
        numRuns: 1,
      },
    );
    const { hub, branches, clock, settle } = await openChain();
    const [branch] = branches;
    const copy = `${branch.directory}-copy`;
    let hasCopy = false;
    let orders = 0;
    /** Events that the POS has read, by number. */
    const read = new Map<number, string>();
    const look = () => {
      const sql = 'SELECT seq, order_id, status, observed_at FROM order_events ORDER BY seq';
      for (const { seq, ...event } of branch.rows<{ seq: number }>(sql)) {
        const text = JSON.stringify(event);
        expect(read.get(seq) ?? text, `number ${seq} after: ${actions.join(', ')}`).toBe(text);
        read.set(seq, text);
      }
    };
    await settle();
    for (const action of actions) {
      if (action === 'order') await hub.order(++orders, 'B1');
      else if (action === 'settle') await settle();
      else if (action === 'hub restarts') {
        await hub.stop();
        await hub.start();
      } else {
        if (action === 'stop') await branch.follower.sayLast();
        await branch.stop();
        if (action === 'copy') {
          rmSync(copy, { recursive: true, force: true });
          cpSync(branch.directory, copy, { recursive: true });
          hasCopy = true;
        } else if (action === 'go back' && hasCopy) {
          rmSync(branch.directory, { recursive: true });
          cpSync(copy, branch.directory, { recursive: true });
        }
        await branch.start();
      }
      look();
    }
    // With the next entry, an older copy learns what it lacks. A lost snapshot is made again after ten minutes.
    await hub.order(++orders, 'B1');
    await settle();
    await clock.advance(600_000);
    await settle();
    look();
    rmSync(copy, { recursive: true, force: true });
    expect(branch.orders()).toEqual(hub.orders('B1'));
  },
);

it('a branch that stopped in an orderly way goes on with the next number, one that was killed behind its lease', async () => {
  const { hub, branches, settle } = await openChain();
  const [branch] = branches;
  const newest = () => branch.rows<{ seq: number }>('SELECT max(seq) AS seq FROM order_events')[0]?.seq ?? 0;
  await hub.order(1, 'B1');
  await settle();
  const first = newest();
  await branch.follower.sayLast();
  // After its last hello the branch applies no entry; the next process does.
  await hub.order(2, 'B1');
  await hub.publish();
  expect(newest()).toBe(first);
  await branch.stop();
  await branch.start();
  await settle();
  expect(newest()).toBe(first + 1);
  const [{ leased } = { leased: 0 }] = hub.rows<{ leased: number }>(
    "SELECT leased_seq AS leased FROM _feed_branches WHERE branch = 'B1'",
  );
  await branch.stop();
  await branch.start();
  await hub.order(3, 'B1');
  await settle();
  expect(newest()).toBe(leased + 1);
});

it('a branch that gets more orders than it has numbers asks for more, and takes all of them', async () => {
  const { hub, branches, settle } = await openChain();
  const [branch] = branches;
  await settle();
  await hub.services.mirror.write((db) =>
    db.exec("UPDATE _feed_branches SET leased_seq = 3 WHERE branch = 'B1'"),
  );
  await branch.stop();
  await branch.start();
  for (let number = 1; number <= 30; number++) await hub.order(number, 'B1');
  await hub.publish();
  await branch.follow();
  expect(branch.orders()).toHaveLength(30);
});
