import type Database from 'better-sqlite3';
import { sqlOf } from './sqlite.ts';

/** Facts that state.db keeps by name, as text, in table `facts`. Each name has one owner, who reads and writes it. */

/** Returns the fact; undefined if it was never set. */
export function factOf(db: Database.Database, name: string): string | undefined {
  return sqlOf(db).value<string>('SELECT value FROM facts WHERE name = ?', name);
}

export function setFact(db: Database.Database, name: string, value: string): void {
  const sql = `INSERT INTO facts (name, value) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value`;
  sqlOf(db).run(sql, name, value);
}

export function removeFact(db: Database.Database, name: string): void {
  sqlOf(db).run('DELETE FROM facts WHERE name = ?', name);
}
