/**
 * Tests src/page/views/trends-view.ts, src/page/words/language.ts, src/page/views/axes.ts and
 * src/page/words/format.ts.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Cli } from '../../src/cli/cli.ts';
import { createProgram } from '../../src/cli/program.ts';
import { typedWords } from '../../src/core/errors.ts';
import { FINDINGS, type FindingCode } from '../../src/health/findings.ts';
import { SPANISH_FINDINGS } from '../../src/health/speech.ts';
import { verdictOf } from '../../src/health/verdict.ts';
import { axis, durationAxis, sinceFirst } from '../../src/page/views/axes.ts';
import { formatFor } from '../../src/page/words/format.ts';
import {
  COMMAND_WORDS,
  changeSubject,
  changeValues,
  chooseLanguage,
  speechOf,
  splitCommands,
  statusWord,
  WORDS,
  type WordKey,
} from '../../src/page/words/language.ts';

const COMMANDS = typedWords();

describe('axes', () => {
  it('begin at zero, reach the highest value, and have few, evenly spaced, ticks', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e9 }), (highest) => {
        for (const ticks of [axis(highest), durationAxis(highest)]) {
          expect(ticks[0]).toBe(0);
          expect(ticks.at(-1)).toBeGreaterThanOrEqual(highest * (1 - 1e-9));
          expect(ticks.length).toBeLessThanOrEqual(8);
          const step = ticks[1]! - ticks[0]!;
          for (const [i, tick] of ticks.entries()) expect(tick).toBeCloseTo(i * step, 6);
        }
      }),
    );
  });

  it('have round numbers', () => {
    expect(axis(74)).toEqual([0, 20, 40, 60, 80]);
    expect(axis(4)).toEqual([0, 1, 2, 3, 4]);
    expect(axis(0)).toEqual([0, 1]);
    expect(durationAxis(7_000)).toEqual([0, 2_000, 4_000, 6_000, 8_000]);
    expect(durationAxis(100_000)).toEqual([0, 30_000, 60_000, 90_000, 120_000]);
  });
});

describe('words', () => {
  const places = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(([place]) => place).sort();

  it('have the same places in both languages, and none is left as it was', () => {
    expect(Object.keys(WORDS.es)).toEqual(Object.keys(WORDS.en));
    expect(Object.keys(SPANISH_FINDINGS).sort()).toEqual(Object.keys(FINDINGS).sort());
    for (const [key, english] of Object.entries(WORDS.en)) {
      const spanish = WORDS.es[key as WordKey];
      expect(places(spanish), key).toEqual(places(english));
      expect(spanish.trim()).not.toBe('');
    }
    for (const code of Object.keys(FINDINGS) as FindingCode[]) {
      const { message, remedy } = SPANISH_FINDINGS[code];
      expect(places(message), code).toEqual(places(FINDINGS[code].message));
      const commands = (text: string) =>
        text.match(/(\{tillsync\}|(run|ejecute) tillsync) [a-z]+( [a-z]+)?/g) ?? [];
      expect(commands(remedy).length, code).toBe(commands(FINDINGS[code].remedy).length);
    }
  });

  it('follow the browser, then English', () => {
    expect(chooseLanguage(['es-CL', 'en'])).toBe('es');
    expect(chooseLanguage(['pt-BR', 'es'])).toBe('es');
    expect(chooseLanguage(['de', 'fr'])).toBe('en');
    expect(chooseLanguage([])).toBe('en');
  });

  it('say a finding in the language that is spoken', () => {
    const outbox = { pending: 0, held: 0, rejected: 3, oldestPendingAt: null };
    const facts = { nowMs: 0, freshness: [], alarms: [], tokens: null, outbox, quarantine: 0 };
    const [finding] = verdictOf({ ...facts, ordersStaleAfterMs: 0 }).findings;
    if (!finding) throw new Error('nothing was found');
    expect(speechOf('en', []).finding(finding, COMMANDS).message).toBe(
      'Changes rejected by the platform: 3.',
    );
    expect(speechOf('es', []).finding(finding, COMMANDS).message).toBe(
      'Cambios rechazados por la plataforma: 3.',
    );
    expect(speechOf('es', []).finding({ ...finding, count: null }, COMMANDS).message).toBe(
      'Cambios rechazados por la plataforma.',
    );
    const tomorrow = { ...finding, code: 'of.tomorrow' as FindingCode };
    const ofBranch = { ...COMMANDS, tillsync: 'tillsync --config /etc/tillsync/B1.toml' };
    const remedy = (code: FindingCode, english: string) =>
      speechOf('es', []).finding({ ...finding, code, remedy: english }, ofBranch).remedy;
    expect(remedy('quarantine', 'run: tillsync --config /etc/tillsync/B1.toml quarantine list')).toContain(
      'tillsync --config /etc/tillsync/B1.toml quarantine list',
    );
    expect(speechOf('es', []).finding(tomorrow, COMMANDS)).toEqual({
      message: finding.message,
      remedy: finding.remedy,
    });
  });

  it("tell times of the daemon by the shop's clock, before the first status by this machine's", () => {
    const at = new Date(Date.now() - 60_000).toISOString();
    const hour = formatFor('es').hour(at);
    const zones = ['America/Santiago', 'Asia/Kolkata', 'Nowhere/Known'];
    const told = zones.map(
      (zone) => speechOf('en', [], zone).reason('It ends at 2026-07-01T13:05:00.000Z.').text,
    );
    expect(told.slice(0, 2)).toEqual([expect.stringContaining('09:05'), expect.stringContaining('18:35')]);
    expect(told[2]).toBe(speechOf('en', []).reason('It ends at 2026-07-01T13:05:00.000Z.').text);
    const said = `Since ${at.slice(0, 16).replace('T', ' ')} UTC the platform asks for new tokens: no.`;
    expect(speechOf('es', []).reason(said)).toEqual({
      text: `Desde ${hour} la plataforma pide tokens nuevos: no.`,
      language: 'es',
    });
    expect(speechOf('en', ['en-US']).reason(`It ends at ${at}.`).text).toBe(`It ends at ${hour}.`);
  });

  it('name a status, also one that nobody knows', () => {
    const { say } = speechOf('es', []);
    const speech = speechOf('es', []);
    expect(statusWord('ready', speech)).toBe(say('status.ready'));
    expect(statusWord('constructor', speech)).toBe('constructor');
    expect(statusWord(null, speech)).toBe(say('status.none'));
  });

  it('tell what a change is about, whatever was handed over', () => {
    const speech = speechOf('en', []);
    const target = 'sku:1@s1';
    const body = { externalId: 'A1', subsidiaryId: 's1', qty: 3, show: false };
    expect(changeSubject({ target, body }, speech)).toBe('A1 · branch s1');
    expect(changeValues({ body }, speech, null)).toBe('stock 3, hidden');
    expect(changeSubject({ target, body: {} }, speech)).toBe('sku:1@s1');
    expect(changeSubject({ target, body: { sku: 12 } }, speech)).toBe('SKU 12');
    const odd = { price: '12.50', name: '<b>', description: '' };
    expect(changeValues({ body: odd }, speech, null)).toBe('price 12.5, name “<b>”, description');
  });
});

describe('figures', () => {
  const { ago, age, amount, duration, money } = formatFor('en-US');
  const nowMs = Date.parse('2026-01-15T12:00:00.000Z');
  const past = (ms: number) => new Date(nowMs - ms).toISOString();

  it('of age do not run with every second', () => {
    expect(ago(past(9_999), nowMs)).toBe('now');
    expect(ago(past(-5_000), nowMs)).toBe('now');
    expect(ago(past(38_000), nowMs)).toBe('30 sec. ago');
    expect(ago(past(61_000), nowMs)).toBe('1 min. ago');
    expect(age(past(7_300_000), nowMs)).toBe('2 hr');
    expect([ago(null, nowMs), ago('mañana', nowMs)]).toEqual(['', 'mañana']);
  });

  it('of money are in the currency that is set', () => {
    expect([money(12900, null), money('12900.00', 'CLP'), money(1.5, 'USD')]).toEqual([
      '12,900',
      '$12,900',
      '$1.50',
    ]);
    expect(formatFor('es-CL').money(12900, 'CLP')).toBe('$12.900');
    expect([money('gratis', 'CLP'), money(null, 'CLP')]).toEqual(['gratis', '']);
  });

  it('of money stay as sent where they are none', () => {
    expect([amount(1234.5), amount('1234.50'), amount('gratis'), amount(null), amount('')]).toEqual([
      '1,234.5',
      '1,234.5',
      'gratis',
      '',
      '',
    ]);
  });

  it('of time have the unit that fits', () => {
    expect([duration(52.4), duration(1_500), duration(61_000), duration(7_200_000)]).toEqual([
      '52 ms',
      '1.5 sec',
      '1 min',
      '2 hr',
    ]);
  });
});

describe('commands in a text', () => {
  it('splitCommands: knows every command that a text may name', () => {
    const program = createProgram({} as Cli).commands.map((command) => command.name());
    const never = ['demo', 'sandbox', 'help'];
    expect(COMMAND_WORDS.split(' ')).toEqual(program.filter((name) => !never.includes(name)).sort());
  });

  it('splitCommands: finds each command of each remedy, and takes no sentence for one', () => {
    const words = { ...COMMANDS, tillsync: 'sudo tillsync' };
    const remedies = [
      ...Object.values(FINDINGS).map(({ remedy }) => remedy),
      ...Object.values(SPANISH_FINDINGS).flatMap(({ remedy, remedies }) => [
        remedy,
        ...Object.values(remedies ?? {}),
      ]),
    ];
    for (const remedy of remedies) {
      const text = remedy.replaceAll('{tillsync}', words.tillsync);
      const found = splitCommands(text, words).filter(
        (part, at) => at % 2 === 1 && part.startsWith('sudo tillsync'),
      );
      expect(found.length, text).toBe(remedy.split('{tillsync}').length - 1);
    }
    const program = 'tillsync --config /etc/tillsync/B1.toml';
    const ofBranch = { ...COMMANDS, tillsync: program };
    expect(splitCommands(`See ${program} sync diff stock, then ${program} auth set.`, ofBranch)).toEqual([
      'See ',
      `${program} sync diff stock`,
      ', then ',
      `${program} auth set`,
      '.',
    ]);
    expect(splitCommands('Vea tillsync hooks test NOMBRE, o espere: tillsync reintenta.', COMMANDS)).toEqual([
      'Vea ',
      'tillsync hooks test NOMBRE',
      ', o espere: tillsync reintenta.',
    ]);
  });
});

describe('the hours of a picture', () => {
  const hours = (...orders: number[]) =>
    orders.map((each, i) => ({
      from: `h${i}`,
      orders: each,
      pushed: 0,
      pushMedianMs: null,
      pushP95Ms: null,
    }));

  it('sinceFirst: leaves out what was before the first day began, and keeps six hours', () => {
    const from = (given: ReturnType<typeof hours>) => sinceFirst(given).map((hour) => hour.from);
    expect(from(hours(0, 0, 0, 0, 0, 0, 0, 1))).toEqual(['h2', 'h3', 'h4', 'h5', 'h6', 'h7']);
    expect(from(hours(0, 2, 0, 0, 0, 0, 0, 0))).toEqual(['h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'h7']);
    expect(from(hours(0, 0, 0))).toHaveLength(3);
    expect(from(hours(0, 0, 0, 0, 0, 0, 0, 0))).toHaveLength(8);
  });
});
