/** Tests `config show`, `config set` and `config apply` of src/cli/config.ts, and what a first `init` writes. */

import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KEYS } from '../../src/config/schema.ts';
import { invoke } from './invoke.ts';

const ROOT = path.join(import.meta.dirname, '../..');
let directory: string;
let file: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-config-'));
  file = path.join(directory, 'shop.toml');
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const SHOP = `# my shop
[platform]
base_url = "https://api.shop.test" # the platform

[shop]
name = "Corner"   # over the door

# the rest
[[branches]]
external_id = "B1"
`;

const config = (words: string[], env = {}) => invoke(['config', ...words, '--config', file], { env });
const text = () => readFileSync(file, 'utf8');

async function settings(words: string[] = [], env = {}) {
  const { stdout } = await config(['show', '--json', ...words], env);
  const { settings } = JSON.parse(stdout) as { settings: { key: string; value: unknown; source: string }[] };
  return settings;
}

const ofKey = (all: Awaited<ReturnType<typeof settings>>, key: string) =>
  all.find((each) => each.key === key);

describe('config show', () => {
  it('lists what the file and the environment set, and with --all every key', async () => {
    writeFileSync(file, SHOP);
    const env = { TILLSYNC_STOCK_SAFETY: '3' };
    expect(await settings([], env)).toEqual([
      { key: 'platform.base_url', value: 'https://api.shop.test', source: 'file' },
      { key: 'shop.name', value: 'Corner', source: 'file' },
      { key: 'branches', value: [{ external_id: 'B1' }], source: 'file' },
      { key: 'stock.safety', value: '3', source: 'environment' },
    ]);
    const all = await settings(['--all']);
    expect(all.map(({ key }) => key)).toEqual(KEYS.map((key) => key.path));
    expect(ofKey(all, 'stock.safety')).toEqual({ key: 'stock.safety', value: 0, source: 'default' });
    const { stdout, stderr } = await config(['show']);
    expect(stdout).toContain('"Corner"');
    expect(stderr).toContain('config show --all');
  });

  it('shows no value that may be a secret', async () => {
    writeFileSync(file, SHOP.replace('Corner', 'eyJplanted.eyJ'));
    const { stdout } = await config(['show']);
    expect(stdout).toContain('shop.name');
    expect(stdout).not.toContain('planted');
    expect(ofKey(await settings(), 'shop.name')).toMatchObject({ value: null });
  });
});

describe('config set', () => {
  it('changes one key and leaves every other line', async () => {
    writeFileSync(file, SHOP);
    const { code, stderr } = await config(['set', 'shop.name', 'North side']);
    expect(code).toBe(0);
    expect(stderr).toContain('config apply');
    expect(text()).toBe(SHOP.replace('"Corner" ', '"North side" '));
  });

  it.each([
    ['stock.safety', '2', 2],
    ['stock.hold_back_unbooked', 'true', true],
    ['alarms.command', '["/usr/bin/tell", "me"]', ['/usr/bin/tell', 'me']],
    ['platform.quirks.list_path', 'data.orders', 'data.orders'],
    ['orders.lookback_days', '3', 3],
    ['shop.name', '7', '7'],
  ])('takes %s %s as the file has it', async (key, typed, value) => {
    writeFileSync(file, SHOP);
    expect((await config(['set', key, typed])).code).toBe(0);
    expect(ofKey(await settings(), key)).toEqual({ key, value, source: 'file' });
    for (const comment of ['# my shop', '# the platform', '# over the door', '# the rest\n[[branches]]']) {
      expect(text()).toContain(comment);
    }
    expect((await config(['set', key, typed])).code).toBe(0);
    expect(ofKey(await settings(), key)).toEqual({ key, value, source: 'file' });
  });

  it.each([
    ['shop.nam', 'x', 'did you mean shop.name?'],
    ['stok.safety', '1', 'did you mean stock.safety?'],
    ['stock.safety', '-1', 'allowed: a number from 0'],
    ['orders.timezone', 'Mars/Base', 'orders.timezone'],
    ['retention.orders', '5d', 'a time shorter than polls look back'],
    ['alarms.name', 'x', 'shop.name names the shop in alarms too'],
  ])('refuses %s %s as a start would, and leaves the file', async (key, typed, says) => {
    writeFileSync(file, SHOP);
    const { code, stderr } = await config(['set', key, typed]);
    expect(code).toBe(2);
    expect(stderr).toContain(says);
    expect(text()).toBe(SHOP);
  });

  it('wants one key and one value', async () => {
    writeFileSync(file, SHOP);
    for (const words of [['shop.name'], ['shop.name', 'North', 'side']]) {
      expect((await config(['set', ...words])).code).toBe(2);
    }
    expect(text()).toBe(SHOP);
  });
});

it('config apply says that no service uses the file, and refuses a file with a fault', async () => {
  writeFileSync(file, SHOP);
  expect((await config(['apply'])).stderr).toContain('No systemd service uses');
  writeFileSync(file, `${SHOP}[stock]\nsafety = -1\n`);
  expect((await config(['apply'])).stderr).toContain('stock.safety');
});

describe('a first init', () => {
  const init = () =>
    invoke(
      [
        ...[
          'init',
          '--yes',
          '--offline',
          '--no-start',
          '--config',
          file,
          '--directory',
          path.join(directory, 'data'),
        ],
        ...['--base-url', 'https://api.shop.test', '--branch', 'sub-1,B1', '--timezone', 'America/Santiago'],
        ...['--webhook-listen', '127.0.0.1:0', '--local-listen', '127.0.0.1:0'],
      ],
      { env: {} },
    );

  it('writes what was answered, in at most 30 lines', async () => {
    expect((await init()).code).toBe(0);
    expect(text().split('\n').length).toBeLessThanOrEqual(30);
    expect((await settings()).map(({ key }) => key)).toEqual([
      ...['platform.base_url', 'storage.directory', 'webhook.enabled', 'webhook.listen', 'orders.timezone'],
      ...['branches', 'local.listen'],
    ]);
  });

  it('lets the defaults of a later version reach the shop', async () => {
    expect((await init()).code).toBe(0);
    const later = path.join(directory, 'later');
    cpSync(path.join(ROOT, 'src'), path.join(later, 'src'), { recursive: true });
    cpSync(path.join(ROOT, 'package.json'), path.join(later, 'package.json'));
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(later, 'node_modules'));
    const schema = path.join(later, 'src/config/schema.ts');
    const before = readFileSync(schema, 'utf8');
    const after = before.replace(
      'value.wholeNumber(0, 366),\n      30,',
      'value.wholeNumber(0, 366),\n      45,',
    );
    expect(after).not.toBe(before);
    writeFileSync(schema, after);
    const shown = execFileSync(
      process.execPath,
      ['src/cli/main.ts', 'config', 'show', '--all', '--json', '--config', file],
      { cwd: later, env: { PATH: process.env.PATH ?? '' }, encoding: 'utf8' },
    );
    const { settings: all } = JSON.parse(shown) as { settings: Awaited<ReturnType<typeof settings>> };
    expect(ofKey(all, 'orders.wide_days')).toMatchObject({ value: 45, source: 'default' });
    expect(ofKey(all, 'platform.base_url')).toMatchObject({ value: 'https://api.shop.test', source: 'file' });
  });
});
