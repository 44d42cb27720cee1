import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { invitationText } from '../../src/link/server-config.ts';
import { newPlace } from '../cli/init-rig.ts';
import { MAIN } from '../support/workplace.ts';

/**
 * Text that is pasted after the token by mistake. It is longer than a line that a terminal itself edits may be, so that
 * a terminal would cut it.
 */
const PASTED_TOO_MUCH = `secret-tail-${'x'.repeat(5000)}`;

test('at a real terminal no key of a token is echoed, nor what was pasted behind it', async () => {
  const place = await newPlace(5);
  const { refreshToken } = place.sandbox.issueTokens();
  const { screen, code, left } = await atTerminal(
    ['init', '--config', place.file, '--directory', place.storage],
    [
      ["platform's API", `${place.sandbox.url}\r`],
      ['(not shown)', `${refreshToken}\r${PASTED_TOO_MUCH}\r${PASTED_TOO_MUCH}`],
      ["platform's id", '\u0003'],
    ],
  );
  await place.sandbox.close();
  expect(screen).toContain('ok  tokens: refresh token: The access token is good');
  expect(screen).toContain('The tokens that were handed over are stored.');
  expect(screen).not.toMatch(/eyJ[\w-]{8}|secret-tail|xxxx/);
  expect([code, left]).toEqual([130, 0]);
});

test('at a real terminal an invitation may be longer than a line that it edits itself', async () => {
  // The text is as long as the PEM of two certificates.
  const ca = 'MIID'.repeat(1_000);
  const expiresAt = new Date().toISOString();
  const file = path.join(mkdtempSync(path.join(tmpdir(), 'tillsync-join-')), 'config.toml');
  writeFileSync(file, '[platform]\nbase_url = "http://127.0.0.1:1"\n');
  const invitation = { hub: 'tls://hub.example.com:4222', branch: 'B1', seed: 'SU-secret', ca, expiresAt };
  const line = invitationText(invitation);
  expect(line.length).toBeGreaterThan(5_000);
  const { screen, code, left } = await atTerminal(
    ['init', '--join', '-', '--config', file],
    [['Paste the line of the invitation', `${line}\r`]],
  );
  // The screen shows this only if the whole invitation was read.
  expect(screen.replaceAll('\r\n', ' ')).toContain('is of a store with a platform of its own');
  expect(screen).not.toContain(line.slice(0, 50));
  expect([code, left]).toEqual([2, 0]);
});

/**
 * Answers the questions one after the other at a real terminal. `left` is the number of questions that were not asked.
 */
async function atTerminal(words: readonly string[], typed: readonly (readonly [string, string])[]) {
  const command = [process.execPath, MAIN, ...words].join(' ');
  const child = spawn('script', ['--quiet', '--return', '--command', command, '/dev/null'], {
    env: { PATH: process.env.PATH ?? '', TERM: 'xterm' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  let screen = '';
  let step = 0;
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    screen += text;
    const next = typed[step];
    if (next === undefined || !screen.includes(next[0]) || !/> $/.test(stripVTControlCharacters(screen)))
      return;
    step++;
    child.stdin.write(next[1]);
  });
  const [code] = await ended;
  return { screen, code, left: typed.length - step };
}
