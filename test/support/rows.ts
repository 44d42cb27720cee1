import Database from 'better-sqlite3';

/** Reads rows of a database file, as any program could. */
export function rowsIn<T>(file: string, sql: string): T[] {
  const db = new Database(file, { readonly: true });
  try {
    return db.prepare<[], T>(sql).all();
  } finally {
    db.close();
  }
}
