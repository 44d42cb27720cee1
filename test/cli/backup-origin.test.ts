/** Tests src/support/backup-origin.ts and src/support/restore.ts: forged backups, and what a restored configuration may. */

import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { Decrypter, Encrypter } from 'age-encryption';
import Database from 'better-sqlite3';
import { packTar, unpackTar } from 'modern-tar';
import { expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { identityOf, newRecoveryPhrase } from '../../src/support/recovery-phrase.ts';
import { observation } from '../orders/open-test-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { keepSigningKey } from '../support/signing-key.ts';
import { commandsAt } from './invoke.ts';

const WHOLE = 'tillsync-till-20260301T080000Z.tar.gz';
const DIFFERENTIAL = 'tillsync-till-20260301T080000Z.differential.tar.gz';
const SINCE = '2026-03-01T07:50:00Z';
const MINE = await newRecoveryPhrase('en');
const OTHER = await newRecoveryPhrase('en');

/** Makes a store with one order, whose backups `made` can open, or that are plain. */
async function store(made?: typeof MINE, more = '') {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-origin-'));
  const storage = path.join(directory, 'storage');
  const backups = path.join(directory, 'backups');
  const config = path.join(directory, 'config.toml');
  mkdirSync(backups);
  const recipient = made ? `[backup]\nrecipient = "${made.recipient}"\n` : '';
  writeFileSync(
    config,
    `[platform]\nbase_url = "https://platform.test"\n[storage]\ndirectory = "${storage}"\n${recipient}${more}`,
  );
  const mirror = openMirror({ path: path.join(storage, 'mirror.db'), clock: systemClock });
  await mirror.save([{ kind: 'order', observation: observation('poll', sampleNotification(1)) }]);
  await mirror.close();
  if (made) keepSigningKey(storage, made.signingKey);
  const commands = commandsAt({ env: { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: config } });
  return { directory, storage, backups, config, at: (name: string) => path.join(backups, name), ...commands };
}

type Entry = { header: { name: string; size: number }; data?: Uint8Array };

/** Packs an archive again after a change to its files. */
async function repacked(archive: Uint8Array, change: (entries: Entry[]) => Entry[]): Promise<Buffer> {
  const entries = (await unpackTar(gunzipSync(archive))) as unknown as Entry[];
  const changed = change(entries).map(({ header, data = new Uint8Array() }) => ({
    header: { ...header, size: data.length },
    body: data,
  }));
  return gzipSync(await packTar(changed));
}

/** Changes the files of an encrypted backup as one can who knows the recipient, and the phrase for the old content. */
async function reencrypted(file: string, change: (entries: Entry[]) => Entry[]): Promise<void> {
  const decrypter = new Decrypter();
  decrypter.addIdentity(identityOf(MINE.phrase) ?? '');
  const forged = await repacked(await decrypter.decrypt(readFileSync(file)), change);
  const encrypter = new Encrypter();
  encrypter.addRecipient(MINE.recipient);
  writeFileSync(file, await encrypter.encrypt(forged));
}

const text = ({ data }: Entry) => Buffer.from(data ?? []).toString('utf8');
const edited = (name: string, edit: (text: string) => string) => (entries: Entry[]) =>
  entries.map((entry) =>
    entry.header.name === name ? { ...entry, data: Buffer.from(edit(text(entry))) } : entry,
  );

it('a signed backup with its differential one is taken, and the next machine signs its own', async () => {
  const { storage, backups, at, json, run } = await store(MINE);
  expect((await json(['backup', at(WHOLE)])).document.warnings).toEqual([]);
  expect((await json(['backup', at(DIFFERENTIAL), '--since', SINCE])).code).toBe(0);
  rmSync(storage, { recursive: true });
  const restored = await run(['restore', backups, '--phrase'], MINE.phrase);
  expect([restored.code, restored.stderr]).toEqual([0, '']);
  const again = at('tillsync-till-20260302T080000Z.tar.gz');
  expect((await json(['backup', again])).document.warnings).toEqual([]);
  expect((await run(['restore', `${again}.age`, '--check', '--phrase'], MINE.phrase)).code).toBe(0);
  expect(statSync(path.join(storage, 'state.db')).mode & 0o077).toBe(0);
});

it('backup --new-phrase stores the key of the phrase, so that this backup and the next are signed', async () => {
  const { at, json, run } = await store();
  const { document } = await json(['backup', at('first.tar.gz'), '--new-phrase']);
  await json(['backup', at('second.tar.gz')]);
  for (const name of ['first.tar.gz.age', 'second.tar.gz.age'])
    expect((await run(['restore', at(name), '--check', '--phrase'], document.phrase)).code).toBe(0);
});

/** What somebody can put where backups lie, and the words that refuse it. */
const FORGED: [string, string, (place: Awaited<ReturnType<typeof store>>) => Promise<unknown>][] = [
  [
    'a plain archive whose name says encrypted',
    'is not encrypted',
    async ({ at }) => {
      const plain = await store();
      await plain.run(['backup', plain.at(WHOLE)]);
      renameSync(plain.at(WHOLE), at(`${WHOLE}.age`));
    },
  ],
  [
    'a plain archive, newer than the encrypted one',
    'is not encrypted',
    async ({ at }) => {
      const plain = await store();
      await plain.run(['backup', plain.at(WHOLE)]);
      renameSync(plain.at(WHOLE), at('tillsync-till-20260302T080000Z.tar.gz'));
    },
  ],
  [
    'a plain differential backup beside it',
    'is not encrypted',
    async ({ at }) => {
      const plain = await store();
      await plain.run(['backup', plain.at(DIFFERENTIAL), '--since', SINCE]);
      renameSync(plain.at(DIFFERENTIAL), at(DIFFERENTIAL));
    },
  ],
  [
    'one for another phrase',
    'This phrase does not open',
    async ({ at }) => {
      const other = await store(OTHER);
      await other.run(['backup', other.at(WHOLE)]);
      renameSync(other.at(`${WHOLE}.age`), at(`${WHOLE}.age`));
    },
  ],
  [
    'one for this phrase, signed by another',
    'was not signed by a machine that has the key of this phrase',
    async ({ at }) => {
      const other = await store(MINE);
      keepSigningKey(other.storage, { ...OTHER.signingKey, recipient: MINE.recipient });
      await other.run(['backup', other.at(WHOLE)]);
      renameSync(other.at(`${WHOLE}.age`), at(`${WHOLE}.age`));
    },
  ],
  [
    'one for this phrase without a signature',
    'is not signed',
    ({ at }) =>
      reencrypted(at(`${WHOLE}.age`), (all) => all.filter(({ header }) => header.name !== 'signature')),
  ],
  [
    'a differential one without a signature',
    'is not signed',
    ({ at }) =>
      reencrypted(at(`${DIFFERENTIAL}.age`), (all) =>
        all.filter(({ header }) => header.name !== 'signature'),
      ),
  ],
  [
    'a differential one with a changed acknowledgement',
    'was not signed by a machine that has the key of this phrase',
    ({ at }) =>
      reencrypted(
        at(`${DIFFERENTIAL}.age`),
        edited('differential.json', (json) =>
          json.replace('"acks":[]', '"acks":[{"orderId":"paid","seq":1,"without":null}]'),
        ),
      ),
  ],
  [
    'one with a changed file',
    'config.toml in it was altered',
    ({ at }) =>
      reencrypted(
        at(`${WHOLE}.age`),
        edited('config.toml', (toml) => toml.replace('platform.test', 'pIatform.test')),
      ),
  ],
  [
    'one with a changed list',
    'was not signed by a machine that has the key of this phrase',
    ({ at }) =>
      reencrypted(
        at(`${WHOLE}.age`),
        edited('manifest.json', (json) =>
          json.replace('https://', 'http://').replace('"orders": 1', '"orders": 2'),
        ),
      ),
  ],
  [
    'one of another shop of the same phrase under the name of this one',
    'was made under another name: tillsync-bar-20260301T080000Z.tar.gz.age',
    async ({ at }) => {
      const bar = await store(MINE);
      await bar.run(['backup', bar.at('tillsync-bar-20260301T080000Z.tar.gz')]);
      renameSync(bar.at('tillsync-bar-20260301T080000Z.tar.gz.age'), at(`${WHOLE}.age`));
    },
  ],
  [
    'an old differential one under the name of a newer',
    `was made under another name: ${DIFFERENTIAL}.age`,
    async ({ at }) =>
      copyFileSync(at(`${DIFFERENTIAL}.age`), at('tillsync-till-20260303T080000Z.differential.tar.gz.age')),
  ],
];

it.each(FORGED)('%s is refused in a sentence, and nothing is touched', async (_what, words, forge) => {
  const place = await store(MINE);
  const { storage, backups, at, run } = place;
  await run(['backup', at(WHOLE)]);
  await run(['backup', at(DIFFERENTIAL), '--since', SINCE]);
  expect(readdirSync(backups).sort()).toEqual([`${DIFFERENTIAL}.age`, `${WHOLE}.age`]);
  await forge(place);
  rmSync(storage, { recursive: true });
  for (const more of [[], ['--check']]) {
    const { code, stderr } = await run(['restore', backups, '--phrase', ...more], MINE.phrase);
    expect(code).not.toBe(0);
    expect(stderr).toContain(words);
    expect(stderr).toContain('Nothing was changed.');
  }
  expect(existsSync(storage)).toBe(false);
});

it('a plain file named .age is refused without --phrase too', async () => {
  const { at, run } = await store();
  await run(['backup', at(WHOLE)]);
  renameSync(at(WHOLE), at(`${WHOLE}.age`));
  const { code, stderr } = await run(['restore', at(`${WHOLE}.age`)]);
  expect([code, stderr]).toEqual([2, expect.stringContaining('is not encrypted')]);
});

const HOOK =
  '[[hooks]]\nname = "evil"\ncommand = ["/bin/sh", "-c", "id"]\n[alarms]\nurl = "https://listen.test/hidden-77"\n';

it('what a configuration from a backup runs and sends is told, and used only where a person says so', async () => {
  const { storage, config, at, run } = await store(undefined, HOOK);
  await run(['backup', at(WHOLE)]);
  rmSync(storage, { recursive: true });
  rmSync(config);
  const asked = await run(['restore', at(WHOLE)]);
  expect(asked.code).toBe(2);
  for (const line of [
    'runs hook evil: /bin/sh -c id',
    'sends alarms.url: https://listen.test',
    'calls platform.base_url: https://platform.test',
    `writes storage.directory: ${storage}`,
  ])
    expect(asked.stderr).toContain(line);
  expect(asked.stderr).not.toContain('hidden-77');
  expect(asked.stderr).toContain('Nothing was done yet.');
  expect([existsSync(storage), existsSync(config)]).toEqual([false, false]);
  expect((await run(['restore', at(WHOLE), '--yes'])).code).toBe(0);
  expect(readFileSync(config, 'utf8')).toContain('evil');
  // A configuration that does nothing new needs no question.
  writeFileSync(config, `${readFileSync(config, 'utf8')}# a remark\n`);
  expect((await run(['restore', at(WHOLE), '--with-config'])).code).toBe(0);
  // Another place on a host that is known is a new one.
  writeFileSync(config, readFileSync(config, 'utf8').replace('hidden-77', 'another'));
  const again = await run(['restore', at(WHOLE), '--with-config']);
  expect(again.code).toBe(2);
  expect(again.stderr).toContain('  sends alarms.url: https://listen.test\n');
  expect(again.stderr).not.toContain('runs hook');
});

it('a configuration from a backup that sends all calls through a proxy is asked for', async () => {
  const { storage, config, at, run } = await store();
  const way = '[platform]\nproxy = "http://proxy.test:3128"\nca_file = "/tmp/authority.pem"\n';
  writeFileSync(config, readFileSync(config, 'utf8').replace('[platform]\n', way));
  await run(['backup', at(WHOLE)]);
  rmSync(storage, { recursive: true });
  rmSync(config);
  const asked = await run(['restore', at(WHOLE)]);
  expect(asked.code).toBe(2);
  expect(asked.stderr).toContain('calls platform.proxy: http://proxy.test:3128');
  expect(asked.stderr).toContain('trusts platform.ca_file: /tmp/authority.pem');
});

it.each(['a file of somebody in it', 'no directory'])(
  'a storage directory of a backup with %s is refused, and stays as it is',
  async (what) => {
    const { storage, config, at, run } = await store();
    await run(['backup', at(WHOLE)]);
    rmSync(storage, { recursive: true });
    rmSync(config);
    if (what === 'no directory') writeFileSync(storage, '');
    else {
      mkdirSync(storage);
      writeFileSync(path.join(storage, 'crontab'), 'mine');
    }
    chmodSync(storage, 0o700);
    const { gid, mode } = statSync(storage);
    const { code, stderr } = await run(['restore', at(WHOLE), '--yes']);
    expect([code, stderr]).toEqual([2, expect.stringContaining(`names the storage directory ${storage}`)]);
    expect(statSync(storage)).toMatchObject({ gid, mode });
    expect(existsSync(config)).toBe(false);
  },
);

it.skipIf(process.getuid?.() !== 0)('a storage directory of another user is refused', async () => {
  const { chownSync } = await import('node:fs');
  const { storage, config, at, run } = await store();
  await run(['backup', at(WHOLE)]);
  rmSync(storage, { recursive: true });
  rmSync(config);
  mkdirSync(storage);
  chownSync(storage, 12_345, 12_345);
  const { code, stderr } = await run(['restore', at(WHOLE), '--yes']);
  expect([code, stderr]).toEqual([2, expect.stringContaining('which belongs to the user 12345')]);
  expect(statSync(storage)).toMatchObject({ uid: 12_345, gid: 12_345 });
});

it('a differential backup whose feed stands millions further is refused', async () => {
  const { storage, backups, at, run } = await store();
  await run(['backup', at(WHOLE)]);
  await run(['backup', at(DIFFERENTIAL), '--since', SINCE]);
  const mirror = readFileSync(path.join(storage, 'mirror.db'));
  const jump = edited('differential.json', (json) => json.replace('"newestSeq":1', '"newestSeq":900000000'));
  writeFileSync(at(DIFFERENTIAL), await repacked(readFileSync(at(DIFFERENTIAL)), jump));
  const { code, stderr } = await run(['restore', backups]);
  expect([code, stderr]).toEqual([1, expect.stringContaining('its order feed stands at 900000000')]);
  expect(readFileSync(path.join(storage, 'mirror.db')).equals(mirror)).toBe(true);
});

it('a backup whose mirror stands elsewhere in the feed than its list says is refused', async () => {
  const { storage, at, run } = await store();
  const db = new Database(path.join(storage, 'mirror.db'));
  db.exec("UPDATE sqlite_sequence SET seq = 9000000000 WHERE name = 'order_events'");
  db.close();
  await run(['backup', at(WHOLE)]);
  const absurd = await run(['restore', at(WHOLE)]);
  expect(absurd.stderr).toContain('its order feed stands at 9000000000');
  const lie = edited('manifest.json', (json) => json.replace('"newestSeq": 9000000000', '"newestSeq": 1'));
  writeFileSync(at(WHOLE), await repacked(readFileSync(at(WHOLE)), lie));
  const { code, stderr } = await run(['restore', at(WHOLE)]);
  expect([code, stderr]).toEqual([1, expect.stringContaining('its mirror is not what its list says')]);
});
