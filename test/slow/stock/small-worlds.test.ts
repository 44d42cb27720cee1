import { expect, it } from 'vitest';
import { viewFault } from '../../outbox/stock-view.ts';
import { limitMs } from '../../support/shared-config.ts';
import { Exploration } from './exploration.ts';
import { type SmallWorld, titleOf, WORLDS } from './small-worlds.ts';

const HABITS = [
  { gives: true, follows: true },
  { gives: false, follows: false },
];

/**
 * With `TILLSYNC_WORLDS=half` only the first kind of platform is tried, with which the seeded faults are found, and the
 * largest world is tried in two parts.
 */
const isHalf = process.env.TILLSYNC_WORLDS === 'half';
const PARTS = WORLDS.flatMap((world): SmallWorld[] =>
  world.isCountedInTurn && isHalf
    ? world.stocks.map((stock) => ({
        ...world,
        counted: [stock],
        name: `${world.name}, ${stock} is counted`,
      }))
    : [world],
);
const TRIED = PARTS.flatMap((world) =>
  (world.isOfOneKind || isHalf ? HABITS.slice(0, 1) : HABITS).map((habits) => ({
    ...habits,
    name: world.name,
    world,
  })),
);

// `it.each` would cut a long name in the title.
for (const { name, world, gives, follows } of TRIED) {
  it(titleOf(name, { gives, follows }), { timeout: limitMs(600_000) }, () => {
    const beganMs = performance.now();
    const { states, fault } = new Exploration(world, { gives, follows }, viewFault).explore();
    console.info(`${name}: ${states} states in ${((performance.now() - beganMs) / 1000).toFixed(1)} s`);
    expect(fault).toBeNull();
    expect(states).toBeGreaterThan(100);
  });
}
