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
  role: Role;
  /** 1 for the first of its directory. */
  number: number;
  file: URL;
}

/** Migrations that a database lacks. */
interface Missing {
  migrations: Migration[];
  /** Whether the database has earlier migrations of the same kind, so that what it has is changed. */
  areUpgrades: boolean;
}

/** How many migrations of each role a database has. */
export type Applied = Readonly<Record<Role, number>>;

/** Marks a file as tillsync's: "till" in ASCII. */
const APPLICATION_ID = 0x74_69_6c_6c;
/**
 * How the numbers of migrations stand in `user_version`: those of every file in the last three digits, those of a hub
 * and of a branch in the three before each.
 */
const PLACE: Readonly<Record<Role, number>> = { store: 1, hub: 1_000, branch: 1_000_000 };
const ROLES: readonly Role[] = ['store', 'hub', 'branch'];

/** Returns how many migrations of each role the database says that it has. */
export function appliedMigrations(db: Database.Database): Applied {
  const version = Number(db.pragma('user_version', { simple: true }));
  const ofRole = (role: Role) => Math.floor(version / PLACE[role]) % 1_000;
  return { store: ofRole('store'), hub: ofRole('hub'), branch: ofRole('branch') };
}

/**
 * Applies all missing migrations in one transaction, so that a crash leaves either the old or the new schema. Throws
 * `storage-newer` if the database has more migrations than this version knows, and `storage-corrupt` if it is none of
 * tillsync's or one of a checkout before 0.1.0. Then it changes nothing.
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
      const { migrations } = missingIn(db, options);
      for (const migration of migrations) apply(db, migration);
      const added = migrations.reduce((sum, { role }) => sum + PLACE[role], 0);
      const version = Number(db.pragma('user_version', { simple: true }));
      db.pragma(`application_id = ${APPLICATION_ID}`);
      db.pragma(`user_version = ${version + added}`);
    }).immediate();
  });
}

/** Returns what the database lacks: of what every file has, and of the roles that it has or takes on. */
function missingIn(db: Database.Database, { directory, roles, role, name }: MigrateOptions): Missing {
  checkOrigin(db, name);
  const applied = appliedMigrations(db);
  const missing: Missing = { migrations: [], areUpgrades: false };
  for (const each of ROLES) {
    const place = each === 'store' ? directory : roles?.[each];
    if (place === undefined || (each !== 'store' && applied[each] === 0 && each !== role)) continue;
    const known = listMigrations(place, each);
    if (applied[each] > known.length) throw madeLater(name);
    missing.migrations.push(...known.slice(applied[each]));
    missing.areUpgrades ||= applied[each] > 0 && applied[each] < known.length;
  }
  return missing;
}

function listMigrations(directory: URL, role: Role): Migration[] {
  const names = readdirSync(directory)
    .filter((name) => name.endsWith('.sql'))
    .sort();
  return names.map((name, i) => {
    if (Number(/^(\d{4})-[a-z0-9-]+\.sql$/.exec(name)?.[1]) !== i + 1) {
      throw new TillsyncError('internal', `Migration ${name} is not number ${i + 1} of its directory.`);
    }
    return { role, number: i + 1, file: new URL(name, directory) };
  });
}

/** Throws `storage-corrupt` if the database has tables that tillsync did not make, or made before 0.1.0. */
function checkOrigin(db: Database.Database, name: string): void {
  if (db.pragma('application_id', { simple: true }) === APPLICATION_ID) return;
  const tables = db.prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table'").pluck().all();
  if (tables.length === 0) return;
  if (tables.some((table) => BEFORE.includes(table))) {
    const message = `${name} was made before 0.1.0: it has other tables. It was left untouched.`;
    throw new TillsyncError('storage-corrupt', message, {
      hint: 'Move the file away with its -wal and -shm; tillsync makes a new one at the next start.',
    });
  }
  throw new TillsyncError('storage-corrupt', `${name} is a database, but none that tillsync made.`, {
    hint: 'Check the storage directory in the configuration, or move the file away.',
  });
}

/** Where a database of a checkout before 0.1.0 lists its migrations. */
const BEFORE: readonly string[] = ['schema_migrations', '_schema_migrations'];

function madeLater(name: string): TillsyncError {
  const message = `${name} was written by a newer tillsync; it was left untouched.`;
  return new TillsyncError('storage-newer', message, {
    hint: 'Install the newer tillsync again, or give this one its files back: {tillsync} restore --before-upgrade',
  });
}

function apply(db: Database.Database, { file }: Migration): void {
  // Unsafe mode lets a migration change the SQL text of a table. It may do so only if the stored rows stay valid.
  db.unsafeMode(true);
  try {
    db.exec(readFileSync(file, 'utf8'));
  } finally {
    db.unsafeMode(false);
  }
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
