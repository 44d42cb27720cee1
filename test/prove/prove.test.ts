import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { titleOf, WORLDS } from '../slow/stock/small-worlds.ts';
import { nextTier, readWish } from './plan.ts';
import { recorded, runsOf, told } from './record.ts';
import { screenOf, type Turn, turnLine } from './screen.ts';
import { repeatLine, type Tier, testsOf, tiersOf } from './tiers.ts';

const RECORD = new URL('../../docs/proof.md', import.meta.url);
const TIERS = tiersOf(WORLDS.map(({ name }) => name));
const tierOf = (part: string) => TIERS.find(({ name }) => name.includes(part)) as Tier;
const END = `
 Test Files  1 failed | 1 passed (2)
      Tests  2 failed | 17 passed | 3 skipped (22)
   Duration  2.33s
`;

describe('the report of a runner', () => {
  it('has the tests that passed and failed in its end', () => {
    expect(testsOf(END)).toEqual({ passed: 17, failed: 2 });
    expect(testsOf('      Tests  6 passed (6)\n')).toEqual({ passed: 6, failed: 0 });
    expect(testsOf('Error: No test files found')).toBeUndefined();
  });

  it.each([
    [
      'a store with',
      'seed 7: 90 orders in 2 days, 30 words, 1 nights {}\nseed 8: 91 orders in 2 days, 30 words, 1 nights {}\n',
      { seeds: 2, 'store-days': 4 },
    ],
    ['ordinary days', 'seed 7: 301 orders in 5 days {"troubles":{}}\n', { seeds: 1, 'store-days': 5 }],
    ['a company', 'chain: 12 seeds from 7 in 21 s\n', { seeds: 12, 'chain worlds': 12 }],
    [
      'every order',
      'a count is held: 4120 states in 3.1 s\na count is held: 80 states in 0.2 s\n',
      { interleavings: 4200 },
    ],
    [
      'killed',
      '20 crashes (seed 7): 301 callbacks acknowledged\n  upgrade: any moment   2\n',
      { seeds: 1, kills: 20 },
    ],
    ['power', 'power: 8 crashes (seed 7): 40 callbacks acknowledged\n', { seeds: 1, 'power cuts': 8 }],
    [
      'upgrades',
      'upgrade (seed 7): 44 callbacks acknowledged, 291 reads, 7 kills\n',
      { seeds: 1, upgrades: 1, kills: 7 },
    ],
    ['told', '', {}],
    ['each fault', END, { 'faults told': 17 }],
    ['walks', END, { seeds: 1 }],
  ])('of "%s" is read to its figures', (part, report, figures) => {
    const read = tierOf(part).read(report);
    expect(Object.fromEntries(Object.entries(read).filter(([, n]) => n > 0))).toEqual(figures);
  });

  it('of a runner that broke off has no figures', () => {
    for (const tier of TIERS) expect(told(tier.read('Error: something else\n'))).toBe('');
  });
});

describe('the line that repeats a turn', () => {
  it('has its seed and its size', () => {
    expect(repeatLine(tierOf('a company').command(4711, 0))).toBe(
      'TILLSYNC_SEED=4711 TILLSYNC_SEEDS=10 npx vitest run --config vitest.slow.config.ts test/slow/simulation/chain/chain.test.ts',
    );
  });

  it('names the world whose turn it is, also one with an apostrophe', () => {
    const worlds = tiersOf(['a world', "a branch's id"]).find(({ name }) => name.includes('every order'));
    expect(repeatLine((worlds as Tier).command(7, 1))).toContain(`-t 'in which a branch'\\''s id ends as'`);
    expect(repeatLine((worlds as Tier).command(7, 0))).toContain(`-t 'in which a world ends as'`);
  });
});

