import type { Random } from '../../../src/core/time.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { SEED } from '../../support/seed.ts';
import { type Crash, CrashStore } from './crash-store.ts';
import type { Program } from './daemon-life.ts';
import { FIRST_POINTS, KILL_POINTS, type KillPoint, UPGRADE_POINTS } from './kill-points.ts';
import { otherUserFaults } from './other-user.ts';

export interface CampaignOptions {
  program: Program;
  rounds: number;
  seed: number;
  power?: { lies?: string };
}

/** Totals of all crashes of a campaign. */
export interface Tally {
  rounds: number;
  /** For each point, how many crashes happened there and how many missed it. */
  points: Map<string, { hit: number; missed: number }>;
  lockOuts: number;
  confirmed: number;
  accepted: number;
  refreshes: number;
}

export const ROUNDS = Number(process.env.TILLSYNC_ROUNDS ?? 40);

const ROUNDS_OF_A_STORE = 10;
/** Number of rounds in which a store that is not upgraded yet is crashed during the upgrade; then at other points. */
const SPECIAL_ROUNDS = 3;
const READ_EVERY = 4;
const WANTED = process.env.TILLSYNC_POINTS;

/** Crashes one store after the other. Throws at the first fault, with the settings that repeat it. */
export async function runCampaign({ program, rounds, seed, power }: CampaignOptions): Promise<Tally> {
  const tally: Tally = { rounds: 0, points: new Map(), lockOuts: 0, confirmed: 0, accepted: 0, refreshes: 0 };
  const random = seededRandom(seed);
  let deck: KillPoint[] = [];
  if (only([...FIRST_POINTS, ...UPGRADE_POINTS, ...KILL_POINTS]).length === 0) {
    throw new Error(`No point has ${WANTED} in its name.`);
  }
  for (let n = 0; tally.rounds < rounds; n++) {
    const storeSeed = Math.floor(random.next() * 2 ** 31);
    const store = await CrashStore.open({ seed: storeSeed, program, power, isOld: n % 3 > 0 });
    const check = (where: string, faults: readonly string[]) => {
      if (faults.length === 0) return;
      const told = faults.slice(0, 10).join('\n  ');
      throw new Error(
        `TILLSYNC_SEED=${seed}, store ${n}, round ${tally.rounds}, ${where}: ${faults.length} faults\n  ${told}\nThe files: ${store.keepEvidence()}`,
      );
    };
    const before = tally.rounds;
    try {
      for (let round = 0; round < ROUNDS_OF_A_STORE && tally.rounds < rounds; round++) {
        if (deck.length === 0) deck = shuffled(only(KILL_POINTS), random);
        const special = store.isUpgraded ? (round === 0 ? FIRST_POINTS : []) : UPGRADE_POINTS;
        const few = round < SPECIAL_ROUNDS ? only(special) : [];
        const point = few.length > 0 ? shuffled(few, random)[0] : deck.pop();
        if (!point) break;
        const crash = await store.crash(point).catch((error) => failed(point, error));
        tally.rounds += 1;
        count(tally, crash);
        check(point.name, crash.faults);
        // After a power cut, mirror.db-shm is missing until the next start, and another user cannot create the file.
        if (!power && store.hasRun && round % READ_EVERY === READ_EVERY - 1)
          check('read by another user', otherUserFaults(store.place));
      }
      if (tally.rounds > before) check('at its end', await store.finish().catch((error) => [String(error)]));
      process.stderr.write(`store ${n} is sound after ${tally.rounds} of ${rounds} rounds\n`);
    } finally {
      const { control } = store.place.sandbox;
      tally.confirmed += control.deliveries().filter(({ outcome }) => outcome === 'confirmed').length;
      tally.refreshes += control.calls('token.refresh').length;
      tally.accepted += store.handedOver.accepted;
      await store.close();
    }
  }
  return tally;
}

/** Returns the tally as text for a person. */
export function describe(tally: Tally): string {
  const { rounds, points, lockOuts, confirmed, accepted, refreshes } = tally;
  const lines = [...points].sort().map(([name, { hit, missed }]) => {
    return `  ${name.padEnd(32)} ${String(hit).padStart(4)}${missed > 0 ? `  (${missed} missed)` : ''}`;
  });
  return [
    `${rounds} crashes (seed ${SEED}): ${confirmed} callbacks acknowledged, ${accepted} changes accepted, ${refreshes} refreshes, ${lockOuts} lock-outs, each in its window`,
    ...lines,
  ].join('\n');
}

function count(
  tally: Tally,
  { point, missed, lockedOut }: { point: string; missed: boolean; lockedOut: boolean },
) {
  const counted = tally.points.get(point) ?? { hit: 0, missed: 0 };
  if (missed) counted.missed += 1;
  else counted.hit += 1;
  tally.points.set(point, counted);
  if (lockedOut) tally.lockOuts += 1;
}

function failed({ name }: KillPoint, error: unknown): Crash {
  return { point: name, missed: false, lockedOut: false, faults: [String(error)] };
}

function only(points: readonly KillPoint[]): readonly KillPoint[] {
  return WANTED === undefined ? points : points.filter(({ name }) => name.includes(WANTED));
}

function shuffled<T>(all: readonly T[], random: Random): T[] {
  return all
    .map((each) => ({ each, key: random.next() }))
    .sort((a, b) => a.key - b.key)
    .map(({ each }) => each);
}
