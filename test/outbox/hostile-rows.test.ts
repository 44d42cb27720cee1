import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { InboxRows } from '../../src/outbox/intake/inbox.ts';
import { openInboxFile } from '../../src/outbox/intake/inbox-file.ts';
import { outgoing } from './outbox-fixture.ts';
import { insert, pos, rowsOf, tempInbox } from './temp-inbox.ts';

describe('the tables of an inbox', () => {
  it('are kept by VACUUM and ANALYZE, and with a table and a view of the POS beside them', () => {
    const { path, inbox, troubles } = tempInbox();
    pos(path).exec('CREATE TABLE own (x); CREATE VIEW mine AS SELECT * FROM own; ANALYZE; VACUUM');
    insert(pos(path), 'A', 1);
    expect(inbox.read().changes).toHaveLength(1);
    expect(troubles).toEqual([]);
  });

  it('are kept beside a table of the POS that references them, indexes included, and are emptied', () => {
    const { path, inbox, troubles } = tempInbox();
    const db = pos(path);
    db.exec(`CREATE TABLE sent (change_id REFERENCES stock_changes (id)); CREATE INDEX by_change ON sent (change_id);
      INSERT INTO stock_changes (external_id, qty) VALUES ('A', 1); INSERT INTO sent VALUES (1)`);
    inbox.remove(rowsOf(inbox.read()));
    expect(inbox.read().changes).toEqual([]);
    expect(troubles).toEqual([]);
  });

  it.each([
    [
      'a trigger under a name of SQLite',
      "UPDATE sqlite_schema SET name = 'sqlite_t', sql = 'CREATE TRIGGER sqlite_t BEFORE DELETE ON stock_changes BEGIN SELECT raise(IGNORE); END' WHERE name = 't'",
      'CREATE TRIGGER t AFTER INSERT ON own BEGIN SELECT 1; END',
    ],
    [
      'an index under a name of SQLite',
      "UPDATE sqlite_schema SET name = 'sqlite_i', sql = 'CREATE INDEX sqlite_i ON stock_changes (abs(qty))' WHERE name = 'i'",
      'CREATE INDEX i ON own (x)',
    ],
  ])('with %s are set aside with their rows', (_, rename, make) => {
    const { path, inbox, troubles } = tempInbox();
    inbox.close();
    const db = new Database(path);
    db.unsafeMode();
    db.exec(`CREATE TABLE own (x); ${make}; INSERT INTO stock_changes (external_id, qty) VALUES ('A', 1)`);
    db.pragma('writable_schema = 1');
    db.exec(rename);
    db.close();
    expect(inbox.read().changes).toEqual([]);
    expect(troubles).toMatchObject([{ kind: 'damaged' }]);
  });

  it('are set aside where rows that were taken in stay, and never handed over again', () => {
    const { path } = tempInbox();
    const db = pos(path);
    insert(db, 'A', 1);
    const rows = new InboxRows(db, 0, () => {});
    const taken = rowsOf(rows.read(10));
    db.exec('CREATE TRIGGER stays BEFORE DELETE ON stock_changes BEGIN SELECT raise(IGNORE); END');
    expect(() => rows.remove(taken)).toThrow(/stock_changes .* cannot be removed/);
  });

  it('take rows again after the highest number that SQLite knows was used', () => {
    const { path, inbox, troubles } = tempInbox();
    const db = pos(path);
    db.exec("INSERT INTO stock_changes (id, external_id, qty) VALUES (9223372036854775807, 'A', 1)");
    expect(() => insert(db, 'B', 2)).toThrow();
    inbox.remove(rowsOf(inbox.read()));
    insert(db, 'B', 2);
    expect(inbox.read().changes).toMatchObject([{ value: { externalId: 'B' } }]);
    // The POS deletes its own row, so tillsync deletes none. The ids are restarted when the inbox is opened again.
    db.exec('DELETE FROM stock_changes; UPDATE sqlite_sequence SET seq = 9223372036854775807');
    inbox.close();
    inbox.read();
    insert(db, 'C', 3);
    expect(troubles).toEqual([]);
  });

  it.each([
    ['a trigger', 'CREATE TRIGGER t AFTER DELETE ON order_acks BEGIN SELECT 1; END', /trigger t/],
    ['an index', 'CREATE INDEX i ON stock_changes (abs(qty))', /index i/],
    ['another column', 'ALTER TABLE stock_changes ADD COLUMN more AS (qty + 1)', /stock_changes is not as/],
    [
      'a view in its place',
      'DROP TABLE order_acks; CREATE VIEW order_acks AS SELECT 1 AS id',
      /no table order_acks/,
    ],
  ])('with %s, made while it is open or before, are set aside with their rows', (_, sql, why) => {
    for (const isOpen of [true, false]) {
      const { path, inbox, troubles } = tempInbox();
      insert(pos(path), 'A', 1);
      if (!isOpen) inbox.close();
      const db = new Database(path);
      db.exec(sql);
      db.close();
      expect(inbox.read().changes).toEqual([]);
      expect(troubles).toMatchObject([{ kind: 'damaged', message: expect.stringMatching(why) }]);
      expect(
        new Database(troubles[0]?.keptAt ?? '').prepare('SELECT count(*) FROM stock_changes').pluck().get(),
      ).toBe(1);
    }
  });

  it('are told of a newer tillsync as they are', () => {
    const { path, inbox } = tempInbox();
    pos(path).pragma('user_version = 3');
    expect(() => inbox.close() ?? openInboxFile({ path })).toThrow('newer tillsync');
  });
});