describe('the plan for some minutes', () => {
  const planOf = (seconds: number, slowness = 1) => {
    const done: { tier: string; seconds: number }[] = [];
    let left = seconds;
    for (;;) {
      const tier = nextTier(TIERS, done, left, slowness);
      if (!tier) return { done: done.map((each) => each.tier), left };
      done.push({ tier: tier.name, seconds: tier.seconds * slowness });
      left -= tier.seconds * slowness;
    }
  };

  it('takes each tier in turn, and once what needs no second time', () => {
    const { done, left } = planOf(1_200);
    expect(left).toBeGreaterThanOrEqual(0);
    expect(done.slice(0, TIERS.length)).toEqual(TIERS.map(({ name }) => name));
    const turns = (name: string) => done.filter((each) => each === name).length;
    for (const { name, most } of TIERS) {
      if (most === 1) expect(turns(name)).toBe(1);
      else expect(turns(name), name).toBeGreaterThan(2);
    }
  });

  it('begins nothing that does not fit', () => {
    expect(planOf(45).done.length).toBeGreaterThan(0);
    expect(planOf(45).left).toBeGreaterThanOrEqual(0);
    const slow = [{ tier: TIERS[0]?.name ?? '', seconds: 500 }];
    expect(nextTier(TIERS.slice(0, 1), slow, 499, 1)).toBeUndefined();
    expect(nextTier(TIERS.slice(0, 1), slow, 500, 1)).toBe(TIERS[0]);
  });

  it('takes the shortest where none fits, so that something is proven', () => {
    expect(planOf(20, 12).done).toEqual([TIERS.toSorted((a, b) => a.seconds - b.seconds)[0]?.name]);
  });

  it('has each small world once', () => {
    const worlds = tierOf('every order');
    const done = WORLDS.map(() => ({ tier: worlds.name, seconds: 1 }));
    expect(nextTier([worlds], done.slice(1), 1_000, 1)).toBe(worlds);
    expect(nextTier([worlds], done, 1_000, 1)).toBeUndefined();
    for (const [turn, { name }] of WORLDS.entries()) {
      const pattern = new RegExp(worlds.command(7, turn).words.at(-1) ?? '');
      const found = WORLDS.filter((world) =>
        pattern.test(titleOf(world.name, { gives: true, follows: true })),
      );
      expect(found.map((world) => world.name)).toEqual([name]);
    }
  });

  it('is told its minutes, ten unless told, and its tiers, all unless told', () => {
    const names = TIERS.map(({ name }) => name);
    expect(readWish([], names)).toEqual({ minutes: 10, only: [] });
    expect(readWish(['--only', 'killed', '--minutes', '90', '--only', 'power'], names)).toEqual({
      minutes: 90,
      only: ['killed', 'power'],
    });
    for (const words of ['--minutes', '--minutes x', '--minutes 0', '-m 3', '--minutes 3 4'])
      expect(() => readWish(words.split(' '), names), words).toThrow('--minutes N');
    for (const words of ['--only', '--only earthquakes'])
      expect(() => readWish(words.split(' '), names), words).toThrow('allowed: a part of a store');
  });
});

