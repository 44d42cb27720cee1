/** Tests src/cli/speech.ts. */

import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { authReport } from '../../src/cli/auth.ts';
import { checkText, summaryText } from '../../src/cli/doctor-text.ts';
import { waitText } from '../../src/cli/progress.ts';
import commands from '../../src/cli/spanish.json' with { type: 'json' };
import { spanish, speaker } from '../../src/cli/speech.ts';
import { freshnessSentence, type StatusReport, statusText } from '../../src/cli/status-text.ts';
import { configWarnings } from '../../src/config/config.ts';
import { FRESHNESS_STATES, FRESHNESS_SUBJECTS } from '../../src/core/alarm.ts';
import { formatCommands } from '../../src/core/errors.ts';
import { FINDINGS } from '../../src/health/findings.ts';
import { SPANISH_TEXTS } from '../../src/health/speech.ts';
import { verdictOf } from '../../src/health/verdict.ts';
import { CHECK_TITLES, type CheckResult } from '../../src/support/doctor/check.ts';
import { phrasesOf } from '../page/sentences.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const PLACE = /\{\w+\}/;
const NOW = Date.parse('2026-01-15T12:00:00.000Z');
const CLOCK = { nowMs: () => NOW };
const CONFIG = { shop: { name: '', currency: '', language: 'es' }, orders: { timezone: 'America/Santiago' } };
const say = speaker(CONFIG as unknown as Parameters<typeof speaker>[0], CLOCK);

/** Sources of the words that `doctor` and `status` show a person. */
const FILES = ['src/support/doctor/*.ts', 'src/outbox/ledger/hold-back.ts', 'src/support/webhook-probe.ts'];
const TABLE = [...Object.keys(commands), ...Object.keys(SPANISH_TEXTS)];

/**
 * Whether the whole phrase is translated, or one sentence of the table contains every part of it that has several
 * words.
 */
function isKnown(phrase: string): boolean {
  if (spanish().whole(phrase) !== undefined) return true;
  const parts = phrase.split(PLACE).map((part) => part.trim());
  const words = parts.filter((part) => /\p{L}{2,}\S* .*\p{L}{2,}/u.test(part));
  return TABLE.some((english) => words.every((part) => english.includes(part)));
}

const isKnownWhole = (english: string) => spanish().whole(formatCommands(english)) !== undefined;

describe('what doctor says', () => {
  const files = FILES.flatMap((glob) => globSync(glob, { cwd: ROOT })).sort();

  it.each(files)('is all known in Spanish: %s', (file) => {
    const phrases = phrasesOf(path.join(ROOT, file)).filter((phrase) => !phrase.startsWith('sudo '));
    expect(phrases.filter((phrase) => !isKnown(phrase))).toEqual([]);
  });

  it('is all known in Spanish: what `diff` says', () => {
    const file = path.join(ROOT, 'src/cli/diff.ts');
    const source = readFileSync(file, 'utf8').replaceAll('\\`', '`');
    // Help and faults of the command line are in English.
    const help = source.slice(source.indexOf('= command('), source.indexOf('const window'));
    const isHelp = (phrase: string) => phrase.split(PLACE).every((part) => help.includes(part));
    const phrases = phrasesOf(file).filter((phrase) => !isHelp(phrase));
    expect(phrases.length).toBeGreaterThan(10);
    expect(phrases.filter((phrase) => !isKnown(phrase))).toEqual([]);
  });

  it('has a Spanish title for each check, and remedies for each finding', () => {
    expect(Object.values(CHECK_TITLES).filter((title) => !isKnownWhole(title))).toEqual([]);
    const remedies = Object.values(FINDINGS).map(({ inDoctor = 'Not tried.' }) => inDoctor);
    expect(remedies.filter((remedy) => !isKnownWhole(remedy))).toEqual([]);
  });

  it('warns of the configuration in Spanish', () => {
    const warnings = [
      { stock: { safety: 1 }, platform: { baseUrl: '' }, link: { hub: 'tls://hub.test' } },
      {
        stock: { safety: 0, platformDeducts: false, holdBackUnbooked: 'auto' },
        platform: { baseUrl: 'http://shop.test' },
        link: { hub: '' },
      },
      {
        stock: { safety: 0, platformDeducts: true, holdBackUnbooked: true },
        platform: { baseUrl: 'https://shop.test' },
        link: { hub: '' },
      },
    ].flatMap((config) => configWarnings({ branches: [{ externalId: 'B1' }], ...config } as never));
    expect(warnings).toHaveLength(4);
    expect(warnings.filter((warning) => !isKnownWhole(warning))).toEqual([]);
  });

  it('ends in Spanish, however the checks ended', () => {
    const check = (level: CheckResult['level']): CheckResult => ({
      id: 'storage.disk',
      title: 'Disk space',
      level,
      message: 'It answers.',
      remedy: null,
      facts: {},
    });
    const unseen = { ...check('skipped'), isHidden: true, remedy: 'Run: sudo tillsync doctor' };
    const levels = ['ok', 'warn', 'fail', 'skipped'] as const;
    for (let which = 1; which < 16; which++) {
      const results = levels.filter((_level, i) => (which >> i) % 2 === 1).map(check);
      for (const all of [results, [...results, unseen]]) {
        expect(isKnownWhole(summaryText(all)), summaryText(all)).toBe(true);
      }
    }
    expect(say(summaryText([check('warn'), check('ok')]))).toBe(
      '1 por revisar, 1 en orden. Empiece por: Espacio en disco.',
    );
    expect(checkText(check('fail'), 10, { signs: false, language: 'es' })).toMatch(/^FALLA /);
  });
});

