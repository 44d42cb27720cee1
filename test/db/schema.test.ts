import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { schemaText } from '../../config/package/schema.ts';
import { migrate } from '../../src/db/migrate.ts';

it.each(['mirror', 'state'] as const)('schema.sql of %s.db is what its migrations make', (kind) => {
  const file = new URL(`../../src/db/${kind}/schema.sql`, import.meta.url);
  expect(readFileSync(file, 'utf8'), 'run `npm run schema`').toBe(schemaText(kind));
});

it('schema.sql makes a new database; migrations that it lacks follow, and an old database never sees it', () => {
  const place = mkdtempSync(join(tmpdir(), 'tillsync-schema-'));
  onTestFinished(() => rmSync(place, { recursive: true }));
  const directory = pathToFileURL(`${place}/migrations/`);
  const schema = pathToFileURL(join(place, 'schema.sql'));
  const write = (name: string, sql: string) => writeFileSync(join(place, name), sql);
  const tables = (db: Database.Database) =>
    db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").pluck().all();
  mkdirSync(join(place, 'migrations'));
  write('migrations/0001-first.sql', 'CREATE TABLE made_by_migration (x);');
  const old = new Database(':memory:');
  migrate(old, { directory, name: 'a.db' });
  write(
    'schema.sql',
    `CREATE TABLE schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
     CREATE TABLE made_by_schema (x); INSERT INTO schema_migrations VALUES (1, '0001-first');`,
  );
  write('migrations/0002-second.sql', 'CREATE TABLE second (x);');
  const fresh = new Database(':memory:');
  migrate(fresh, { directory, schema, name: 'a.db' });
  migrate(old, { directory, schema, name: 'a.db' });
  expect(tables(fresh)).toEqual(['made_by_schema', 'schema_migrations', 'second']);
  expect(tables(old)).toEqual(['made_by_migration', 'schema_migrations', 'second']);
  expect(fresh.pragma('user_version', { simple: true })).toBe(2);
});
