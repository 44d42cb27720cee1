import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { FRESHNESS_STATES, FRESHNESS_SUBJECTS, type FreshnessSubject } from '../../src/core/alarm.ts';
import type { Facts } from '../../src/health/facts.ts';
import { FINDINGS, type FindingCode } from '../../src/health/findings.ts';
import { assess } from '../../src/health/verdict.ts';
import { ROOT } from '../support/workplace.ts';

const NOW_MS = Date.parse('2026-01-15T12:00:00.000Z');
const ago = (ms: number) => new Date(NOW_MS - ms).toISOString();
const CODES = Object.keys(FINDINGS) as FindingCode[];
const GIB = 1024 ** 3;

const someTime = fc.option(fc.constantFrom(1, 200_000, 400_000, 700_000, 3_000_000).map(ago), { nil: null });
const failed = (code: string) => ({ code, since: ago(200_000), tries: 3 });
const someFlow = (subject: FreshnessSubject) =>
  fc.record({
    subject: fc.constant(subject),
    state: fc.constantFrom(...FRESHNESS_STATES),
    lastOkAt: someTime,
    lastTryAt: someTime,
    message: fc.constantFrom('', 'words', 'others'),
    failure: fc.constantFrom(
      undefined,
      ...['ECONNREFUSED', 'EAI_AGAIN', 'link-refused', 'rate-limited', 'callbacks-silent'].map(failed),
    ),
  });
const someFacts: fc.Arbitrary<Facts> = fc.record({
  nowMs: fc.constant(NOW_MS),
  isSetUp: fc.constantFrom(true, true, true, false),
  running: fc.constantFrom(true, true, false, null),
  stateFault: fc.constantFrom(null, null, 'it is damaged'),
  disk: fc.constantFrom(
    null,
    ...[1, 400 * 1024 ** 2, 90 * GIB].map((freeBytes) => ({ freeBytes, totalBytes: 100 * GIB })),
  ),
  freshness: fc.tuple(...FRESHNESS_SUBJECTS.map(someFlow)),
  alarms: fc
    .uniqueArray(fc.constantFrom(...CODES), { maxLength: 4 })
    .map((keys) => keys.map((key) => ({ key, message: `about ${key}`, raisedAt: ago(60_000) }))),
  tokens: fc.constantFrom(
    null,
    { state: 'ok' as const, refreshExpiresInMs: 20 * 86_400_000 },
    { state: 'ok' as const, refreshExpiresInMs: 20 },
    { state: 'none' as const, refreshExpiresInMs: null },
    { state: 'locked-out' as const, refreshExpiresInMs: null },
  ),
  outbox: fc.option(
    fc.record({ pending: fc.nat(9), held: fc.nat(2), rejected: fc.nat(2), oldestPendingAt: someTime }),
    { nil: null },
  ),
  isLineUp: fc.constantFrom(null, true, false),
  quarantine: fc.nat(2),
  ordersStaleAfterMs: fc.constant(600_000),
});

const well: Facts = {
  nowMs: NOW_MS,
  isSetUp: true,
  running: true,
  stateFault: null,
  disk: { freeBytes: 90 * GIB, totalBytes: 100 * GIB },
  freshness: FRESHNESS_SUBJECTS.map((subject) => ({
    subject,
    state: 'ok',
    lastOkAt: ago(30_000),
    lastTryAt: ago(30_000),
    message: '',
  })),
  alarms: [],
  tokens: { state: 'ok', refreshExpiresInMs: 20 * 86_400_000 },
  outbox: { pending: 2, held: 0, rejected: 0, oldestPendingAt: ago(1_000) },
  quarantine: 0,
  ordersStaleAfterMs: 600_000,
};

it('does not depend on the order in which facts were reported', () => {
  fc.assert(
    fc.property(someFacts, fc.func(fc.integer()), (facts, key) => {
      const mixed = <T>(list: readonly T[]) => [...list].sort((a, b) => key(a) - key(b));
      const other = { ...facts, freshness: mixed(facts.freshness), alarms: mixed(facts.alarms) };
      expect(assess(other).findings).toEqual(assess(facts).findings);
    }),
  );
});