describe('what status says', () => {
  const flow = { subject: 'orders.poll', lastOkAt: null, lastTryAt: null, message: '' } as const;

  it('of each state of a flow is Spanish', () => {
    const at = new Date(NOW - 60_000).toISOString();
    for (const state of FRESHNESS_STATES)
      for (const lastOkAt of [null, at])
        for (const lastTryAt of [null, at]) {
          const english = freshnessSentence({ ...flow, state, lastOkAt, lastTryAt }, NOW);
          expect(isKnownWhole(english), english).toBe(true);
        }
  });

  it('of tokens and of what is waited for is Spanish', () => {
    const status = {
      ...{ generation: 1, savedAtMs: 0, clockSkewMs: 0 },
      ...{ lockedOut: null, triesAgainAtMs: null, openIntentAtMs: null },
    };
    const inMs = [null, -5_000, 200_000];
    const tokens = inMs.flatMap((accessExpiresInMs) =>
      inMs.flatMap((refreshExpiresInMs) =>
        [true, false].flatMap((hasAccessToken) =>
          [null, NOW - 180_000].map((openIntentAtMs) => ({
            ...status,
            accessExpiresInMs,
            refreshExpiresInMs,
            hasAccessToken,
            openIntentAtMs,
            state: 'ok' as const,
          })),
        ),
      ),
    );
    const [first] = tokens;
    if (!first) throw new Error('none');
    const refused = (cause: 'refused' | 'reply-lost', triesAgainAtMs: number | null) => ({
      ...first,
      state: 'locked-out' as const,
      lockedOut: { atMs: NOW, cause, refusals: 1, refusedAtMs: NOW },
      triesAgainAtMs,
    });
    const others = [
      { ...first, state: 'none' as const },
      refused('refused', NOW),
      refused('refused', null),
      refused('reply-lost', NOW + 60_000),
    ];
    for (const each of [...tokens, ...others]) {
      const { message } = authReport(each, NOW);
      expect(isKnownWhole(message), message).toBe(true);
    }
    for (const reason of [
      'interval',
      'in-flight',
      'window',
      'retry-after',
      'blocked',
      'refreshing',
    ] as const) {
      const english = waitText({ endpoint: 'order.all', reason, waitMs: 72_000 });
      expect(isKnownWhole(english), english).toBe(true);
    }
  });

  it('is whole in the language of the shop, with times by its clock', () => {
    const raisedAt = '2026-01-15T11:00:00.000Z';
    const alarms = [
      {
        key: 'auth.other-company',
        message: `Since 2026-01-15 11:00 UTC the platform asks for new tokens: no.`,
        raisedAt,
      },
    ];
    const report: StatusReport = {
      at: new Date(NOW).toISOString(),
      shop: 'Local Centro',
      currency: null,
      storage: '/s',
      disk: null,
      holdBack: [{ branch: 'B1', isOn: false, missing: ['acknowledgement', 'external_id'] }],
      verdict: verdictOf({
        nowMs: NOW,
        freshness: [],
        tokens: null,
        quarantine: 2,
        ordersStaleAfterMs: 0,
        outbox: null,
        alarms,
      }),
      running: false,
      freshness: FRESHNESS_SUBJECTS.map((subject) => ({ ...flow, subject, state: 'unknown' as const })),
      alarms,
      auth: null,
      authFault: 'No tokens were ever stored here.',
      waits: [],
      counts: { orders: 12, openOrders: 3, events: 40, quarantine: 2 },
    };
    expect(statusText(report, say)).toBe(`Local Centro
Se requiere atención ahora: Llegan pedidos de otra empresa. Los tokens pueden ser de otra tienda. Para ingresar los tokens de esta tienda, ejecute: tillsync auth set. Si la tienda ahora es de la otra empresa, ejecute: tillsync auth set --other-company
Además: Mensajes ilegibles en cuarentena: 2. Para verlos, ejecute: tillsync quarantine list. Para borrar uno que ya no se necesita, ejecute: tillsync quarantine delete ID

Estado cuando se detuvo:
ALARMA auth.other-company, hace 1h: Desde 08:00 la plataforma pide tokens nuevos: no.

pedidos por consulta:    todavía sin intentos
pedidos por webhook:     todavía sin intentos
catálogo:                todavía sin intentos
cambios a la plataforma: todavía sin intentos
tokens:                  todavía sin intentos
respaldo:                todavía sin intentos
central y sucursales:    todavía sin intentos

Aquí nunca se han guardado tokens.

Sucursal B1: los conteos se envían tal cual, porque su POS todavía no ha confirmado ningún pedido por sí solo y falta su external_id en [[branches]].

12 pedidos (3 abiertos), evento más nuevo 40, 2 en cuarentena
`);
  });
});

