import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { limitMs } from '../support/shared-config.ts';
import { NODE, ROOT, until, type Workplace } from '../support/workplace.ts';
import { lastOk, notify, openFaultPlace, rowsOf } from './support/fault-place.ts';

const DAEMON = 61_001;
const POS = 61_003;
/** The group that both users have in common. */
const SHARED = 61_002;
const AS_DAEMON = ['setpriv', '--reuid', `${DAEMON}`, '--regid', `${DAEMON}`, '--groups', `${SHARED}`];
const DATABASE = JSON.stringify(path.join(ROOT, 'node_modules/better-sqlite3'));

let place: Workplace;
const readers: ChildProcess[] = [];

beforeEach(async () => {
  place = await openFaultPlace();
  chmodSync(place.directory, 0o755);
  chownSync(place.directory, DAEMON, DAEMON);
  chownSync(place.storage, DAEMON, SHARED);
  chmodSync(place.storage, 0o2750);
  place.env.TILLSYNC_STORAGE_GROUP = String(SHARED);
  delete place.env.NODE_COMPILE_CACHE;
});
afterEach(async () => {
  for (const reader of readers.splice(0)) reader.kill('SIGKILL');
  await place.close();
});

/** Runs a program of the POS, with `db` as its connection to the mirror. Returns what it printed, or its error. */
function pos(program: string, how = '{ readonly: true }'): string {
  const whole = `
    const db = new (require(${DATABASE}))(process.argv[1], { fileMustExist: true, ...${how} });
    ${program}`;
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['-e', whole, path.join(place.storage, 'mirror.db')],
    {
      uid: POS,
      gid: SHARED,
      encoding: 'utf8',
      cwd: '/',
    },
  );
  return status === 0 ? stdout.trim() : (/SqliteError: (.*)/.exec(stderr)?.[1] ?? stderr);
}
const posCounts = () => pos("console.log(db.prepare('SELECT count(*) FROM orders').pluck().get())");

