/** Tests src/support/encryption.ts and src/support/recovery-phrase.ts. */

import { existsSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { validateMnemonic } from '@scure/bip39';
import { wordlist as english } from '@scure/bip39/wordlists/english.js';
import { wordlist as spanish } from '@scure/bip39/wordlists/spanish.js';
import { Decrypter, generateX25519Identity, identityToRecipient } from 'age-encryption';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { identityOf, newRecoveryPhrase } from '../../src/support/recovery-phrase.ts';
import { observation } from '../orders/open-test-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { commandsAt } from './invoke.ts';

const CUSTOMER = 'Rosa Fuentes Encrypted';

/** Makes a store with one order. */
async function store(more = '', env: Record<string, string> = {}) {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-encrypted-'));
  const storage = path.join(directory, 'storage');
  const config = path.join(directory, 'config.toml');
  writeFileSync(
    config,
    `[platform]\nbase_url = "https://platform.test"\n[storage]\ndirectory = "${storage}"\n${more}`,
  );
  const mirror = openMirror({ path: path.join(storage, 'mirror.db'), clock: systemClock });
  const order = { ...sampleNotification(1), customer: { firstName: CUSTOMER } };
  await mirror.save([{ kind: 'order', observation: observation('poll', order) }]);
  await mirror.close();
  const commands = commandsAt({ env: { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: config, ...env } });
  return { directory, storage, config, file: path.join(directory, 'backup.tar.gz'), ...commands };
}

it('backup --new-phrase shows 24 words once, and only they open this backup and the next', async () => {
  const { storage, config, file, run, json } = await store();
  const { code, document } = await json(['backup', file, '--new-phrase']);
  expect([code, document.file, document.isEncrypted]).toEqual([0, `${file}.age`, true]);
  expect(document.phrase.split(' ')).toHaveLength(24);
  expect(readFileSync(config, 'utf8')).toContain(`recipient = "${document.recipient}"`);
  expect(readFileSync(config, 'utf8')).not.toContain(document.phrase.split(' ').slice(0, 3).join(' '));
  const next = path.join(path.dirname(file), 'next.tar.gz.age');
  expect((await json(['backup', next])).document).not.toHaveProperty('phrase');

  rmSync(storage, { recursive: true });
  for (const each of [`${file}.age`, next]) {
    const closed = await run(['restore', each]);
    expect([closed.code, closed.stderr]).toEqual([2, expect.stringContaining(`restore ${each} --phrase`)]);
    const { phrase: other } = await newRecoveryPhrase('es');
    const wrong = await run(['restore', each, '--phrase'], other);
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('This phrase does not open')]);
    expect(existsSync(storage)).toBe(false);
  }
  const numbered = document.phrase.split(' ').map((word: string, i: number) => `${i + 1}. ${word}`);
  expect((await run(['restore', next, '--phrase'], `${numbered.join('\n')}\n`)).code).toBe(0);
  expect(
    (await json(['order', 'list'])).document.orders ?? (await json(['order', 'list'])).document,
  ).toHaveLength(1);
});

it('a backup for a recipient is read by the program age', async () => {
  const identity = await generateX25519Identity();
  const forOne = await store(`[backup]\nrecipient = "${await identityToRecipient(identity)}"\n`);
  const made = await forOne.json(['backup', forOne.file]);
  expect(made.document.warnings).toEqual([expect.stringContaining('Not signed')]);
  // Does what `age -d` does.
  const decrypter = new Decrypter();
  decrypter.addIdentity(identity);
  writeFileSync(forOne.file, await decrypter.decrypt(readFileSync(`${forOne.file}.age`)));
  expect((await forOne.run(['restore', forOne.file, '--check'])).code).toBe(0);
  const refused = await forOne.run(['restore', `${forOne.file}.age`, '--check', '--phrase'], identity);
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('is not signed')]);
});

// Runs only with the bulk tests, because scrypt runs four times and takes half a second of CPU time each.
it('a backup for a passphrase is read by the machine that has it', { tags: ['bulk'] }, async () => {
  const TILLSYNC_BACKUP_PASSPHRASE = 'a-passphrase-of-some-length';
  const known = await store('', { TILLSYNC_BACKUP_PASSPHRASE });
  expect((await known.run(['backup', known.file])).code).toBe(0);
  expect((await known.run(['restore', `${known.file}.age`, '--check'])).code).toBe(0);
  const elsewhere = await store();
  const { run } = elsewhere;
  expect((await run(['restore', `${known.file}.age`, '--check'])).code).toBe(2);
  expect(
    (await run(['restore', `${known.file}.age`, '--check', '--phrase'], TILLSYNC_BACKUP_PASSPHRASE)).code,
  ).toBe(0);
});

