import { copyFileSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { openState } from '../../src/app/state.ts';
import { poll, receive, sampleNotification, temporaryDirectory } from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';

/**
 * Returns functions that open and close state.db and mirror.db of one store as a process does, and move, replace or
 * delete the files.
 */
function store() {
  const directory = join(temporaryDirectory(), 'data');
  mkdirSync(directory);
  const clock = new FakeClock();
  const open = () => {
    const state = openState({ path: join(directory, 'state.db'), clock });
    const mirror = openMirror({ path: join(directory, 'mirror.db'), clock, feed: state.feed });
    const close = async () => {
      await mirror.close();
      state.close();
    };
    onTestFinished(close);
    return { state, mirror, clock, close };
  };
  const filesOf = (database: string) => readdirSync(directory).filter((name) => name.startsWith(database));
  return {
    open,
    moveAway(database: string) {
      const aside = temporaryDirectory();
      for (const name of filesOf(database)) renameSync(join(directory, name), join(aside, name));
    },
    putBack(copy: string) {
      copyFileSync(copy, join(directory, 'mirror.db'));
    },
    remove(database: string) {
      for (const name of filesOf(database)) rmSync(join(directory, name));
    },
  };
}

const order = (number: number) => sampleNotification(number);

test.each(['moveAway', 'remove'] as const)(
  '%s: a mirror made anew goes on far above the one before, each time',
  async (lose) => {
    const at = store();
    let last = 0;
    for (let round = 0; round < 3; round++) {
      const { mirror, close } = at.open();
      await receive(mirror, order(1), order(2), order(3));
      const seqs = mirror.orders.eventsAfter(0, 10).map(({ seq }) => seq);
      expect(seqs).toHaveLength(3);
      expect(Math.min(...seqs)).toBeGreaterThan(last);
      // A POS that asks from its old number gets every event of the new mirror.
      expect(mirror.orders.eventsAfter(last, 10)).toHaveLength(3);
      last = Math.max(...seqs);
      await close();
      // Opening the same mirror once more does not raise the numbers.
      const again = at.open();
      expect(again.mirror.orders.newestSeq()).toBe(last);
      await again.close();
      at[lose]('mirror.db');
    }
    expect(last).toBe(2_000_009);
  },
);

test('is known after many events of one import, and after a kill', async () => {
  const at = store();
  const { mirror, state } = at.open();
  await poll(
    mirror,
    Array.from({ length: 10_500 }, (_, i) => order(i + 1)),
  );
  expect(state.feed.highestSeq()).toBe(10_500);
  // The mirror was not closed, so the file disappears under the process, as after a kill.
  at.moveAway('mirror.db');
  const next = at.open();
  await receive(next.mirror, order(1));
  expect(next.mirror.orders.newestSeq()).toBe(1_010_501);
});

test('a mirror that vanishes under a running tillsync is made anew above its numbers', async () => {
  const at = store();
  const { mirror } = at.open();
  await receive(mirror, order(1), order(2));
  at.moveAway('mirror.db');
  await receive(mirror, order(3)).catch(() => undefined);
  const fresh = at.open();
  await receive(fresh.mirror, order(3));
  expect(fresh.mirror.orders.newestSeq()).toBeGreaterThan(1_000_000);
});

test.each(['stopped', 'running'])(
  'an older copy put in place of the mirror of a %s tillsync goes on above its numbers',
  async (at) => {
    const here = store();
    const first = here.open();
    await receive(first.mirror, order(1));
    const copy = join(temporaryDirectory(), 'mirror.db');
    first.mirror.read((db) => db.prepare('VACUUM INTO ?').run(copy));
    await receive(first.mirror, order(2), order(3));
    if (at === 'stopped') await first.close();
    here.remove('mirror.db');
    here.putBack(copy);
    await first.clock.advance(1_000);
    const { mirror } = at === 'stopped' ? here.open() : first;
    await receive(mirror, order(4));
    expect(mirror.orders.newestSeq()).toBe(1_000_004);
  },
);

test('a mirror from before is taken as it is; with state.db lost too nothing is known', async () => {
  const at = store();
  const first = at.open();
  await receive(first.mirror, order(1), order(2));
  await first.close();
  at.moveAway('state.db');
  const kept = at.open();
  expect(kept.mirror.orders.newestSeq()).toBe(2);
  await receive(kept.mirror, order(3));
  expect(kept.mirror.orders.newestSeq()).toBe(3);
  await kept.close();
  at.moveAway('state.db');
  at.moveAway('mirror.db');
  const bare = at.open();
  await receive(bare.mirror, order(1));
  expect(bare.mirror.orders.newestSeq()).toBe(1);
});
