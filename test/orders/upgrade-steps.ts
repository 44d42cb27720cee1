import Database from 'better-sqlite3';

/**
 * Runs `action`, and calls `before` ahead of each statement that it prepares or executes. Returns the number of
 * statements.
 */
export function stepThrough(before: (step: number) => void, action: () => void): number {
  const { exec, prepare } = Database.prototype;
  let step = 0;
  Database.prototype.prepare = function (this: Database.Database, sql: string) {
    before(++step);
    return prepare.call(this, sql);
  } as typeof prepare;
  Database.prototype.exec = function (this: Database.Database, sql: string) {
    for (const statement of statementsOf(sql)) {
      before(++step);
      exec.call(this, statement);
    }
    return this;
  };
  try {
    action();
  } finally {
    Object.assign(Database.prototype, { exec, prepare });
  }
  return step;
}

/** Splits SQL into statements. A statement ends with a line that ends in a semicolon; a trigger ends with its END. */
function statementsOf(sql: string): string[] {
  const statements: string[] = [];
  let open = '';
  for (const line of sql.split('\n')) {
    open += `${line}\n`;
    const code = open.replaceAll(/^\s*--.*$/gm, '').trim();
    const isTrigger = /^CREATE (TEMP )?TRIGGER/i.test(code);
    if (code === '' || !(isTrigger ? /\bEND;$/i : /;$/).test(code)) continue;
    statements.push(open);
    open = '';
  }
  if (open.trim() !== '') statements.push(open);
  return statements;
}
