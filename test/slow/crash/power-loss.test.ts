import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SEED } from '../../support/seed.ts';
import { describe as described, ROUNDS, runCampaign } from './campaign.ts';
import { buildProgram, LATER, type Program } from './daemon-life.ts';

const CUTS = Math.ceil(ROUNDS / 5);
let program: Program;

beforeAll(async () => {
  program = await buildProgram(LATER);
});
afterAll(() => program.remove());

describe('a store under load whose power is cut', () => {
  it(`keeps all that it promised where only synced bytes survive (${CUTS} rounds, seed ${SEED})`, async () => {
    const tally = await runCampaign({ program, rounds: CUTS, seed: SEED, power: {} });
    process.stdout.write(`power: ${described(tally)}\n`);
    expect(tally.rounds).toBe(CUTS);
    expect(tally.confirmed).toBeGreaterThan(CUTS);
    expect(tally.accepted).toBeGreaterThan(CUTS);
  });

  it('is seen to lose what it acknowledged on a disk that lies about the log', async () => {
    const lost = runCampaign({ program, rounds: 10, seed: SEED, power: { lies: 'mirror.db-wal' } });
    await expect(lost).rejects.toThrow(/was acknowledged and|was accepted as|was seen and is gone/);
  });
});