/** Returns runs of three words, or of two if there are at most four. */
function runsOf(words: readonly string[]): string[] {
  const length = words.length > 4 ? 3 : 2;
  return words
    .slice(0, Math.max(0, words.length - length + 1))
    .map((_word, i) => words.slice(i, i + length).join(' '));
}

describe('the Spanish of commands', () => {
  const places = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(([place]) => place).sort();

  it('fills in only what the English has', () => {
    for (const [english, told] of Object.entries(commands)) {
      expect(places(english), english).toEqual(expect.arrayContaining(places(told)));
    }
  });

  it('stands in the program still', () => {
    const program = globSync('src/**/*.ts', { cwd: ROOT })
      .filter((file) => !file.startsWith(`src${path.sep}page`))
      .map((file) => readFileSync(path.join(ROOT, file), 'utf8'))
      .join('\n')
      .replaceAll('\\`', '`');
    // Inserted values split these sentences, so only runs of a few words must be found.
    const isThere = (english: string) => {
      const words = english
        .split(/\{\w+\}|[,;:."()]/)
        .flatMap((part) => runsOf(part.split(/\s+/).filter(Boolean)));
      return words.length === 0 || words.some((run) => program.includes(run));
    };
    const gone = Object.keys(commands).filter((english) => !isThere(english));
    expect(gone).toEqual([]);
  });

  it('leaves the words of others, and all that is made for programs, as they are', () => {
    expect(say('Subsidiary not found')).toBe('Subsidiary not found');
    expect(say('Nothing answers at http://127.0.0.1:1 (ECONNREFUSED).')).toBe(
      'Nada responde en http://127.0.0.1:1 (ECONNREFUSED).',
    );
  });
});
