import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { parseTokenInput, readTokenInput } from '../../src/cli/auth.ts';
import { TillsyncError } from '../../src/core/errors.ts';

describe('tokens on standard input', () => {
  test.each([
    ['planted-refresh\n', { refreshToken: 'planted-refresh' }],
    ['\ufeff planted-refresh \r\n', { refreshToken: 'planted-refresh' }],
    ['Bearer planted-refresh', { refreshToken: 'planted-refresh' }],
    ['"planted-refresh"', { refreshToken: 'planted-refresh' }],
    ['{"refreshToken":"r","token":"a"}', { refreshToken: 'r', accessToken: 'a' }],
    ['{"refreshToken":"r","accessToken":"a"}', { refreshToken: 'r', accessToken: 'a' }],
    ['{"refreshToken":"r","token":null}', { refreshToken: 'r' }],
    [
      '{"success":true,"data":{"refreshToken":"r","token":"a","expiresIn":"1h"}}',
      { refreshToken: 'r', accessToken: 'a' },
    ],
  ])('%j is understood', (input, expected) => {
    expect(parseTokenInput(input)).toEqual(expected);
  });

  test.each([
    ['', 'nothing'],
    [' \n', 'nothing'],
    ['planted one\nplanted two', 'the refresh token with spaces'],
    ['{"refreshToken":"planted"', 'text that looks like JSON and is not'],
    ['{"token":"planted"}', 'JSON without "refreshToken"'],
    ['["planted"]', 'JSON without "refreshToken"'],
    ['{"refreshToken":5}', '"refreshToken" that is no text'],
    ['{"refreshToken":"r","token":"plan ted"}', '"token" with spaces'],
    ['{"data":null}', 'JSON without "refreshToken"'],
  ])('%j is refused without being repeated', (input, found) => {
    let thrown: unknown;
    try {
      parseTokenInput(input);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(TillsyncError);
    const error = thrown as TillsyncError;
    expect(error.code).toBe('usage');
    expect(error.message).toContain(`found ${found}`);
    expect(`${error.message}${error.hint}${error.stack}`).not.toMatch(/planted|plan ted/);
    expect(error.cause).toBeUndefined();
  });

  test('arrive in pieces', async () => {
    const input = Readable.from([Buffer.from('plan'), 'ted\n']);
    expect(await readTokenInput(input)).toEqual({ refreshToken: 'planted' });
  });

  test('are neither typed at a terminal nor endless', async () => {
    await expect(readTokenInput(Object.assign(Readable.from(['x']), { isTTY: true }))).rejects.toThrow(
      'terminal',
    );
    const endless = Readable.from(
      (function* () {
        for (;;) yield 'x'.repeat(10_000);
      })(),
    );
    await expect(readTokenInput(endless)).rejects.toThrow('more than 65536 bytes');
  });
});
