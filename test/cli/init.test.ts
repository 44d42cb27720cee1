/** Tests src/cli/init/init.ts, src/cli/init/interview.ts, src/cli/init/set-up.ts and src/cli/phrase-text.ts. */

import { once } from 'node:events';
import { chmodSync, existsSync, readdirSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import path, { join } from 'node:path';
import { identityToRecipient } from 'age-encryption';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sampleConfig } from '../../config/package/configuration.ts';
import { freePortBeside } from '../../src/cli/init/machine.ts';
import { readConfig } from '../../src/config/config.ts';
import { identityOf } from '../../src/support/recovery-phrase.ts';
import { freePort } from '../support/free-port.ts';
import { type NewPlace, newPlace, type Script, talk } from './init-rig.ts';
import { invoke } from './invoke.ts';

let place: NewPlace;
let here: string[];
/** Free addresses, because a service of this machine may use the usual ports. */
let ports: { webhook: string; local: string };

beforeEach(async () => {
  place = await newPlace(21);
  ports = { webhook: `127.0.0.1:${await freePort()}`, local: `127.0.0.1:${await freePort()}` };
  const sample = sampleConfig()
    .replace('"127.0.0.1:8787"', `"${ports.webhook}"`)
    .replace('\nlisten = "127.0.0.1:8788"', `\nlisten = "${ports.local}"`)
    // The sandbox allows a shorter interval than the sample; a longer one would only slow the tests down.
    .replace('endpoint_interval = "1s"', 'endpoint_interval = "60ms"');
  writeFileSync(place.file, sample);
  here = ['init', '--config', place.file, '--directory', place.storage];
});

afterEach(async () => {
  expect(place.sandbox.control.violations()).toEqual([]);
  expect(place.sandbox.control.deadRefreshUses().length).toBeLessThan(3);
  await place.sandbox.close();
});

const token = () => place.sandbox.issueTokens().refreshToken;

function config() {
  const result = readConfig({ file: place.file, env: {} });
  if ('faults' in result) throw new Error(JSON.stringify(result.faults));
  return result.config;
}

async function script(words: string[], input?: string, env = {}) {
  const result = await invoke([...here, '--yes', '--json', ...words], {
    env,
    ...(input !== undefined && { input }),
  });
  expect(result.stdout + result.stderr).not.toMatch(/eyJ[\w-]{8}/);
  return { ...result, document: JSON.parse(result.stdout) };
}

/** Returns the lines of a printed recovery phrase. */
function wordsIn(text: string): string {
  return text
    .split('\n')
    .filter((line) => /^ +\d+ \p{L}+ +\d+ /u.test(line))
    .join(' ');
}

