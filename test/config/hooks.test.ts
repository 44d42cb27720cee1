import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { readConfig, readSetup } from '../../src/config/config.ts';
import { secretsByName, secretValues } from '../../src/config/secrets.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-hooks-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function fileWith(hooks: string): string {
  const file = path.join(directory, 'config.toml');
  writeFileSync(file, `[platform]\nbase_url = "https://api.example.com"\n${hooks}\n`);
  return file;
}

function read(hooks: string, env: Record<string, string> = {}) {
  const result = readConfig({ file: fileWith(hooks), env });
  return 'faults' in result ? result.faults : result.config.hooks;
}

const faults = (hooks: string) => read(hooks).map((found) => ('key' in found ? found.key : 'no fault'));

it('takes addresses and programs, each with what it leaves out', () => {
  const text = `[[hooks]]
name = "pos"
url = "https://pos.example.com/orders?key=1"
[[hooks]]
name = "printer-2"
command = ["/usr/local/bin/print", "a b"]
events = ["change.rejected", "order", "order"]
statuses = ["payment-approved"]
from = "start"
timeout = "2m"`;
  expect(read(text)).toEqual([
    {
      name: 'pos',
      url: 'https://pos.example.com/orders?key=1',
      command: [],
      events: ['order'],
      statuses: [],
      prepareBeforeMs: 20 * 60_000,
      from: 'now',
      timeoutMs: 30_000,
    },
    {
      name: 'printer-2',
      url: '',
      command: ['/usr/local/bin/print', 'a b'],
      events: ['order', 'change.rejected'],
      statuses: ['payment-approved'],
      prepareBeforeMs: 20 * 60_000,
      from: 'start',
      timeoutMs: 120_000,
    },
  ]);
  expect(read('')).toEqual([]);
  const env = { TILLSYNC_HOOKS: '[{"name":"pos","url":"http://127.0.0.1:1"}]' };
  expect(read('', env)).toMatchObject([{ name: 'pos' }]);
});

it.each([
  ['[[hooks]]\nurl = "https://x.example"', 'hooks[0].name'],
  ['[[hooks]]\nname = "Printer 1"\nurl = "https://x.example"', 'hooks[0].name'],
  ['[[hooks]]\nname = "p"', 'hooks[0].url'],
  ['[[hooks]]\nname = "p"\nurl = "https://x.example"\ncommand = ["/bin/x"]', 'hooks[0].url'],
  ['[[hooks]]\nname = "p"\nurl = "ftp://x.example"', 'hooks[0].url'],
  ['[[hooks]]\nname = "p"\ncommand = "/bin/x --y"', 'hooks[0].command'],
  ['[[hooks]]\nname = "p"\nurl = "https://x.example"\nstatuses = "cancel"', 'hooks[0].statuses'],
  ['[[hooks]]\nname = "p"\nurl = "https://x.example"\nevents = []', 'hooks[0].events'],
  ['[[hooks]]\nname = "p"\nurl = "https://x.example"\nevents = "order"', 'hooks[0].events'],
  [
    '[[hooks]]\nname = "p"\nurl = "https://x.example"\nevents = ["change.rejected"]\nstatuses = ["cancel"]',
    'hooks[0].statuses',
  ],
  ['[[hooks]]\nname = "p"\nurl = "https://x.example"\nfrom = "yesterday"', 'hooks[0].from'],
  ['[[hooks]]\nname = "p"\nurl = "https://x.example"\nprepare_before = "8d"', 'hooks[0].prepare_before'],
  ['[[hooks]]\nname = "p"\nurl = "https://x.example"\ntimeout = 30', 'hooks[0].timeout'],
  ['[[hooks]]\nname = "p"\nurl = "https://x.example"\nstatus = []', 'hooks[0].status'],
  [
    '[[hooks]]\nname = "p"\nurl = "https://x.example"\n[[hooks]]\nname = "p"\nurl = "https://y.example"',
    'hooks[1].name',
  ],
])('refuses %j', (text, key) => {
  expect(faults(text)).toContain(key);
});

it('refuses an unknown event with the list of those that there are', () => {
  const [fault] = read('[[hooks]]\nname = "p"\nurl = "https://x.example"\nevents = ["order", "change.done"]');
  expect(fault).toMatchObject({
    key: 'hooks[0].events',
    found: '["order","change.done"]',
    allowed:
      'a list of one or more of "order", "order.prepare", "order.changed", "order.undone", "change.rejected"',
  });
});

it('says the key that was probably meant', () => {
  const [fault] = read('[[hooks]]\nname = "p"\nurl = "https://x.example"\nstatusses = []');
  expect(fault).toMatchObject({ suggestion: 'hooks[0].statuses' });
});

it('hands each hook its own secret, from a credential or the environment, and shows none', () => {
  const credentials = path.join(directory, 'credentials');
  mkdirSync(credentials);
  writeFileSync(path.join(credentials, 'hook-pos'), 'from-file\n');
  writeFileSync(path.join(credentials, 'hook-gone'), 'of-a-hook-that-is-gone');
  const hooks = ['pos', 'printer-2', 'other'].map(
    (name) => `[[hooks]]\nname = "${name}"\nurl = "https://x.example"`,
  );
  const file = fileWith(hooks.join('\n'));
  const env = {
    CREDENTIALS_DIRECTORY: credentials,
    TILLSYNC_HOOK_POS: 'from-environment',
    TILLSYNC_HOOK_PRINTER_2: 'second-secret',
  };
  const setup = readSetup({ file, env });
  if ('faults' in setup) throw new Error(JSON.stringify(setup.faults));
  expect(setup.secrets.hookSecrets).toEqual({ pos: ['from-file'], 'printer-2': ['second-secret'] });
  expect(secretValues(setup.secrets)).toEqual(['from-file', 'second-secret']);
  const bad = readSetup({ file, env: { TILLSYNC_HOOK_POS: 'hidden part' } });
  expect(bad).toMatchObject({ faults: [{ origin: 'environment variable TILLSYNC_HOOK_POS' }] });
  expect(JSON.stringify(bad)).not.toContain('hidden');
});

it('hands each hook its secret address, which no hook of the very name signs with', () => {
  const hooks = ['pos', 'chat', 'chat-url'].map(
    (name) => `[[hooks]]\nname = "${name}"\nurl = "https://x.example"`,
  );
  const file = fileWith(hooks.join('\n'));
  const env = {
    TILLSYNC_HOOK_POS_URL: 'https://x.example/planted-token',
    TILLSYNC_HOOK_CHAT_URL: 'signs-chat-url',
  };
  const setup = readSetup({ file, env });
  if ('faults' in setup) throw new Error(JSON.stringify(setup.faults));
  expect(setup.secrets.hookUrls).toEqual({ pos: 'https://x.example/planted-token' });
  expect(setup.secrets.hookSecrets).toEqual({ 'chat-url': ['signs-chat-url'] });
  expect([...secretsByName(setup.secrets).keys()]).toContain('hook-pos-url');
  expect(secretValues(setup.secrets)).toContain('https://x.example/planted-token');
  const bad = readSetup({ file, env: { TILLSYNC_HOOK_POS_URL: 'x.example/planted-token' } });
  expect(bad).toMatchObject({ faults: [{ origin: 'the secret hook-pos-url' }] });
  expect(JSON.stringify(bad)).not.toContain('planted');
});
