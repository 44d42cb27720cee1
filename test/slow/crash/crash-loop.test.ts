import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SEED } from '../../support/seed.ts';
import { describe as described, ROUNDS, runCampaign } from './campaign.ts';
import { buildProgram, LATER, type Program } from './daemon-life.ts';
import { FIRST_POINTS, KILL_POINTS, UPGRADE_POINTS } from './kill-points.ts';

/*
 * `TILLSYNC_CRASH_ROOT` names other sources to crash, such as a copy into which a fault was put. The runs find each of
 * these faults (left) by its effect (right); the kills find the first ten, the power cuts the rest:
 *   the callback is answered before its commit          an acknowledged order is not in the mirror
 *   the copied inbox rows are not remembered            there are more changes than were handed over
 *   the inbox is emptied before its rows are copied     an accepted change is nowhere
 *   no intent is written before a refresh               a lock-out is reported as a refusal
 *   the new pair is saved late                          the tokens are dead without a kill in the window
 *   a lock-out is not written down                      it is never reported; dead tokens are used again
 *   the upgrade is no transaction                       the daemon does not start any more
 *   a start forgets the last process's calls            the limit of orders is broken
 *   changes in calls of a dead process stay there       they are never sent
 *   changes of a dead process replace newer values      the platform gets an older value
 *   synchronous = NORMAL                                tokens, events and changes are lost
 *   the end of an inbox commit is not synced            a change is taken in twice
 *   a new directory is not synced                       the inbox is gone with its content
 */

let program: Program;

beforeAll(async () => {
  program = await buildProgram(LATER);
});
afterAll(() => program.remove());

describe('a store under load, killed again and again', () => {
  it(`loses, doubles and overtakes nothing (${ROUNDS} rounds, seed ${SEED})`, async () => {
    const tally = await runCampaign({ program, rounds: ROUNDS, seed: SEED });
    process.stdout.write(`${described(tally)}\n`);
    expect(tally.rounds).toBe(ROUNDS);
    expect(tally.confirmed).toBeGreaterThan(ROUNDS * 5);
    expect(tally.accepted).toBeGreaterThan(ROUNDS * 5);
    if (ROUNDS >= 200) {
      for (const { name } of [...FIRST_POINTS, ...KILL_POINTS, ...UPGRADE_POINTS]) {
        expect(tally.points.get(name)?.hit ?? 0, name).toBeGreaterThan(0);
      }
      expect(tally.lockOuts).toBeGreaterThan(0);
    }
  });
});