it('nothing of a customer can be read in an encrypted backup', async () => {
  const { file, json } = await store();
  const { document } = await json(['backup', file, '--new-phrase']);
  const bytes = readFileSync(`${file}.age`);
  expect(bytes.includes(CUSTOMER)).toBe(false);
  expect(bytes.includes(document.phrase.split(' ')[0] ?? '')).toBe(false);
});

it('one that is cut or altered at any place is refused, and what is here stays', async () => {
  const { storage, file, run, json } = await store();
  const { document } = await json(['backup', file, '--new-phrase']);
  const whole = readFileSync(`${file}.age`);
  const mirror = readFileSync(path.join(storage, 'mirror.db'));
  const damaged = path.join(path.dirname(file), 'damaged.age');
  for (const at of [30, 150, 400, Math.floor(whole.length / 2), whole.length - 1]) {
    writeFileSync(damaged, whole);
    truncateSync(damaged, at);
    expect((await run(['restore', damaged, '--phrase'], document.phrase)).code, `cut at ${at}`).not.toBe(0);
    const altered = Buffer.from(whole);
    altered[at] = (altered[at] ?? 0) ^ 1;
    writeFileSync(damaged, altered);
    const { code, stderr } = await run(['restore', damaged, '--phrase'], document.phrase);
    expect(code, `altered at ${at}`).not.toBe(0);
    expect(stderr).toMatch(/Nothing was changed/);
  }
  expect(readFileSync(path.join(storage, 'mirror.db')).equals(mirror)).toBe(true);
});

it('a recipient that is none is refused by name', async () => {
  const broken = await store(`[backup]\nrecipient = "age1${'q'.repeat(58)}"\n`);
  const { code, stderr } = await broken.run(['backup', broken.file]);
  expect([code, stderr]).toEqual([2, expect.stringContaining('backup.recipient')]);
  expect(existsSync(`${broken.file}.age`)).toBe(false);
  const short = await store('[backup]\nrecipient = "age1abc"\n');
  expect((await short.run(['config', 'check'])).stderr).toContain('backup.recipient');
});

it.each(['en', 'es'] as const)(
  'a phrase in %s is known without accents, in capitals and by the first letters',
  async (language) => {
    await fc.assert(
      fc.asyncProperty(fc.boolean(), fc.integer({ min: 4, max: 8 }), async (isUpper, letters) => {
        const { phrase, recipient } = await newRecoveryPhrase(language);
        const plain = phrase.normalize('NFD').replace(/\p{M}/gu, '');
        const short = plain
          .split(' ')
          .map((word) => word.slice(0, letters))
          .join('  ');
        const identity = identityOf(isUpper ? short.toUpperCase() : short) ?? '';
        expect(await identityToRecipient(identity)).toBe(recipient);
      }),
      { numRuns: 10 },
    );
  },
);

it('a phrase whose words mostly begin as English ones do is read by its own language', async () => {
  const starts = new Set(english.map((word) => word.slice(0, 4)));
  const plain = (word: string) => word.normalize('NFD').replace(/\p{M}/gu, '');
  const shared = spanish.filter((word) => starts.has(plain(word).slice(0, 4)));
  // The last word carries the checksum, so it is the one that varies.
  const beginning = [...shared.slice(0, 22), 'zurdo'];
  const last = spanish.find((word) => validateMnemonic([...beginning, word].join(' '), spanish));
  expect(identityOf([...beginning, last].join(' '))).toMatch(/^AGE-SECRET-KEY-/);
});

it('a phrase with a mistake says which word, and one of other length is a passphrase', async () => {
  const { phrase } = await newRecoveryPhrase('es');
  const words = phrase.split(' ');
  expect(() => identityOf(words.with(6, 'zzzz').join(' '))).toThrow('Word 7 is in no recovery phrase.');
  const [first = '', second = ''] = words;
  if (first !== second) {
    expect(() => identityOf([second, first, ...words.slice(2)].join(' '))).toThrow(
      'not all of them in this order',
    );
  }
  expect(identityOf(words.slice(1).join(' '))).toBeUndefined();
});