it('tells each code for some facts, and none once all is well', () => {
  const reached = new Set<FindingCode>();
  const note = (facts: Facts) => {
    for (const { code } of assess(facts).findings) reached.add(code);
  };
  for (const key of CODES) note({ ...well, alarms: [{ key, message: 'words', raisedAt: ago(60_000) }] });
  for (const facts of fc.sample(someFacts, { seed: 7, numRuns: 1_500 })) note(facts);
  expect(CODES.filter((code) => !reached.has(code))).toEqual([]);
  expect(assess(well).findings).toEqual([]);
});

it('hides nothing beside itself, and nothing by what is hidden the other way round', () => {
  for (const code of CODES)
    for (const better of FINDINGS[code].hiddenBy ?? [])
      expect([better, ...(FINDINGS[better].hiddenBy ?? [])], `${code} and ${better}`).not.toContain(code);
});

/** Codes of faults that only an event can end, each with the reason. All other codes must be ended by a check. */
const ENDED_BY_AN_EVENT = {
  'backup.differential': 'a start without differential backups ends it, because no loop judges it then',
  'mirror.damaged': 'only a person who moves the damaged file away ends it, and it is looked for each minute',
  'mirror.locked':
    'only a transaction that goes through shows that the lock is gone, and one is tried each second',
  'storage.failing': 'only a callback or a whole poll that is kept shows that the disk takes it again',
  'webhook.active-field':
    'only an answer of the platform about its webhook shows that it is on, and one is asked hourly',
  'webhook.mismatch':
    'only an answer of the platform about its webhook shows what it has, and one is asked hourly',
};
/** File whose checks read the present state, so that they may end alarms. */
const LOOKS = path.join('health', 'health-checks.ts');

it('is ended by a look at how things are, but for the codes that are named here', () => {
  const src = path.join(ROOT, 'src');
  const found = new Set<string>();
  for (const file of readdirSync(src, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts') || file === LOOKS) continue;
    const text = readFileSync(path.join(src, file), 'utf8');
    for (const [, codes = ''] of text.matchAll(
      /for \(const key of \[([^\]]*)\] as const\)[^;]*\.note\(key, null\)/g,
    ))
      for (const [, code = ''] of codes.matchAll(/'([\w.-]+)'/g)) found.add(code);
    for (const [, code = ''] of text.matchAll(/(?:alarms|health)\.note\(\s*'([\w.-]+)',\s*null\s*,?\)/g))
      found.add(code);
  }
  expect([...found].sort()).toEqual(Object.keys(ENDED_BY_AN_EVENT));
});

it('is noted by the parts under codes of the table alone, and each part that notes trouble also notes its end', () => {
  const src = path.join(ROOT, 'src');
  const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  const noted = new Map<string, { endings: number }>();
  for (const file of files) {
    const text = readFileSync(path.join(src, file), 'utf8');
    expect(text, file).not.toMatch(/[aA]larms\.(raise|lower)\(/);
    for (const [, code = '', rest = ''] of text.matchAll(
      /(?:alarms|health)\.note\(\s*'([\w.-]+)',\s*([^;]*?)\);/gs,
    )) {
      const { endings } = noted.get(code) ?? { endings: 0 };
      // A check notes its result whether it finds a fault or not, so a code of this file always has an end too.
      const isEnding = file === LOOKS || /\bnull\b/.test(rest);
      noted.set(code, { endings: endings + (isEnding ? 1 : 0) });
    }
  }
  expect(noted.size).toBeGreaterThan(20);
  expect([...noted.keys()].filter((code) => !Object.hasOwn(FINDINGS, code))).toEqual([]);
  expect([...noted].filter(([, { endings }]) => endings === 0).map(([code]) => code)).toEqual([]);
});
