import path from 'node:path';
import Database from 'better-sqlite3';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { readNotification } from '../../src/orders/receiving/callback-route.ts';
import { openBenchSink } from './bench-sink.ts';
import { readSample, sampleOrder } from './sample-order.ts';

export interface BareCommit {
  /** Commits one new order durably, and returns the milliseconds of the commit. */
  run(id: string): number;
  close(): void;
}

/** Commits one row with the order's text, which is the least that any durable receiver must write. */
export function oneRowCommit(directory: string): BareCommit {
  const db = durable(path.join(directory, 'one-row.db'));
  db.exec('CREATE TABLE rows (id TEXT PRIMARY KEY, payload TEXT)');
  const insert = db.prepare('INSERT INTO rows VALUES (?, ?)');
  return {
    run: (id) => timed(sampleOrder(id, 1234), (text) => insert.run(id, text)),
    close: () => db.close(),
  };
}

const TABLES = ['order_events', '_orders', 'order_items', 'order_item_modifiers'] as const;

/**
 * Inserts the same rows of an order as the mirror in one transaction, without reading any. `isTablesAlone` drops the
 * indexes and triggers, so that the comparison shows what another index or trigger costs.
 */
export async function sameRowsCommit(
  directory: string,
  { isTablesAlone = false } = {},
): Promise<BareCommit & { runTogether(ids: readonly string[]): void }> {
  const template = await mirrorOne(path.join(directory, 'template'));
  const file = path.join(directory, 'same-rows', 'mirror.db');
  await openMirror({ path: file, clock: systemClock }).close();
  const db = durable(file);
  if (isTablesAlone) dropIndexesAndTriggers(db);
  const inserts = TABLES.flatMap((table) =>
    (template.get(table) ?? []).map((row) => {
      const values = row.map((value) => (Number.isInteger(value) ? BigInt(value as number) : value));
      const statement = db.prepare(`INSERT INTO ${table} VALUES (${values.map(() => '?')})`);
      return { table, statement, values };
    }),
  );
  const insert = (id: string, text: string) => {
    for (const { table, statement, values } of inserts) {
      const row = values.map((value) => (value === TEMPLATE_ID ? id : value === templateText ? text : value));
      if (table === 'order_events') row[0] = null;
      statement.run(row);
    }
  };
  const write = db.transaction(insert);
  const writeAll = db.transaction((ids: readonly string[]) => {
    for (const id of ids) insert(id, sampleOrder(id, 1234));
  });
  return {
    run: (id) => timed(sampleOrder(id, 1234), (text) => write.immediate(id, text)),
    runTogether: (ids) => writeAll.immediate(ids),
    close: () => db.close(),
  };
}

function dropIndexesAndTriggers(db: Database.Database): void {
  const own = db.prepare<[], string>(
    `SELECT 'DROP ' || type || ' ' || name FROM sqlite_schema
     WHERE type IN ('index', 'trigger') AND sql IS NOT NULL AND tbl_name IN (${TABLES.map((table) => `'${table}'`)})`,
  );
  for (const drop of own.pluck().all()) db.exec(drop);
}

const TEMPLATE_ID = 'TEMPLATE';
const templateText = sampleOrder(TEMPLATE_ID, 1234);

async function mirrorOne(directory: string): Promise<Map<string, unknown[][]>> {
  const { sink, close } = openBenchSink(directory);
  const { entry } = readNotification(Buffer.from(templateText), {
    read: readSample,
    receivedAtMs: Date.now(),
  });
  await sink.save([entry]);
  await close();
  const db = new Database(path.join(directory, 'mirror.db'), { readonly: true });
  const rows = TABLES.map((table) => [table, db.prepare(`SELECT * FROM ${table}`).raw().all()] as const);
  db.close();
  return new Map(rows as [string, unknown[][]][]);
}

function durable(file: string): Database.Database {
  const db = new Database(file);
  db.pragma('journal_mode = WAL');
  db.pragma('synchronous = FULL');
  return db;
}

function timed(text: string, commit: (text: string) => void): number {
  const beganMs = performance.now();
  commit(text);
  return performance.now() - beganMs;
}
