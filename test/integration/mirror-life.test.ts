import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import {
  openTestMirror,
  poll,
  receive,
  sampleNotification,
  temporaryDirectory,
} from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';

const PROGRAM = new URL('../orders/mirror-process.ts', import.meta.url).pathname;
const ROUNDS = 8;

function startKeeper(path: string, ...args: string[]): ChildProcess {
  const child = spawn(process.execPath, [PROGRAM, path, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

/** Resolves when the process has reported `count` stored orders; collects its reports. */
function said(child: ChildProcess, count: number): Promise<number[]> {
  const numbers: number[] = [];
  return new Promise((resolve) => {
    child.stdout?.on('data', (data) => {
      numbers.push(...String(data).trim().split('\n').map(Number));
      if (numbers.length >= count) resolve(numbers);
    });
  });
}

function ended(child: ChildProcess): Promise<unknown> {
  return child.exitCode !== null || child.signalCode !== null
    ? Promise.resolve()
    : new Promise((resolve) => child.on('exit', resolve));
}

const isRoot = process.getuid?.() === 0;
const nobody = isRoot ? Number(execFileSync('id', ['-u', 'nobody'])) : 0;
const POS_GROUP = 4242;

/** Runs a read as another Unix user who has access only through the group; returns what it printed. */
function readAsPos(path: string, sql: string): string {
  const program = `
    const Database = require(${JSON.stringify(require_('better-sqlite3'))});
    const db = new Database(${JSON.stringify(path)}, { readonly: true, fileMustExist: true });
    console.log(JSON.stringify(db.prepare(${JSON.stringify(sql)}).pluck().all()));`;
  const { status, stdout, stderr } = spawnSync(process.execPath, ['-e', program], {
    uid: nobody,
    gid: POS_GROUP,
    encoding: 'utf8',
    cwd: '/',
  });
  if (status !== 0) throw new Error(stderr);
  return stdout.trim();
}

function require_(name: string): string {
  return new URL(`../../node_modules/${name}`, import.meta.url).pathname;
}

describe.skipIf(!isRoot)('a POS under another Unix user', () => {
  const seqs = 'SELECT seq FROM order_events ORDER BY seq';

  it('reads while the mirror is open, after a clean stop and after a kill, and writes never', async () => {
    const parent = mkdtempSync(join(tmpdir(), 'tillsync-pos-'));
    chmodSync(parent, 0o755);
    const path = join(parent, 'data', 'mirror.db');
    const { mirror } = openTestMirror({ path, group: String(POS_GROUP) });
    for (const name of readdirSync(join(parent, 'data'))) {
      const { mode, gid } = statSync(join(parent, 'data', name));
      expect([name, mode & 0o7777, gid]).toEqual([name, 0o640, POS_GROUP]);
    }
    expect(statSync(join(parent, 'data')).mode & 0o7777).toBe(0o2750);
    await receive(mirror, sampleNotification(1));
    expect(readAsPos(path, seqs)).toBe('[1]');
    await receive(mirror, sampleNotification(2));
    await mirror.close();
    expect(readAsPos(path, seqs)).toBe('[1,2]');

    const stopped = startKeeper(path, '3', 'stop', '2');
    await ended(stopped);
    expect(readAsPos(path, seqs)).toBe('[1,2,3,4]');

    const killed = startKeeper(path, '5', 'on');
    const numbers = await said(killed, 3);
    killed.kill('SIGKILL');
    await ended(killed);
    expect(JSON.parse(readAsPos(path, seqs)).length).toBeGreaterThanOrEqual(numbers.at(-1)!);
    expect(() => readAsPos(path, 'DELETE FROM _orders RETURNING 1')).toThrow();

    const { mirror: again } = openTestMirror({ path });
    await receive(again, sampleNotification(999));
    expect(again.orders.newestSeq()).toBeGreaterThan(5);
  });
});

describe('a mirror that is killed again and again', () => {
  it('has everything it said it kept, and goes on', async () => {
    const path = join(temporaryDirectory(), 'data', 'mirror.db');
    let kept = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const child = startKeeper(path, String(kept + 1));
      const numbers = await said(child, 1 + (round % 4) * 3);
      child.kill('SIGKILL');
      await ended(child);
      kept = numbers.at(-1)!;
    }
    const db = new Database(path);
    expect(db.pragma('integrity_check', { simple: true })).toBe('ok');
    const codes = db.prepare('SELECT code FROM orders ORDER BY code').pluck().all();
    expect(codes.slice(0, kept)).toEqual(Array.from({ length: kept }, (_, i) => i + 1));
    const unmatched = db
      .prepare(
        'SELECT count(*) FROM orders o LEFT JOIN order_events e ON e.seq = o.seq AND e.order_id = o.order_id WHERE e.seq IS NULL',
      )
      .pluck()
      .get();
    expect(unmatched).toBe(0);
    db.close();
  });
});

describe('the feed of a reader that reads while it is written', () => {
  it('skips no seq, repeats none, and uses none again after events are deleted', async () => {
    const { mirror, path } = openTestMirror({ clock: systemClock });
    const writer = startKeeper(path, '1');
    await said(writer, 1);
    const reader = new Database(path, { readonly: true });
    const changed = reader.prepare('SELECT seq FROM order_events WHERE seq > ? ORDER BY seq').pluck();
    const seen: number[] = [];
    while (seen.length < 150) {
      seen.push(...(changed.all(seen.at(-1) ?? 0) as number[]));
      await receive(mirror, sampleNotification(100_000 + seen.length));
    }
    writer.kill('SIGKILL');
    await ended(writer);
    expect(seen).toEqual(Array.from({ length: seen.length }, (_, i) => i + 1));
    reader.close();

    const newest = mirror.orders.newestSeq();
    await mirror.write((db) => db.exec('DELETE FROM order_events'));
    await receive(mirror, sampleNotification(200_000));
    expect(mirror.orders.newestSeq()).toBe(newest + 1);
  });
});

describe('the files', () => {
  it('of a newer version are refused and left untouched', async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, sampleNotification(1));
    await mirror.write((db) =>
      db.prepare("INSERT INTO _schema_migrations (name) VALUES ('9999-from-the-future')").run(),
    );
    await mirror.close();
    const files = () =>
      readdirSync(join(path, '..')).map((name) => [
        name,
        readFileSync(join(path, '..', name)).length,
        statSync(join(path, '..', name)).mtimeMs,
      ]);
    const before = files();
    expect(() => openMirror({ path, clock: new FakeClock() })).toThrowError(
      expect.objectContaining({ code: 'storage-newer' }),
    );
    expect(files().filter(([name]) => name !== 'mirror.db-shm')).toEqual(
      before.filter(([name]) => name !== 'mirror.db-shm'),
    );
  });

  it('can be opened for looking only, which keeps nothing', async () => {
    const { mirror, path, clock } = openTestMirror();
    await receive(mirror, sampleNotification(1));
    const looking = openMirror({ path, clock, readonly: true });
    expect(looking.orders.list({ limit: 9 })).toHaveLength(1);
    await expect(receive(looking, sampleNotification(2))).rejects.toMatchObject({ code: 'storage-readonly' });
    expect(looking.orders.list({ limit: 9 })).toHaveLength(1);
    await looking.close();
    expect(() => openMirror({ path: `${path}.none`, clock, readonly: true })).toThrow();
    expect(existsSync(`${path}.none`)).toBe(false);
  });

  it('that vanish under an open mirror are noticed, and made anew', async () => {
    const { mirror, path, clock } = openTestMirror();
    await receive(mirror, sampleNotification(1));
    for (const suffix of ['', '-wal', '-shm']) renameSync(path + suffix, `${path}.moved${suffix}`);
    await clock.advance(1_000);
    expect(await receive(mirror, sampleNotification(1))).toEqual(['created']);
    expect(existsSync(path)).toBe(true);
  });

  it('that are damaged make it refuse, each time, and acknowledge nothing', async () => {
    const { mirror, path, clock } = openTestMirror();
    await poll(
      mirror,
      Array.from({ length: 50 }, (_, i) => sampleNotification(i)),
    );
    mirror.read((db) => db.pragma('wal_checkpoint(TRUNCATE)'));
    await mirror.close();
    const damaged = openTestMirror({ path, clock }).mirror;
    damaged.read((db) =>
      db
        .unsafeMode()
        .exec(
          "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'orders_by_seq'; PRAGMA writable_schema = RESET",
        ),
    );
    await expect(receive(damaged, sampleNotification(500))).rejects.toMatchObject({
      code: 'storage-corrupt',
    });
    await expect(receive(damaged, sampleNotification(500))).rejects.toMatchObject({
      code: 'storage-corrupt',
    });
  });

  it('that refuse to be written for a while are written again afterwards', async () => {
    const { mirror, clock } = openTestMirror();
    mirror.read((db) => db.pragma('query_only = ON'));
    await expect(receive(mirror, sampleNotification(1))).rejects.toMatchObject({ code: 'storage-readonly' });
    await clock.advance(1_000);
    expect(await receive(mirror, sampleNotification(1))).toEqual(['created']);
  });

  it('of a process that died have on the disk what is read from them', async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, sampleNotification(1));
    const [left, file] = [join(temporaryDirectory(), 'mirror.db'), join(temporaryDirectory(), 'mirror.db')];
    for (const suffix of ['', '-wal']) copyFileSync(path + suffix, left + suffix);
    const { mirror: next } = openTestMirror({ path: left });
    expect(next.orders.newestSeq()).toBe(1);
    // Copies the file without its log, which may never have been synced.
    copyFileSync(left, file);
    const db = new Database(file);
    expect(db.prepare('SELECT count(*) FROM orders').pluck().get()).toBe(1);
    db.close();
  });

  it('give way when the mirror is locked by another process, and keep what waited', async () => {
    const { mirror, path, clock } = openTestMirror();
    const other = new Database(path);
    other.exec('BEGIN IMMEDIATE');
    const kept = receive(mirror, sampleNotification(1));
    await clock.advance(200);
    expect(mirror.orders.list({ limit: 9 })).toEqual([]);
    other.exec('COMMIT');
    other.close();
    await clock.advance(200);
    expect(await kept).toEqual(['created']);
  });
});
