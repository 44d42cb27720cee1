/** Tests src/support/bundle/bundle.ts, src/support/bundle/sections.ts and src/cli/bundle.ts. */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import Database from 'better-sqlite3';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Redactor } from '../../src/support/bundle/redact.ts';
import { invoke } from '../cli/invoke.ts';
import { FakeClock } from '../support/fake-clock.ts';
import {
  bundle,
  CONFIG,
  CREDENTIALS,
  CUSTOMER,
  customerNeedles,
  DIRECTORY,
  everything,
  found,
  LOG,
  NAMED_SECRETS,
  plantMirror,
  plantState,
  SECRETS,
  STORAGE,
  secretNeedles,
} from './bundle-place.ts';

beforeAll(async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 4, 5));
  for (const directory of [STORAGE, CREDENTIALS]) mkdirSync(directory);
  writeFileSync(path.join(CREDENTIALS, 'refresh-token'), `${SECRETS.handedInRefresh}\n`);
  writeFileSync(
    CONFIG,
    `[platform]\nbase_url = "https://platform.test"\n[storage]\ndirectory = "${STORAGE}"\n[webhook]\n` +
      `callback_url = "https://h.example/in?key=${SECRETS.urlQuery}"\n# https://shop:${SECRETS.urlPassword}@h.example\n`,
  );
  await plantMirror(clock);
  plantState(clock);
  writeFileSync(path.join(STORAGE, `copy-${SECRETS.localApiKey}-${CUSTOMER.customerFirstName}.txt`), 'x');
  const line = JSON.stringify({ level: 30, msg: everything(), headers: NAMED_SECRETS, customer: CUSTOMER });
  writeFileSync(LOG, `${line}\n${everything()}\n{"level":30,"msg":"kept words of the log"}\n`);
});
afterAll(() => rmSync(DIRECTORY, { recursive: true, force: true }));

describe('bundle', () => {
  it('holds no secret and no customer, wherever they were', async () => {
    const { searched, read, document, file } = await bundle();
    expect(found(searched, secretNeedles)).toEqual([]);
    expect(found(searched, customerNeedles)).toEqual([]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    // The bundle still has enough content.
    expect(read('log-1.txt')).toContain('kept words of the log');
    expect(read('orders.ndjson')).toContain('order-kept-1');
    const addresses = ['"https://platform.test/"', '"https://h.example/in?key='];
    expect(found(searched, addresses)).toEqual(addresses);
    expect(JSON.parse(read('state.json')).auth).toMatchObject({ state: 'ok', generation: 2 });
    expect(JSON.parse(read('quarantine.ndjson')).structure).toMatchObject({
      total: 'whole number',
      customer: { customerFirstName: `text of ${CUSTOMER.customerFirstName.length}` },
    });
    expect(JSON.parse(read('outbox.ndjson'))).toMatchObject({ state: 'rejected', attempts: 0 });
    expect(document.leftOut.length).toBeGreaterThanOrEqual(2);
    expect(read('README.txt')).toContain('Left out');
    const notRead = document.files.filter(({ fault }: { fault: string | null }) => fault !== null);
    expect(notRead).toMatchObject([{ name: 'inbox.json', fault: expect.stringContaining('not-found') }]);
    expect(JSON.parse(read('verdict.json')).verdict.level).toBe('red');
  });

  it('holds customers on request, and still no secret', async () => {
    const { searched, read } = await bundle('--with-customer-data');
    expect(found(searched, secretNeedles)).toEqual([]);
    expect(read('orders.ndjson')).toContain(CUSTOMER.customerFirstName);
  });

  it('knows a token that was handed in long ago by its fingerprint', async () => {
    const db = new Database(path.join(STORAGE, 'state.db'), { readonly: true });
    const prints = db.prepare<[], string>('SELECT fingerprint FROM handed_in').pluck().all();
    db.close();
    expect(prints).toContain(createHash('sha256').update(SECRETS.oldRefresh).digest('hex'));
    const { read } = await bundle();
    expect(read('log-1.txt')).not.toContain(SECRETS.oldRefresh);
  });

  it('tells what cannot be read, and gathers the rest', async () => {
    const place = path.join(DIRECTORY, 'trouble');
    const at = (name: string) => path.join(place, name);
    mkdirSync(place);
    let gathered = 0;
    const gather = async (own: Record<string, string>) => {
      const file = at(`bundle-${++gathered}.tar.gz`);
      const result = await invoke(['bundle', file, '--json'], {
        env: {
          TILLSYNC_STORAGE_DIRECTORY: place,
          TILLSYNC_PLATFORM_BASE_URL: 'https://platform.test',
          ...own,
        },
      });
      expect(result.code, result.stderr).toBe(0);
      const read = (name: string) =>
        execFileSync('tar', ['-xzOf', file, `tillsync-bundle/${name}`], { encoding: 'utf8' });
      const all = gunzipSync(readFileSync(file)).toString('utf8') + result.stdout + result.stderr;
      return { document: JSON.parse(result.stdout), read, all };
    };
    const empty = await gather({});
    expect(empty.read('mirror.json')).toContain('There is no');
    expect(empty.read('versions.json')).toContain(process.version);

    const broken = at('broken.toml');
    writeFileSync(
      broken,
      `[platform\nrefresh_token = "stray-Ee28"\n# https://u:pw-Ff39@h.example/?k=qq-Gg40\n`,
    );
    const faulty = await gather({ TILLSYNC_CONFIG: broken });
    expect(JSON.parse(faulty.read('configuration.json')).faults.length).toBeGreaterThan(0);
    expect(found([faulty.all], ['stray-Ee28', 'pw-Ff39', 'qq-Gg40'])).toEqual([]);

    writeFileSync(at('mirror.db'), 'this is no database, although it has the name of one. '.repeat(200));
    const corrupt = await gather({});
    expect(JSON.parse(corrupt.read('mirror.json')).couldNotBeRead).toContain('storage-corrupt');
    expect(corrupt.document.leftOut.join()).toContain('mirror.json');
    rmSync(at('mirror.db'));

    const newer = new Database(at('mirror.db'));
    newer.exec('CREATE TABLE _schema_migrations (number INTEGER, name TEXT); CREATE TABLE _orders (id)');
    newer.exec("INSERT INTO _schema_migrations VALUES (1, '0001-orders'), (99, '0099-of-tomorrow')");
    newer.close();
    const tomorrow = await gather({});
    expect(JSON.parse(tomorrow.read('mirror.json'))).toMatchObject({
      quickCheck: 'ok',
      rows: { _orders: 0 },
      schemaSteps: [{}, { name: '0099-of-tomorrow' }],
    });
  });

  it('hides a secret in any clothes', () => {
    const secret = fc.stringMatching(/^[!-~]{8,40}$/);
    const clothes = fc.constantFrom<(secret: string) => string>(
      (text) => text,
      (text) => JSON.stringify({ a: JSON.stringify({ b: text }) }),
      (text) => encodeURIComponent(text),
      (text) => Buffer.from(text).toString('hex'),
      (text) => Buffer.from(`user:${text}`).toString('base64'),
      (text) => Buffer.from(`{"t":"${text}"}`).toString('base64url'),
    );
    fc.assert(
      fc.property(secret, clothes, fc.string(), fc.string(), (text, dress, before, after) => {
        const redactor = new Redactor({ secrets: [text], fingerprints: new Set() });
        const told = redactor.known(redactor.text(`${before} ${dress(text)} ${after}`));
        return ![text, dress(text)].some((form) => told.includes(form)) && !redactor.finds(told);
      }),
      { seed: 11, numRuns: 300 },
    );
  });
});
