import { closeSync, fstatSync, openSync } from 'node:fs';
import { describe, expect, onTestFinished, test } from 'vitest';
import * as z from 'zod';
import { TillsyncError } from '../../src/core/errors.ts';
import { createLogger, isJournal } from '../../src/core/logger.ts';
import type { Clock } from '../../src/core/time.ts';
import { FakeClock } from '../support/fake-clock.ts';

type LoggerOptions = Parameters<typeof createLogger>[0];

const clock: Clock = {
  nowMs: () => Date.UTC(2026, 0, 2, 3, 4, 5),
  monotonicMs: () => 0,
  bootId: 'boot',
  sleep: async () => {},
};
const JWT = 'eyJhbGciOiJIUzI1NiJ9.eyJjb21wYW55IjoicGxhbnRlZCJ9.c2lnbmF0dXJlLXBsYW50ZWQ';

function captured(options: Partial<LoggerOptions> = {}, isTTY = false) {
  const lines: string[] = [];
  const stream = { isTTY, write: (text: string) => lines.push(text) };
  const logger = createLogger({ level: 'info', pretty: 'auto', stream, clock, ...options });
  return { ...logger, lines, text: () => lines.join('') };
}

describe('a log line', () => {
  test('is JSON with level, time of the clock and message', () => {
    const { log, lines } = captured();
    log.info({ orders: 3 }, 'Mirrored.');
    log.debug({}, 'too quiet to be heard');
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      { level: 'info', time: '2026-01-02T03:04:05.000Z', orders: 3, msg: 'Mirrored.' },
    ]);
    expect(lines[0]?.endsWith('}\n')).toBe(true);
  });

  test('is readable on a terminal, or where it is asked for', () => {
    const onTerminal = captured({}, true);
    onTerminal.log.warn({ orders: 3 }, 'Mirrored.');
    expect(onTerminal.text()).toContain('Mirrored.');
    expect(() => JSON.parse(onTerminal.text())).toThrow(SyntaxError);
    const asked = captured({ pretty: true });
    asked.log.warn({ orders: 3 }, 'Mirrored.');
    expect(asked.text()).toMatch(/WARN.*Mirrored\. {"orders":3}\n$/);
    const refused = captured({ pretty: false }, true);
    refused.log.warn({}, 'Mirrored.');
    expect(JSON.parse(refused.text())).toMatchObject({ msg: 'Mirrored.' });
  });

  test('tells of a strange shape where it is wrong, without what was found there', () => {
    const { log, text, lines } = captured();
    const error = z.object({ customer: z.enum(['Ana']) }).safeParse({ customer: 'Berta Soto' }).error;
    log.error({ err: error }, 'x');
    log.error({ err: new TillsyncError('platform-garbled', 'No.', { cause: error }) }, 'y');
    expect(JSON.parse(lines[0] ?? '').err.message).toBe('customer: invalid_value');
    expect(JSON.parse(lines[1] ?? '').err.cause.message).toBe('customer: invalid_value');
    expect(text()).not.toContain('issues');
    expect(text()).not.toContain('Ana');
  });

  test('tells our errors by code and hint without a stack, and others with it', () => {
    const { log, lines } = captured();
    const cause = Object.assign(new Error('getaddrinfo'), { code: 'ENOTFOUND' });
    log.error(
      { err: new TillsyncError('platform-unreachable', 'No answer.', { hint: 'Wait.', cause }) },
      'x',
    );
    log.error({ err: new TypeError('surprise') }, 'y');
    expect(JSON.parse(lines[0] ?? '').err).toEqual({
      code: 'platform-unreachable',
      message: 'No answer.',
      hint: 'Wait.',
      cause: { name: 'Error', message: 'getaddrinfo', code: 'ENOTFOUND' },
    });
    expect(JSON.parse(lines[1] ?? '').err.stack).toContain('logger.test.ts');
  });
});

