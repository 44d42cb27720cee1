import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import Database from 'better-sqlite3';
import { TillsyncError } from '../../domain/errors.ts';

export const INBOX_TABLES = ['stock_changes', 'product_changes', 'order_acks'] as const;
export type InboxTable = (typeof INBOX_TABLES)[number];

const SCHEMA_VERSION = 1;
const SCHEMA = new URL('./schema.sql', import.meta.url);
/** SHA-256 of the tables' texts as earlier versions made them; they are used as they are. */
const EARLIER: Record<InboxTable, readonly string[]> = {
  stock_changes: ['18a0f04742fc4d26a20c58c856164c2493a3cac29cdf692f5192618191835745'],
  product_changes: ['4adca6e355513f93875347cd54363d4e690c57a8efc6e26c5c928e3fc6996c94'],
  order_acks: ['23e3a7951da0e3ac261a8e9dc5fd89359f28e1bcc6e2d78f1045672abd23de0b'],
};
/** Far above an inbox and what a POS may keep beside it. */
const SCHEMA_ROWS_MAX = 200;
const SCHEMA_BYTES_MAX = 1024 * 1024;
/** What SQLite keeps for itself: sequences, statistics, indexes of UNIQUE constraints. */
const OF_SQLITE = /^sqlite_/i;
/** Does nothing unless it is named, and tillsync names none but its own three. */
const HARMLESS = /^CREATE (TABLE|VIEW)\b/i;

interface SchemaRow {
  type: string;
  name: string;
  sql: string | null;
}

/**
 * Makes the tables in a new file. Throws `storage-newer` when a newer tillsync made it, `storage-corrupt` when it is
 * another database.
 */
export function bringToSchema(db: Database.Database, path: string): void {
  const version = () => Number(db.pragma('user_version', { simple: true }));
  if (version() === SCHEMA_VERSION) return;
  db.transaction(() => {
    if (version() === SCHEMA_VERSION) return;
    if (version() > SCHEMA_VERSION) throw newer(path);
    const tables = db.prepare<[], number>('SELECT count(*) FROM sqlite_schema').pluck().get() ?? 0;
    if (tables > 0) throw unsound(path, 'It is a database, but no inbox');
    db.exec(readFileSync(SCHEMA, 'utf8'));
    db.pragma(`user_version = ${SCHEMA_VERSION}`);
  }).immediate();
}

/**
 * Throws `storage-corrupt` unless the three tables are, letter for letter, as some version of tillsync made them and
 * nothing else in the file can run when they are read or emptied: a trigger, a view or a generated column of a POS
 * would run in tillsync. Evaluates nothing of the file.
 */
export function requireSchema(db: Database.Database, path: string): void {
  const version = Number(db.pragma('user_version', { simple: true }));
  if (version > SCHEMA_VERSION) throw newer(path);
  const size = db
    .prepare<[], { rows: number; bytes: number }>(
      'SELECT count(*) AS rows, coalesce(sum(octet_length(name) + coalesce(octet_length(sql), 0)), 0) AS bytes FROM sqlite_schema',
    )
    .get();
  if (!size || size.rows > SCHEMA_ROWS_MAX || size.bytes > SCHEMA_BYTES_MAX) {
    throw unsound(path, 'Its schema is too large');
  }
  const rows = db.prepare<[], SchemaRow>('SELECT type, name, sql FROM sqlite_schema').all();
  const known = knownTables();
  for (const table of INBOX_TABLES) {
    const row = rows.find(({ type, name }) => type === 'table' && name === table);
    if (!row) throw unsound(path, `It has no table ${table}`);
    if (!known[table].has(hashOf(row.sql ?? ''))) {
      throw unsound(path, `Its table ${table} is not as tillsync made it`);
    }
  }
  for (const { type, name, sql } of rows) {
    if (OF_SQLITE.test(name) || (sql !== null && HARMLESS.test(sql))) continue;
    throw unsound(path, `It has a ${type} ${name.slice(0, 60)}, which tillsync did not make`);
  }
}

export function unsound(path: string, why: string): TillsyncError {
  return new TillsyncError('storage-corrupt', `The inbox ${path} cannot be used. ${why}.`);
}

function newer(path: string): TillsyncError {
  return new TillsyncError('storage-newer', `${path} was made by a newer tillsync; it was left untouched.`, {
    hint: 'Install the newer tillsync again, or move the file away.',
  });
}

let tables: Record<InboxTable, ReadonlySet<string>> | undefined;

/** Of every version; the current one as SQLite itself keeps it. */
function knownTables(): Record<InboxTable, ReadonlySet<string>> {
  if (tables) return tables;
  const db = new Database(':memory:');
  try {
    db.exec(readFileSync(SCHEMA, 'utf8'));
    const textOf = db.prepare<[string], string>('SELECT sql FROM sqlite_schema WHERE name = ?').pluck();
    const all = (table: InboxTable) => new Set([...EARLIER[table], hashOf(textOf.get(table) ?? '')]);
    tables = {
      stock_changes: all('stock_changes'),
      product_changes: all('product_changes'),
      order_acks: all('order_acks'),
    };
    return tables;
  } finally {
    db.close();
  }
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