describe('a person at a terminal', () => {
  const rest: Script = [
    ['callbacks (optional)', ''],
    ['Time zone', 'America/Lima'],
    ['How long customers', ''],
    ['recovery phrase?', 'n'],
    ['Unix group', ''],
  ];

  test('is asked for everything, put right where an answer is wrong, and never shown a token', async () => {
    const refreshToken = token();
    const { code, screen, stdout } = await talk(here, [
      ["platform's API", 'shop.test'],
      ["platform's API", place.sandbox.url],
      ['Refresh token', 'eyJ-of-nobody'],
      ['Refresh token', `{"refreshToken": "${refreshToken}"}`],
      ["platform's id", 'sub-9'],
      ['Your own id', ''],
      ["platform's id", 'sub-1'],
      ['Your own id', 'B1'],
      ['next branch', ''],
      ['Your own id', ''],
      ['callbacks (optional)', 'https://shop.test/webhook'],
      ['Where callbacks arrive', ''],
      ['Time zone', 'santiago'],
      ['Time zone', 'America/Santiago'],
      ['How long customers', ''],
      ['recovery phrase?', ''],
      ['Unix group', 'no-such-group'],
      ['Unix group', ''],
      ['Write this', 'y'],
    ]);
    expect(code).toBe(0);
    for (const told of [
      '"shop.test" cannot be used here. Allowed: an address',
      'Your answers:',
      'The platform refuses this refresh token; nothing was changed.',
      'The platform refuses subsidiary_id "sub-9"',
      'Did you mean America/Santiago?',
      'There is no group "no-such-group"',
      'ok  branch: sub-1 / B1: 60 products',
    ]) {
      expect(screen).toContain(told);
    }
    expect(screen + stdout).not.toMatch(/eyJ[\w-]{8}/);
    expect(stdout).toContain('https://shop.test/webhook, which is registered when tillsync starts');
    expect(config()).toMatchObject({
      platform: { baseUrl: place.sandbox.url },
      webhook: { enabled: true, callbackUrl: 'https://shop.test/webhook' },
      orders: { timezone: 'America/Santiago' },
      retention: { personalDataMs: 60 * 86_400_000 },
      branches: [{ subsidiaryId: 'sub-1', externalId: 'B1' }],
    });
    expect(place.text()).toContain('# SET: the branches, one table each');
    expect(screen).not.toContain('Recovery phrase, shown this once');
    expect(identityOf(wordsIn(stdout))).toBeDefined();
    expect(config().backup.recipient).toMatch(/^age1/);
  });

  test('keeps everything with Enter when asked again', async () => {
    await script(['--base-url', place.sandbox.url, '--branch', 'sub-1,B1', '--token-stdin'], token());
    const before = place.text();
    const { code, stdout } = await talk(here, [
      ["platform's API", ''],
      ['other tokens', ''],
      ['Keep the branch sub-1 / B1', ''],
      ['next branch', ''],
      ['Your own id', ''],
      ['callbacks (optional)', ''],
      ['Time zone', ''],
      ['How long customers', ''],
      ['recovery phrase?', ''],
      ['Unix group', ''],
      ['Write this', ''],
    ]);
    expect([code, place.text()]).toEqual([0, before]);
    expect(stdout).toContain('says all this already');
  });

  test('who presses Ctrl-C finds the file as it was, and the new tokens kept', async () => {
    const before = place.text();
    const { code, screen } = await talk(here, [
      ["platform's API", place.sandbox.url],
      ['Refresh token', token()],
      ["platform's id", '\u0003'],
    ]);
    expect(code).toBe(130);
    expect(screen).toContain(`${place.file} is as it was. The tokens that were handed over are stored.`);
    expect(place.text()).toBe(before);
    expect(readdirSync(place.directory).sort()).toEqual(['config.toml', 'storage']);
    const env = { TILLSYNC_CONFIG: place.file, TILLSYNC_STORAGE_DIRECTORY: place.storage };
    expect((await invoke(['auth', 'status'], { env })).code).toBe(0);
  });

  test('may go on while the platform is away, and hands tokens over later', async () => {
    const { code } = await talk(here, [
      ["platform's API", 'http://127.0.0.1:1'],
      ['What now?', 'c'],
      ["platform's API", 'http://127.0.0.1:1'],
      ['What now?', 'o'],
      ['Refresh token', ''],
      ["platform's id", 'sub-1'],
      ['Your own id', ''],
      ['next branch', ''],
      ['Your own id', ''],
      ...rest,
      ['Write this', ''],
    ]);
    expect(code).toBe(0);
    expect(config()).toMatchObject({ webhook: { enabled: false }, branches: [{ subsidiaryId: 'sub-1' }] });
  });
});

