/** Names of the figures that turns report, in the order of the columns in docs/proof.md. */
export const FIGURES = [
  'seeds',
  'store-days',
  'chain worlds',
  'interleavings',
  'kills',
  'power cuts',
  'faults told',
  'upgrades',
] as const;
export type Figure = (typeof FIGURES)[number];
export type Figures = Partial<Record<Figure, number>>;

export interface Command {
  env: Record<string, string>;
  /** Arguments of `npx vitest run`. */
  words: string[];
}

export interface Tier {
  name: string;
  /** Seconds that a turn takes on a quiet machine with two cores. */
  seconds: number;
  /** A program that the tier needs. */
  program?: string;
  /** Maximum number of turns, because more of them would show nothing new; left out if each seed is a new test. */
  most?: number;
  /** Returns the command of a turn. `turn` is the number of turns of this tier that have ended. */
  command: (seed: number, turn: number) => Command;
  /** Reads the figures from Vitest's report of a turn. */
  read: (report: string) => Figures;
}

const SLOW_TIERS = ['--config', 'vitest.slow.config.ts'];
const CRASHES = ['--config', 'test/slow/crash/vitest.config.ts'];

/** Sums the numbers in the first group of a pattern. */
const sumIn = (report: string, pattern: RegExp) =>
  [...report.matchAll(pattern)].reduce((sum, [, number]) => sum + Number(number), 0);

/** Reads lines such as `seed 7: 301 orders in 2 days, …`, which both simulations of a store print. */
function readDays(report: string): Figures {
  const days = [...report.matchAll(/^seed \d+: \d+ orders in (\d+) days/gm)];
  return { seeds: days.length, 'store-days': days.reduce((sum, [, n]) => sum + Number(n), 0) };
}

/** Matches `20 crashes (seed 7): …`, the line about kills. The line about power cuts begins with `power: `. */
const CRASHED = /^(\d+) crashes \(seed \d+\)/gm;
const CUT = /^power: (\d+) crashes \(seed \d+\)/gm;

/** Returns the number of passed tests, for tiers whose figure depends on it. */
const passedTests = (report: string) => testsOf(report)?.passed ?? 0;

/** Returns all tiers. `worlds` are the names in test/slow/stock/small-worlds.ts; one tier runs one world per turn. */
export function tiersOf(worlds: readonly string[]): readonly Tier[] {
  const seeded = (seed: number, env: Record<string, string | number>, words: string[]): Command => ({
    env: {
      TILLSYNC_SEED: String(seed),
      ...Object.fromEntries(Object.entries(env).map(([name, value]) => [name, String(value)])),
    },
    words,
  });
  return [
    {
      name: 'a store with all that goes wrong',
      seconds: 50,
      command: (seed) =>
        seeded(seed, { TILLSYNC_SEEDS: 8, TILLSYNC_SIMULATED_DAYS: 1 }, [
          ...SLOW_TIERS,
          'test/slow/simulation/simulation.test.ts',
        ]),
      read: readDays,
    },
    {
      name: 'a company with hub and branches',
      seconds: 20,
      command: (seed) =>
        seeded(seed, { TILLSYNC_SEEDS: 10 }, [...SLOW_TIERS, 'test/slow/simulation/chain/chain.test.ts']),
      read(report) {
        const worlds = sumIn(report, /^chain: (\d+) seeds from \d+/gm);
        return { seeds: worlds, 'chain worlds': worlds };
      },
    },
    {
      name: 'the daemon killed at any point',
      seconds: 40,
      command: (seed) => seeded(seed, { TILLSYNC_ROUNDS: 20 }, [...CRASHES, 'crash-loop']),
      read: (report) => ({ seeds: [...report.matchAll(CRASHED)].length, kills: sumIn(report, CRASHED) }),
    },
    {
      name: 'every order of events in a small world',
      seconds: 30,
      most: worlds.length,
      command: (_seed, turn) => ({
        env: {},
        words: [
          ...SLOW_TIERS,
          'test/slow/stock/small-worlds.test.ts',
          '-t',
          `in which ${worlds[turn % worlds.length] ?? ''} ends as`,
        ],
      }),
      read: (report) => ({ interleavings: sumIn(report, /: (\d+) states in [\d.]+ s/g) }),
    },
    {
      name: 'ordinary days, told to nobody',
      seconds: 30,
      command: (seed) =>
        seeded(seed, { TILLSYNC_CALM_DAYS: 5 }, [...SLOW_TIERS, 'test/slow/simulation/calm.test.ts']),
      read: readDays,
    },
    {
      name: 'random walks of the stock',
      seconds: 40,
      command: (seed) =>
        seeded(seed, { TILLSYNC_RUNS: 40 }, [
          '--testTimeout=7200000',
          'stock-model',
          'outbox-property',
          'turns',
        ]),
      read: (report) => ({ seeds: passedTests(report) > 0 ? 1 : 0 }),
    },
    {
      name: 'the power cut at any point',
      seconds: 40,
      program: 'gcc',
      command: (seed) => seeded(seed, { TILLSYNC_ROUNDS: 40 }, [...CRASHES, 'power-loss']),
      read: (report) => ({ seeds: [...report.matchAll(CUT)].length, 'power cuts': sumIn(report, CUT) }),
    },
    {
      name: 'upgrades, a failed one and the way back',
      seconds: 40,
      command: (seed) => seeded(seed, { TILLSYNC_UPGRADES: 2 }, [...CRASHES, 'upgrades']),
      read(report) {
        const upgrades = [...report.matchAll(/^upgrade \(seed \d+\): /gm)].length;
        return { seeds: upgrades, upgrades, kills: sumIn(report, /^upgrade .* (\d+) kills$/gm) };
      },
    },
    {
      name: 'each fault, until a person is told',
      seconds: 60,
      most: 1,
      command: () => ({ env: {}, words: ['test/daemon/told-after.test.ts'] }),
      read: (report) => ({ 'faults told': passedTests(report) }),
    },
  ];
}

/** Returns the numbers in the last `Tests` line of Vitest; undefined if Vitest ended before it printed one. */
export function testsOf(report: string): { passed: number; failed: number } | undefined {
  const line = [...report.matchAll(/^\s*Tests {2}(.*)$/gm)].at(-1)?.[1];
  if (line === undefined) return undefined;
  const count = (word: string) => Number(new RegExp(`(\\d+) ${word}`).exec(line)?.[1] ?? 0);
  return { passed: count('passed'), failed: count('failed') };
}

/** Returns the shell command that repeats a run. */
export function repeatLine({ env, words }: Command): string {
  const quoted = (word: string) => (/^[\w./=:-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const settings = Object.entries(env).map(([name, value]) => `${name}=${quoted(value)}`);
  return [...settings, 'npx vitest run', ...words.map(quoted)].join(' ');
}
