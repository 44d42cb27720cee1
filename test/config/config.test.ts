/** Tests src/config/schema.ts, src/config/source.ts, src/config/values.ts and config/package/configuration.ts. */

import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { chainSampleConfig, sampleConfig } from '../../config/package/configuration.ts';
import { shopName } from '../../src/app/installation.ts';
import { configWarnings, loadConfig, readConfig, readSetup } from '../../src/config/config.ts';
import type { Config } from '../../src/config/config-type.ts';
import { KEYS } from '../../src/config/schema.ts';
import type { ConfigFault } from '../../src/config/source.ts';
import { TillsyncError } from '../../src/core/errors.ts';

const SAMPLE = join(import.meta.dirname, '../../config/tillsync.sample.toml');
const CHAIN_SAMPLE = join(import.meta.dirname, '../../config/tillsync-hub.sample.toml');
const MINIMAL = '[platform]\nbase_url = "https://api.shop.test/"\n';

function fileWith(text: string): string {
  const file = join(mkdtempSync(join(tmpdir(), 'tillsync-config-')), 'config.toml');
  writeFileSync(file, text);
  return file;
}

function configOf(text: string, env: Record<string, string> = {}): Config {
  return loadConfig({ file: fileWith(text), env });
}

function faultsOf(text: string, env: Record<string, string> = {}): ConfigFault[] {
  const result = readConfig({ file: fileWith(text), env });
  return 'faults' in result ? result.faults : [];
}

describe('a good file', () => {
  test('the samples are accepted and name every key', () => {
    const config = loadConfig({ file: SAMPLE, env: {} });
    expect(config.branches).toEqual([{ subsidiaryId: 'sub-1', externalId: 'B1' }]);
    const [ofStore, ofChain] = [readFileSync(SAMPLE, 'utf8'), readFileSync(CHAIN_SAMPLE, 'utf8')];
    expect(ofStore, 'to make it: npm run reference').toBe(sampleConfig());
    expect(ofChain, 'to make it: npm run reference').toBe(chainSampleConfig());
    const text = ofStore + ofChain;
    expect(faultsOf(text)).toEqual([]);
    for (const { section, name } of KEYS) {
      if (section !== '') expect(text).toContain(`[${section}]\n`);
      expect(text).toMatch(new RegExp(`^(${name} = |(# )?\\[(orders\\.)?\\[?${name}\\])`, 'm'));
    }
  });

  test('what the sample sets is what holds without it', () => {
    const { platform, branches, orders, ...sample } = loadConfig({ file: SAMPLE, env: {} });
    const bare = configOf(MINIMAL);
    expect(bare).toMatchObject(sample);
    expect(configOf(MINIMAL + readFileSync(CHAIN_SAMPLE, 'utf8'))).toEqual(bare);
    expect({ ...bare.platform, baseUrl: '' }).toEqual({ ...platform, baseUrl: '' });
    expect({ ...bare.orders, timezone: '' }).toEqual({ ...orders, timezone: '' });
    expect(bare.branches).toEqual([]);
    expect(branches).toHaveLength(1);
  });

  test('with hold-back on warns of branches with one id alone', () => {
    const text = `${MINIMAL}[[branches]]\nexternal_id = "B1"\n[[branches]]\nexternal_id = "B2"\nsubsidiary_id = "2"\n[stock]\n`;
    expect(configWarnings(configOf(text))).toEqual([]);
    expect(configWarnings(configOf(`${text}hold_back_unbooked = true`))).toEqual([
      expect.stringMatching(/not every branch has both of its ids: B1\./),
    ]);
  });

  test('that says of the platform what nobody acts upon warns of it', () => {
    const text = `${MINIMAL}[stock]\nplatform_deducts = false\n`;
    expect(configWarnings(configOf(`${text}hold_back_unbooked = true`))).toEqual([]);
    expect(configWarnings(configOf(text))).toEqual([
      expect.stringMatching(/stock\.platform_deducts = false needs stock\.hold_back_unbooked = true\./),
    ]);
  });

  test('has durations in milliseconds, sizes in bytes, addresses split and URLs without a last slash', () => {
    const config = configOf(
      `${MINIMAL}timeout = "1.5s"
[webhook]
listen = "[::1]:0"
body_limit = "512KiB"
[local]
listen = "localhost:9000"
[orders]
wide_every = "7d"
[limits]
orders_interval = "500ms"`,
    );
    expect(config.platform).toMatchObject({ baseUrl: 'https://api.shop.test', timeoutMs: 1500 });
    expect(config.webhook).toMatchObject({ host: '::1', port: 0, bodyLimitBytes: 524_288 });
    expect(config.webhook).not.toHaveProperty('listen');
    expect(config.local).toMatchObject({ host: 'localhost', port: 9000, others: [], socket: '' });
    expect(config.orders.wideEveryMs).toBe(604_800_000);
    expect(config.limits.ordersIntervalMs).toBe(500);
    const kept = configOf(
      `${MINIMAL}[retention]\nevents = "0d"\norders = "32d"\nmax_bytes = "2GiB"`,
    ).retention;
    expect(kept).toMatchObject({ eventsMs: 0, ordersMs: 32 * 86_400_000, maxBytes: 2 * 1024 ** 3 });
  });

  test.each(['[limits]\nendpoint_interval = "0s"', '[orders]\nwide_every = "0s"', '[limits]\nwindow = "0s"'])(
    'has no interval of nothing: %s',
    (text) => {
      expect(() => configOf(`${MINIMAL}${text}`)).toThrowError(
        expect.objectContaining({ code: 'config-invalid' }),
      );
    },
  );

  test('cannot be changed once it is read', () => {
    const config = configOf(`${MINIMAL}[[branches]]\nexternal_id = "B1"`);
    expect(() => Object.assign(config.branches[0] as object, { externalId: 'B2' })).toThrow(TypeError);
    expect(() => Object.assign(config.limits, { windowMs: 1 })).toThrow(TypeError);
  });

  test('names the spellings of order fields in the words of the domain', () => {
    const config = configOf(
      `${MINIMAL}[orders.fields]\norder_id = ["nr", "head.id"]\ncustomer_email = "mail"\nitem.product_name = ["title"]`,
    );
    expect(config.orders.fields).toEqual({
      orderId: ['nr', 'head.id'],
      customerEmail: ['mail'],
      'item.productName': ['title'],
    });
  });
});