/** Starts a POS that keeps one read open until it is killed. */
async function reader(
  program = "db.exec('BEGIN'); db.prepare('SELECT count(*) FROM orders').get();",
): Promise<ChildProcess> {
  const whole = `
    const db = new (require(${DATABASE}))(process.argv[1], { readonly: true });
    ${program} console.log('reading'); setInterval(() => {}, 1000);`;
  const child = spawn(NODE, ['-e', whole, path.join(place.storage, 'mirror.db')], {
    uid: POS,
    gid: SHARED,
    cwd: '/',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  readers.push(child);
  await once(child.stdout as NodeJS.ReadableStream, 'data');
  return child;
}

async function end(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

const alarm = () =>
  rowsOf<{ message: string }>(place, "SELECT message FROM alarms WHERE key = 'mirror.reader-holds-wal'")[0]
    ?.message;
const polled = () => until('orders were polled', () => lastOk(place, 'orders.poll') !== null);

/** Changes one order so often that the write-ahead log grows by about `megabytes`. */
async function grow(megabytes: number): Promise<void> {
  for (let n = 0; n < megabytes; n++) {
    const body = sampleNotification(1, { name: `${n} `.repeat(450_000 / String(`${n} `).length) });
    expect(await notify(place, body)).toBe(200);
  }
}

describe('a reader that never lets go', () => {
  it('is named with its process while orders flow, and the alarm ends with it', async () => {
    await place.run(...AS_DAEMON);
    await polled();
    expect(await notify(place, sampleNotification(1))).toBe(200);
    const held = await reader();
    await grow(24);
    await systemClock.sleep(1_100);
    const startMs = performance.now();
    expect(await notify(place, sampleNotification(2))).toBe(200);
    expect(performance.now() - startMs).toBeLessThan(limitMs(1_000));
    await until('the alarm names it', () => alarm()?.includes(`process ${held.pid}`) ?? false);
    expect(posCounts()).toBe('2');
    await end(held);
    await systemClock.sleep(1_100);
    expect(await notify(place, sampleNotification(3))).toBe(200);
    await until('the alarm is over', () => alarm() === undefined);
    expect(statSync(path.join(place.storage, 'mirror.db-wal')).size).toBeLessThan(16 * 1_024 * 1_024);
  });

  it('is told as well when it is many whose short reads overlap', async () => {
    await place.run(...AS_DAEMON);
    await polled();
    expect(await notify(place, sampleNotification(1))).toBe(200);
    let current = await reader();
    const over = new AbortController();
    const relay = (async () => {
      while (!over.signal.aborted) {
        const next = await reader();
        await end(current);
        current = next;
      }
    })();
    try {
      await grow(26);
      await systemClock.sleep(1_100);
      expect(await notify(place, sampleNotification(2))).toBe(200);
      await until('there is an alarm', () => alarm()?.includes('process ') ?? false);
    } finally {
      over.abort();
      await relay;
    }
  });
});

describe('a POS of another user', () => {
  it('reads while it runs, once it is stopped, after a kill and after commands of root', async () => {
    const daemon = await place.run(...AS_DAEMON);
    await polled();
    expect(await notify(place, sampleNotification(1))).toBe(200);
    expect(posCounts()).toBe('1');
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(posCounts()).toBe('1');
    for (const words of [['status'], ['order', 'list'], ['sync', 'orders']]) {
      expect(await place.command(...words)).toMatchObject({ code: 0 });
      expect(posCounts(), words.join(' ')).toBe('1');
    }
    const again = await place.run(...AS_DAEMON);
    expect(await notify(place, sampleNotification(2))).toBe(200);
    await again.end('SIGKILL');
    expect(posCounts()).toBe('2');
    expect(await place.command('order', 'list')).toMatchObject({ code: 0 });
    expect(posCounts()).toBe('2');
    await place.run(...AS_DAEMON);
    expect(await notify(place, sampleNotification(3))).toBe(200);
    expect(posCounts()).toBe('3');
  });

  it('that tries to lock, to write and to delete disturbs nothing', async () => {
    const daemon = await place.run(...AS_DAEMON);
    await polled();
    expect(await notify(place, sampleNotification(1))).toBe(200);
    await reader(
      "try { db.exec('BEGIN EXCLUSIVE'); } catch { db.exec('BEGIN'); } db.prepare('SELECT 1 FROM orders').get();",
    );
    for (const program of [
      "db.exec('DELETE FROM _orders')",
      "db.exec('PRAGMA wal_checkpoint(TRUNCATE)'); db.exec('VACUUM')",
      "if (db.pragma('journal_mode = DELETE', { simple: true }) !== 'delete') throw new Error('SqliteError: refused')",
      "require('node:fs').rmSync(process.argv[1])",
      "require('node:fs').writeFileSync(process.argv[1] + '-wal', '')",
      "require('node:fs').truncateSync(process.argv[1] + '-shm')",
    ]) {
      expect(pos(program, '{}'), program).toMatch(/readonly|refused|EACCES|unable to open|locked/);
      const startMs = performance.now();
      expect(await notify(place, sampleNotification(1, { name: program }))).toBe(200);
      expect(performance.now() - startMs).toBeLessThan(limitMs(1_000));
    }
    expect(posCounts()).toBe('1');
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(posCounts()).toBe('1');
  });
});

/**
 * A Perl program that waits for a read lock on the byte that every writer locks, and keeps the lock. Its file
 * descriptor is read-only.
 */
const LOCK = `use Fcntl; open(my $f, '<', $ARGV[0]) or die $!;
  my $lock = pack('s s x4 q q i x4', F_RDLCK, 0, 120, 1, 0);
  fcntl($f, F_SETLKW, $lock) or die $!; $| = 1; print "locked"; sleep 600;`;

describe('a reader that takes a lock as no SQLite does', () => {
  it('is told with its process although the mirror takes no alarm, and all is well again without a person', async () => {
    const daemon = await place.run(...AS_DAEMON);
    await polled();
    const shm = path.join(place.storage, 'mirror.db-shm');
    const locker = spawn('perl', ['-e', LOCK, shm], {
      uid: POS,
      gid: SHARED,
      cwd: '/',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    readers.push(locker);
    await once(locker.stdout as NodeJS.ReadableStream, 'data');
    expect(await notify(place, sampleNotification(1))).toBe(503);
    type Told = { verdict: { level: string; findings: { code: string; detail: string }[] } };
    const found = ({ verdict }: Told) => verdict.findings.find(({ code }) => code === 'mirror.locked');
    const page = (await (await fetch(`${daemon.localUrl}/v1/status`)).json()) as Told;
    const status = async () => JSON.parse((await place.command('status', '--json')).stdout) as Told;
    for (const told of [page, await status()]) {
      expect(told.verdict.level).toBe('red');
      expect(found(told)?.detail).toContain(`perl (process ${locker.pid})`);
    }
    const ready = await fetch(`${daemon.localUrl}/readyz`);
    expect([ready.status, await ready.text()]).toEqual([503, expect.stringContaining('perl')]);
    const metrics = await (await fetch(`${daemon.localUrl}/metrics`)).text();
    expect(metrics).toContain('tillsync_finding{code="mirror.locked"} 2');
    await end(locker);
    await until('it is over', async () => found(await status()) === undefined);
    expect(await notify(place, sampleNotification(1))).toBe(200);
    expect((await fetch(`${daemon.localUrl}/readyz`)).status).toBe(200);
    expect(rowsOf(place, "SELECT key FROM alarms WHERE key = 'mirror.locked'")).toEqual([]);
    expect(rowsOf(place, 'SELECT key FROM alarms_aside', 'state.db')).toEqual([]);
  });
});
