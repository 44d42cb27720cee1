/** Tests src/cli/table.ts and src/cli/status-text.ts. */

import { describe, expect, test } from 'vitest';
import { authReport } from '../../src/cli/auth.ts';
import { freshnessSentence, type StatusReport, statusText } from '../../src/cli/status-text.ts';
import { ago, when } from '../../src/cli/table.ts';
import type { Freshness } from '../../src/core/alarm.ts';
import { isoUtc } from '../../src/core/time.ts';
import { verdictOf } from '../../src/health/verdict.ts';
import type { TokenStatus } from '../../src/platform/tokens.ts';

const AT = '2026-01-02T12:00:00.000Z';
const NOW = Date.parse(AT);
const NO_TOKENS: TokenStatus = {
  state: 'none',
  generation: 0,
  savedAtMs: null,
  hasAccessToken: false,
  accessExpiresInMs: null,
  refreshExpiresInMs: null,
  clockSkewMs: 0,
  lockedOut: null,
  triesAgainAtMs: null,
  openIntentAtMs: null,
};

test('times are in the zone of the company, and unreadable ones as they are', () => {
  expect(when('2026-01-02T02:04:05.000Z', 'America/Santiago')).toBe('2026-01-01 23:04:05');
  expect(when('soon', 'UTC')).toBe('soon');
  expect(when('', 'UTC')).toBeNull();
  expect(ago('2026-01-02T11:57:00.000Z', NOW)).toBe('3m ago');
  expect(ago('2026-01-02T13:00:00.000Z', NOW)).toBe('in 1h');
});

describe('tokens', () => {
  const tokens: TokenStatus = {
    state: 'ok',
    generation: 4,
    savedAtMs: NOW - 60_000,
    hasAccessToken: true,
    accessExpiresInMs: 1_200_000,
    refreshExpiresInMs: 863_400_000,
    clockSkewMs: 600_000,
    lockedOut: null,
    triesAgainAtMs: null,
    openIntentAtMs: null,
  };

  test('are told by how long they are good for', () => {
    const report = authReport(tokens, NOW);
    expect(report).toMatchObject({ state: 'ok', generation: 4, accessExpiresAt: '2026-01-02T12:20:00.000Z' });
    expect(report.message).toBe('The access token is good for 20m, the refresh token is good for 9d 23h.');
  });

  test('that ended, or are missing, are told as such', () => {
    expect(authReport({ ...tokens, accessExpiresInMs: -5000 }, NOW).message).toContain('ended 5s ago');
    const unknown = { ...tokens, accessExpiresInMs: null };
    expect(authReport(unknown, NOW).message).toContain('The access token has no known end');
    expect(authReport(NO_TOKENS, NOW)).toMatchObject({
      state: 'none',
      needsNewTokens: true,
      savedAt: null,
    });
    const handedIn = { ...unknown, hasAccessToken: false };
    expect(authReport(handedIn, NOW).message).toContain('An access token is fetched with the first call');
    expect(authReport({ ...tokens, refreshExpiresInMs: -5000 }, NOW)).toMatchObject({
      needsNewTokens: true,
      message: expect.stringMatching(/^The refresh token ended 5s ago, so the platform takes it no more\./),
    });
  });

  test('whose last refresh was never stored are not called well, unless it may be under way', () => {
    const open = (agoMs: number) => authReport({ ...tokens, openIntentAtMs: NOW - agoMs }, NOW).message;
    expect(open(20_000)).toMatch(/^The access token is good/);
    expect(open(180_000)).toMatch(/^A refresh began 3m ago and its answer was never stored/);
  });

  test('that are refused ask for a person, with the cause', () => {
    const lockedOut = { atMs: NOW, cause: 'reply-lost', refusals: 2, refusedAtMs: NOW } as const;
    const triesAgainAtMs = NOW + 540_000;
    const report = authReport({ ...tokens, state: 'locked-out', lockedOut, triesAgainAtMs }, NOW);
    expect(report.message).toContain('tillsync tries it again in 9m.');
    expect(report).toMatchObject({
      state: 'locked-out',
      lockedOut: { at: AT, cause: 'reply-lost', triesAgainAt: isoUtc(triesAgainAtMs) },
    });
    expect(report.message).toContain('was lost before it could be saved');
    expect(report.message).toContain('tillsync auth set');
    const refused = { ...lockedOut, cause: 'refused' } as const;
    expect(authReport({ ...tokens, state: 'locked-out', lockedOut: refused }, NOW).message).not.toContain(
      'lost',
    );
  });
});

