import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { sumOf } from '../bench/oversell/figures.ts';
import { playAll } from '../bench/oversell/play-all.ts';
import { DAY } from '../bench/oversell/shop-day.ts';
import { limitMs } from '../support/shared-config.ts';

const days = (strategies: Parameters<typeof playAll>[0]['strategies'], count: number, more = {}) =>
  playAll({
    strategies,
    settings: { ...DAY, customers: 220, bookingS: 1_200 },
    seed: 3,
    days: count,
    ...more,
  });

it('oversell: tillsync sells no more that is not free than the optimum, loses no sale, and a plain push does', {
  tags: ['bulk'],
}, async () => {
  const [best, own, push] = await days(
    [{ name: 'optimum' }, { name: 'tillsync' }, { name: 'push each change' }],
    12,
  );
  expect([best?.fault, own?.fault, push?.fault]).toEqual([undefined, undefined, undefined]);
  expect(sumOf(best?.days ?? [], 'sold')).toBeGreaterThan(300);
  expect(own?.days.map(({ atsale, outside, lost }) => ({ atsale, outside, lost }))).toEqual(
    best?.days.map(({ atsale, lost }) => ({ atsale, outside: 0, lost })),
  );
  expect(sumOf(push?.days ?? [], 'outside')).toBeGreaterThan(0);
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
  const [thrown, hung, nan, well] = await days(
    [
      file('throws', "{ heard() { throw new Error('no such order'); } }"),
      file('hangs', '{ posChanged() { for (;;); } }'),
      file('nan', '{ open(shop) { shop.send(0, Number.NaN); } }'),
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
  expect(well?.days).toHaveLength(2);
});