describe('the record', () => {
  const EMPTY = `# Proof\n\nIn total: nothing yet; 0 tests passed, 0 failed.\n\n## Runs\n
| day | commit | minutes | seeds | store-days | chain worlds | interleavings | kills | power cuts | faults told | upgrades | passed | failed |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n\n## Faults\n
| day | commit | repeat it | what failed | mended by |\n|---|---|---|---|---|\n\nThe end.\n`;
  const run = (day: string, commit: string, kills: number) => ({
    ...{ day, commit, minutes: 10, figures: { kills, seeds: 1 }, passed: 5, failed: 0 },
  });

  it('sums runs of a commit on a day, has the newest day on top, and the total of all', () => {
    let document = recorded(EMPTY, run('2026-03-01', 'aaaaaaa', 900), []);
    document = recorded(document, run('2026-03-02', 'bbbbbbb', 20), []);
    document = recorded(document, run('2026-03-01', 'aaaaaaa', 300), []);
    document = recorded(document, run('2026-02-01', 'aaaaaaa', 1), []);
    expect(runsOf(document).map(({ day, commit, figures }) => [day, commit, figures.kills])).toEqual([
      ['2026-03-02', 'bbbbbbb', 20],
      ['2026-03-01', 'aaaaaaa', 1_200],
      ['2026-02-01', 'aaaaaaa', 1],
    ]);
    expect(document).toContain('In total: 4 seeds, 1,221 kills; 20 tests passed, 0 failed.\n');
    expect(document).toContain('| 2026-03-01 | aaaaaaa | 20 | 2 | 0 | 0 | 0 | 1,200 |');
    expect(document.endsWith('\n\nThe end.\n')).toBe(true);
  });

  it('gets a row for each fault, and leaves those that a person filled in', () => {
    const fault = { day: '2026-03-01', commit: 'aaaaaaa', repeat: 'TILLSYNC_SEED=7 npx', what: 'a | b\nc' };
    const first = recorded(EMPTY, run('2026-03-01', 'aaaaaaa', 1), [fault]);
    expect(first).toContain(
      '| 2026-03-01 | aaaaaaa | `TILLSYNC_SEED=7 npx` | a \\| b c | open |\n\nThe end.',
    );
    const mended = first.replace('| open |', '| 1234567 |');
    const second = recorded(mended, run('2026-03-02', 'bbbbbbb', 1), [{ ...fault, day: '2026-03-02' }]);
    expect(second.split('\n').filter((line) => line.includes('TILLSYNC_SEED=7'))).toEqual([
      '| 2026-03-02 | aaaaaaa | `TILLSYNC_SEED=7 npx` | a \\| b c | open |',
      '| 2026-03-01 | aaaaaaa | `TILLSYNC_SEED=7 npx` | a \\| b c | 1234567 |',
    ]);
  });

  it('refuses a document that is none', () => {
    expect(() => recorded('# Other\n', run('2026-03-01', 'aaaaaaa', 1), [])).toThrow(
      'no table under ## Runs',
    );
    const odd = recorded(EMPTY, run('2026-03-01', 'aaaaaaa', 1), []).replace('| 10 |', '| ten |');
    expect(() => runsOf(odd)).toThrow('no row of numbers');
  });

  it('in docs/proof.md can be added to, and its total is the sum of its rows', () => {
    const document = readFileSync(RECORD, 'utf8');
    const empty = { day: '2000-01-01', commit: 'ccccccc', minutes: 0, figures: {}, passed: 0, failed: 0 };
    const more = recorded(document, empty, []);
    expect(runsOf(more)).toHaveLength(runsOf(document).length + 1);
    const total = (text: string) => /^In total: .*$/m.exec(text)?.[0];
    if (runsOf(document).length > 0) expect(total(more)).toBe(total(document));
  });
});

describe('the screen', () => {
  const tier = tierOf('a company');
  const turn = (failed: number): Turn => ({
    ...{ tier: tier.name, command: tier.command(7, 0), seconds: 21.4 },
    ...{ figures: { 'chain worlds': 10 }, passed: 1, failed },
  });
  const base = { commit: 'aaaaaaa', minutes: 10, spentSeconds: 65, now: undefined };

  it('shows what was proven and how to repeat it, first of all what failed', () => {
    const later = { ...turn(0), command: tier.command(8, 0) };
    const calm = screenOf(TIERS, { ...base, turns: [turn(0), later] });
    expect(calm).toContain('at aaaaaaa, 1:05 of 10:00');
    expect(calm).toMatch(/^passed {2}a company with hub and branches +20 chain worlds\n +TILLSYNC_SEED=8 /m);
    const failed = screenOf(TIERS, { ...base, turns: [turn(1), later] });
    expect(failed).toMatch(
      /^FAILED {2}a company with hub and branches +20 chain worlds\n +TILLSYNC_SEED=7 /m,
    );
    expect(screenOf(TIERS, { ...base, turns: [], now: { tier, command: tier.command(9, 0) } })).toMatch(
      /^runs {4}a company .*\n +TILLSYNC_SEED=9 /m,
    );
  });

  it('is plain lines where it is no terminal', () => {
    expect(turnLine(tier, turn(0))).toMatch(
      /^passed {2}a company .*: 10 chain worlds; 1 tests passed, 0 failed; 21 s\n +TILLSYNC_SEED=7 /,
    );
    expect(turnLine(tier, turn(1))).toMatch(/^FAILED/);
  });
});
