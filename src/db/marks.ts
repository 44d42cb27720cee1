import type Database from 'better-sqlite3';
import { sqlOf } from './sqlite.ts';

/** Numbers that the mirror keeps by name, in table `marks`. */

/** Returns the mark's value, or undefined if it was never set. */
export function mark(db: Database.Database, name: string): number | undefined {
  return sqlOf(db).value('SELECT value FROM marks WHERE name = ?', name);
}

export function setMark(db: Database.Database, name: string, value: number): void {
  const sql = `INSERT INTO marks (name, value) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value`;
  sqlOf(db).run(sql, name, value);
}

/** Returns whether the mirror has the tables of a role. */
export function hasRole(db: Database.Database, role: 'hub' | 'branch'): boolean {
  return mark(db, `role.${role}`) !== undefined;
}