describe('a script', () => {
  test('gives everything as options, and the same again changes nothing and uses up no token', async () => {
    const refreshToken = token();
    const words = ['--base-url', place.sandbox.url, '--branch', 'sub-1', '--branch', ',B2', '--token-stdin'];
    const first = await script([...words, '--timezone', 'America/Lima'], refreshToken);
    expect(first).toMatchObject({
      code: 0,
      document: {
        changed: true,
        keptAt: expect.stringContaining(`${place.file}.bak-`),
        orders: 'polling',
        webhookSecret: null,
      },
    });
    expect(first.document.checks.map(({ what, ok }: { what: string; ok: boolean }) => [what, ok])).toEqual([
      ['address', true],
      ['tokens', true],
      ['branch', true],
      ['branch', true],
    ]);
    const second = await script(words, refreshToken);
    expect(second).toMatchObject({ code: 0, document: { changed: false, keptAt: null } });
    expect(config()).toMatchObject({ orders: { timezone: 'America/Lima' }, webhook: { enabled: false } });
    expect(place.sandbox.control.calls('token.refresh')).toHaveLength(1);
  });

  test('makes a recovery phrase when told so, whose words open what is encrypted for the recipient', async () => {
    const words = ['--base-url', place.sandbox.url, '--branch', 'sub-1,B1', '--token-stdin', '--new-phrase'];
    const { code, document } = await script(words, token());
    const identity = identityOf(document.phrase);
    expect([code, identity && (await identityToRecipient(identity))]).toEqual([0, config().backup.recipient]);
    expect(place.text()).not.toContain(document.phrase.split(' ').slice(0, 3).join(' '));
  });

  test('takes the token from the environment, and a callback address brings a secret of its own', async () => {
    const words = ['--base-url', place.sandbox.url, '--callback-url', 'https://shop.test/hook'];
    const result = await script(words, undefined, { TILLSYNC_REFRESH_TOKEN: token() });
    expect(result).toMatchObject({ code: 0, document: { orders: 'callbacks', webhookSecret: 'made' } });
    expect((await script([])).document).toMatchObject({ changed: false, webhookSecret: 'kept' });
    expect((await script(['--callback-url', ''])).document).toMatchObject({ orders: 'polling' });
  });

  test.each(['webhook', 'local'])(
    'is told who holds the port for %s, before anything is made',
    async (name) => {
      const other = createServer().listen(0, '127.0.0.1');
      await once(other, 'listening');
      const { port } = other.address() as AddressInfo;
      const words = ['--base-url', place.sandbox.url, '--branch', 'sub-1', '--token-stdin'];
      const callback = ['--callback-url', 'https://shop.test/webhook'];
      const before = place.text();
      const taken = await script([...words, ...callback, `--${name}-listen`, `127.0.0.1:${port}`], token());
      expect(taken).toMatchObject({ code: 2, document: { error: { code: 'usage' } } });
      const { message, hint } = taken.document.error;
      expect(message).toMatch(
        new RegExp(`^Port ${port} is already used by another program \\(node, process ${process.pid}\\)`),
      );
      expect(hint).toContain(`--${name}-listen`);
      expect(place.text()).toBe(before);
      expect(place.sandbox.control.calls('token.refresh')).toEqual([]);
      const free = /127\.0\.0\.1:\d+/.exec(hint)?.[0] as string;
      expect(await script([...words, ...callback, `--${name}-listen`, free], token())).toMatchObject({
        code: 0,
      });
      other.close();
    },
  );

  test('finds ports for a further company that neither a program nor another company has', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    writeFileSync(join(place.directory, 'first.toml'), `[local]\nlisten = ["127.0.0.1:${port + 1}"]\n`);
    const found = await freePortBeside(join(place.directory, 'second.toml'), '127.0.0.1', port);
    expect(found).toBeGreaterThan(port + 1);
    other.close();
  });

  test.each([
    ['no address', 2, []],
    ['an address that is none', 2, ['--base-url', 'shop.test']],
    ['a wrong zone', 2, ['--base-url', 'URL', '--timezone', 'Santiago']],
    ['a wrong branch', 2, ['--base-url', 'URL', '--branch', 'sub-9', '--token-stdin']],
    ['a branch of two', 2, ['--base-url', 'URL', '--branch', 'sub-1,B1,x']],
    ['no tokens', 4, ['--base-url', 'URL']],
    ['a platform that is away', 1, ['--base-url', 'http://127.0.0.1:1']],
  ])('with %s ends with %i and leaves the file alone', async (_name, code, words) => {
    const before = place.text();
    const result = await script(
      words.map((word) => (word === 'URL' ? place.sandbox.url : word)),
      words.includes('--token-stdin') ? token() : undefined,
    );
    expect([result.code, typeof result.document.error.message]).toEqual([code, 'string']);
    expect(place.text()).toBe(before);
    expect(readdirSync(place.directory).filter((name) => name.includes('.bak'))).toEqual([]);
  });

  test('with a token that is refused ends with 4; without --yes nothing begins', async () => {
    const words = ['--base-url', place.sandbox.url, '--token-stdin'];
    expect(await script(words, 'eyJ-of-nobody')).toMatchObject({
      code: 4,
      document: { error: { code: 'auth-required' } },
    });
    const asked = await invoke(here);
    expect(asked).toMatchObject({ code: 2, stdout: '' });
    expect(asked.stderr).toContain('Add --yes');
  });

  test('begins with the language of the machine, and keeps the one that stands there', async () => {
    const offline = ['--base-url', 'http://127.0.0.1:1', '--offline'];
    await script(offline, undefined, { LC_ALL: '', LANG: 'es_CL.UTF-8' });
    expect(config().shop.language).toBe('es');
    await script(offline, undefined, { LANG: 'en_US.UTF-8' });
    expect(config().shop.language).toBe('es');
    await script([...offline, '--language', 'en']);
    expect(config().shop.language).toBe('en');
    expect((await script([...offline, '--language', 'fr'])).stderr).toContain('shop.language');
  });

  test('sets up without the platform when told so', async () => {
    const result = await script(['--base-url', 'http://127.0.0.1:1', '--offline', '--branch', 'x,y']);
    expect(result).toMatchObject({ code: 0, document: { changed: true } });
    expect(config().branches).toEqual([{ subsidiaryId: 'x', externalId: 'y' }]);
  });
});

