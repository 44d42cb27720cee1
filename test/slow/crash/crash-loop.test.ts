import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SEED } from '../../support/seed.ts';
import { describe as described, ROUNDS, runCampaign } from './campaign.ts';
import { buildProgram, type Program } from './daemon-life.ts';
import { FIRST_POINTS, KILL_POINTS, UPGRADE_POINTS } from './kill-points.ts';

/*
 * `TILLSYNC_CRASH_ROOT` names other sources to crash, such as a copy with one guard taken out. Each of these is
 * found, the first ten by the kills and the rest by the power cuts:
 *   the callback is answered before its commit          acknowledged, and not in the mirror
 *   the copied inbox rows are not remembered            more changes than were handed over
 *   the inbox is emptied before its rows are copied     accepted, and nowhere
 *   no intent is written before a refresh               the lock-out is told as refused
 *   the new pair is saved late                          dead without a kill in the window
 *   a lock-out is not written down                      it is never told; dead tokens are used again
 *   the upgrade is no transaction                       the daemon does not start any more
 *   a start forgets the calls of the last life          the limit of orders is broken
 *   what was under way is not reclaimed                 never sent
 *   what was under way goes over newer values           an older value at the platform
 *   synchronous = NORMAL                                lost tokens, events and changes
 *   the end of an inbox commit is not synced            taken in twice
 *   a new directory is not synced                       the inbox is gone with what was in it
 */

let program: Program;

beforeAll(async () => {
  program = await buildProgram();
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
