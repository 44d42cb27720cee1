import type Database from 'better-sqlite3';

type Value = unknown;
type Kind = 'rows' | 'values';

const known = new WeakMap<Database.Database, Sql>();

/** The statements of a connection, so that each stands where it runs. */
export function sqlOf(db: Database.Database): Sql {
  const sql = known.get(db) ?? new Sql(db);
  known.set(db, sql);
  return sql;
}

/**
 * Statements by their text, each prepared when it first runs and kept with its connection. `values`: the first
 * column alone. Parameters as better-sqlite3 takes them.
 */
export class Sql {
  readonly #db: Database.Database;
  readonly #statements: Record<Kind, Map<string, Database.Statement<Value[]>>> = {
    rows: new Map(),
    values: new Map(),
  };

  constructor(db: Database.Database) {
    this.#db = db;
  }

  row<T>(text: string, ...params: Value[]): T | undefined {
    return this.#statement('rows', text).get(...params) as T | undefined;
  }

  rows<T>(text: string, ...params: Value[]): T[] {
    return this.#statement('rows', text).all(...params) as T[];
  }

  value<T = number>(text: string, ...params: Value[]): T | undefined {
    return this.#statement('values', text).get(...params) as T | undefined;
  }

  values<T>(text: string, ...params: Value[]): T[] {
    return this.#statement('values', text).all(...params) as T[];
  }

  run(text: string, ...params: Value[]): Database.RunResult {
    return this.#statement('rows', text).run(...params);
  }

  /** Within another one it is a part of that. */
  transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }

  #statement(kind: Kind, text: string): Database.Statement<Value[]> {
    const statements = this.#statements[kind];
    let statement = statements.get(text);
    if (!statement) {
      statement = this.#db.prepare<Value[]>(text);
      if (kind === 'values') statement.pluck();
      statements.set(text, statement);
    }
    return statement;
  }
}
