import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { newPlace } from '../cli/init-rig.ts';
import { MAIN } from '../support/workplace.ts';

/** Enough to be cut by a terminal that edits lines itself, and pasted with what a person copied too much of. */
const PASTED_TOO_MUCH = `secret-tail-${'x'.repeat(5000)}`;

test('at a real terminal no key of a token is echoed, nor what was pasted behind it', async () => {
  const place = await newPlace(5);
  const { refreshToken } = place.sandbox.issueTokens();
  const words = ['init', '--config', place.file, '--directory', place.storage];
  const command = [process.execPath, MAIN, ...words].join(' ');
  const child = spawn('script', ['--quiet', '--return', '--command', command, '/dev/null'], {
    env: { PATH: process.env.PATH ?? '', TERM: 'xterm' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  let screen = '';
  const typed = [
    ["platform's API", `${place.sandbox.url}\r`],
    ['(not shown)', `${refreshToken}\r${PASTED_TOO_MUCH}\r${PASTED_TOO_MUCH}`],
    ["platform's id", '\u0003'],
  ] as const;
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
  await place.sandbox.close();
  expect(screen).toContain('ok  tokens: refresh token: The access token is good');
  expect(screen).toContain('The tokens that were handed over are stored.');
  expect(screen).not.toMatch(/eyJ|secret-tail|xxxx/);
  expect([code, step]).toEqual([130, typed.length]);
});
