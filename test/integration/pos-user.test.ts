import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { networkInterfaces } from 'node:os';
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

  it('has the key, the socket and the files, of which another user and another machine have none', async () => {
    delete place.env.TILLSYNC_LOCAL_API_KEY;
    const network = Object.values(networkInterfaces())
      .flat()
      .find((each) => each?.family === 'IPv4' && !each.internal)?.address;
    const run = path.join(place.directory, 'run');
    mkdirSync(run);
    chownSync(run, DAEMON, DAEMON);
    const socket = path.join(run, 'api.sock');
    place.env.TILLSYNC_LOCAL_SOCKET = socket;
    const port = place.config.local.port;
    if (network) place.env.TILLSYNC_LOCAL_LISTEN = `["127.0.0.1:${port}","${network}:${port}"]`;
    const daemon = await place.run(...AS_DAEMON);
    const inbox = path.join(place.storage, 'inbox', 'inbox.db');
    await until('the inbox is there', () => existsSync(inbox));
    const keyFile = path.join(place.storage, 'api-key');
    const { mode, uid, gid } = statSync(keyFile);
    expect([(mode & 0o7777).toString(8), uid, gid]).toEqual(['640', DAEMON, SHARED_GROUP]);
    const key = readFileSync(keyFile, 'utf8').trim();
    // Through standard input, for a command line is seen by every user.
    const curl = (who: { uid: number; gid: number }, words: string[], header = '') => {
      const all = ['-s', '-o', '/dev/null', '-w', '%{http_code}', '-m', '5', '-K', '-', ...words];
      return Number(spawnSync('curl', all, { ...who, encoding: 'utf8', cwd: '/', input: header }).stdout);
    };
    const withKey = `header = "x-api-key: ${key}"`;
    const opens = (who: { uid: number; gid: number }, file: string) =>
      spawnSync('head', ['-c1', file], { ...who, cwd: '/' }).status === 0;
    const ofGroup = { uid: POS, gid: SHARED_GROUP };
    const other = { uid: 61_004, gid: 61_004 };
    for (const [who, isOfGroup] of [
      [ofGroup, true],
      [other, false],
    ] as const) {
      for (const file of [path.join(place.storage, 'mirror.db'), inbox, keyFile]) {
        expect(opens(who, file), `${who.uid} ${file}`).toBe(isOfGroup);
      }
      const bySocket = ['--unix-socket', socket, 'http://localhost/v1/orders'];
      expect(curl(who, bySocket), `${who.uid} by the socket`).toBe(isOfGroup ? 200 : 0);
      for (const host of ['127.0.0.1', ...(network ? [network] : [])]) {
        const at = (route: string) => [`http://${host}:${port}${route}`];
        for (const route of ['/v1/orders', '/v1/status', '/v1/openapi.json', '/metrics']) {
          expect(curl(who, at(route)), route).toBe(401);
          expect(curl(who, at(route), withKey), route).toBe(200);
        }
        for (const route of ['/', '/healthz', '/readyz']) expect(curl(who, at(route)), route).toBe(200);
      }
    }
    expect(
      await (await fetch(`${daemon.localUrl}/healthz`, { headers: { 'x-api-key': '' } })).json(),
    ).toEqual({
      status: 'ok',
      storage: place.storage,
    });
    const refused = await fetch(`${daemon.localUrl}/v1/orders`, { headers: { 'x-api-key': 'x' } });
    expect(await refused.text()).toContain(`It is in ${keyFile}.`);
    // Root's command reads the key, and prints the page's address with it.
    expect((await place.command('status')).stdout).toContain(`/#key=${key}\n`);
    for (const words of [
      ['audit', '--json'],
      ['doctor', '--offline', '--json'],
      ['status', '--json'],
    ]) {
      expect((await place.command(...words)).stdout, words.join(' ')).not.toContain(key);
    }
    expect(daemon.log()).not.toContain(key);
    const bundle = path.join(place.directory, 'bundle.tar.gz');
    expect((await place.command('bundle', bundle)).code).toBe(0);
    const bundled = execFileSync('tar', ['-xzOf', bundle], { encoding: 'latin1', maxBuffer: 2 ** 28 });
    expect(bundled).toContain('"storage"');
    expect(bundled).not.toContain(key);
    const files = readdirSync(place.storage, { recursive: true, withFileTypes: true });
    const having = files.filter(
      (each) => each.isFile() && readFileSync(path.join(each.parentPath, each.name)).includes(key),
    );
    expect(having.map(({ name }) => name)).toEqual(['api-key']);
    expect(await daemon.end('SIGTERM')).toBe(0);
    const again = await place.run(...AS_DAEMON);
    expect(curl(other, [`${again.localUrl}/v1/orders`], withKey)).toBe(200);
    await again.end('SIGTERM');
    // A file that the daemon cannot read, or that has no key, ends the start with the command that helps.
    chmodSync(keyFile, 0);
    await expect(place.run(...AS_DAEMON)).rejects.toThrow(
      `but it cannot be read by the user of tillsync.\nDelete it; the next start makes another one: sudo rm ${keyFile}\n`,
    );
    writeFileSync(keyFile, '');
    chmodSync(keyFile, 0o640);
    await expect(place.run(...AS_DAEMON)).rejects.toThrow('but it has no key in one line');
    expect((await place.command('doctor', '--offline', '--only', 'storage.files')).stdout).toContain(
      `sudo rm ${keyFile}`,
    );
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
