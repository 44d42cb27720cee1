/** Tests src/support/doctor/doctor.ts and src/cli/doctor-text.ts. */

import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { checkText, doctorExit, helpText, summaryText } from '../../src/cli/doctor-text.ts';
import type { CheckResult } from '../../src/support/doctor/check.ts';
import { freshMirror, freshState } from '../support/fresh-mirror.ts';
import { invoke } from './invoke.ts';

const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-doctor-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const result = (more: Partial<CheckResult> = {}): CheckResult => ({
  id: 'storage.disk',
  title: 'Disk space',
  level: 'ok',
  message: '20 GiB are free.',
  remedy: null,
  facts: {},
  ...more,
});
const low = result({ level: 'warn', message: 'Nearly\u001b[2J full.', remedy: 'Free some.' });

describe('a check is shown', () => {
  test('in words where nobody looks on, with nothing that steers a terminal', () => {
    expect(checkText(result(), 12, { signs: false })).toBe('ok   Disk space    20 GiB are free.\n');
    expect(checkText(low, 12, { signs: false })).toBe(
      'WARN Disk space    Nearly\\u001b[2J full.\n                   -> Free some.\n',
    );
  });

  test('with signs on a terminal, and lines that fit it', () => {
    const long = result({ level: 'fail', message: 'one two three four five six seven eight nine ten' });
    const lines = checkText(long, 10, { signs: true, columns: 50 }).trimEnd().split('\n');
    expect(lines[0]).toBe('\u001b[31m✗\u001b[0m Disk space  one two three four five six seven');
    expect(lines[1]).toBe(`${' '.repeat(14)}eight nine ten`);
  });
});

test('the exit code says whether anything is wrong, and the last line where to begin', () => {
  const bad = result({ level: 'fail', title: 'Service' });
  expect(doctorExit([result(), result({ level: 'skipped' })])).toBe(0);
  expect(doctorExit([result(), low])).toBe(3);
  expect(doctorExit([low, bad])).toBe(1);
  const unseen = result({ level: 'skipped', isHidden: true, remedy: 'Run: sudo tillsync doctor' });
  expect(doctorExit([result(), unseen])).toBe(3);
  expect(summaryText([result(), unseen])).toMatch(/^Nothing wrong was seen: .*Run: sudo tillsync doctor$/);
  expect(doctorExit([bad, result({ level: 'fail', needsTokens: true })])).toBe(4);
  expect(
    doctorExit([result({ id: 'config', level: 'fail' }), result({ level: 'fail', needsTokens: true })]),
  ).toBe(2);
  expect(summaryText([result(), result({ level: 'skipped' })])).toBe(
    'All is well: 1 in order, 1 not checked.',
  );
  expect(summaryText([low, bad, result()])).toBe('1 wrong, 1 to look at, 1 in order. Begin with: Service.');
});

test('where something is to do, the page explains each sentence, if there is one', () => {
  const api = result({ id: 'service.api', facts: { answer: { url: 'http://127.0.0.1:8790' } } });
  const help = 'What each sentence means: http://127.0.0.1:8790/page/help.html\n';
  expect(helpText([result(), api])).toBe('');
  expect(helpText([low, api])).toBe(help);
  expect(helpText([low, result()])).toBe('');
  expect(helpText([low, { ...api, level: 'fail' }])).toBe('');
});

describe('the command', () => {
  test('tells the faults of a configuration first, then what it can check without it', async () => {
    const file = path.join(directory, 'broken.toml');
    writeFileSync(file, '[platform]\nbase_url = "nowhere"\n[orders]\npol = "x"\n');
    const { code, stdout } = await invoke(['doctor', '--config', file, '--json'], { env: {} });
    expect(code).toBe(2);
    const { checks, counts } = JSON.parse(stdout);
    expect(checks[0]).toMatchObject({ id: 'config', level: 'fail', facts: { file } });
    expect(checks[0].message).toMatch(/orders\.pol: .*; .*platform\.base_url: /);
    expect(checks[1]).toMatchObject({ id: 'version', level: 'ok', facts: { node: process.version } });
    expect(counts).toMatchObject({ ok: 1, fail: 1, warn: 0 });
  });

  test('makes nothing where nothing is yet, and needs no key that only the service has', async () => {
    const file = path.join(directory, 'config.toml');
    const storage = path.join(directory, 'storage');
    const lines = [
      '[platform]\nbase_url = "http://127.0.0.1:9"',
      `[storage]\ndirectory = "${storage}"`,
      '[local]\nlisten = "0.0.0.0:1"',
    ];
    writeFileSync(file, lines.join('\n'));
    const before = readdirSync(directory);
    const { code, stdout } = await invoke(['doctor', '--config', file, '--offline'], { env: {} });
    expect(code).toBe(1);
    expect(stdout).toMatch(/^ok +Configuration/m);
    expect(stdout).toMatch(/^FAIL Service +tillsync is not running/m);
    expect(stdout).toMatch(/^skip Way to the platform +Not tried: --offline\.$/m);
    expect(stdout).toMatch(/^2 wrong, .* Begin with: Files and modes\.$/m);
    expect(readdirSync(directory)).toEqual(before);
  });

  test('takes the name of a check or of several, and refuses another with those that there are', async () => {
    const file = path.join(directory, 'config.toml');
    const { stdout } = await invoke(
      ['doctor', '--config', file, '--json', '--only', 'version', 'storage.disk'],
      {
        env: {},
      },
    );
    expect(JSON.parse(stdout).checks.map(({ id }: { id: string }) => id)).toEqual([
      'version',
      'storage.disk',
    ]);
    const refused = await invoke(['doctor', '--only', 'weather'], { env: {} });
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain('webhook.arriving');
  });

  test('passes over the certificate of a hub whose server has no configuration yet', async () => {
    const file = path.join(directory, 'hub.toml');
    const storage = path.join(directory, 'hub');
    freshMirror(storage);
    freshState(storage);
    const hub = '[hub]\nnats = "nats://127.0.0.1:9"\npublic_url = "tls://hub.test:4222"\n';
    const place = `[platform]\nbase_url = "http://127.0.0.1:9"\n[storage]\ndirectory = "${storage}"\n`;
    writeFileSync(file, `${place}${hub}[[branches]]\nexternal_id = "B1"\n`);
    const words = ['doctor', '--config', file, '--json', '--offline', '--only', 'hub.certificate'];
    const { checks } = JSON.parse((await invoke(words, { env: {} })).stdout);
    expect(checks).toMatchObject([
      { level: 'skipped', message: 'The nats-server has no configuration yet.' },
    ]);
  });
});
