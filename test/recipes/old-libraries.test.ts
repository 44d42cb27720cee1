import { type ExecFileSyncOptions, execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, openWorkplace, until, type Workplace } from '../support/workplace.ts';

const DAEMON = 61_011;
const POS = 61_013;
const SHARED_GROUP = 61_012;
const AS_DAEMON = ['setpriv', '--reuid', `${DAEMON}`, '--regid', `${DAEMON}`, '--groups', `${SHARED_GROUP}`];

/** npm packages with the source of an older SQLite, such as programs in Delphi or FoxPro or an old Debian use. */
const LIBRARIES = [
  { version: '3.22.0', from: 'cordova-sqlite-storage-dependencies@1.2.0' },
  { version: '3.24.0', from: 'sqlite3@4.0.2' },
  { version: '3.34.0', from: 'sqlite3@5.0.2' },
  { version: '3.41.1', from: 'sqlite3@5.1.6' },
] as const;
const TOO_OLD = { version: '3.15.0', from: 'sqlite3@4.0.0' } as const;

const canTry =
  process.getuid?.() === 0 && ['/usr/bin/setpriv', '/usr/bin/gcc'].every((file) => existsSync(file));
if (!canTry) console.warn('Not tested: old SQLite libraries, which takes root, setpriv and gcc.');

let built: string;
let place: Workplace;
let daemon: DaemonProcess;

beforeAll(() => {
  if (!canTry) return;
  built = mkdtempSync(path.join(tmpdir(), 'tillsync-old-sqlite-'));
  chmodSync(built, 0o755);
  for (const library of [...LIBRARIES, TOO_OLD]) build(library);
}, limitMs(300_000));
afterAll(() => {
  if (built !== undefined) rmSync(built, { recursive: true, force: true });
});

function build({ version, from }: { version: string; from: string }): void {
  const folder = path.join(built, `source-${version}`);
  mkdirSync(folder);
  const here: ExecFileSyncOptions = { cwd: folder, stdio: 'pipe' };
  const packed = String(execFileSync('npm', ['pack', '--silent', from], here)).trim();
  execFileSync('tar', ['-xzf', packed], here);
  execFileSync(
    'sh',
    ['-c', 'for f in package/deps/sqlite-autoconf-*.tar.gz; do [ ! -e "$f" ] || tar -xzf "$f"; done'],
    here,
  );
  const source = String(execFileSync('find', ['.', '-name', 'sqlite3.c'], here))
    .trim()
    .split('\n')[0] as string;
  const ask = path.join(import.meta.dirname, 'old-sqlite', 'ask.c');
  const options = [
    '-O0',
    '-w',
    '-DSQLITE_THREADSAFE=0',
    '-DSQLITE_OMIT_LOAD_EXTENSION',
    `-I${path.dirname(source)}`,
  ];
  execFileSync('gcc', [...options, ask, source, '-o', path.join(built, version), '-lm'], here);
}

/** Runs SQL with an old SQLite as the POS's Unix user. */
function ask(version: string, how: 'read' | 'write', file: string, sql: string) {
  const { status, stdout, stderr } = spawnSync(path.join(built, version), [how, file, sql], {
    uid: POS,
    gid: SHARED_GROUP,
    encoding: 'utf8',
  });
  return { status, rows: stdout.split('\n').filter((line) => line !== ''), stderr };
}

const FEED = `
  SELECT e.seq, o.order_id, o.code, i.product_name FROM order_events e JOIN orders o USING (order_id)
    JOIN order_items i USING (order_id) WHERE e.seq > 0 ORDER BY e.seq, i.line`;
const CATALOGUE = `
  SELECT sku, subsidiary_id, qty, typeof(qty), price, typeof(price) FROM stocks JOIN skus USING (sku) ORDER BY 1, 2`;

beforeEach(async () => {
  if (!canTry) return;
  place = await openWorkplace(43);
  chmodSync(place.directory, 0o755);
  chownSync(place.directory, DAEMON, DAEMON);
  place.env.TILLSYNC_STORAGE_GROUP = String(SHARED_GROUP);
  daemon = await place.run(...AS_DAEMON);
  await until('the catalogue is here', () => daemon.log().includes('catalogue swept'));
  const order = place.sandbox.control.createOrder().internalOrderId;
  await until('the order is here', () => place.mirrorRows().some((row) => row.order_id === order));
});
afterEach(() => (canTry ? place.close() : undefined));

describe('libraries of other years', () => {
  it.skipIf(!canTry)(
    'read the mirror while tillsync runs, after it stopped and after a kill, and hand over',
    async () => {
      const mirror = path.join(place.storage, 'mirror.db');
      const inbox = path.join(place.storage, 'inbox', 'inbox.db');
      const newest = '3.41.1';
      const feed = ask(newest, 'read', mirror, FEED).rows;
      const catalogue = ask(newest, 'read', mirror, CATALOGUE).rows;
      expect(feed.length).toBeGreaterThan(0);
      expect(catalogue.length).toBeGreaterThan(50);
      const tables = ask(
        newest,
        'read',
        mirror,
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')",
      ).rows;

      const readAll = () => {
        for (const { version } of LIBRARIES) {
          expect(ask(version, 'read', mirror, 'SELECT sqlite_version()').rows).toEqual([version]);
          expect(ask(version, 'read', mirror, FEED), version).toEqual({ status: 0, rows: feed, stderr: '' });
          expect(ask(version, 'read', mirror, CATALOGUE).rows, version).toEqual(catalogue);
          for (const table of tables) {
            expect(ask(version, 'read', mirror, `SELECT * FROM "${table}"`), version).toMatchObject({
              status: 0,
            });
          }
          // A program that opens the mirror for writing does no harm.
          expect(ask(version, 'write', mirror, FEED).rows, version).toEqual(feed);
        }
      };
      readAll();
      for (const [i, { version }] of [...LIBRARIES, TOO_OLD].entries()) {
        const count = `INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', ${20 + i})`;
        expect(ask(version, 'write', inbox, count), version).toEqual({ status: 0, rows: [], stderr: '' });
        await until('it arrives', () => place.sandbox.control.stockOf(1001, 'sub-1') === 20 + i);
      }
      // A too old version fails with the error that docs/pos.md quotes.
      expect(ask(TOO_OLD.version, 'read', mirror, FEED)).toMatchObject({
        status: 1,
        stderr: 'unable to open database file\n',
      });
    },
  );

  it.skipIf(!canTry)('read what another process left', async () => {
    const mirror = path.join(place.storage, 'mirror.db');
    const feed = ask('3.41.1', 'read', mirror, FEED).rows;
    await daemon.end('SIGKILL');
    for (const { version } of LIBRARIES)
      expect(ask(version, 'read', mirror, FEED).rows, version).toEqual(feed);
    daemon = await place.run(...AS_DAEMON);
    await until('it stands', () => place.mirrorRows().length > 0);
    expect(await daemon.end('SIGTERM')).toBe(0);
    for (const { version } of LIBRARIES)
      expect(ask(version, 'read', mirror, FEED).rows, version).toEqual(feed);
  });
});
