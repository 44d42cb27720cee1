/** Tests the roles in src/db/migrate.ts and src/db/mirror-connection.ts. */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { migrate } from '../../src/db/migrate.ts';
import { closeLeavingFiles, MIRROR_SCHEMA, openConnection } from '../../src/db/mirror-connection.ts';
import { openStateFile } from '../../src/db/state-file.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-roles-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const tablesOf = (db: Database.Database) =>
  db
    .prepare<[], string>(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
    )
    .pluck()
    .all();

/** Opens the mirror in a role and returns the names of its tables. */
function mirrorTables(role?: 'store' | 'hub' | 'branch', readonly = false): string[] {
  const options = { path: path.join(directory, 'mirror.db'), readonly, group: undefined, role };
  const db = openConnection(options);
  try {
    return tablesOf(db);
  } finally {
    closeLeavingFiles(db, options);
  }
}

test('a mirror gets the tables of a hub or a branch once it is opened in that role, and keeps them', () => {
  const ofStore = mirrorTables('store');
  expect(ofStore.length).toBeLessThanOrEqual(34);
  expect(mirrorTables('branch', true)).toEqual(ofStore);
  const ofBranch = mirrorTables('branch');
  expect(ofBranch.filter((name) => !ofStore.includes(name))).toContain('_link');
  const ofBoth = mirrorTables('hub');
  expect(ofBoth.filter((name) => !ofBranch.includes(name))).toContain('_feed_branches');
  expect(mirrorTables('store')).toEqual(ofBoth);
  expect(mirrorTables(undefined, true)).toEqual(ofBoth);
});

test('state.db gets the keys of a hub or a branch in that role alone', () => {
  const tables = (role?: 'store' | 'hub' | 'branch') => {
    const { db, close } = openStateFile(path.join(directory, 'state.db'), 100, role);
    try {
      return tablesOf(db);
    } finally {
      close();
    }
  };
  expect(tables()).not.toContain('hub_branches');
  expect(tables().length).toBeLessThanOrEqual(14);
  expect(tables('branch')).toContain('link_key');
  expect(tables()).not.toContain('hub_branches');
  expect(tables('hub')).toContain('hub_branches');
});

test('a role whose tables cannot be made leaves the file as it was; its upgrade is copied first', () => {
  const place = path.join(directory, 'schema');
  mkdirSync(place);
  const write = (name: string, sql: string) => writeFileSync(path.join(place, name), sql);
  const file = path.join(directory, 'mirror.db');
  const db = new Database(file);
  const options = {
    directory: MIRROR_SCHEMA.directory,
    roles: { hub: pathToFileURL(`${place}/`), branch: MIRROR_SCHEMA.roles.branch },
    name: 'mirror.db',
    keepCopyAt: `${file}.before-upgrade`,
  };
  write('0001-hub.sql', 'CREATE TABLE of_hub (x); CREATE TABLE _orders (x);');
  expect(() => migrate(db, { ...options, role: 'hub' })).toThrow();
  expect(tablesOf(db)).toEqual([]);
  write('0001-hub.sql', 'CREATE TABLE of_hub (x); INSERT INTO of_hub VALUES (1);');
  migrate(db, { ...options, role: 'hub' });
  expect(() => readFileSync(options.keepCopyAt)).toThrow('ENOENT');
  write('0002-later.sql', 'DELETE FROM of_hub; CREATE TABLE later (x);');
  // The file is a hub's, whatever it is opened as, and a reader waits until it is brought up to date.
  expect(() => migrate(db, { ...options, readonly: true })).toThrow('as an older tillsync made it');
  migrate(db, { ...options, role: 'store' });
  expect(tablesOf(db)).toContain('later');
  const kept = new Database(options.keepCopyAt, { readonly: true });
  expect(kept.prepare('SELECT x FROM of_hub').pluck().all()).toEqual([1]);
  kept.close();
  db.close();
});