describe('where the local API is served', () => {
  test('is one address or several, in the file and in the environment', () => {
    const list = '["127.0.0.1:8788", "192.168.1.5:8788"]';
    const several = {
      host: '127.0.0.1',
      port: 8788,
      others: [{ host: '192.168.1.5', port: 8788 }],
      socket: '',
    };
    expect(configOf(`${MINIMAL}[local]\nlisten = ${list}`).local).toEqual(several);
    expect(configOf(MINIMAL, { TILLSYNC_LOCAL_LISTEN: list }).local).toEqual(several);
    expect(configOf(MINIMAL, { TILLSYNC_LOCAL_LISTEN: '[::1]:9' }).local).toMatchObject({
      host: '::1',
      port: 9,
    });
    const socket = '/run/tillsync/api.sock';
    expect(configOf(`${MINIMAL}[local]\nsocket = "${socket}"`).local.socket).toBe(socket);
  });

  test.each([
    'listen = []',
    'listen = ["127.0.0.1:8788", "127.0.0.1:8788"]',
    'listen = ["127.0.0.1:8788", "nothing"]',
    'listen = ["127.0.0.1:8788", 5]',
    'socket = "api.sock"',
    `socket = "/${'x'.repeat(107)}"`,
    'listen = ["127.0.0.1:1", "127.0.0.1:8787"]',
  ])('is refused as %s', (line) => {
    expect(faultsOf(`${MINIMAL}[local]\n${line}`)).toHaveLength(1);
  });

  test.each(['["127.0.0.1:8788", "0.0.0.0:8788"]', '"127.0.0.1.example.com:8788"'])(
    'may be %s without a key of its own, for the first start makes one',
    (listen) => {
      const file = fileWith(`${MINIMAL}[local]\nlisten = ${listen}`);
      expect(readSetup({ file, env: {} })).not.toHaveProperty('faults');
    },
  );
});

