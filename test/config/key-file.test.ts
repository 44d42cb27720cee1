import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ensureKey, keyFault, keyFile, mainKey, pageLink, storedKey } from '../../src/config/key-file.ts';
import { silentLog } from '../../src/core/log.ts';

let directory: string;
let file: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-key-'));
  file = keyFile(directory);
});
afterEach(() => rmSync(directory, { recursive: true }));

const modeOf = () => (statSync(file).mode & 0o7777).toString(8);

it('is made once, whole, for its group to read, and is read again later', () => {
  const gid = process.getgid?.() ?? 0;
  const made = ensureKey(directory, String(gid), silentLog);
  expect(made).toMatch(/^[\w-]{32}$/);
  expect([modeOf(), statSync(file).gid, readFileSync(file, 'utf8')]).toEqual(['640', gid, `${made}\n`]);
  expect(readdirSync(directory)).toEqual(['api-key']);
  expect([ensureKey(directory, '', silentLog), storedKey(directory)]).toEqual([made, made]);
});

it('that every user could read is closed again, which the log tells without the key', () => {
  const made = ensureKey(directory, '', silentLog);
  const warned: string[] = [];
  const log = { ...silentLog, warn: (...words: unknown[]) => void warned.push(JSON.stringify(words)) };
  chmodSync(file, 0o664);
  expect(ensureKey(directory, '', log)).toBe(made);
  expect(modeOf()).toBe('640');
  expect(warned.join()).toContain(file);
  expect(warned.join()).not.toContain(made);
  // An operator may keep it from the group.
  chmodSync(file, 0o600);
  ensureKey(directory, '', log);
  expect([modeOf(), warned.length]).toEqual(['600', 1]);
});

it.each<[string, () => void]>([
  ['is a symbolic link', () => symlinkSync('/etc/hostname', file)],
  ['is no file', () => void execFileSync('mkfifo', [file])],
  ['has no key', () => writeFileSync(file, '', { mode: 0o640 })],
  ['has no key', () => writeFileSync(file, 'two\nlines\n', { mode: 0o640 })],
])('is refused if the path %s', (why, make) => {
  make();
  expect(() => ensureKey(directory, '', silentLog)).toThrow(
    expect.objectContaining({ code: 'config-invalid', message: expect.stringContaining(`but it ${why}`) }),
  );
  expect(storedKey(directory)).toBeUndefined();
  expect(keyFault(directory)).toContain(why);
});

it('is made only if no other key is configured, and is not accepted beside one', () => {
  const store = { directory, group: '' };
  expect(mainKey(store, 'configured', silentLog)).toEqual({ apiKey: 'configured' });
  expect(readdirSync(directory)).toEqual([]);
  const made = mainKey(store, undefined, silentLog);
  expect(made).toEqual({ apiKey: storedKey(directory), keyFile: file });
  // The configuration that was read has the key of the file.
  expect(mainKey(store, made.apiKey, silentLog)).toEqual(made);
  expect(mainKey(store, 'configured', silentLog)).toEqual({ apiKey: 'configured' });
  expect(storedKey(directory)).toBe(made.apiKey);
});

it('stands behind # in the address of the page', () => {
  expect(pageLink('http://127.0.0.1:8788', 'a&b#c')).toBe('http://127.0.0.1:8788/#key=a%26b%23c');
  expect(pageLink('http://127.0.0.1:8788', undefined)).toBe('http://127.0.0.1:8788/');
});