describe('a storage directory', () => {
  const offline = ['--base-url', 'http://127.0.0.1:1', '--offline', '--branch', 'x,y'];

  test('is named from where the shell is, and stands whole in the file', async () => {
    const { code } = await script([...offline, '--directory', path.relative('.', place.storage)]);
    expect(code).toBe(0);
    expect(config().storage.directory).toBe(place.storage);
  });

  test('without a name is refused', async () => {
    const { code, stderr } = await script([...offline, '--directory', '']);
    expect(code).toBe(2);
    expect(stderr).toContain('storage.directory');
  });
});

describe('a file of another version', () => {
  test.each([
    ['[orders]\ntimezon = "UTC"\n', 'did you mean orders.timezone?'],
    ['[platfrom]\nbase_url = "http://a.test"\n', 'did you mean platform?'],
    ['[platform\n', 'a TOML document'],
  ])('is refused with what is wrong, and left alone: %j', async (text, told) => {
    writeFileSync(place.file, text);
    const result = await script(['--base-url', place.sandbox.url, '--offline']);
    expect(result.code).toBe(2);
    expect(result.document.error.message).toContain(told);
    expect(place.text()).toBe(text);
    expect(existsSync(place.storage)).toBe(false);
  });

  test('keeps its mode and what is not asked for', async () => {
    writeFileSync(place.file, '# mine\n[log]\nlevel = "debug" # loud\n');
    chmodSync(place.file, 0o640);
    const listen = ['--webhook-listen', ports.webhook, '--local-listen', ports.local];
    expect((await script(['--base-url', place.sandbox.url, '--offline', ...listen])).code).toBe(0);
    expect(place.text()).toContain('# mine\n[log]\nlevel = "debug" # loud\n');
    expect(config()).toMatchObject({ log: { level: 'debug' }, platform: { baseUrl: place.sandbox.url } });
  });
});
