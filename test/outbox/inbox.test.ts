import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { dirname } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { hasCode } from '../../src/core/errors.ts';
import { InboxRows } from '../../src/outbox/intake/inbox.ts';
import { insert, pos, rowsOf, tempInbox } from './temp-inbox.ts';

describe('the inbox file', () => {
  it('can be written by the group, whatever the umask, and keeps a rollback journal', () => {
    const before = process.umask(0o077);
    onTestFinished(() => {
      process.umask(before);
    });
    const { path } = tempInbox();
    expect(statSync(path).mode & 0o777).toBe(0o660);
    expect(statSync(dirname(path)).mode & 0o7777).toBe(0o2770);
    expect(pos(path).pragma('journal_mode', { simple: true })).toBe('delete');
  });

  it.each([
    ['stock_changes (qty) VALUES (1)', 'give external_id or sku'],
    ["stock_changes (external_id) VALUES ('A')", 'qty must be given'],
    ["stock_changes (external_id, qty) VALUES ('A', -9007199254740992)", 'qty must be a number'],
    ["stock_changes (external_id, qty) VALUES ('A', '1,5')", 'qty must be a number'],
    ["stock_changes (external_id, qty) VALUES ('A', 9e999)", 'qty must be a number'],
    ["stock_changes (external_id, qty) VALUES (' ', 1)", 'external_id must be a text that is not empty'],
    ['stock_changes (external_id, qty) VALUES (1.5, 1)', 'external_id must be a text that is not empty'],
    ["stock_changes (external_id, qty, show) VALUES ('A', 1, 2)", 'show must be 0 or 1'],
    ['stock_changes (sku, qty) VALUES (1.5, 1)', 'sku must be a whole number of 0 or more'],
    ["stock_changes (sku, qty) VALUES ('x', 1)", 'sku must be a whole number of 0 or more'],
    ['product_changes (sku) VALUES (1)', 'give price, name, description or show'],
    ["product_changes (sku, price) VALUES (1, 'free')", 'price must be a number of 0 or more'],
    ["product_changes (sku, name) VALUES (1, '')", 'name must be a text that is not empty'],
    ['order_acks (order_id) VALUES (NULL)', 'order_id must be a text that is not empty'],
    ["order_acks (order_id, without) VALUES ('o1', 'two')", 'without must be line numbers, such as 2,3'],
    ["order_acks (order_id, without) VALUES ('o1', '')", 'without must be line numbers, such as 2,3'],
    ["order_acks (order_id, without) VALUES ('o1', '0')", 'without must be line numbers, such as 2,3'],
    ["order_acks (order_id, without) VALUES ('o1', 0)", 'without must be line numbers, such as 2,3'],
  ])('refuses INSERT INTO %s with a name that says why', (statement, name) => {
    const { path } = tempInbox();
    expect(() => pos(path).exec(`INSERT INTO ${statement}`)).toThrow(`CHECK constraint failed: ${name}`);
  });

  it('takes what a POS means, numbers as texts and ids as numbers included', () => {
    const { path, inbox } = tempInbox();
    const db = pos(path);
    db.exec("INSERT INTO stock_changes (external_id, qty, show, reference) VALUES (12, '2.5', 1, 'doc 7')");
    db.exec("INSERT INTO stock_changes (sku, qty, subsidiary_external_id) VALUES ('10', 0, 'B1')");
    db.exec("INSERT INTO product_changes (sku, price, description) VALUES (10, 1990, '')");
    db.exec("INSERT INTO order_acks (order_id) VALUES ('o1')");
    db.exec(
      "INSERT INTO order_acks (order_id, without) VALUES ('o2', 2), ('o3', '2,3'), ('o4', '[1, 12]'), ('o5', '[]')",
    );
    // A driver may bind every number as a double.
    db.prepare("INSERT INTO order_acks (order_id, without) VALUES ('o6', ?)").run(2);
    const { changes, acks, more } = inbox.read();
    expect(changes.map(({ kind, value, reference }) => [kind, value, reference])).toEqual([
      ['stock', { externalId: '12', qty: 2.5, show: true }, 'doc 7'],
      ['stock', { sku: 10, qty: 0, subsidiaryExternalId: 'B1' }, null],
      ['product', { sku: 10, price: 1990, description: '' }, null],
    ]);
    expect(acks.map(({ orderId, without }) => [orderId, without])).toEqual([
      ['o1', []],
      ['o2', [2]],
      ['o3', [2, 3]],
      ['o4', [1, 12]],
      ['o5', []],
      ['o6', [2]],
    ]);
    expect(more).toBe(false);
  });

  it('keeps whole numbers of 64 bits and keys that are bytes as they are, and takes each row once', () => {
    const { path, inbox } = tempInbox();
    const db = pos(path);
    db.exec(`INSERT INTO stock_changes (id, external_id, qty, reference, change_key) VALUES
      (7, 9007199254740993, 1, 9007199254740995, x'ff00'), (9007199254740993, 'B', 2, NULL, x'fe00'),
      (8, 'C', 3, NULL, CAST(x'ff' AS TEXT)), (9, 'D', 4, NULL, CAST(x'fe' AS TEXT))`);
    db.exec("INSERT INTO order_acks (order_id, change_key) VALUES (9007199254740993, x'fd')");
    const batch = inbox.read();
    expect(batch.changes[0]).toMatchObject({
      value: { externalId: '9007199254740993', qty: 1 },
      reference: '9007199254740995',
    });
    expect(batch.acks.map(({ orderId }) => orderId)).toEqual(['9007199254740993']);
    expect(new Set([...batch.changes, ...batch.acks].map(({ key }) => key)).size).toBe(5);
    inbox.remove(rowsOf(batch));
    expect(inbox.read()).toMatchObject({ changes: [], acks: [] });
  });

  it('is copied page by page, each from the number that the one before ended with', () => {
    const { path } = tempInbox();
    const db = pos(path);
    for (const qty of [1, 2, 3, 4, 5]) insert(db, `A${qty}`, qty);
    const rows = new InboxRows(db, 0, () => {});
    const page = (from: string) => rows.read(2, { stock_changes: from });
    expect(['1', '3', '5'].map((from) => page(from).changes.map(({ id }) => id))).toEqual([
      ['1', '2'],
      ['3', '4'],
      ['5'],
    ]);
    expect([page('3').more, page('5').more]).toEqual([true, false]);
  });

  it('holds acknowledgements back while counts are left behind', () => {
    const { path, inbox } = tempInbox();
    const db = pos(path);
    for (let i = 0; i < 3; i++) insert(db, `A${i}`, i);
    db.exec("INSERT INTO order_acks (order_id) VALUES ('o1')");
    const first = inbox.read(3);
    expect(first).toMatchObject({ acks: [], more: true });
    inbox.remove(rowsOf(first));
    expect(inbox.read(3)).toMatchObject({ changes: [], acks: [{ orderId: 'o1' }], more: false });
  });

  it('removes only the rows it read, not one that took their number', () => {
    const { path, inbox } = tempInbox();
    const db = pos(path);
    insert(db, 'A', 1);
    const batch = inbox.read();
    db.exec('DELETE FROM stock_changes');
    db.exec("INSERT INTO stock_changes (id, external_id, qty) VALUES (1, 'B', 2)");
    inbox.remove(rowsOf(batch));
    expect(inbox.read().changes).toMatchObject([{ value: { externalId: 'B' } }]);
  });
});

