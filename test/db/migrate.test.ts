import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import Database from 'better-sqlite3';
import { beforeEach, expect, test } from 'vitest';
import { migrate } from '../../src/db/migrate.ts';
import { openDatabase } from '../../src/db/sqlite.ts';

let dir: string;
let url: URL;
let path: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'tillsync-migrate-'));
  url = pathToFileURL(`${dir}/`);
  path = join(dir, 'a.db');
  writeFileSync(join(dir, '0001-first.sql'), 'CREATE TABLE a (x) STRICT;'.replace('(x)', '(x TEXT)'));
});

const open = () => openDatabase({ path, mode: 0o640, busyTimeoutMs: 50, pragmas: { journal_mode: 'wal' } });
const tables = (db: ReturnType<typeof open>) =>
  db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").pluck().all();

function codeOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return 'none';
}

test('a new database gets all steps, an old one the missing ones, after a copy', () => {
  const db = open();
  const copy = join(dir, 'a.db.old');
  migrate(db, { directory: url, name: 'a.db', keepCopyAt: copy });
  expect(tables(db)).toEqual(['_schema_migrations', 'a']);
  expect(existsSync(copy)).toBe(false);
  db.exec("INSERT INTO a VALUES ('kept')");
  writeFileSync(join(dir, '0002-second.sql'), 'CREATE TABLE b (x); DROP TABLE a;');
  const looking = openDatabase({ path, mode: 0o640, busyTimeoutMs: 50, readonly: true });
  const look = () => migrate(looking, { directory: url, name: 'a.db', keepCopyAt: copy, readonly: true });
  expect(codeOf(look)).toBe('storage-readonly');
  expect(existsSync(copy)).toBe(false);
  migrate(db, { directory: url, name: 'a.db', keepCopyAt: copy });
  expect(codeOf(look)).toBe('none');
  expect(tables(db)).toEqual(['_schema_migrations', 'b']);
  expect(db.pragma('user_version', { simple: true })).toBe(2);
  expect(statSync(copy).mode & 0o777).toBe(0o640);
  const old = openDatabase({ path: copy, mode: 0o640, busyTimeoutMs: 50, readonly: true });
  expect(old.prepare('SELECT x FROM a').pluck().get()).toBe('kept');
  old.close();
  rmSync(copy);
  migrate(db, { directory: url, name: 'a.db', keepCopyAt: copy });
  expect(existsSync(copy)).toBe(false);
});

test('a step that fails leaves the schema as it was', () => {
  const db = open();
  migrate(db, { directory: url, name: 'a.db' });
  writeFileSync(join(dir, '0002-good.sql'), 'CREATE TABLE b (x);');
  writeFileSync(join(dir, '0003-bad.sql'), 'CREATE TABLE c (x); CREATE TABLE a (x);');
  expect(codeOf(() => migrate(db, { directory: url, name: 'a.db' }))).toBe('storage-failed');
  expect(tables(db)).toEqual(['_schema_migrations', 'a']);
  expect(db.pragma('user_version', { simple: true })).toBe(1);
});

test('a newer, a foreign and a differently grown database are refused untouched', () => {
  writeFileSync(join(dir, '0002-second.sql'), 'CREATE TABLE b (x);');
  const db = open();
  migrate(db, { directory: url, name: 'a.db' });
  db.pragma('wal_checkpoint(TRUNCATE)');
  const bytes = readFileSync(path);
  const older = pathToFileURL(`${mkdtempSync(join(tmpdir(), 'tillsync-older-'))}/`);
  writeFileSync(new URL('0001-first.sql', older), 'CREATE TABLE a (x);');
  expect(codeOf(() => migrate(db, { directory: older, name: 'a.db' }))).toBe('storage-newer');
  writeFileSync(new URL('0002-other.sql', older), 'CREATE TABLE z (x);');
  expect(codeOf(() => migrate(db, { directory: older, name: 'a.db' }))).toBe('storage-corrupt');
  expect(() => migrate(db, { directory: older, name: 'a.db' })).toThrow('a.db was made before 0.1.0');
  const earliest = new Database(':memory:');
  earliest.exec('CREATE TABLE a (x); CREATE TABLE schema_migrations (number INTEGER PRIMARY KEY, name TEXT)');
  expect(() => migrate(earliest, { directory: older, name: 'a.db' })).toThrow('a.db was made before 0.1.0');
  expect(tables(earliest)).toEqual(['a', 'schema_migrations']);
  expect(readFileSync(path).equals(bytes)).toBe(true);
  expect(statSync(`${path}-wal`).size).toBe(0);
  const foreign = openDatabase({ path: join(dir, 'f.db'), mode: 0o600, busyTimeoutMs: 5 });
  foreign.exec('CREATE TABLE somebody (x)');
  expect(codeOf(() => migrate(foreign, { directory: url, name: 'f.db' }))).toBe('storage-corrupt');
});

test('of two processes that upgrade at once the second finds it done', () => {
  const [first, second] = [open(), open()];
  migrate(first, { directory: url, name: 'a.db' });
  writeFileSync(join(dir, '0002-second.sql'), 'CREATE TABLE b (x);');
  const begin = second.transaction.bind(second);
  Object.assign(second, {
    transaction(action: () => void) {
      migrate(first, { directory: url, name: 'a.db' });
      return begin(action);
    },
  });
  migrate(second, { directory: url, name: 'a.db' });
  expect(tables(second)).toEqual(['_schema_migrations', 'a', 'b']);
});

test('a gap in the numbers is a fault of the program', () => {
  writeFileSync(join(dir, '0003-third.sql'), 'CREATE TABLE b (x);');
  expect(codeOf(() => migrate(open(), { directory: url, name: 'a.db' }))).toBe('internal');
});
