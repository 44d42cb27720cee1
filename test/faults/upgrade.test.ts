import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import Database from 'better-sqlite3';
import { afterEach, expect, it } from 'vitest';
import { migrate } from '../../src/db/migrate.ts';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { openDatabase } from '../../src/db/sqlite.ts';
import { oldStockMirror } from '../orders/old-stock-mirror.ts';
import { limitMs } from '../support/shared-config.ts';
import { ROOT, type Workplace } from '../support/workplace.ts';
import { integrityOf, openFaultPlace, rowsOf } from './support/fault-place.ts';
import { faultyDisk } from './support/faulty-disk.ts';

const MIGRATIONS = path.join(ROOT, 'src/db/mirror/migrations');
const ORDER =
  "INSERT INTO order_events (order_id, status, source, observed_at) VALUES ('o1', 'ready', 'poll', '2026-01-01T00:00:00.000Z')";

let place: Workplace;
afterEach(() => place.close());

/** Makes a mirror of the first schema version with one event, and returns the names of all migrations. */
function oldMirror(directory: string): string[] {
  const steps = mkdtempSync(path.join(tmpdir(), 'tillsync-steps-'));
  const names = readdirSync(MIGRATIONS)
    .filter((name) => name.endsWith('.sql'))
    .sort();
  cpSync(path.join(MIGRATIONS, names[0] as string), path.join(steps, names[0] as string));
  const file = path.join(directory, 'mirror.db');
  const db = openDatabase({ path: file, mode: 0o640, busyTimeoutMs: 50, pragmas: { journal_mode: 'wal' } });
  migrate(db, { directory: pathToFileURL(`${steps}/`), name: 'mirror.db' });
  db.exec(ORDER);
  db.close();
  rmSync(steps, { recursive: true });
  return names.map((name) => name.replace('.sql', ''));
}

it(
  'an upgrade killed at any step leaves the old schema or the new one, and is done by the next start',
  async () => {
    place = await openFaultPlace();
    const disk = faultyDisk(place);
    const source = path.join(place.directory, 'old');
    mkdirSync(source);
    const names = oldMirror(source);
    expect(names.length).toBeGreaterThan(2);
    const applied = () =>
      rowsOf<{ name: string }>(place, 'SELECT name FROM schema_migrations ORDER BY number').map(
        ({ name }) => name,
      );
    const seen = new Set<number>();
    let step = 1;
    for (let killed = true; killed; step += step < 8 ? 1 : Math.ceil(step / 4)) {
      for (const name of readdirSync(place.storage).filter((each) => each.startsWith('mirror.db'))) {
        rmSync(path.join(place.storage, name));
      }
      cpSync(source, place.storage, { recursive: true });
      disk.begin('kill-at-step', `${step} mirror.db`);
      const { code } = await place.command('sync', 'orders');
      killed = code === null;
      const [first, ...rest] = applied();
      expect([first, ...rest]).toEqual(names.slice(0, rest.length + 1));
      expect([1, names.length]).toContain(rest.length + 1);
      seen.add(rest.length + 1);
      expect(integrityOf(place)).toBe('ok');
      expect(rowsOf(place, 'SELECT order_id FROM order_events')).toEqual([{ order_id: 'o1' }]);
      for (const name of readdirSync(place.storage).filter((each) => each.endsWith('.before-upgrade'))) {
        const copy = new Database(path.join(place.storage, name), { readonly: true });
        expect(copy.prepare('SELECT order_id FROM order_events').pluck().all()).toEqual(['o1']);
        copy.close();
      }
      disk.end('kill-at-step');
      if (!killed) break;
      expect(await place.command('sync', 'orders')).toMatchObject({ code: 0 });
      expect(applied()).toEqual(names);
      expect(rowsOf(place, 'SELECT order_id FROM order_events')).toEqual([{ order_id: 'o1' }]);
    }
    expect(step).toBeGreaterThan(10);
    expect([...seen].toSorted()).toEqual([1, names.length]);
  },
  limitMs(120_000),
);

/** Queries for what the old and the new schema both have: changes, acknowledgements, and orders that take stock. */
const STOCK = [
  'SELECT * FROM outbox ORDER BY change_id',
  'SELECT * FROM order_acks ORDER BY order_id',
  "SELECT * FROM order_events WHERE order_id LIKE 'o1_' ORDER BY seq",
  "SELECT * FROM orders WHERE order_id LIKE 'o1_' ORDER BY order_id",
];
const BEFORE = [...STOCK, 'SELECT * FROM held_back_counts', 'SELECT * FROM unbooked_orders'];
const AFTER = [
  ...STOCK,
  'SELECT * FROM stock_counts ORDER BY sku',
  'SELECT * FROM ledger_orders ORDER BY order_id',
  "SELECT * FROM marks WHERE name LIKE 'ledger.%' ORDER BY name",
];

function dump(file: string, queries: readonly string[]): unknown[] {
  const db = new Database(file, { readonly: true });
  try {
    return queries.map((sql) => db.prepare(sql).all());
  } finally {
    db.close();
  }
}

it(
  'a store that holds back stock keeps its counts and all it knows of orders, killed at any step of its upgrade',
  async () => {
    place = await openFaultPlace();
    const disk = faultyDisk(place);
    const old = path.join(place.directory, 'old');
    mkdirSync(old);
    oldStockMirror(path.join(old, 'mirror.db'), 5);
    const before = dump(path.join(old, 'mirror.db'), BEFORE);
    const undisturbed = path.join(place.directory, 'undisturbed.db');
    cpSync(path.join(old, 'mirror.db'), undisturbed);
    openConnection({ path: undisturbed, readonly: false, group: undefined }).close();
    const after = dump(undisturbed, AFTER);
    expect(after.slice(4, 6).map((rows) => (rows as unknown[]).length)).toEqual([3, 5]);

    const mirror = path.join(place.storage, 'mirror.db');
    // The command upgrades the files, because it opens them for writing. It changes nothing else, because no change has
    // the number 999.
    const upgrade = () => place.command('outbox', 'drop', '999');
    const seen = { old: 0, new: 0 };
    let step = 1;
    for (let isKilled = true; isKilled; step += step < 10 ? 1 : Math.ceil(step / 8)) {
      for (const name of readdirSync(place.storage).filter((each) => each.startsWith('mirror.db'))) {
        rmSync(path.join(place.storage, name));
      }
      cpSync(old, place.storage, { recursive: true });
      disk.begin('kill-at-step', `${step} mirror.db`);
      isKilled = (await upgrade()).code === null;
      disk.end('kill-at-step');
      const isNew = rowsOf(place, "SELECT 1 FROM sqlite_schema WHERE name = 'stock_counts'").length > 0;
      seen[isNew ? 'new' : 'old'] += 1;
      expect(integrityOf(place), `step ${step}`).toBe('ok');
      expect(dump(mirror, isNew ? AFTER : BEFORE), `step ${step}`).toEqual(isNew ? after : before);
      if (!isKilled) break;
      expect(await upgrade()).toMatchObject({ code: 1 });
      expect(dump(mirror, AFTER), `after step ${step}`).toEqual(after);
    }
    expect(seen.old).toBeGreaterThan(5);
    expect(seen.new).toBeGreaterThan(0);
  },
  limitMs(300_000),
);
