/** Tests src/config/drop-ins.ts. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sampleConfig } from '../../config/package/configuration.ts';
import { writeDropIns } from '../../src/config/drop-ins.ts';

const SERVICE = 'tillsync.service.d/50-storage.conf';
const SOCKET = 'tillsync.socket.d/50-webhook-listen.conf';

/** Files of configuration and secrets, by name; and what systemd finds of them, by its path without what follows `#`. */
function generate(files: Record<string, string>, secrets: readonly string[] = []) {
  const place = mkdtempSync(join(tmpdir(), 'tillsync-units-'));
  const [configs = '', credstore = '', units = ''] = ['configs', 'credstore', 'units'].map((name) => {
    mkdirSync(join(place, name));
    return join(place, name);
  });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(configs, name), text);
  for (const name of secrets) writeFileSync(join(credstore, name), 'secret-4711');
  const warnings: string[] = [];
  writeDropIns({ configs, credstore, units, warn: (line) => warnings.push(line) });
  const written = readdirSync(units, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.conf'))
    .map((name): [string, string] => {
      const text = readFileSync(join(units, name), 'utf8').replaceAll(configs, '/etc/tillsync');
      return [name, text.replace(/^#.*\n/, '')];
    });
  return { written: Object.fromEntries(written), warnings };
}

const socketAt = (address: string) => `[Socket]\nListenStream=\nListenStream=${address}\n`;
const writableAt = (...paths: string[]) =>
  `[Service]\nReadWritePaths=${paths.map((path) => `"-${path}"`).join(' ')}\n`;

test.each([
  ['a table', '[webhook]\nlisten = "127.0.0.1:9797"', '127.0.0.1:9797'],
  ['a dotted key', 'webhook.listen = "127.0.0.1:9797"', '127.0.0.1:9797'],
  ['an inline table', 'webhook = { enabled = true, listen = "127.0.0.1:9797" }', '127.0.0.1:9797'],
  ['quoted names', "[\"webhook\"]\n'listen' = '127.0.0.1:9797'", '127.0.0.1:9797'],
  ['a text in three quotes', '[webhook]\nlisten = """\\\n  127.0.0.1:9797"""', '127.0.0.1:9797'],
  [
    'comments',
    '[webhook] # callbacks\n# listen = "1.1.1.1:1"\nlisten = "127.0.0.1:9797" # here',
    '127.0.0.1:9797',
  ],
  [
    'a list over lines before it, with a text that looks like a table',
    'alarms.command = [\n  "sh", # [webhook]\n  "[webhook]\\nlisten = 1",\n]\n[webhook]\nlisten = "127.0.0.1:9797"',
    '127.0.0.1:9797',
  ],
  ['every address', 'webhook.listen = "0.0.0.0:80"', '0.0.0.0:80'],
  ['IPv6', 'webhook.listen = "[::1]:9797"', '[::1]:9797'],
  ['localhost', 'webhook.listen = "localhost:9797"', '127.0.0.1:9797'],
])('the socket follows %s', (_, text, address) => {
  const { written, warnings } = generate({ 'config.toml': text });
  expect(written).toEqual({ [SOCKET]: socketAt(address) });
  expect(warnings).toEqual([]);
});

test.each([
  ['no address', '[platform]\nbase_url = "https://api.shop.test"'],
  ['the same key of another table', 'local.listen = "127.0.0.1:9797"'],
  ['a host name, which a unit cannot take', 'webhook.listen = "shop.test:9797"'],
  ['a name of hexadecimal digits', 'webhook.listen = "cafe:9797"'],
  ['an address with a zone', 'webhook.listen = "[fe80::1%eth0]:9797"'],
  ['a port that is chosen at the start', 'webhook.listen = "127.0.0.1:0"'],
  ['a port that does not exist', 'webhook.listen = "127.0.0.1:65536"'],
  ['another type', 'webhook.listen = 9797'],
])('the socket stays at its address with %s', (_, text) => {
  expect(generate({ 'config.toml': text })).toEqual({ written: {}, warnings: [] });
});

test.each([
  ['callbacks are disabled', 'webhook = { enabled = false, listen = "127.0.0.1:9797" }'],
  ['only the hub gets callbacks', 'link.hub = ["tls://hub.shop.test:4222"]'],
])('no socket is opened if %s', (_, text) => {
  const { written } = generate({ 'config.toml': text });
  expect(written).toEqual({ [SOCKET]: '[Unit]\nConditionPathExists=!/etc/tillsync/config.toml\n' });
});

test.each([
  ['storage', '[storage]\ndirectory = "/srv/till sync"', writableAt('/srv/till sync')],
  ['backups', "backup.directory = '/mnt/usb'", writableAt('/mnt/usb')],
  [
    'both',
    'storage = { directory = "/srv/a" }\nbackup = { directory = "/mnt/b" }',
    writableAt('/srv/a', '/mnt/b'),
  ],
  [
    'a percent sign and an apostrophe',
    'storage.directory = "/srv/100%/Bob\'s"',
    writableAt("/srv/100%%/Bob's"),
  ],
])('the service may write in the directory of %s', (_, text, expected) => {
  expect(generate({ 'config.toml': text })).toEqual({ written: { [SERVICE]: expected }, warnings: [] });
});

test('a directory that no unit can name is named in a warning, and cannot add settings', () => {
  const { written, warnings } = generate({
    'config.toml': 'storage.directory = "/srv/x\\"\\nExecStart=/bin/sh"\nbackup.directory = "/mnt/b"',
  });
  expect(written).toEqual({ [SERVICE]: writableAt('/mnt/b') });
  expect(warnings).toEqual([expect.stringContaining('/srv/x')]);
});

test('a directory that is not absolute, or empty, changes nothing', () => {
  const text = 'storage.directory = "srv"\nbackup.directory = ""';
  expect(generate({ 'config.toml': text })).toEqual({ written: {}, warnings: [] });
});

test('each company has the units of its file, and other files have none', () => {
  const { written } = generate({
    'config.toml': 'webhook.listen = "127.0.0.1:9001"',
    'shop-2.toml': 'webhook.listen = "127.0.0.1:9002"\nstorage.directory = "/srv/shop-2"',
    'config.toml.bak': 'webhook.listen = "127.0.0.1:9003"',
    'two words.toml': 'webhook.listen = "127.0.0.1:9004"',
    '.toml': 'webhook.listen = "127.0.0.1:9005"',
  });
  expect(written).toEqual({
    [SOCKET]: socketAt('127.0.0.1:9001'),
    'tillsync@shop-2.socket.d/50-webhook-listen.conf': socketAt('127.0.0.1:9002'),
    'tillsync@shop-2.service.d/50-storage.conf': writableAt('/srv/shop-2'),
  });
});

test('a service gets the secrets of its own hooks', () => {
  const files = { 'config.toml': '', 'b1.toml': '' };
  const { written } = generate(files, [
    ...['tillsync.hook-printer', 'tillsync.hook-printer-url', 'tillsync.webhook-secret', 'tillsync.hook-Up'],
    ...['tillsync@b1.hook-erp', 'tillsync.hook-printer.bak', 'other.hook-printer'],
  ]);
  expect(written).toEqual({
    'tillsync.service.d/50-hooks.conf':
      '[Service]\nLoadCredential=hook-printer:tillsync.hook-printer\nLoadCredential=hook-printer-url:tillsync.hook-printer-url\n',
    'tillsync@b1.service.d/50-hooks.conf': '[Service]\nLoadCredential=hook-erp:tillsync@b1.hook-erp\n',
  });
});

test('a fault elsewhere in the file moves no socket', () => {
  const text = '[webhook]\nlisten = "127.0.0.1:9797"\nlissten = 1\n[nonsense]\n[orders]\npoll = "never"';
  expect(generate({ 'config.toml': text }).written).toEqual({ [SOCKET]: socketAt('127.0.0.1:9797') });
});

test('a file that cannot be read is named with its line, and the others are read', () => {
  const { written, warnings } = generate({
    'config.toml': '[webhook]\nlisten = "127.0.0.1:9797"\ntoken = "eyJ-secret',
    'shop2.toml': 'webhook.listen = "127.0.0.1:9002"',
  });
  expect(Object.keys(written)).toEqual(['tillsync@shop2.socket.d/50-webhook-listen.conf']);
  expect(warnings).toEqual([
    expect.stringMatching(/config\.toml: found .* at line 3, .*tillsync gets no drop-ins/),
  ]);
  expect(warnings.join()).not.toContain('eyJ-secret');
});

test('what cannot be written is named, and the rest is written', () => {
  const place = mkdtempSync(join(tmpdir(), 'tillsync-units-'));
  writeFileSync(
    join(place, 'config.toml'),
    'webhook.listen = "127.0.0.1:9797"\nstorage.directory = "/srv/a"',
  );
  const units = join(place, 'units');
  mkdirSync(units);
  writeFileSync(join(units, 'tillsync.service.d'), 'a file in the place of a directory');
  const warnings: string[] = [];
  writeDropIns({
    configs: place,
    credstore: join(place, 'none'),
    units,
    warn: (line) => warnings.push(line),
  });
  expect(readFileSync(join(units, SOCKET), 'utf8')).toContain('ListenStream=127.0.0.1:9797');
  expect(warnings).toEqual([expect.stringContaining('tillsync.service')]);
});

test('the sample leaves the units as they are packed', () => {
  const { written, warnings } = generate({ 'config.toml': sampleConfig() });
  expect(written).toEqual({
    [SERVICE]: writableAt('/var/lib/tillsync'),
    [SOCKET]: socketAt('127.0.0.1:8787'),
  });
  expect(warnings).toEqual([]);
});
