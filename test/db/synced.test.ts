import fs, { mkdtempSync, readlinkSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { replaceFile } from '../../src/config/edit.ts';
import { migrate } from '../../src/db/migrate.ts';
import { openDatabase } from '../../src/db/sqlite.ts';

const real = { fsyncSync: fs.fsyncSync, renameSync: fs.renameSync };
let directory: string;
/** Paths synced and renamed, in order, without the random parts of their names. */
let done: string[];

const named = (path: string) =>
  path === directory ? 'directory' : basename(path).replace(/\.[0-9a-f]{8}\.part/, '.part');

/**
 * Records syncs and renames, because a file's bytes survive a power cut only once the file is synced, and its name only
 * once its directory is.
 */
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tillsync-synced-'));
  done = [];
  fs.fsyncSync = (file) => {
    done.push(`sync ${named(readlinkSync(`/proc/self/fd/${file}`))}`);
    real.fsyncSync(file);
  };
  fs.renameSync = (from, to) => {
    done.push(`${named(String(from))} becomes ${named(String(to))}`);
    real.renameSync(from, to);
  };
  syncBuiltinESMExports();
});
afterEach(() => {
  Object.assign(fs, real);
  syncBuiltinESMExports();
});

describe('what a power cut may not take', () => {
  it('is a configuration, old or new, whole', () => {
    const file = join(directory, 'config.toml');
    writeFileSync(file, 'old');
    replaceFile(file, 'new', () => {}, 0);
    expect(done).toEqual([
      'sync config.toml.part',
      'sync config.toml.part.bak',
      'config.toml.part.bak becomes config.toml.bak-19700101T000000Z',
      'config.toml.part becomes config.toml',
      'sync directory',
    ]);
  });

  it('is a database that was just made', () => {
    openDatabase({ path: join(directory, 'a.db'), mode: 0o600, busyTimeoutMs: 5 }).close();
    expect(done.slice(0, 2)).toEqual(['sync a.db', 'sync directory']);
  });

  it('is the copy kept before an upgrade', () => {
    const migrations = pathToFileURL(`${mkdtempSync(join(tmpdir(), 'tillsync-migrations-'))}/`);
    writeFileSync(new URL('0001-first.sql', migrations), 'CREATE TABLE a (x) STRICT;'.replace('x', 'x TEXT'));
    const db = openDatabase({ path: join(directory, 'a.db'), mode: 0o600, busyTimeoutMs: 5 });
    const keepCopyAt = join(directory, 'a.db.before-upgrade');
    migrate(db, { directory: migrations, name: 'a.db', keepCopyAt });
    writeFileSync(new URL('0002-second.sql', migrations), 'CREATE TABLE b (x);');
    done = [];
    migrate(db, { directory: migrations, name: 'a.db', keepCopyAt });
    db.close();
    expect(done.slice(-3)).toEqual([
      'sync a.db.before-upgrade.part',
      'a.db.before-upgrade.part becomes a.db.before-upgrade',
      'sync directory',
    ]);
  });
});
