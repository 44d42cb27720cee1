import type Database from 'better-sqlite3';
import { migrate, type Role } from '../../src/db/migrate.ts';
import { MIRROR_SCHEMA } from '../../src/db/mirror-connection.ts';

/** Gives a mirror the tables of a role, as the first start in that role does. */
export function takeOn(db: Database.Database, role: Role): void {
  migrate(db, { ...MIRROR_SCHEMA, name: 'mirror.db', role });
}
