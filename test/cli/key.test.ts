import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { loadSecrets } from '../../src/config/secrets.ts';
import { invoke } from './invoke.ts';

let directory: string;
let credstore: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-key-'));
  credstore = path.join(directory, 'credstore');
});
afterEach(() => rmSync(directory, { recursive: true }));

const key = (...words: string[]) => invoke(['key', '--credstore', credstore, ...words]);
const mode = (file: string) => (statSync(file).mode & 0o777).toString(8);

it('makes a key that the service can take, prints it once and says what comes next', async () => {
  const { code, stdout, stderr } = await key();
  const file = path.join(credstore, 'tillsync.local-api-key');
  expect([code, mode(credstore), mode(file)]).toEqual([0, '700', '600']);
  expect(stdout).toMatch(/^[\w-]{32}\n$/);
  expect(readFileSync(file, 'utf8')).toBe(stdout);
  expect(stderr).toContain('sudo systemctl restart tillsync\n');
  expect(stderr).not.toContain(stdout.trim());
  // As systemd hands it over.
  const env = { CREDENTIALS_DIRECTORY: directory, TILLSYNC_LOCAL_API_KEY: stdout };
  expect(loadSecrets(env).localApiKey).toBe(stdout.trim());
});

it('leaves the key that is there unless told otherwise, and shows it', async () => {
  const first = await key();
  const again = await key();
  expect(again.code).toBe(2);
  expect(again.stderr).toContain('sudo tillsync key --show');
  expect(again.stderr + again.stdout).not.toContain(first.stdout.trim());
  expect((await key('--show')).stdout).toBe(first.stdout);
  const other = await key('--new', '--json');
  expect(JSON.parse(other.stdout)).toMatchObject({ made: true, restart: 'sudo systemctl restart tillsync' });
  expect((await key('--show')).stdout.trim()).toBe(JSON.parse(other.stdout).key);
  expect(JSON.parse(other.stdout).key).not.toBe(first.stdout.trim());
});

it('makes that of a further company, and none for a file that no service reads', async () => {
  const { stderr } = await key('--config', '/etc/tillsync/second.toml');
  expect(stderr).toContain('sudo systemctl restart tillsync@second\n');
  expect(mode(path.join(credstore, 'tillsync@second.local-api-key'))).toBe('600');
  expect((await key('--show')).code).toBe(1);
  const mine = await key('--config', '/home/me/config.toml');
  expect([mine.code, mine.stdout]).toEqual([2, '']);
  expect(mine.stderr).toContain('TILLSYNC_LOCAL_API_KEY');
});

it('says what it takes', async () => {
  // A place that not even root may write to.
  credstore = '/dev/null/credstore';
  const { code, stdout, stderr } = await key();
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain('sudo tillsync key');
  const second = await key('--config', '/etc/tillsync/second.toml');
  expect(second.stderr).toContain('sudo tillsync --config /etc/tillsync/second.toml key');
});