describe.each([
  ['as JSON', false],
  ['on a terminal', true],
])('planted secrets %s', (_name, isTTY) => {
  test('are hidden by the name of their field', () => {
    const { log, text } = captured({}, isTTY);
    log.info(
      {
        refreshToken: 'planted-1',
        pair: { accessToken: 'planted-2' },
        request: { headers: { authorization: 'planted-3', 'x-webhook-secret': 'planted-4' } },
      },
      'x',
    );
    expect(text()).toContain('[redacted]');
    expect(text()).not.toContain('planted');
  });

  test('are hidden by value wherever they stand', () => {
    const { log, registerSecret, text } = captured({ secrets: ['planted"quoted\\value'] }, isTTY);
    registerSecret('planted-rotated');
    log.info(
      { url: `http://x/?s=${encodeURIComponent('planted"quoted\\value')}` },
      'planted-rotated in a text',
    );
    log.warn({ body: JSON.stringify({ s: 'planted"quoted\\value' }) }, 'x');
    log.error({ err: new Error('planted-rotated', { cause: new Error('planted-rotated') }) }, 'y');
    log.error({ deep: { er: { still: { deeper: ['planted-rotated'] } } } }, 'planted"quoted\\value');
    expect(text()).toContain('[redacted] in a text');
    expect(text()).not.toContain('planted');
    expect(text()).not.toContain('quoted');
  });

  test('are hidden however somebody has encoded them', () => {
    const secret = 'planted secret/value';
    const { log, text } = captured({ secrets: [secret] }, isTTY);
    const twice = encodeURIComponent(encodeURIComponent(secret));
    const inside = Buffer.from(`user:${secret}!`).toString('base64');
    const hex = Buffer.from(secret).toString('hex');
    log.info({ twice, inside, hex }, hex.toUpperCase());
    const told = text();
    for (const form of ['planted', inside.slice(8, 30), hex, hex.toUpperCase()])
      expect(told).not.toContain(form);
  });

  test('are hidden when they look like a token, registered or not', () => {
    const { log, text } = captured({}, isTTY);
    log.info({ header: `Bearer ${JWT}`, list: [JWT] }, `token ${JWT} was sent`);
    log.info({ header: 'Bearer opaque-planted' }, 'x');
    expect(text()).toContain('token [redacted] was sent');
    expect(text()).not.toMatch(/eyJ[\w-]{8}|planted/);
  });
});

test('secrets that last stay hidden however many rotate by', () => {
  const { log, registerSecret, lines } = captured({ secrets: ['lasting-planted'] });
  for (let i = 0; i < 600; i++) registerSecret(`rotating-planted-${i}`);
  log.info({}, 'lasting-planted rotating-planted-599');
  expect(JSON.parse(lines[0] ?? '').msg).toBe('[redacted] [redacted]');
});

test('a secret of five characters is hidden in base64, too', () => {
  const { log, lines } = captured({ secrets: ['p1a2n'] });
  log.info({}, `key ${Buffer.from('p1a2n').toString('base64')}`);
  expect(JSON.parse(lines[0] ?? '').msg).toBe('key [redacted]4=');
});

test('a value too short to be a secret does not garble the log', () => {
  const { log, registerSecret, lines } = captured();
  registerSecret('e');
  registerSecret('');
  log.info({}, 'Here we are.');
  expect(JSON.parse(lines[0] ?? '').msg).toBe('Here we are.');
});

test('in the journal every line has its priority, so that journalctl -p err shows what failed', () => {
  const lines: string[] = [];
  const { log } = createLogger({
    level: 'debug',
    pretty: false,
    toJournal: true,
    stream: { write: (line) => lines.push(line) },
    clock: new FakeClock(),
  });
  log.error({}, 'failed');
  log.warn({}, 'odd');
  log.info({}, 'told');
  log.debug({}, 'small');
  expect(lines.map((line) => line.slice(0, 3))).toEqual(['<3>', '<4>', '<6>', '<7>']);
  expect(JSON.parse(lines[0]?.slice(3) ?? '')).toMatchObject({ level: 'error', msg: 'failed' });
});

test('the journal is known by the file that JOURNAL_STREAM names, not by the variable alone', () => {
  const fd = openSync('/dev/null', 'w');
  onTestFinished(() => closeSync(fd));
  const { dev, ino } = fstatSync(fd);
  expect(isJournal(fd, { JOURNAL_STREAM: `${dev}:${ino}` })).toBe(true);
  expect(isJournal(fd, { JOURNAL_STREAM: `${dev}:${ino + 1}` })).toBe(false);
  expect(isJournal(fd, {})).toBe(false);
});