describe('a flow', () => {
  const base: Freshness = {
    subject: 'orders.poll',
    lastOkAt: '2026-01-02T11:50:00.000Z',
    lastTryAt: '2026-01-02T11:59:00.000Z',
    state: 'ok',
    message: '',
  };
  test.each([
    [{ ...base, state: 'unknown' as const }, 'not tried yet'],
    [base, 'OK, last worked 10m ago.'],
    [
      { ...base, state: 'failing' as const, message: 'No answer.' },
      'failing, last worked 10m ago, last tried 1m ago; retrying. No answer.',
    ],
    [
      { ...base, state: 'locked-out' as const, lastOkAt: null, message: 'New tokens, please.' },
      'needs new tokens, never worked yet. New tokens, please.',
    ],
    [{ ...base, state: 'off' as const }, 'off in the configuration.'],
  ])('is one sentence %#', (freshness, sentence) => {
    expect(freshnessSentence(freshness, NOW)).toBe(sentence);
  });
});

const SILENT = {
  key: 'webhook.refused',
  message: 'No callback\u001b[2J came.',
  raisedAt: '2026-01-02T11:00:00.000Z',
};

test('the status begins with what is wrong and ends with counts', () => {
  const report: StatusReport = {
    at: AT,
    shop: 'Corner shop',
    holdBack: [{ branch: 'B1', isOn: false, missing: ['acknowledgement'] }],
    currency: null,
    storage: '/s',
    verdict: verdictOf({
      nowMs: NOW,
      freshness: [],
      alarms: [SILENT],
      tokens: null,
      outbox: null,
      quarantine: 1,
      ordersStaleAfterMs: 0,
      disk: { freeBytes: 40 * 1024 ** 2, totalBytes: 8 * 1024 ** 3 },
    }),
    disk: { freeBytes: 40 * 1024 ** 2, totalBytes: 8 * 1024 ** 3 },
    running: true,
    freshness: [],
    alarms: [SILENT, { ...SILENT, key: 'new.alarm', message: 'Of a later version.' }],
    auth: authReport(NO_TOKENS, NOW),
    waits: [{ endpoint: 'order.all', reason: 'interval', waitMs: 72_000 }],
    counts: { orders: 12, openOrders: 3, events: 40, quarantine: 1 },
  };
  const lines = statusText(report).split('\n');
  expect(lines.slice(0, 7)).toEqual([
    'Corner shop',
    "Action needed now: The disk is full. tillsync soon can't save new orders. " +
      'Only 40 MiB of 8.0 GiB are free. Free space on the disk of /var/lib/tillsync. tillsync then continues automatically.',
    "Also: tillsync rejects the platform's callbacks. Orders arrive only by polling, up to two minutes late. To see the rejected callbacks and why, run: tillsync webhook log",
    'Also: Unreadable messages in quarantine: 1. To see them, run: tillsync quarantine list. To delete one that is no longer needed, run: tillsync quarantine delete ID',
    '',
    'ALARM webhook.refused, raised 1h ago: No callback\\u001b[2J came.',
    'ALARM new.alarm, raised 1h ago: Of a later version.',
  ]);
  expect(lines).toContainEqual(expect.stringMatching(/^tokens: +not tried yet$/));
  expect(lines).toContain('next order poll allowed in 1m 12s');
  expect(lines.at(-2)).toBe('12 orders (3 open), newest event 40, 1 in quarantine');
  expect(statusText({ ...report, running: false })).toContain('\nState when it stopped:\n');
  const refused = 'The platform refuses the refresh token. To set new tokens, run: tillsync auth set';
  const flows = (['orders.poll', 'catalog.sweep', 'outbox.push'] as const).map((subject) => ({
    ...{
      subject,
      lastOkAt: AT,
      lastTryAt: AT,
      state: 'locked-out' as const,
      message: `HTTP 401. ${refused}`,
    },
  }));
  const text = statusText({ ...report, freshness: flows });
  expect(text.split('To set new tokens, run')).toHaveLength(2);
  expect(text.match(/needs new tokens/g)).toHaveLength(3);
  const again = statusText({ ...report, freshness: flows, auth: { ...report.auth, state: 'ok' } as never });
  expect(again).not.toContain('needs new tokens');
  expect(again).toContain(
    'waiting for its turn, last worked just now. New tokens are stored; the next try follows.',
  );
  const well = { ...report, alarms: [], verdict: { level: 'green' as const, findings: [] } };
  expect(statusText(well)).toMatch(
    /^Corner shop\nAll is well: orders come in, changes go out\.\n\norders by polling/,
  );
});
