import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, existsSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openWorkplace, ROOT, until, type Workplace } from '../support/workplace.ts';

const DAEMON = 61_001;
const POS = 61_003;
/** The group that both users have in common. */
const SHARED_GROUP = 61_002;
const canChangeUser = process.getuid?.() === 0 && existsSync('/usr/bin/setpriv');
const AS_DAEMON = ['setpriv', '--reuid', `${DAEMON}`, '--regid', `${DAEMON}`, '--groups', `${SHARED_GROUP}`];

let place: Workplace;

/** Runs SQL as a POS with its own Unix user; returns the rows, or the error. */
function pos(file: string, sql: string, mode: 'read' | 'write' = 'read'): unknown[] | string {
  const program = `
    const Database = require(${JSON.stringify(path.join(ROOT, 'node_modules/better-sqlite3'))});
    const db = new Database(process.argv[1], { fileMustExist: true, readonly: process.argv[3] === 'read' });
    const statement = db.prepare(process.argv[2]);
    console.log(JSON.stringify(statement.reader ? statement.all() : [statement.run()]));`;
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['-e', program, path.join(place.storage, file), sql, mode],
    { uid: POS, gid: SHARED_GROUP, encoding: 'utf8', cwd: '/' },
  );
  return status === 0 ? (JSON.parse(stdout) as unknown[]) : (/SqliteError: (.*)/.exec(stderr)?.[1] ?? stderr);
}

beforeEach(async () => {
  place = await openWorkplace(21);
  chmodSync(place.directory, 0o755);
  chownSync(place.directory, DAEMON, DAEMON);
  place.env.TILLSYNC_STORAGE_GROUP = String(SHARED_GROUP);
});
afterEach(() => place.close());

describe.skipIf(!canChangeUser)('a POS of another Unix user that speaks only SQL', () => {
  it('finds files that are its to read and one that is its to write', async () => {
    const daemon = await place.run(...AS_DAEMON);
    const inbox = () => existsSync(path.join(place.storage, 'inbox', 'inbox.db'));
    await until('the inbox is there', inbox);
    const facts = (name: string) => {
      const { mode, uid, gid } = statSync(path.join(place.storage, name));
      return [(mode & 0o7777).toString(8), uid, gid];
    };
    expect(facts('.')).toEqual(['2750', DAEMON, SHARED_GROUP]);
    expect(facts('mirror.db')).toEqual(['640', DAEMON, SHARED_GROUP]);
    expect(facts('inbox')).toEqual(['2770', DAEMON, SHARED_GROUP]);
    expect(facts('inbox/inbox.db')).toEqual(['660', DAEMON, SHARED_GROUP]);
    expect(facts('state.db').slice(0, 2)).toEqual(['600', DAEMON]);
    expect(await daemon.end('SIGTERM')).toBe(0);
  });

  it('reads the mirror, hands changes and acknowledgements over, and can do nothing else', async () => {
    const { control } = place.sandbox;
    const daemon = await place.run(...AS_DAEMON);
    const order = control.createOrder();
    const orders = 'SELECT order_id FROM order_events WHERE seq > 0';
    await until('the order is here', () => pos('mirror.db', orders).length === 1);

    const said = pos(
      'inbox/inbox.db',
      "INSERT INTO stock_changes (external_id, qty, reference) VALUES ('A-1001-1', 17, 'till 3')",
      'write',
    );
    expect(said).toEqual([{ changes: 1, lastInsertRowid: 1 }]);
    pos('inbox/inbox.db', "INSERT INTO product_changes (sku, name) VALUES (1001, 'Pizza')", 'write');
    pos('inbox/inbox.db', `INSERT INTO order_acks (order_id) VALUES ('${order.internalOrderId}')`, 'write');
    const done = "SELECT kind, reference FROM outbox WHERE state = 'done' ORDER BY kind";
    await until('both arrived', () => pos('mirror.db', done).length === 2);
    expect(pos('mirror.db', done)).toEqual([
      { kind: 'product', reference: null },
      { kind: 'stock', reference: 'till 3' },
    ]);
    expect(control.stockOf(1001, 'sub-1')).toBe(17);
    expect(pos('mirror.db', "SELECT qty FROM stocks WHERE sku = '1001' AND subsidiary_id = 'sub-1'")).toEqual(
      [{ qty: 17 }],
    );
    const acks = () => pos('mirror.db', 'SELECT order_id FROM order_acks');
    await until('the acknowledgement arrived', () => acks().length > 0);
    expect(acks()).toEqual([{ order_id: order.internalOrderId }]);
    const left = `SELECT (SELECT count(*) FROM stock_changes) + (SELECT count(*) FROM product_changes)
      + (SELECT count(*) FROM order_acks) AS n`;
    await until('the inbox is empty', () => JSON.stringify(pos('inbox/inbox.db', left)) === '[{"n":0}]');

    const refused = pos('inbox/inbox.db', 'INSERT INTO stock_changes (qty) VALUES (-1)', 'write');
    expect(refused).toMatch(/CHECK constraint failed: (give external_id or sku|qty must be)/);
    for (const sql of ['DELETE FROM _orders', 'UPDATE _stocks SET qty = 0', 'DROP TABLE _outbox']) {
      expect(pos('mirror.db', sql, 'write')).toContain('readonly');
    }
    for (const mode of ['read', 'write'] as const) {
      expect(pos('state.db', 'SELECT * FROM tokens', mode)).toContain('unable to open');
    }
    const asPos = { uid: POS, gid: SHARED_GROUP, cwd: '/' };
    for (const name of readdirSync(place.storage)) {
      const file = path.join(place.storage, name);
      expect(spawnSync('mv', [file, `${file}.gone`], asPos).status, name).not.toBe(0);
      const secret = name.startsWith('state.db') || name === 'local.sock';
      expect(spawnSync('head', ['-c1', file], asPos).status === 0, name).toBe(!secret && name !== 'inbox');
    }
    await daemon.end('SIGKILL');
    expect(pos('mirror.db', orders).length).toBe(1);
    pos('inbox/inbox.db', "INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 4)", 'write');
    const again = await place.run(...AS_DAEMON);
    await until('it arrived', () => control.stockOf(1001, 'sub-1') === 4);
    expect(await again.end('SIGTERM')).toBe(0);
    expect(pos('mirror.db', orders).length).toBe(1);
    expect(control.violations()).toEqual([]);
  });

  it('cannot lead the daemon to a file of its own by a link', async () => {
    const daemon = await place.run(...AS_DAEMON);
    const inbox = path.join(place.storage, 'inbox', 'inbox.db');
    await until('the inbox is there', () => existsSync(inbox));
    const asPos = { uid: POS, gid: SHARED_GROUP, cwd: '/' };
    execFileSync('ln', ['-sf', path.join(place.storage, 'state.db'), inbox], asPos);
    await until(
      'a new inbox is there',
      () => statSync(inbox, { throwIfNoEntry: false })?.gid === SHARED_GROUP,
    );
    const insert = "INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 6)";
    await until('the POS can insert', () => typeof pos('inbox/inbox.db', insert, 'write') !== 'string');
    await until('it arrived', () => place.sandbox.control.stockOf(1001, 'sub-1') === 6);
    await daemon.end('SIGTERM');
  });
});
