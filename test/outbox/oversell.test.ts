import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { BUILT_IN_STRATEGIES, OPTIMUM } from '../bench/oversell/built-in-strategies.ts';
import { csvOf, readCsv } from '../bench/oversell/csv.ts';
import { sumOf } from '../bench/oversell/figures.ts';
import { writePage } from '../bench/oversell/page.ts';
import { playAll } from '../bench/oversell/play-all.ts';
import { playDay } from '../bench/oversell/play-day.ts';
import { DAY, exponential, shopDay } from '../bench/oversell/shop-day.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';

const BUSY = { ...DAY, customers: 220, bookingS: 1_200 };

const days = (strategies: Parameters<typeof playAll>[0]['strategies'], count: number, more = {}) =>
  playAll({
    strategies,
    settings: BUSY,
    seed: 3,
    days: count,
    ...more,
  });

/** Returns the outcome of one busy day for a built-in strategy. */
async function busyDay(name: string, day: number) {
  const strategy = BUILT_IN_STRATEGIES.find((each) => each.name === name);
  if (!strategy) throw new Error(name);
  const hears = strategy.hears ?? 'callback';
  return playDay(shopDay({ ...BUSY, hears }, 3, day), await strategy.create(), {
    isOptimum: strategy === OPTIMUM,
  });
}

it('oversell: on one busy day tillsync offers nothing wrong, and a plain push does', {
  tags: ['bulk'],
}, async () => {
  const [best, own, byPolling, push] = [
    await busyDay('optimum', 1),
    await busyDay('tillsync', 1),
    await busyDay('tillsync by polling, with looks', 1),
    await busyDay('push each change', 1),
  ];
  expect(own).toMatchObject({ atsale: best.atsale, outside: 0, lost: best.lost });
  expect(byPolling.atsale).toBeLessThanOrEqual(1.3 * best.atsale);
  expect(push.outside).toBeGreaterThan(0);
});

it('oversell: a seed gives the same day on every machine', () => {
  const day = JSON.stringify(shopDay(DAY, 1, 0));
  expect(createHash('sha256').update(day).digest('hex').slice(0, 16)).toBe('5e9ab610e35fbfcc');
});

it('oversell: the page says what the days counted, and the same days give the same page', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-page-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const day = { orders: 40, sold: 41, atsale: 2, outside: 0, conflict: 1, lost: 0, calls: 90 };
  const played = ['optimum', 'push each change', 'tillsync'].map((name) => ({
    name,
    about: 'about',
    days: [day, { ...day, outside: name === 'push each change' ? 2 : 0 }],
  }));
  const ordinary = { seed: 1, bookingS: DAY.bookingS, onlineShare: DAY.onlineShare, played };
  const scenarios = [ordinary, { ...ordinary, bookingS: 120 }, { ...ordinary, onlineShare: 0.1 }];
  const written = () => {
    writePage(directory, scenarios);
    return ['oversell.md', 'oversell.svg', 'oversell-booking.svg', 'oversell-online.svg'].map((file) =>
      readFileSync(path.join(directory, file), 'utf8'),
    );
  };
  const first = written();
  expect(first[0]).toContain(
    'On 2 shop days with 80 online orders, tillsync offered no piece that the shop could have known to be sold, ' +
      'and missed no sale. A push of each change offered 2 pieces of these.',
  );
  expect(first[0]).toContain('| 2 min | 2 | 4 (0; 0) | 4 (0; 0) |');
  expect(written()).toEqual(first);
});

it('oversell: the time until staff book is drawn from the exponential distribution', () => {
  const random = seededRandom(5);
  const drawn = Array.from({ length: 20_000 }, () => exponential(random));
  const share = (above: number) => drawn.filter((each) => each > above).length / drawn.length;
  expect(drawn.reduce((sum, each) => sum + each, 0) / drawn.length).toBeCloseTo(1, 1);
  for (const above of [0.5, 1, 2, 3]) expect(Math.abs(share(above) - Math.exp(-above))).toBeLessThan(0.01);
});

it('oversell: the same seed gives the same file, in one part or several and on one processor or two', {
  tags: ['bulk'],
  timeout: limitMs(60_000),
}, async () => {
  const strategies = [{ name: 'optimum' }, { name: 'tillsync by polling, with looks' }];
  const scenario = { seed: 3, bookingS: BUSY.bookingS, onlineShare: BUSY.onlineShare };
  const fileOf = (played: Awaited<ReturnType<typeof playAll>>) => csvOf([{ ...scenario, played }]);
  const whole = fileOf(await days(strategies, 24, { lanes: 1 }));
  const begun = fileOf(await days(strategies, 5, { lanes: 1 }));
  const known = readCsv(begun)(scenario);
  expect([...known.values()].map(({ length }) => length)).toEqual([5, 5]);
  expect(fileOf(await days(strategies, 24, { lanes: 2, known }))).toBe(whole);
});

it('oversell: tillsync sells no more that is not free than the optimum, loses no sale, and a plain push does', {
  tags: ['bulk'],
}, async () => {
  const [best, own, push, byPolling] = await days(
    ['optimum', 'tillsync', 'push each change', 'tillsync by polling, with looks'].map((name) => ({ name })),
    12,
  );
  expect([best, own, push, byPolling].flatMap((each) => each?.fault ?? [])).toEqual([]);
  expect(sumOf(best?.days ?? [], 'sold')).toBeGreaterThan(300);
  expect(own?.days.map(({ atsale, outside, lost }) => ({ atsale, outside, lost }))).toEqual(
    best?.days.map(({ atsale, lost }) => ({ atsale, outside: 0, lost })),
  );
  expect(sumOf(push?.days ?? [], 'outside')).toBeGreaterThan(0);
  expect(sumOf(byPolling?.days ?? [], 'atsale')).toBeLessThanOrEqual(1.3 * sumOf(best?.days ?? [], 'atsale'));
});

it('oversell: a strategy that throws, hangs or offers NaN is named with its day, and the others go on', {
  tags: ['bulk'],
}, async () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-strategies-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const file = (name: string, body: string) => {
    const place = path.join(directory, `${name}.ts`);
    writeFileSync(place, `export default { name: '${name}', about: '', create: () => (${body}) };\n`);
    return { file: place };
  };
  const [thrown, hung, nan, left, well] = await days(
    [
      file('throws', "{ heard() { throw new Error('no such order'); } }"),
      file('hangs', '{ posChanged() { for (;;); } }'),
      file('nan', '{ open(shop) { shop.send(0, Number.NaN); } }'),
      file('leaves', '{ heard() { process.exit(); } }'),
      file(
        'well',
        '{ open(shop) { this.shop = shop; }, posChanged(product, qty) { this.shop.send(product, qty); } }',
      ),
    ],
    2,
    { dayMaxMs: limitMs(1_500) },
  );
  expect(thrown).toMatchObject({ name: 'throws', fault: 'day 0 of seed 3: no such order' });
  expect(hung?.fault).toMatch(/^day 0 of seed 3: nothing for .* s, so it hangs$/);
  expect(nan?.fault).toBe('day 0 of seed 3: it offered NaN of product 0');
  expect(left?.fault).toBe('day 0 of seed 3: it ended its thread');
  expect(well?.days).toHaveLength(2);
});
