import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadSecrets } from '../../src/config/secrets.ts';
import { openWorkplace, type Workplace } from '../support/workplace.ts';
import { commandsAt, invoke } from './invoke.ts';

let directory: string;
let credstore: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-key-'));
  credstore = path.join(directory, 'credstore');
});
afterEach(() => rmSync(directory, { recursive: true }));

const key = (word: string, ...words: string[]) => invoke(['key', word, '--credstore', credstore, ...words]);
const mode = (file: string) => (statSync(file).mode & 0o777).toString(8);

it('makes a key that the service can take, prints it once and says what comes next', async () => {
  const { code, stdout, stderr } = await key('create');
  const file = path.join(credstore, 'tillsync.local-api-key');
  expect([code, mode(credstore), mode(file)]).toEqual([0, '700', '600']);
  expect(stdout).toMatch(/^[\w-]{32}\n$/);
  expect(readFileSync(file, 'utf8')).toBe(stdout);
  expect(stderr).toContain('sudo systemctl restart tillsync\n');
  expect(stderr).not.toContain(stdout.trim());
  // The directory has no file `local-api-key`, so the key is read from the variable, without its line break.
  const env = { CREDENTIALS_DIRECTORY: directory, TILLSYNC_LOCAL_API_KEY: stdout };
  expect(loadSecrets(env).localApiKey).toBe(stdout.trim());
});

it('leaves the key that is there unless told otherwise, and shows it', async () => {
  const first = await key('create');
  const again = await key('create');
  expect(again.code).toBe(2);
  expect(again.stderr).toContain('sudo tillsync key show');
  expect(again.stderr + again.stdout).not.toContain(first.stdout.trim());
  expect((await key('show')).stdout).toBe(first.stdout);
  const other = await key('rotate', '--json');
  expect(JSON.parse(other.stdout)).toMatchObject({ made: true, restart: 'sudo systemctl restart tillsync' });
  expect((await key('show')).stdout.trim()).toBe(JSON.parse(other.stdout).key);
  expect(JSON.parse(other.stdout).key).not.toBe(first.stdout.trim());
});

it('makes that of a further company, and none for a file that no service reads', async () => {
  const { stderr } = await key('create', '--config', '/etc/tillsync/second.toml');
  expect(stderr).toContain('sudo systemctl restart tillsync@second\n');
  expect(mode(path.join(credstore, 'tillsync@second.local-api-key'))).toBe('600');
  expect((await key('show')).code).toBe(1);
  const mine = await key('create', '--config', '/home/me/config.toml');
  expect([mine.code, mine.stdout]).toEqual([2, '']);
  expect(mine.stderr).toContain('TILLSYNC_LOCAL_API_KEY');
});

it('says what it takes', async () => {
  // A place that not even root may write to.
  credstore = '/dev/null/credstore';
  const { code, stdout, stderr } = await key('create');
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain('sudo tillsync key');
  const second = await key('create', '--config', '/etc/tillsync/second.toml');
  expect(second.stderr).toContain('sudo tillsync --config /etc/tillsync/second.toml key');
});

describe('keys with a name', () => {
  let place: Workplace;
  let at: ReturnType<typeof commandsAt>;
  beforeEach(async () => {
    place = await openWorkplace(47);
    at = commandsAt(place);
  });
  afterEach(() => place.close());

  it('are made beside the key of all rights alone, shown once, listed without it and withdrawn', async () => {
    const { code, stdout, stderr } = await at.run(['key', 'add', 'till-1', '--may', 'stock, orders']);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^[\w-]{32}\n$/)]);
    expect(stderr).toContain('till-1 may: orders, stock.');
    const key = stdout.trim();
    const again = await at.run(['key', 'add', 'till-1', '--may', 'ack']);
    expect([again.code, again.stdout]).toEqual([2, '']);
    for (const wrong of [['till 1', '--may', 'ack'], ['till-2', '--may', 'everything'], ['till-2']]) {
      expect((await at.run(['key', 'add', ...wrong])).code).toBe(2);
    }
    const listed = await at.json(['key', 'list']);
    expect(listed.document.keys).toMatchObject([
      { name: 'till-1', may: ['orders', 'stock'], withdrawnAt: null },
    ]);
    expect((await at.run(['key', 'list'])).stdout).toMatch(/till-1 +orders, stock/);
    expect((await at.run(['key', 'remove', 'till-1'])).code).toBe(0);
    expect((await at.run(['key', 'remove', 'till-1'])).code).toBe(1);
    const audit = await at.json(['audit']);
    expect(audit.document.audit).toMatchObject([
      { action: 'key.remove', subject: 'till-1' },
      { action: 'key.add', subject: 'till-1', detail: 'orders, stock' },
    ]);
    const files = readdirSync(place.storage, { recursive: true, encoding: 'utf8' });
    expect(files).toContain('state.db');
    for (const file of files.filter((name) => statSync(path.join(place.storage, name)).isFile())) {
      expect(readFileSync(path.join(place.storage, file), 'latin1'), file).not.toContain(key);
    }
  });
});
