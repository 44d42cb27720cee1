import { mkdtempSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { hasCode } from '../../src/core/errors.ts';
import { openDatabase, sqlOf, toStorageError } from '../../src/db/sqlite.ts';

const directory = () => mkdtempSync(join(tmpdir(), 'tillsync-sqlite-'));
const wal = { journal_mode: 'wal' };

function codeOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return 'none';
}

test('commits are durable and the files carry the wanted mode whatever the umask', () => {
  const path = join(directory(), 'a.db');
  const before = process.umask(0o077);
  try {
    const db = openDatabase({ path, mode: 0o640, busyTimeoutMs: 50, pragmas: wal });
    db.exec('CREATE TABLE t (a)');
    expect(db.pragma('synchronous', { simple: true })).toBe(2);
    expect(db.pragma('busy_timeout', { simple: true })).toBe(50);
    for (const file of [path, `${path}-wal`, `${path}-shm`]) expect(statSync(file).mode & 0o777).toBe(0o640);
    db.close();
  } finally {
    process.umask(before);
  }
});

test('a pragma that SQLite does not take is refused', () => {
  const path = join(directory(), 'a.db');
  const open = (pragmas: Record<string, string | number>) =>
    openDatabase({ path, mode: 0o600, busyTimeoutMs: 50, pragmas });
  expect(codeOf(() => open({ page_size: 1000 }))).toBe('storage-failed');
  expect(codeOf(() => open({ journal_mode: 'wal; DROP TABLE t' }))).toBe('internal');
});

test('a timeout that would freeze the event loop is refused', () => {
  const path = join(directory(), 'a.db');
  expect(codeOf(() => openDatabase({ path, mode: 0o600, busyTimeoutMs: 5000 }))).toBe('internal');
});

test('each fault has its code', () => {
  const dir = directory();
  const junk = join(dir, 'junk.db');
  writeFileSync(junk, 'no database at all '.repeat(300));
  expect(codeOf(() => openDatabase({ path: junk, mode: 0o600, busyTimeoutMs: 5, pragmas: wal }))).toBe(
    'storage-corrupt',
  );
  expect(codeOf(() => openDatabase({ path: join(dir, 'no/a.db'), mode: 0o600, busyTimeoutMs: 5 }))).toBe(
    'storage-failed',
  );
  const path = join(dir, 'a.db');
  const first = openDatabase({ path, mode: 0o600, busyTimeoutMs: 5, pragmas: wal });
  const second = openDatabase({ path, mode: 0o600, busyTimeoutMs: 5, pragmas: wal });
  const reader = openDatabase({ path, mode: 0o600, busyTimeoutMs: 5, readonly: true, pragmas: wal });
  const failing = (action: () => unknown) => {
    try {
      action();
    } catch (error) {
      return toStorageError(error);
    }
    return undefined;
  };
  first.exec('CREATE TABLE t (a)');
  first.exec('BEGIN IMMEDIATE');
  expect(
    hasCode(
      failing(() => second.exec('BEGIN IMMEDIATE')),
      'storage-busy',
    ),
  ).toBe(true);
  first.exec('ROLLBACK');
  expect(
    hasCode(
      failing(() => reader.exec('INSERT INTO t VALUES (1)')),
      'storage-readonly',
    ),
  ).toBe(true);
  first.exec('CREATE TABLE once (a UNIQUE); INSERT INTO once VALUES (1)');
  expect(
    hasCode(
      failing(() => first.exec('INSERT INTO once VALUES (1)')),
      'internal',
    ),
  ).toBe(true);
  first.pragma('max_page_count = 3');
  expect(
    hasCode(
      failing(() => first.exec('INSERT INTO t VALUES (randomblob(100000))')),
      'storage-full',
    ),
  ).toBe(true);
  expect(
    hasCode(
      failing(() => first.exec('SELECT * FROM none')),
      'storage-failed',
    ),
  ).toBe(true);
  for (const db of [first, second, reader]) db.close();
});

test.each([
  ['ENOSPC', 'storage-full'],
  ['EDQUOT', 'storage-full'],
  ['EROFS', 'storage-readonly'],
  ['EACCES', 'storage-readonly'],
  ['EIO', 'storage-failed'],
])('%s of the file system is %s', (code, kind) => {
  expect(toStorageError(Object.assign(new Error(code), { code })).code).toBe(kind);
});

test('a fault of the program is none of the file that it works on', () => {
  expect(toStorageError(new TypeError('Invalid URL'), '/a.db').code).toBe('internal');
  const path = join(directory(), 'no/a.db');
  const open = () => openDatabase({ path, mode: 0o600, busyTimeoutMs: 5, readonly: true });
  expect(codeOf(open)).toBe('storage-failed');
});

test('an emptied file is not taken for a new database while its log is there', () => {
  const path = join(directory(), 'a.db');
  const db = new Database(path);
  db.pragma('journal_mode = WAL');
  db.exec('CREATE TABLE t (a)');
  truncateSync(path, 0);
  expect(codeOf(() => openDatabase({ path, mode: 0o600, busyTimeoutMs: 5, pragmas: wal }))).toBe(
    'storage-corrupt',
  );
  expect(statSync(`${path}-wal`).size).toBeGreaterThan(0);
});

test('a transaction within another one is a part of it, without a savepoint of its own', () => {
  const statements: unknown[] = [];
  const db = new Database(':memory:', { verbose: (text) => statements.push(text) });
  db.exec('CREATE TABLE t (a)');
  const sql = sqlOf(db);
  const insert = (a: number) => sql.transaction(() => sql.run('INSERT INTO t VALUES (?)', a));
  sql.transaction(() => insert(1));
  const fails = () =>
    sql.transaction(() => {
      insert(2);
      throw new Error('the outer one ends');
    });
  expect(fails).toThrow('the outer one ends');
  expect(sql.values('SELECT a FROM t')).toEqual([1]);
  expect(statements.filter((text) => /SAVEPOINT/.test(String(text)))).toEqual([]);
});