describe('an inbox in trouble', () => {
  it('that is locked says so soon, and loses nothing', () => {
    const { path, inbox } = tempInbox();
    const db = pos(path);
    db.exec('BEGIN EXCLUSIVE');
    insert(db, 'A', 1);
    const tookMs = (read: () => unknown) => {
      const startedMs = performance.now();
      const failure = catchError(read);
      return { failure, ms: performance.now() - startedMs };
    };
    const { failure, ms } = tookMs(() => inbox.read());
    expect(hasCode(failure, 'storage-busy')).toBe(true);
    const patient = new Database(path, { timeout: 1_000 });
    expect(ms).toBeLessThan(tookMs(() => patient.prepare('SELECT * FROM stock_changes').all()).ms);
    patient.close();
    db.exec('COMMIT');
    expect(inbox.read().changes).toHaveLength(1);
  });

  it('that a program opened before it was made is made anew at once, with nothing to tell', () => {
    const { path, inbox, troubles } = tempInbox();
    inbox.close();
    rmSync(path);
    writeFileSync(path, '', { mode: 0o400 });
    expect(inbox.read().changes).toEqual([]);
    insert(pos(path), 'A', 1);
    expect(inbox.read().changes).toHaveLength(1);
    expect(statSync(path).mode & 0o777).toBe(0o660);
    expect(readdirSync(dirname(path))).toEqual(['inbox.db']);
    expect(troubles.map(({ kind }) => kind)).not.toContain('damaged');
  });

  it('whose pages are damaged while it is open is set aside within minutes, also with no row to read', () => {
    const { path, inbox, troubles, clock } = tempInbox();
    inbox.read();
    const bytes = readFileSync(path);
    writeFileSync(path, bytes.fill(0xa5, 4096, 8192));
    expect(inbox.read().changes).toEqual([]);
    clock.jumpWall(5 * 60_000);
    inbox.read();
    expect(troubles).toMatchObject([{ kind: 'damaged' }]);
    insert(pos(path), 'A', 1);
    expect(inbox.read().changes).toHaveLength(1);
  });

  it('does not see half of a transaction, nor one of a POS that gave up', () => {
    const { path, inbox } = tempInbox();
    const db = pos(path);
    db.exec('BEGIN IMMEDIATE');
    insert(db, 'A', 1);
    expect(inbox.read().changes).toEqual([]);
    db.exec('ROLLBACK');
    expect(inbox.read().changes).toEqual([]);
  });

  it.each([
    ['is no database', (path: string) => writeFileSync(path, 'x'.repeat(8192))],
    ['has a damaged page', (path: string) => damage(path)],
    ['is cut off', (path: string) => truncateSync(path, 5000)],
    ['is a database of something else', (path: string) => replaceByOther(path)],
  ])('that %s is set aside and made anew', (_, harm) => {
    const { path, inbox, troubles } = tempInbox();
    insert(pos(path), 'A', 1);
    inbox.close();
    harm(path);
    expect(inbox.read().changes).toEqual([]);
    const [trouble] = troubles.filter((each) => each.kind === 'damaged');
    expect(trouble?.keptAt).toMatch(/inbox\.db\.damaged-20260115T120000Z$/);
    expect(existsSync(trouble?.keptAt ?? '')).toBe(true);
    insert(pos(path), 'B', 2);
    expect(inbox.read().changes).toHaveLength(1);
    // A second damaged file at the same moment does not overwrite the first.
    inbox.close();
    writeFileSync(path, 'y'.repeat(4096));
    inbox.read();
    expect(readdirSync(dirname(path)).filter((name) => name.includes('damaged'))).toHaveLength(2);
  });

  it('that was deleted or moved away is made anew, with its directory', () => {
    const { path, inbox, troubles } = tempInbox();
    rmSync(path);
    expect(inbox.read().changes).toEqual([]);
    insert(pos(path), 'A', 1);
    const batch = inbox.read();
    rmSync(dirname(path), { recursive: true });
    inbox.remove(rowsOf(batch));
    insert(pos(path), 'B', 1);
    expect(inbox.read().changes).toMatchObject([{ value: { externalId: 'B' } }]);
    expect(troubles.map((each) => each.kind)).toEqual(['deleted', 'deleted']);
  });

  it('that was replaced by another sound one is used', () => {
    const { path, inbox, troubles } = tempInbox();
    const other = tempInbox();
    insert(pos(other.path), 'B', 2);
    other.inbox.close();
    renameSync(other.path, path);
    chmodSync(path, 0o660);
    expect(inbox.read().changes).toMatchObject([{ value: { externalId: 'B' } }]);
    expect(troubles.map((each) => each.kind)).toEqual(['replaced']);
  });

  it('made by a newer tillsync is left alone', () => {
    const { path, inbox, troubles } = tempInbox();
    pos(path).pragma('user_version = 9');
    inbox.close();
    expect(
      hasCode(
        catchError(() => inbox.read()),
        'storage-newer',
      ),
    ).toBe(true);
    expect(troubles).toEqual([]);
  });
});

/** Overwrites the pages after the first, which contains the schema. */
function damage(path: string): void {
  const bytes = Buffer.alloc(statSync(path).size - 4096, 0xa5);
  const head = new Database(path, { readonly: true });
  const first = head.serialize().subarray(0, 4096);
  head.close();
  writeFileSync(path, Buffer.concat([first, bytes]));
}

function replaceByOther(path: string): void {
  rmSync(path);
  const db = new Database(path);
  db.exec('CREATE TABLE something (id)');
  db.close();
}

function catchError(action: () => unknown): unknown {
  try {
    action();
    return undefined;
  } catch (error) {
    return error;
  }
}
