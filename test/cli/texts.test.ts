/** Tests src/cli/cli.ts. */

import { describe, expect, test } from 'vitest';
import { exitCodeOf, failureDocument, printable, tellFailure } from '../../src/cli/cli.ts';
import { waitText } from '../../src/cli/progress.ts';
import { fields, table } from '../../src/cli/table.ts';
import { TillsyncError } from '../../src/core/errors.ts';

test('every failure has its exit code', () => {
  expect(exitCodeOf('usage')).toBe(2);
  expect(exitCodeOf('config-invalid')).toBe(2);
  expect(exitCodeOf('auth-required')).toBe(4);
  expect(exitCodeOf('blocked')).toBe(1);
  expect(exitCodeOf('internal')).toBe(1);
});

describe('a failure', () => {
  test('is told with its message and its advice, without a stack', () => {
    let text = '';
    const sink = { write: (part: string) => (text += part) };
    tellFailure(sink, new TillsyncError('blocked', 'The platform blocked the token.', { hint: 'Wait.' }));
    expect(text).toBe('tillsync: The platform blocked the token.\nWait.\n');
  });

  test('nobody foresaw brings its stack', () => {
    let text = '';
    const sink = { write: (part: string) => (text += part) };
    expect(tellFailure(sink, new TypeError('surprise')).code).toBe('internal');
    expect(text).toContain('texts.test.ts');
  });

  test('as a document holds only what is known', () => {
    expect(failureDocument(new TillsyncError('rate-limited', 'Slow.', { retryAfterMs: 5 }))).toEqual({
      error: { code: 'rate-limited', message: 'Slow.', retryAfterMs: 5 },
    });
  });
});

test('a table aligns accents and numbers, and no cell can steer the terminal', () => {
  const rows = [
    { name: 'Ñuñoa', n: 10 },
    { name: 'a\u001b[2Jb\nc', n: null },
  ];
  expect(table(rows, { NAME: 'name', N: ({ n }) => n }, ['N'])).toBe(
    'NAME            N\nÑuñoa          10\na\\u001b[2Jb c   -\n',
  );
});

test('fields stand below each other', () => {
  expect(fields({ id: 1, status: null })).toBe('id:     1\nstatus: -\n');
});

test('direction marks and line separators are made visible', () => {
  expect(printable('a\u202eb\u2028c')).toBe('a\\u202eb\\u2028c');
});

test.each([
  ['interval', 'next order poll allowed in 1m 12s'],
  ['in-flight', 'another order poll is under way; at most 1m 12s more'],
  ['window', "the platform's cap on calls is reached; next order poll allowed in 1m 12s"],
  ['retry-after', 'the platform asked for patience (429); next order poll allowed in 1m 12s'],
  ['blocked', 'the platform blocked the token (403); next order poll allowed in 1m 12s'],
  ['refreshing', 'another process is refreshing the tokens; at most 1m 12s more'],
] as const)('a wait because of %s', (reason, text) => {
  expect(waitText({ endpoint: 'order.all', reason, waitMs: 72_000 })).toBe(text);
});
