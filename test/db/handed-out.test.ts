/** Tests src/db/mirror/migrations and src/db/state/migrations: every schema that a version left with a user. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliDecompressSync } from 'node:zlib';
import type Database from 'better-sqlite3';
import BetterSqlite from 'better-sqlite3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { openStateFile } from '../../src/db/state-file.ts';
import { openMirror } from '../../src/orders/mirror.ts';
import { receive } from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror, freshState } from '../support/fresh-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';

/**
 * Databases that the killed demo of each version left, with orders, products, stock counts, acknowledgements and
 * tokens. They are named after the version's newest migration. docs/development.md says how to add some.
 */
const HANDED_OUT = fileURLToPath(new URL('handed-out/', import.meta.url));
const files = (kind: string) => readdirSync(HANDED_OUT).filter((name) => name.startsWith(`${kind}-`));

function unpacked(name: string): { file: string; directory: string } {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-handed-out-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const file = path.join(directory, `${name.split('-')[0]}.db`);
  writeFileSync(file, brotliDecompressSync(readFileSync(path.join(HANDED_OUT, name))), { mode: 0o600 });
  return { file, directory };
}

function rowsOf(file: string, looks: readonly string[]): unknown[] {
  const db = new BetterSqlite(file, { readonly: true });
  try {
    return looks.map((look) => db.prepare(look).all());
  } finally {
    db.close();
  }
}

/** Returns the schema without the order of columns, because a new column is added at the end of an old table. */
function shape(db: Database.Database): unknown {
  const tables = db
    .prepare(
      "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name",
    )
    .pluck()
    .all() as string[];
  const others = db
    .prepare(
      "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY name",
    )
    .all();
  const columns = tables.map((name) => [
    name,
    db
      .prepare(`SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info('${name}') ORDER BY name`)
      .all(),
  ]);
  return { columns, others };
}

const ORDERS = [
  'SELECT order_id, code, status, seq, payload FROM orders ORDER BY order_id',
  'SELECT seq, order_id, status, source FROM order_events ORDER BY seq',
  'SELECT order_id, line, product_external_id, quantity FROM order_items ORDER BY 1, 2',
  'SELECT DISTINCT order_id FROM order_acks ORDER BY 1',
  'SELECT product_id, name, payload FROM products ORDER BY 1',
  'SELECT sku, subsidiary_id, qty, typeof(qty) FROM stocks ORDER BY 1, 2',
];
const CHANGES = ['SELECT change_id, kind, target, body, state, version FROM outbox ORDER BY 1'];

describe.each(files('mirror'))(
  '%s, as a version left it, is walked to the schema of today',
  { tags: ['bulk'] },
  (name) => {
    it('with every row, in the shape of a new one, and takes orders', async () => {
      const { file, directory } = unpacked(name);
      const looks = [...ORDERS, ...CHANGES];
      const before = rowsOf(file, looks);
      expect(before[0]).not.toEqual([]);
      const walked = openConnection({ path: file, readonly: false, group: undefined });
      const fresh = openConnection({
        path: freshMirror(path.join(directory, 'fresh')),
        readonly: false,
        group: undefined,
      });
      expect(shape(walked)).toEqual(shape(fresh));
      expect(walked.pragma('integrity_check', { simple: true })).toBe('ok');
      walked.close();
      fresh.close();
      expect(rowsOf(file, looks)).toEqual(before);

      const events = before[1] as { seq: number }[];
      const mirror = openMirror({ path: file, clock: new FakeClock() });
      await receive(mirror, sampleNotification(99_999));
      expect(mirror.orders.newestSeq()).toBeGreaterThan(events.at(-1)?.seq ?? 0);
      await mirror.close();
    });
  },
);

describe.each(files('state'))(
  '%s, as a version left it, is walked to the schema of today',
  { tags: ['bulk'] },
  (name) => {
    it('with its tokens, in the shape of a new one', () => {
      const { file, directory } = unpacked(name);
      const looks = ['SELECT access_token, refresh_token, generation FROM tokens'];
      const before = rowsOf(file, looks);
      expect(before[0]).toHaveLength(1);
      const walked = openStateFile(file, 100);
      mkdirSync(path.join(directory, 'fresh'));
      const fresh = openStateFile(freshState(path.join(directory, 'fresh')), 100);
      expect(shape(walked.db)).toEqual(shape(fresh.db));
      walked.close();
      fresh.close();
      expect(rowsOf(file, looks)).toEqual(before);
    });
  },
);

it('files of versions are there, of the first one too', () => {
  expect(files('mirror')).toContain('mirror-0003.db.br');
  expect(files('state')).toContain('state-0002.db.br');
});
