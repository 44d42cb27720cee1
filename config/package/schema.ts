import { writeFileSync } from 'node:fs';
import Database from 'better-sqlite3';
import { migrate } from '../../src/db/migrate.ts';

const NOTE = `-- Made by \`npm run schema\` from the migrations beside it: what a new database gets in one step.
-- To change the schema, add a migration and run that again.
`;

/** Returns the text of `schema.sql`: every object and every row that the migrations create in an empty database. */
export function schemaText(kind: 'mirror' | 'state'): string {
  const db = new Database(':memory:');
  try {
    migrate(db, {
      directory: new URL(`../../src/db/${kind}/migrations/`, import.meta.url),
      name: `${kind}.db`,
    });
    const objects = db
      .prepare<[], { type: string; name: string; sql: string }>(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
      )
      .all();
    const tables = objects.filter(({ type }) => type === 'table');
    const rows = tables.flatMap(({ name }) => insertsOf(db, name));
    return `${NOTE}\n${objects.map(({ sql }) => `${sql};\n`).join('\n')}\n${rows.join('\n')}\n`;
  } finally {
    db.close();
  }
}

/** Returns an INSERT statement for each row of a table. */
function insertsOf(db: Database.Database, table: string): string[] {
  const columns = db.prepare<[], string>(`SELECT name FROM pragma_table_info('${table}')`).pluck().all();
  const values = columns.map((column) => `quote("${column}")`).join(" || ', ' || ");
  const rows = db.prepare<[], string>(`SELECT ${values} FROM "${table}"`).pluck().all();
  return rows.map((row) => `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${row});`);
}

if (process.argv[1] === import.meta.filename) {
  for (const kind of ['mirror', 'state'] as const) {
    writeFileSync(new URL(`../../src/db/${kind}/schema.sql`, import.meta.url), schemaText(kind));
  }
}