describe('the environment', () => {
  test('wins over the file for every kind of value', () => {
    const config = configOf(`${MINIMAL}[orders]\nlookback_days = 3\n[[branches]]\nexternal_id = "B1"`, {
      TILLSYNC_PLATFORM_BASE_URL: 'http://127.0.0.1:9',
      TILLSYNC_ORDERS_LOOKBACK_DAYS: '5',
      TILLSYNC_WEBHOOK_ENABLED: 'false',
      TILLSYNC_WEBHOOK_BODY_LIMIT: '2048',
      TILLSYNC_ORDERS_FIELDS: '{"order_id":["no"]}',
      TILLSYNC_BRANCHES: '[{"subsidiary_id":"7"},{"external_id":"B2"}]',
    });
    expect(config.platform.baseUrl).toBe('http://127.0.0.1:9');
    expect(config.orders).toMatchObject({ lookbackDays: 5, fields: { orderId: ['no'] } });
    expect(config.webhook).toMatchObject({ enabled: false, bodyLimitBytes: 2048 });
    expect(config.branches).toEqual([{ subsidiaryId: '7' }, { externalId: 'B2' }]);
  });

  test('names the file; the default one may be missing when the environment has what is required', () => {
    const file = fileWith(MINIMAL);
    expect(loadConfig({ env: { TILLSYNC_CONFIG: file } }).platform.baseUrl).toBe('https://api.shop.test');
    const missing = readConfig({ env: { TILLSYNC_CONFIG: '/nowhere/config.toml' } });
    expect(missing).toMatchObject({ faults: [{ origin: '/nowhere/config.toml', found: 'no such file' }] });
  });

  test('is told apart from the file in a fault', () => {
    const faults = faultsOf(MINIMAL, {
      TILLSYNC_ORDERS_LOOKBACK_DAYS: 'many',
      TILLSYNC_BRANCHES: '[{"external_id":""}]',
      TILLSYNC_WEBHOOK_LISTN: '127.0.0.1:1',
      TILLSYNC_PLATFROM_BASE_URL: 'https://x.test',
      TILLSYNC_SOMETHING_ELSE: 'not ours',
    });
    expect(faults).toEqual([
      expect.objectContaining({
        origin: 'environment variable TILLSYNC_WEBHOOK_LISTN',
        suggestion: 'TILLSYNC_WEBHOOK_LISTEN',
      }),
      expect.objectContaining({ suggestion: 'TILLSYNC_PLATFORM_BASE_URL' }),
      expect.objectContaining({
        origin: 'environment variable TILLSYNC_ORDERS_LOOKBACK_DAYS',
        key: 'orders.lookback_days',
        found: '"many"',
      }),
      expect.objectContaining({
        origin: 'environment variable TILLSYNC_BRANCHES',
        key: 'branches[0].external_id',
      }),
    ]);
  });

  test('leaves the names of secrets to the secrets', () => {
    expect(faultsOf(MINIMAL, { TILLSYNC_WEBHOOK_SECRET: 'x', TILLSYNC_LOCAL_API_KEY: 'y' })).toEqual([]);
  });
});

