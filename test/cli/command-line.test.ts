/** Tests src/cli/main.ts, src/cli/command.ts and src/cli/config.ts. */

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { commandTree, everyCommand } from '../../config/package/command-tree.ts';
import { invoke } from './invoke.ts';
import { tillsync } from './run-process.ts';

const SAMPLE = join(import.meta.dirname, '../../config/tillsync.sample.toml');
const OF_A_STORE = { TILLSYNC_CONFIG: SAMPLE, TILLSYNC_PLATFORM_BASE_URL: 'https://platform.test' };
const JWT = 'eyJhbGciOiJIUzI1NiJ9.eyJjb21wYW55IjoicGxhbnRlZCJ9.c2lnbmF0dXJlLXBsYW50ZWQ';

function badFile(): string {
  const file = join(mkdtempSync(join(tmpdir(), 'tillsync-cli-')), 'bad.toml');
  writeFileSync(
    file,
    `[platform]\nbase_url = 5\n[orders]\npoll = "never"\n[outbx]\n[webhook]\nsecret = "${JWT}"\n`,
  );
  return file;
}

describe('a wrong configuration', () => {
  test('ends with 2 and names every fault on standard error', async () => {
    const file = badFile();
    const result = await tillsync(['config', 'check', '--config', file], {
      env: { TILLSYNC_LOCAL_LISTEN: 'here', TILLSYNC_ACCESS_TOKEN: '' },
    });
    expect(result.code).toBe(2);
    expect(result.stdout).toBe('');
    expect(result.stderr).toContain('The configuration has 6 faults:');
    for (const key of [
      `${file}: platform.base_url`,
      `${file}: orders.poll`,
      `${file}: outbx`,
      `${file}: webhook.secret`,
      'environment variable TILLSYNC_LOCAL_LISTEN: local.listen: found "here"',
      'environment variable TILLSYNC_ACCESS_TOKEN: found an empty secret',
    ]) {
      expect(result.stderr).toContain(key);
    }
    expect(result.stderr).not.toMatch(/eyJ[\w-]{8}/);
  });

  test('is one JSON document with --json', async () => {
    const result = await invoke(['--config', badFile(), 'config', 'check', '--json']);
    expect(result.code).toBe(2);
    expect(JSON.parse(result.stdout)).toMatchObject({ ok: false, faults: { length: 4 } });
    expect(result.stdout).not.toMatch(/eyJ[\w-]{8}/);
  });
});

describe('a right configuration', () => {
  test('is said to be in order, with secrets named and never shown', async () => {
    const env = { TILLSYNC_REFRESH_TOKEN: JWT, TILLSYNC_WEBHOOK_SECRET: 'planted', ...OF_A_STORE };
    const people = await invoke(['config', 'check'], { env });
    expect(people).toMatchObject({ code: 0, stderr: '' });
    expect(people.stdout).toMatch(/is in order/);
    expect(people.stdout).toMatch(/^Optional secrets .*: refresh-token, webhook-secret\.$/m);
    expect(people.stdout).toMatch(/^Tokens: ./m);
    const json = await invoke(['config', 'check', '--json'], { env });
    expect(JSON.parse(json.stdout)).toMatchObject({
      ok: true,
      file: SAMPLE,
      secrets: { 'refresh-token': true, 'access-token': false, 'webhook-secret': true },
      config: { limits: { ordersIntervalMs: 120_000 } },
    });
    expect(people.stdout + json.stdout).not.toMatch(/planted|eyJ/);
  });

  test('that takes off the stock neither here nor at the platform is warned of, and the store goes on', async () => {
    const env = { ...OF_A_STORE, TILLSYNC_STOCK_PLATFORM_DEDUCTS: 'false' };
    const people = await invoke(['config', 'check'], { env });
    expect(people.code).toBe(0);
    expect(people.stderr).toMatch(
      /^Warning: stock\.platform_deducts = false .*stock\.hold_back_unbooked = true/,
    );
    const json = await invoke(['config', 'check', '--json'], { env });
    expect(JSON.parse(json.stdout)).toMatchObject({ ok: true, warnings: { length: 1 } });
  });

  test('with a platform address that takes the tokens in clear over a network is warned of', async () => {
    const check = (url: string, ...more: string[]) =>
      invoke(['config', 'check', ...more], {
        env: { ...OF_A_STORE, TILLSYNC_PLATFORM_BASE_URL: url },
      });
    const open = await check('http://api.example.com/v1');
    expect(open).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('the tokens go to api.example.com in clear'),
    });
    const json = await check('http://127.0.0.1.nip.io', '--json');
    expect(JSON.parse(json.stdout)).toMatchObject({
      ok: true,
      warnings: [expect.stringContaining('in clear')],
    });
    for (const url of [
      'https://api.shop.example',
      'http://127.0.0.1:9090',
      'http://[::1]:9090',
      'http://localhost',
    ]) {
      expect(await check(url), url).toMatchObject({ code: 0, stderr: '' });
    }
    const doctor = await invoke(['doctor', '--offline', '--only', 'config', '--json'], {
      env: { ...OF_A_STORE, TILLSYNC_PLATFORM_BASE_URL: 'http://api.example.com' },
    });
    expect(doctor.stdout).toContain('in clear text');
    expect(doctor.code).toBe(3);
  });
});

