import { readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import { createWithMode, storing, syncPath } from './sqlite.ts';

/** A hub and a branch have tables of their own, beside those of a store, which every file has. */
export type Role = 'store' | 'hub' | 'branch';

interface MigrateOptions {
  /** Directory with the migrations `0001-….sql`, `0002-….sql` and so on, without gaps. */
  directory: URL;
  /** Directories with the migrations of each role. A file that has taken on a role keeps its tables. */
  roles?: Readonly<Record<Exclude<Role, 'store'>, URL>> | undefined;
  /** Role that the file takes on, if it has not yet. */
  role?: Role | undefined;
  /** Name of the database for people, such as `mirror.db`. */
  name: string;
  /** Path for a full copy, made before an existing database is changed. It replaces an older copy. */
  keepCopyAt?: string;
  /** True if nothing may be written. An older schema then throws `storage-readonly`. */
  readonly?: boolean | undefined;
}

interface Migration {
  /** Such as `0001-mirror`, or of a role `hub/0001-hub`. */
  name: string;
  file: URL;
}

/** Migrations that a database lacks. */
interface Missing {
  migrations: Migration[];
  /** Whether the database has earlier migrations of the same kind, so that what it has is changed. */
  areUpgrades: boolean;
}

/**
 * Applies all missing migrations in one transaction, so that a crash leaves either the old or the new schema. Throws
 * `storage-newer` if the database has migrations that this version does not know, and `storage-corrupt` if its
 * migrations differ from the known ones, as those of a checkout before 0.1.0 do. Then it changes nothing.
 */
export function migrate(db: Database.Database, options: MigrateOptions): void {
  storing(() => {
    const { migrations, areUpgrades } = missingIn(db, options);
    // A reader has no need of the tables of a role that the daemon has not taken on yet.
    if (migrations.length === 0 || (options.readonly && !areUpgrades)) return;
    if (options.readonly) {
      const message = `${options.name} is still as an older tillsync made it, and this command only reads.`;
      throw new TillsyncError('storage-readonly', message, {
        hint: 'Start the service again, which brings it up to date: {restart}',
      });
    }
    if (areUpgrades && options.keepCopyAt !== undefined) keepCopy(db, options.keepCopyAt);
    db.transaction(() => {
      // Another process may have migrated the database since the check above.
      for (const migration of missingIn(db, options).migrations) apply(db, migration);
      db.pragma(`user_version = ${listMigrations(options.directory).length}`);
    }).immediate();
  });
}

/** Returns what the database lacks: of what every file has, and of the roles that it has or takes on. */
function missingIn(db: Database.Database, options: MigrateOptions): Missing {
  const { directory, roles, role, name } = options;
  const applied = appliedTo(db, name);
  const ofAll = applied.filter((each) => !each.includes('/'));
  const known = listMigrations(directory);
  checkApplied(ofAll, known, name);
  const missing: Missing = {
    migrations: known.slice(ofAll.length),
    areUpgrades: ofAll.length > 0 && ofAll.length < known.length,
  };
  for (const [each, place] of Object.entries(roles ?? {})) {
    const prefix = `${each}/`;
    const ofRole = applied.filter((step) => step.startsWith(prefix));
    if (ofRole.length === 0 && each !== role) continue;
    const knownOfRole = listMigrations(place).map((step) => ({ ...step, name: `${prefix}${step.name}` }));
    checkApplied(ofRole, knownOfRole, name);
    missing.migrations.push(...knownOfRole.slice(ofRole.length));
    missing.areUpgrades ||= ofRole.length > 0 && ofRole.length < knownOfRole.length;
  }
  return missing;
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

/** Returns the names of the migrations that the database has, in the order of their application. */
function appliedTo(db: Database.Database, name: string): string[] {
  const tables = db
    .prepare<[], { name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'")
    .all();
  if (tables.length === 0) return [];
  const has = (table: string) => tables.some((each) => each.name === table);
  if (!has('_schema_migrations')) {
    if (has('schema_migrations')) throw madeBefore(name);
    throw new TillsyncError('storage-corrupt', `${name} is a database, but none that tillsync made.`, {
      hint: 'Check the storage directory in the configuration, or move the file away.',
    });
  }
  return db.prepare<[], string>('SELECT name FROM _schema_migrations ORDER BY number').pluck().all();
}

function checkApplied(applied: readonly string[], known: readonly Migration[], name: string): void {
  const strange = applied.findIndex((each, i) => each !== known[i]?.name);
  if (strange === -1) return;
  if (strange >= known.length) {
    const message = `${name} was written by a newer tillsync; it was left untouched.`;
    throw new TillsyncError('storage-newer', message, {
      hint: 'Install the newer tillsync again, or give this one its files back: {tillsync} restore --before-upgrade',
    });
  }
  throw madeBefore(name);
}

function madeBefore(name: string): TillsyncError {
  const message = `${name} was made before 0.1.0: it has other tables. It was left untouched.`;
  return new TillsyncError('storage-corrupt', message, {
    hint: 'Move the file away with its -wal and -shm; tillsync makes a new one at the next start.',
  });
}

function apply(db: Database.Database, migration: Migration): void {
  db.exec(
    'CREATE TABLE IF NOT EXISTS _schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)',
  );
  // Unsafe mode lets a migration change the SQL text of a table. It may do so only if the stored rows stay valid.
  db.unsafeMode(true);
  try {
    db.exec(readFileSync(migration.file, 'utf8'));
  } finally {
    db.unsafeMode(false);
  }
  db.prepare('INSERT INTO _schema_migrations (name) VALUES (?)').run(migration.name);
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