describe('a bad file', () => {
  test('is refused with every fault at once, each with file, key, what was found and what is allowed', () => {
    const file = fileWith(`[platform]
base_url = "ftp://api.shop.test"
timeout = 30
[webhook]
lisen = "127.0.0.1:1"
path = "webhook"
[orders]
poll = "99 * * * *"
timezone = "America/Santigo"
[[branches]]
external_id = "B1"
colour = "red"
[[branches]]
[wehbook]
x = 1`);
    let thrown: unknown;
    try {
      loadConfig({ file, env: {} });
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(TillsyncError);
    const error = thrown as TillsyncError;
    expect(error.code).toBe('config-invalid');
    const lines = error.message.split('\n');
    expect(lines[0]).toBe('The configuration has 9 faults:');
    expect(lines).toHaveLength(10);
    for (const line of lines.slice(1)) expect(line).toContain(`${file}: `);
    for (const part of [
      'wehbook: found an unknown section; allowed: platform, ',
      'did you mean webhook?',
      'webhook.lisen: found an unknown key; allowed: enabled, listen, ',
      'did you mean webhook.listen?',
      'platform.base_url: found "ftp://api.shop.test"; allowed: an address that begins with http://',
      'platform.timeout: found 30; allowed: a duration',
      'webhook.path: found "webhook"; allowed: a path that begins with "/"',
      'orders.poll: found "99 * * * *"; allowed: a cron expression',
      'wrong here: minute 99',
      'orders.timezone: found "America/Santigo"; allowed: an IANA time zone',
      'branches[0].colour: found an unknown key; allowed: subsidiary_id, external_id',
      'branches[1]: found {}; allowed: a branch with subsidiary_id, external_id or both',
    ]) {
      expect(error.message).toContain(part);
    }
    expect(error.hint).toContain('config check');
  });

  test.each([
    ['[hub]\nstore = "B1"', 'hub.store', 'sudo tillsync branch add NAME --here'],
    [
      '[[hooks]]\nname = "printer"\ncommand = ["true"]\nstore = true',
      'hooks[0].store',
      '/etc/tillsync/NAME.toml',
    ],
  ])('%j is refused by name, with what to write instead', (text, key, instead) => {
    expect(faultsOf(`${MINIMAL}${text}`)).toEqual([
      {
        origin: expect.any(String),
        key,
        found: 'a key that is gone',
        allowed: expect.stringContaining(instead),
      },
    ]);
  });

  test.each([
    ['hub.announce', 'link.hub of each branch'],
    ['hub.announce_ca_files', 'link.ca_file at each branch'],
    ['hub.copies_max_bytes', 'is invited again'],
    ['backup.to_hub', 'is invited again'],
  ])('refuses a key that is gone by name, with what to write instead: %s', (key, instead) => {
    const [section = '', name = ''] = key.split('.');
    const read = readConfig({ file: 'c.toml', env: {}, text: `${MINIMAL}\n[${section}]\n${name} = "x"` });
    const allowed = expect.stringContaining(instead);
    expect(read).toMatchObject({ faults: [{ origin: 'c.toml', key, found: 'a key that is gone', allowed }] });
    const variable = `TILLSYNC_${section}_${name}`.toUpperCase();
    const overridden = readConfig({ file: 'c.toml', env: { [variable]: 'x' }, text: MINIMAL });
    const origin = `environment variable ${variable}`;
    expect(overridden).toMatchObject({ faults: [{ origin, found: 'a key that is gone', allowed }] });
  });

  test.each([
    ['[storage]\ndirectory = "data"', 'storage.directory'],
    ['[storage]\ngroup = "two words"', 'storage.group'],
    ['[webhook]\nlisten = "127.0.0.1:99999"', 'webhook.listen'],
    ['[webhook]\nlisten = "::1:8787"', 'webhook.listen'],
    ['[webhook]\nlisten = "300.0.0.1:80"', 'webhook.listen'],
    ['[webhook]\nlisten = 8787', 'webhook.listen'],
    ['[webhook]\ncallback_url = "shop.test/webhook"', 'webhook.callback_url'],
    ['[webhook]\nbody_limit = "1GB"', 'webhook.body_limit'],
    ['[webhook]\nbody_limit = { a = 1 }', 'webhook.body_limit'],
    ['[webhook]\ntls_cert_file = "/c.pem"', 'webhook.tls_key_file'],
    ['[webhook]\ntls_key_file = "/k.pem"', 'webhook.tls_cert_file'],
    ['[orders]\npoll = "* * * *"', 'orders.poll'],
    ['[orders]\npoll = "0 0 30 2 *"', 'orders.poll'],
    ['[orders]\nlookback_days = 1.5', 'orders.lookback_days'],
    ['[orders]\nlookback_days = "1"', 'orders.lookback_days'],
    ['[orders.fields]\norder_idd = ["x"]', 'orders.fields.order_idd'],
    ['[orders.fields]\nitem.colour = ["x"]', 'orders.fields.item.colour'],
    ['[orders.fields]\norder_id = [1]', 'orders.fields.order_id'],
    ['[outbox]\nlinger = "-1s"', 'outbox.linger'],
    ['[outbox]\nlinger = 2024-01-01', 'outbox.linger'],
    ['[limits]\nrequests_per_window = 0', 'limits.requests_per_window'],
    ['[retention]\nevents = "1h"', 'retention.events'],
    ['[retention]\nmax_bytes = "1MiB"', 'retention.max_bytes'],
    ['[retention]\norders = "31d"', 'retention.orders'],
    ['[log]\nlevel = "loud"', 'log.level'],
    ['[local]\nlisten = "127.0.0.1:8787"', 'local.listen'],
    ['[[branches]]\nexternal_id = "1"\n[[branches]]\nexternal_id = "1"', 'branches[1].external_id'],
    ['[branches]\nexternal_id = "1"', 'branches'],
  ])('%j is one fault, of %s', (text, key) => {
    expect(faultsOf(`${MINIMAL}${text}`).map((fault) => fault.key)).toEqual([key]);
  });

  test.each(['webhook = 1', 'webhook = []'])('%s is no section', (text) => {
    expect(faultsOf(`${text}\n${MINIMAL}`)).toMatchObject([
      { key: 'webhook', allowed: 'a section [webhook]' },
    ]);
  });

  test('says of which key a value is nested too deeply', () => {
    const [fault] = faultsOf(`${MINIMAL}[webhook]\nlisten${'.a'.repeat(20_000)} = 1\n`);
    expect(fault).toMatchObject({ key: 'webhook.listen', found: 'a value that is nested too deeply' });
  });

  test('without the platform address says that it is missing', () => {
    expect(faultsOf('')).toMatchObject([{ key: 'platform.base_url', found: 'nothing' }]);
  });

  test('that is no TOML is told by line, without an excerpt that could hold a secret', () => {
    const faults = faultsOf('[platform]\nrefresh_token = planted-secret-value\n');
    expect(faults).toMatchObject([{ allowed: 'a TOML document' }]);
    expect(faults[0]?.found).toContain('at line 2');
    expect(JSON.stringify(faults)).not.toContain('planted');
  });

  test('never shows a secret that strayed into it', () => {
    const jwt = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJl';
    const faults = faultsOf(
      `${MINIMAL}refresh_token = "planted-one"\n[webhook]\nsecret = "planted-two"\npath = "${jwt}"`,
    );
    expect(faults.map((fault) => fault.key).sort()).toEqual([
      'platform.refresh_token',
      'webhook.path',
      'webhook.secret',
    ]);
    expect(JSON.stringify(faults)).not.toMatch(/planted|eyJ/);
  });
});

describe('[shop]', () => {
  const named = (text: string) => shopName(configOf(`${MINIMAL}${text}`));

  test('is called by its name, else as the machine', () => {
    expect(named('[shop]\nname = "Corner"')).toBe('Corner');
    expect(named('')).toBe(hostname());
  });

  test('has a currency that exists, or none', () => {
    expect(configOf(`${MINIMAL}[shop]\ncurrency = "CLP"`).shop.currency).toBe('CLP');
    expect(configOf(MINIMAL).shop.currency).toBe('');
    for (const wrong of ['"clp"', '"$"', '"ZZZ"', '1']) {
      expect(faultsOf(`${MINIMAL}[shop]\ncurrency = ${wrong}`)).toMatchObject([{ key: 'shop.currency' }]);
    }
  });

  test('speaks English, or Spanish where that is set', () => {
    expect(configOf(MINIMAL).shop.language).toBe('en');
    expect(configOf(`${MINIMAL}[shop]\nlanguage = "es"`).shop.language).toBe('es');
    expect(faultsOf(`${MINIMAL}[shop]\nlanguage = "fr"`)).toMatchObject([{ key: 'shop.language' }]);
  });
});