describe('a row that is too long', () => {
  const LONG = [
    [
      'description',
      'product_changes (sku, description) VALUES (7, CAST(zeroblob(400001) AS TEXT))',
      { sku: 7 },
    ],
    ['name', 'product_changes (sku, name) VALUES (7, zeroblob(3000000))', { sku: 7 }],
    [
      'external_id',
      "stock_changes (external_id, qty) VALUES (replace(hex(zeroblob(500)), '0', 'x'), 1)",
      { qty: 1 },
    ],
    [
      'reference',
      'stock_changes (sku, qty, reference) VALUES (7, 2, hex(zeroblob(3000)))',
      { sku: 7, qty: 2 },
    ],
    [
      'change_key',
      'stock_changes (sku, qty, change_key) VALUES (7, 2, hex(zeroblob(3000)))',
      { sku: 7, qty: 2 },
    ],
  ] as const;

  it.each(LONG)(
    'by its %s is one rejected change with its reason, and the others are taken',
    (column, sql, value) => {
      const { path, inbox } = tempInbox();
      const db = pos(path);
      insert(db, 'A', 1);
      db.pragma('ignore_check_constraints = ON');
      db.exec(`INSERT INTO ${sql}`);
      insert(db, 'B', 2);
      const batch = inbox.read();
      expect(batch.changes).toHaveLength(3);
      expect(JSON.stringify(batch).length).toBeLessThan(4_000);
      expect(batch.changes.find(({ tooLong }) => tooLong)).toMatchObject({ tooLong: { column }, value });
      const out = outgoing();
      out.inbox.ingest(batch, GUARDS_OFF);
      const rejected = out.queries
        .list({ limit: 5 })
        .filter(({ state, message }) => state === 'rejected' && /no more than/.test(message ?? ''));
      expect(rejected).toMatchObject([
        { source: 'inbox', message: expect.stringMatching(/has \d+ bytes; no more than \d+ are taken/) },
      ]);
      inbox.remove(rowsOf(batch));
      expect(inbox.read()).toMatchObject({ changes: [], acks: [] });
    },
  );

  it('is refused at the insert, with a name that says why', () => {
    const { path } = tempInbox();
    const db = pos(path);
    const long = 'x'.repeat(201);
    expect(() => insert(db, long, 1)).toThrow('external_id must have 200 characters at most');
    expect(() => db.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(long)).toThrow(
      'order_id must have 200',
    );
    const text = db.prepare('INSERT INTO product_changes (sku, description) VALUES (1, ?)');
    expect(() => text.run('ñ'.repeat(100_001))).toThrow('description must have 100000 characters at most');
    expect(text.run('ñ'.repeat(100_000)).changes).toBe(1);
  });

  it('of an acknowledgement acknowledges nothing and is gone', () => {
    const { path, inbox } = tempInbox();
    const db = pos(path);
    db.pragma('ignore_check_constraints = ON');
    db.exec('INSERT INTO order_acks (order_id) VALUES (hex(zeroblob(3000)))');
    const batch = inbox.read();
    const out = outgoing();
    expect(out.inbox.ingest(batch, GUARDS_OFF).acks).toEqual([]);
    inbox.remove(rowsOf(batch));
    expect(inbox.read().acks).toEqual([]);
  });
});

it('a batch has about a megabyte, and acknowledgements wait until all counts before them are given', () => {
  const { path, inbox } = tempInbox();
  const db = pos(path);
  const text = db.prepare('INSERT INTO product_changes (sku, description) VALUES (1, ?)');
  db.transaction(() => {
    for (let i = 0; i < 30; i++) text.run('d'.repeat(90_000));
  })();
  let [batches, rows] = [0, 0];
  for (let more = true; more; batches++) {
    const batch = inbox.read();
    expect(JSON.stringify(batch).length).toBeLessThan(1_200_000);
    rows += batch.changes.length;
    inbox.remove(rowsOf(batch));
    more = batch.more;
  }
  expect([rows, batches]).toEqual([30, 3]);
});

it('what lies where the journal belongs and is no file is moved away, and the rows stay', () => {
  const { path, inbox, troubles } = tempInbox();
  insert(pos(path), 'A', 1);
  inbox.close();
  symlinkSync('/dev/null', `${path}-journal`);
  mkdirSync(`${path}-wal`);
  expect(inbox.read().changes).toHaveLength(1);
  expect(troubles.map(({ kind }) => kind)).toEqual(['obstructed', 'obstructed']);
  expect(troubles[0]?.keptAt).toMatch(/inbox\.db-journal\.moved-20260115T120000Z$/);
});

it('a dangling link in place of the file is set aside', () => {
  const { path, inbox, troubles } = tempInbox();
  rmSync(path);
  symlinkSync(join(dirname(path), 'nowhere'), path);
  expect(inbox.read().changes).toEqual([]);
  expect(troubles.map(({ kind }) => kind)).toEqual(['damaged']);
  insert(pos(path), 'A', 1);
  expect(inbox.read().changes).toHaveLength(1);
});

it('a write-ahead log that a POS switches on is served, and switched off once the POS is gone', () => {
  const { path, inbox } = tempInbox();
  const db = pos(path);
  db.pragma('journal_mode = WAL');
  insert(db, 'A', 1);
  expect(inbox.read().changes).toHaveLength(1);
  db.close();
  inbox.close();
  expect(inbox.read().changes).toHaveLength(1);
  expect(pos(path).pragma('journal_mode', { simple: true })).toBe('delete');
});
