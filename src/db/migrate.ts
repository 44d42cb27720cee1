import { readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import { createWithMode, storing, syncPath } from './sqlite.ts';

interface MigrateOptions {
  /** Directory with the migrations `0001-….sql`, `0002-….sql` and so on, without gaps. */
  directory: URL;
  /** Name of the database for people, such as `mirror.db`. */
  name: string;
  /** Path for a full copy, made before an existing database is changed. It replaces an older copy. */
  keepCopyAt?: string;
  /** True if nothing may be written. An older schema then throws `storage-readonly`. */
  readonly?: boolean | undefined;
}

interface Migration {
  name: string;
  file: URL;
}

/**
 * Applies all missing migrations in one transaction, so that a crash leaves either the old or the new schema. Throws
 * `storage-newer` if the database has migrations that this version does not know, and `storage-corrupt` if its
 * migrations differ from the known ones, as those of a checkout before 0.1.0 do. Then it changes nothing.
 */
export function migrate(db: Database.Database, options: MigrateOptions): void {
  const known = listMigrations(options.directory);
  storing(() => {
    const from = checkApplied(db, known, options.name);
    if (from === known.length) return;
    if (options.readonly) {
      const message = `${options.name} is still as an older tillsync made it, and this command only reads.`;
      throw new TillsyncError('storage-readonly', message, {
        hint: 'Start the service again, which brings it up to date: {restart}',
      });
    }
    if (from > 0 && options.keepCopyAt !== undefined) keepCopy(db, options.keepCopyAt);
    db.transaction(() => {
      // Another process may have migrated the database since the check above.
      for (const migration of known.slice(checkApplied(db, known, options.name))) apply(db, migration);
      db.pragma(`user_version = ${known.length}`);
    }).immediate();
  });
}

function listMigrations(directory: URL): Migration[] {
  const names = readdirSync(directory)
    .filter((name) => name.endsWith('.sql'))
    .sort();
  return names.map((name, i) => {
    if (Number(/^(\d{4})-[a-z0-9-]+\.sql$/.exec(name)?.[1]) !== i + 1) {
      throw new TillsyncError('internal', `Migration ${name} is not number ${i + 1} of its directory.`);
    }
    return { name: name.slice(0, -'.sql'.length), file: new URL(name, directory) };
  });
}

/** Returns the number of migrations that the database has. */
function checkApplied(db: Database.Database, known: Migration[], name: string): number {
  const tables = db
    .prepare<[], { name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'")
    .all();
  if (tables.length === 0) return 0;
  if (!tables.some((table) => table.name === 'schema_migrations')) {
    throw new TillsyncError('storage-corrupt', `${name} is a database, but none that tillsync made.`, {
      hint: 'Check the storage directory in the configuration, or move the file away.',
    });
  }
  const applied = db.prepare<[], string>('SELECT name FROM schema_migrations ORDER BY number').pluck().all();
  const strange = applied.findIndex((each, i) => each !== known[i]?.name);
  if (strange === -1) return applied.length;
  if (strange >= known.length) {
    const message = `${name} was written by a newer tillsync; it was left untouched.`;
    throw new TillsyncError('storage-newer', message, {
      hint: 'Install the newer tillsync again, or give this one its files back: {tillsync} restore --before-upgrade',
    });
  }
  const message = `${name} was made before 0.1.0: it has the schema step ${applied[strange]}. It was left untouched.`;
  throw new TillsyncError('storage-corrupt', message, {
    hint: 'Move the file away with its -wal and -shm; tillsync makes a new one at the next start.',
  });
}

function apply(db: Database.Database, migration: Migration): void {
  db.exec(
    'CREATE TABLE IF NOT EXISTS schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)',
  );
  // Unsafe mode lets a migration change the SQL text of a table. It may do so only if the stored rows stay valid.
  db.unsafeMode(true);
  try {
    db.exec(readFileSync(migration.file, 'utf8'));
  } finally {
    db.unsafeMode(false);
  }
  db.prepare('INSERT INTO schema_migrations (name) VALUES (?)').run(migration.name);
}

/** Writes a full copy and syncs it before it gets its final name. A crash leaves only a `.part` file. */
function keepCopy(db: Database.Database, path: string): void {
  const part = `${path}.part`;
  rmSync(part, { force: true });
  createWithMode(part, statSync(db.name).mode & 0o777);
  db.prepare('VACUUM INTO ?').run(part);
  syncPath(part);
  renameSync(part, path);
  syncPath(dirname(path));
}