describe('usage', () => {
  test('help goes to standard output and ends with 0', async () => {
    const result = await invoke(['--help']);
    expect(result).toMatchObject({ code: 0, stderr: '' });
    expect(result.stdout).toContain('Exit codes: 0 success, 1 error, 2 usage or configuration');
  });

  test('each command begins its examples as it is called, and with options that it has', async () => {
    const all = everyCommand(commandTree()).filter(({ commands }) => commands.length === 0);
    expect(all.length).toBeGreaterThan(40);
    for (const { words, options } of all) {
      const { stdout } = await invoke([...words, '--help']);
      const examples = [...stdout.matchAll(/^ {2}\$ tillsync (.*)$/gm)].map(([, typed = '']) => typed);
      expect(examples, words.join(' ')).not.toEqual([]);
      for (const typed of examples) {
        expect(typed.split(' ').slice(0, words.length)).toEqual(words);
        const known = ['--config', ...options.map(({ long }) => long)];
        for (const [long] of typed.matchAll(/--[a-z-]+/g)) expect(known, typed).toContain(long);
      }
    }
  });

  test('nothing at all is answered with the help on standard error and 2', async () => {
    const result = await invoke([]);
    expect(result).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr).toContain('Usage: tillsync');
  });

  test('a slip of the hand is answered with what was meant', async () => {
    const result = await invoke(['config', 'chek']);
    expect(result).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr).toContain('Did you mean check?');
  });

  test('a wrong option with --json is one document, too', async () => {
    const result = await invoke(['config', 'check', '--json', '--colour']);
    expect(result.code).toBe(2);
    expect(JSON.parse(result.stdout)).toEqual({
      error: { code: 'usage', message: "unknown option '--colour'" },
    });
  });

  test('a call to a disk that does not answer does not keep an ended command alive', {
    tags: ['bulk'],
  }, async () => {
    const pipe = join(mkdtempSync(join(tmpdir(), 'tillsync-hanging-')), 'pipe');
    execFileSync('mkfifo', [pipe]);
    // Opening a pipe that nobody writes to does not return, as a call to a network disk that is off.
    const hang = `import { open } from 'node:fs/promises'; void open(${JSON.stringify(pipe)});`;
    const main = join(import.meta.dirname, '../../src/cli/main.ts');
    const preload = `data:text/javascript,${encodeURIComponent(hang)}`;
    const child = spawn(process.execPath, ['--import', preload, main, '--version'], { stdio: 'ignore' });
    onTestFinished(() => void child.kill('SIGKILL'));
    await new Promise((resolve) => child.on('exit', resolve));
    expect(child.signalCode).toBe('SIGKILL');
  });

  test('a reader that stops reading is no failure', async () => {
    const main = join(import.meta.dirname, '../../src/cli/main.ts');
    const child = spawn(process.execPath, [main, '--help'], { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.destroy();
    let stderr = '';
    child.stderr.on('data', (text) => {
      stderr += text;
    });
    const code = await new Promise((resolve) => child.on('close', resolve));
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  });
});
