import { cpSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import Database from 'better-sqlite3';
import { expect, onTestFinished, test } from 'vitest';
import { migrate } from '../../src/db/migrate.ts';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { openDatabase } from '../../src/db/sqlite.ts';

const MIGRATIONS = fileURLToPath(new URL('../../src/db/mirror/migrations/', import.meta.url));
/** Number of the last migration whose tables a SQLite older than 2021 cannot read. */
const LAST_STRICT = 5;

/** Names of indexes that a later migration dropped. */
const DROPPED = readdirSync(MIGRATIONS).flatMap((name) =>
  Array.from(readFileSync(join(MIGRATIONS, name), 'utf8').matchAll(/^DROP INDEX (\w+);/gm), ([, it]) => it),
);

/** Makes a mirror with the schema of migration `LAST_STRICT` and with all kinds of values. */
function oldMirror() {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-old-mirror-'));
  const steps = mkdtempSync(join(tmpdir(), 'tillsync-steps-'));
  for (const name of readdirSync(MIGRATIONS).filter((each) => Number(each.slice(0, 4)) <= LAST_STRICT)) {
    cpSync(join(MIGRATIONS, name), join(steps, name));
  }
  const path = join(directory, 'mirror.db');
  const db = openDatabase({ path, mode: 0o640, busyTimeoutMs: 50, pragmas: { journal_mode: 'wal' } });
  db.exec('CREATE TABLE schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT');
  migrate(db, { directory: pathToFileURL(`${steps}/`), name: 'mirror.db' });
  db.exec(`
    INSERT INTO products (product_id, name, show, updated_at, payload) VALUES ('p1', 'Tea', 1, 'now', '{}');
    INSERT INTO skus (sku, product_id, price) VALUES ('10', 'p1', '1990'), ('11', 'p1', 1990), ('12', 'p1', 19.5);
    INSERT INTO stocks (sku, subsidiary_id, qty) VALUES ('10', 's1', '5'), ('11', 's1', 5), ('12', 's1', NULL);
    INSERT INTO order_acks (order_id, acked_at, source) VALUES ('o1   ', 'then', 'inbox'), ('o2', 'then', 'http'), ('o2 ', 'now', 'inbox');
    INSERT INTO orders (order_id, seq, updated_at, event_source, payload_source, payload) VALUES
      ('o1', 1, 'now', 'poll', 'poll', '{}'), ('o3', 2, 'now', 'poll', 'poll', '{}');
    INSERT INTO unbooked_orders (order_id, first_seq) VALUES ('o1', 1), ('o3', 2);
    INSERT INTO outbox (kind, target, conflict_key, body, fields, state, created_at, priority, queue_seq, basis, source, version, sent_qty)
      VALUES ('stock', 'sku:10@s1', 'p1', '{}', 'qty', 'done', 'now', 1, 1, 'mirror', 'inbox', 7, 2.5);`);
  onTestFinished(() => {
    db.close();
  });
  return { path, db };
}

const open = (path: string) => {
  const db = openConnection({ path, readonly: false, group: undefined });
  onTestFinished(() => {
    db.close();
  });
  return db;
};
const TABLES =
  "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";

test('an old mirror keeps every row and type, and becomes what a new one is', () => {
  const { path, db: before } = oldMirror();
  const columns = before.prepare("SELECT name FROM pragma_table_info('outbox')").pluck().all();
  const looks = [
    'SELECT sku, price, typeof(price) FROM skus',
    'SELECT sku, qty, typeof(qty) FROM stocks',
    `SELECT ${columns.join()}, typeof(sent_qty) FROM outbox`,
    "SELECT * FROM marks WHERE name NOT LIKE 'orders.%' AND name NOT LIKE 'ledger.%' ORDER BY name",
  ];
  const kept = looks.map((look) => before.prepare(look).all());
  const indexes = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY name";
  const keptIndexes = before
    .prepare<[], { name: string }>(indexes)
    .all()
    .filter(({ name }) => !name.startsWith('held_back_counts') && !DROPPED.includes(name));
  const reader = new Database(path, { readonly: true });
  reader.prepare('SELECT * FROM stocks').all();

  const db = open(path);
  expect(looks.map((look) => db.prepare(look).all())).toEqual(kept);
  expect(looks.map((look) => reader.prepare(look).all())).toEqual(kept);
  reader.close();
  expect(db.prepare(indexes).all()).toEqual(expect.arrayContaining(keptIndexes));
  expect(db.pragma('integrity_check', { simple: true })).toBe('ok');
  // The stored order ids of acknowledgements had trailing blanks (from a CHAR column) and were trimmed.
  expect(db.prepare('SELECT order_id FROM order_acks ORDER BY 1').pluck().all()).toEqual(['o1', 'o2']);
  expect(db.prepare('SELECT order_id, first_seq, is_stale FROM ledger_orders').raw().all()).toEqual([
    ['o1', 1, 1],
    ['o3', 2, 1],
  ]);

  const fresh = open(join(mkdtempSync(join(tmpdir(), 'tillsync-new-mirror-')), 'mirror.db'));
  expect(db.prepare(TABLES).all()).toEqual(fresh.prepare(TABLES).all());
});

test('nothing in the mirror needs a SQLite that is younger than 2018', () => {
  const db = open(join(mkdtempSync(join(tmpdir(), 'tillsync-new-mirror-')), 'mirror.db'));
  const all = db.prepare('SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL').pluck().all() as string[];
  const code = all.map((sql) => sql.replace(/--.*$/gm, '')).join('\n');
  // Readers parse triggers too, because they parse the whole schema. `npm run test:recipes` tries real SQLite
  // libraries.
  expect(code).not.toMatch(
    /\bSTRICT\b|\bANY\b|GENERATED|->|\biif\b|json|ON CONFLICT|RETURNING|\bUPDATE\b.*\bFROM\b/i,
  );
  const triggers = code.matchAll(/CREATE TRIGGER (\w+)/g);
  expect(Array.from(triggers, ([, name]) => name)).toEqual([
    ...['handed_up_settles', 'catalog_news_once'],
    ...['products_are_new', 'products_change', 'skus_are_new', 'skus_change', 'skus_go'],
    ...['stocks_are_new', 'stocks_change', 'stocks_go', 'integrations_are_new', 'integrations_go'],
    ...['store_acknowledges', 'acks_go_up', 'acks_go_up_again', 'outbox_settles', 'outbox_begins_settled'],
  ]);
});

test('what puts things in order is a whole number', () => {
  const db = open(join(mkdtempSync(join(tmpdir(), 'tillsync-new-mirror-')), 'mirror.db'));
  expect(() => db.exec("UPDATE marks SET value = 'later'")).toThrow(/CHECK/);
  expect(() => db.exec("INSERT INTO products (updated_at, payload) VALUES ('now', '{}')")).toThrow(
    /NOT NULL/,
  );
});
