import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { limitMs } from '../support/shared-config.ts';
import {
  type DaemonProcess,
  MAIN,
  NODE,
  openWorkplace,
  ROOT,
  SECRET,
  until,
  type Workplace,
} from '../support/workplace.ts';

const DAEMON = 61_001;
const POS = 61_003;
/** The group that both users have in common. */
const SHARED_GROUP = 61_002;
const canChangeUser = process.getuid?.() === 0 && existsSync('/usr/bin/setpriv');
const AS_DAEMON = ['setpriv', '--reuid', `${DAEMON}`, '--regid', `${DAEMON}`, '--groups', `${SHARED_GROUP}`];
/** Time limit for the answer to a callback, and for a stop. */
const SOON_MS = limitMs(3_000);
const TOLD_WITHIN_MS = 30_000;

let place: Workplace;
let daemon: DaemonProcess;
let inbox: string;
let callbacks = 0;
const held = new Set<ChildProcess>();

/**
 * Variables of the POS's program. `file` is the path of the inbox, `open` opens it, `fresh` replaces it by a new file
 * with a schema, and `tables` returns tillsync's schema.
 */
const PROLOGUE = `
  const Database = require(${JSON.stringify(path.join(ROOT, 'node_modules/better-sqlite3'))});
  const fs = require('node:fs');
  const file = process.argv[1];
  const open = (name = file) => new Database(name, { timeout: 10000 });
  const fresh = (schema, fill) => {
    fs.rmSync(file + '.new', { force: true });
    const db = open(file + '.new');
    db.exec(schema); db.pragma('user_version = 1'); fill(db); db.close();
    fs.renameSync(file + '.new', file);
  };
  const tables = () => [${JSON.stringify(readFileSync(path.join(ROOT, 'src/outbox/intake/inbox-schema.sql'), 'utf8'))}];`;

/** Runs a program of the POS as its own Unix user. */
function pos(program: string): void {
  const { uid, gid } = { uid: POS, gid: SHARED_GROUP };
  execFileSync(NODE, ['-e', PROLOGUE + program, inbox], {
    uid,
    gid,
    cwd: '/',
    stdio: 'pipe',
    timeout: limitMs(30_000),
  });
}

/** Starts a program that runs until it is killed; resolves once it prints a word. */
async function posThatStays(program: string): Promise<ChildProcess> {
  const child = spawn(
    NODE,
    ['-e', `${PROLOGUE}${program}; console.log('there'); setInterval(() => {}, 1000);`, inbox],
    { uid: POS, gid: SHARED_GROUP, cwd: '/', stdio: ['ignore', 'pipe', 'inherit'] },
  );
  held.add(child);
  await once(child.stdout, 'data');
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  held.delete(child);
}

function rows<T>(sql: string): T[] {
  const db = new Database(path.join(place.storage, 'mirror.db'), { readonly: true });
  try {
    return db.prepare<[], T>(sql).all();
  } finally {
    db.close();
  }
}

const alarm = (key: string) =>
  rows<{ message: string }>(`SELECT message FROM alarms WHERE key = '${key}'`)[0]?.message;
const lastPoll = () =>
  rows<{ at: string }>("SELECT last_ok_at AS at FROM freshness WHERE subject = 'orders.poll'")[0]?.at;
const onPlatform = () => place.sandbox.control.stockOf(1001, 'sub-1');

/** Returns the daemon's log after position `since`, and its alarms about the inbox. */
function told(since: number): string {
  return [daemon.log().slice(since), alarm('inbox.damaged'), alarm('inbox.locked')].join('\n');
}

/** Checks that callbacks, polls, page and health work until `condition` is true. */
async function unharmedUntil(what: string, condition: () => boolean, deadlineMs = TOLD_WITHIN_MS) {
  const polledBefore = lastPoll();
  const endMs = performance.now() + limitMs(deadlineMs);
  for (let n = 0; n < 3 || !condition(); n++) {
    if (performance.now() > endMs) {
      throw new Error(`Waited ${limitMs(deadlineMs)} ms in vain until ${what}\n${aboutInbox()}`);
    }
    callbacks += 1;
    const within = { signal: AbortSignal.timeout(SOON_MS) };
    const answers = await Promise.all([
      fetch(place.config.webhook.callbackUrl, {
        ...within,
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-webhook-secret': SECRET },
        body: JSON.stringify(sampleNotification(10_000 + callbacks)),
      }),
      fetch(`${daemon.localUrl}/healthz`, within),
      fetch(`${daemon.localUrl}/`, within),
      fetch(`${daemon.localUrl}/v1/status`, within),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    await Promise.all(answers.map((answer) => answer.arrayBuffer()));
    await systemClock.sleep(100);
  }
  await until('polls go on', () => lastPoll() !== polledBefore, 5_000);
}

let qty = 100;
/** Waits until a count submitted through the inbox reaches the platform. */
async function worksAgain(withinMs = 15_000): Promise<void> {
  qty += 1;
  await until(
    'a row can be inserted',
    () => {
      try {
        pos(`open().exec("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', ${qty})")`);
        return true;
      } catch {
        return false;
      }
    },
    withinMs,
  );
  try {
    await until('the count arrived', () => onPlatform() === qty, withinMs);
  } catch (error) {
    throw new Error(`${String(error)}\n${aboutInbox()}`);
  }
}

async function run(): Promise<void> {
  daemon = await place.run(...AS_DAEMON);
  await until('the inbox is there', () => existsSync(inbox) && lstatSync(inbox).size > 0);
  await until('orders were polled', () => lastPoll() !== undefined);
}

const stopsSoon = async () => {
  const startMs = performance.now();
  expect(await daemon.end('SIGTERM')).toBe(0);
  expect(performance.now() - startMs).toBeLessThan(SOON_MS + 2_000);
};

/** Returns the id of the process that opens the inbox. */
async function inboxProcess(): Promise<number> {
  await until('it has a process', () => !Number.isNaN(inboxPid()));
  return inboxPid();
}

function inboxPid(): number {
  const [pid] = readdirSync('/proc').filter((name) => {
    try {
      return (
        readFileSync(`/proc/${name}/stat`, 'utf8').includes(`(tillsync-inbox) `) &&
        parentOf(name) === daemon.child.pid
      );
    } catch {
      return false;
    }
  });
  return Number(pid);
}

function parentOf(pid: string): number {
  return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[1]);
}

describe.skipIf(!canChangeUser)('whatever a POS does to the inbox', () => {
  beforeAll(async () => {
    place = await openWorkplace(31);
    inbox = path.join(place.storage, 'inbox', 'inbox.db');
    chmodSync(place.directory, 0o755);
    chownSync(place.directory, DAEMON, DAEMON);
    place.env.TILLSYNC_STORAGE_GROUP = String(SHARED_GROUP);
    await run();
  });
  beforeEach(async () => {
    if (daemon.child.exitCode !== null || daemon.child.signalCode !== null) await run();
  });
  afterAll(async () => {
    for (const child of held) child.kill('SIGKILL');
    await place?.close();
  });

  it.each([
    {
      way: 'a pipe in place of the journal',
      does: "require('node:child_process').execFileSync('mkfifo', [file + '-journal'])",
      says: /inbox\.db-journal was a pipe.*moved to/,
    },
    {
      way: 'a directory in place of the journal',
      does: "fs.mkdirSync(file + '-journal')",
      says: /inbox\.db-journal was a directory.*moved to/,
    },
    {
      way: 'a link in place of the journal',
      does: "fs.symlinkSync('/etc/passwd', file + '-journal')",
      says: /inbox\.db-journal was a link.*moved to/,
    },
    {
      way: 'a trigger without an end',
      does: `const db = open();
        db.exec("CREATE TRIGGER t AFTER DELETE ON stock_changes BEGIN INSERT INTO order_acks (order_id) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c; END");
        db.exec("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 3)");`,
      says: /trigger t, which tillsync did not make.*kept as/,
      kept: 'SELECT count(*) FROM stock_changes',
    },
    {
      way: 'a view without an end in place of a table, while it is open',
      does: `open().exec("DROP TABLE stock_changes; CREATE VIEW stock_changes AS WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c) SELECT max(id) AS id FROM c")`,
      says: /has no table stock_changes.*kept as/,
    },
    {
      way: 'a table that is dropped',
      does: `open().exec("INSERT INTO order_acks (order_id) VALUES ('o1'); DROP TABLE stock_changes")`,
      says: /has no table stock_changes.*kept as/,
    },
    {
      way: 'a file of a terabyte',
      does: 'fs.rmSync(file); fs.ftruncateSync(fs.openSync(file, "w"), 2 ** 40)',
      says: /1099511627776 bytes.*kept as/,
    },
    {
      way: 'a costly CHECK',
      does: `fresh(tables().join('').replace('CONSTRAINT "qty must be given"', 'CHECK (qty = 0 OR length(replace(hex(zeroblob(2e7)), 0, 1)) > 0), CONSTRAINT "qty must be given"'), (db) => {
          db.pragma('ignore_check_constraints = ON');
          const insert = db.prepare("INSERT INTO stock_changes (external_id, qty) VALUES ('A', 1)");
          db.transaction(() => { for (let i = 0; i < 3000; i++) insert.run(); })(); })`,
      says: /table stock_changes is not as tillsync made it.*kept as/,
      kept: 'SELECT count(*) FROM stock_changes',
    },
    {
      way: 'a generated column of 100 MB',
      does: `fresh(tables().join('').replace('sku NUMERIC,', 'sku NUMERIC, big AS (zeroblob(100000000)),'), (db) => {
          for (let i = 0; i < 60; i++) db.prepare("INSERT INTO stock_changes (external_id, qty) VALUES ('A', 0)").run(); })`,
      says: /table stock_changes is not as tillsync made it.*kept as/,
      kept: 'SELECT count(*) FROM stock_changes',
    },
    {
      way: 'a dangling link in place of the file',
      does: "fs.rmSync(file); fs.symlinkSync('/nowhere/inbox.db', file)",
      says: /It is a link and no plain file.*kept as/,
    },
  ])(
    '$way stops nothing else, is told and heals',
    async ({ does, says, kept }) => {
      const [since, before] = [daemon.log().length, new Set(readdirSync(path.dirname(inbox)))];
      pos(does);
      await unharmedUntil('it is told', () => says.test(told(since)));
      expect(daemon.child.exitCode).toBeNull();
      await worksAgain();
      const made = readdirSync(path.dirname(inbox)).filter(
        (name) => !before.has(name) && /damaged|moved/.test(name),
      );
      expect(made.length).toBeGreaterThan(0);
      if (kept !== undefined) {
        const file = made.find((name) => !/-(journal|wal|shm)$/.test(name)) ?? '';
        const db = new Database(path.join(path.dirname(inbox), file), { readonly: true });
        expect(db.prepare<[], number>(kept).pluck().get(), 'rows of the POS that are kept').toBeGreaterThan(
          0,
        );
        db.close();
      }
      pos(`for (const name of fs.readdirSync(require('node:path').dirname(file)))
      if (/damaged|moved/.test(name)) fs.rmSync(require('node:path').join(require('node:path').dirname(file), name), { recursive: true })`);
      await until('the alarm is over', () => alarm('inbox.damaged') === undefined, 8_000);
    },
    90_000,
  );

  it(
    'a write-ahead log whose index is cut off under it costs one process, and its rows arrive',
    async () => {
      const child = await inboxProcess();
      const till = await posThatStays(
        `const db = open(); db.pragma('journal_mode = WAL'); db.exec("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 71)")`,
      );
      await unharmedUntil('a row in the log arrives', () => onPlatform() === 71);
      pos("fs.truncateSync(file + '-shm', 0)");
      await unharmedUntil(
        'another process took its place',
        () => inboxPid() !== child && !Number.isNaN(inboxPid()),
      );
      await kill(till);
      await worksAgain();
      await until('the journal mode is put back', () => !existsSync(`${inbox}-wal`), 60_000);
      await worksAgain();
      expect(alarm('inbox.damaged')).toBeUndefined();
    },
    limitMs(150_000),
  );

  it(
    'rows of megabytes are rejected one by one, and what is behind them arrives',
    async () => {
      pos(`const db = open(); db.pragma('ignore_check_constraints = ON'); db.pragma('synchronous = OFF');
      const insert = db.prepare('INSERT INTO product_changes (sku, description, reference) VALUES (?, ?, ?)');
      db.transaction(() => { for (let i = 0; i < 200; i++) insert.run(1001, 'd'.repeat(3e6), 'big-' + i); })();
      db.exec("INSERT INTO product_changes (sku, name) VALUES (1001, 'Pizza behind them')");`);
      const rejected =
        "SELECT reference, message FROM outbox WHERE state = 'rejected' AND reference LIKE 'big-%'";
      await unharmedUntil('all are rejected', () => rows(rejected).length === 200, 60_000);
      expect(rows(rejected)[0]).toEqual({
        reference: expect.stringMatching(/^big-/),
        message: expect.stringContaining('description has 3000000 bytes; no more than 400000 are taken'),
      });
      const behind = "SELECT state FROM outbox WHERE json_extract(body, '$.name') = 'Pizza behind them'";
      await until('what is behind arrived', () => rows<{ state: string }>(behind)[0]?.state === 'done');
      await worksAgain();
    },
    limitMs(120_000),
  );

  it(
    'one row of 300 MB is one rejected change',
    async () => {
      pos(`const db = open(); db.pragma('ignore_check_constraints = ON'); db.pragma('synchronous = OFF');
      db.exec("INSERT INTO product_changes (sku, name, reference) VALUES (1001, zeroblob(300000000), 'huge')");
      db.exec("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 72)");`);
      await unharmedUntil('what came after it is there', () => onPlatform() === 72, 60_000);
      const huge = "SELECT state, message FROM outbox WHERE reference = 'huge'";
      await until('it is told', () => rows(huge).length === 1, 60_000);
      expect(rows(huge)).toEqual([
        { state: 'rejected', message: expect.stringContaining('name has 300000000 bytes') },
      ]);
      await worksAgain(60_000);
      pos("open().exec('VACUUM')");
    },
    limitMs(180_000),
  );

  it(
    'a lock that stays is told with who holds it, and is over by itself',
    async () => {
      const since = daemon.log().length;
      const till = await posThatStays("const db = open(); db.exec('BEGIN EXCLUSIVE')");
      await unharmedUntil('it is told', () => alarm('inbox.locked') !== undefined, 45_000);
      expect(alarm('inbox.locked')).toContain(`(process ${till.pid})`);
      expect(alarm('inbox.damaged')).toBeUndefined();
      expect(
        daemon
          .log()
          .slice(since)
          .match(/the inbox cannot be used/g),
      ).toHaveLength(1);
      const metrics = await (await fetch(`${daemon.localUrl}/metrics`)).text();
      expect(Number(/^tillsync_inbox_oldest_row_age_seconds (\S+)/m.exec(metrics)?.[1])).toBeGreaterThan(25);
      const status = await place.command('status');
      expect(status.stdout).toContain('A program keeps the inbox locked');

      // Commands wait a while for the lock, and can be stopped.
      const backup = spawn(NODE, [MAIN, 'backup', path.join(place.directory, 'b.tar.gz')], {
        env: place.env,
      });
      await systemClock.sleep(2_000);
      const startMs = performance.now();
      backup.kill('SIGTERM');
      await once(backup, 'exit');
      expect(performance.now() - startMs).toBeLessThan(SOON_MS);

      await kill(till);
      await until('the alarm is over', () => alarm('inbox.locked') === undefined);
      await worksAgain();
    },
    limitMs(120_000),
  );

  it(
    'a process that says nothing any more is killed, another works on, and a stop does not wait for it',
    async () => {
      const child = await inboxProcess();
      process.kill(child, 'SIGSTOP');
      await unharmedUntil('it is gone', () => !existsSync(`/proc/${child}`));
      await worksAgain();
      // No alarm is raised, because a process that was silent once may only have been slow.
      expect(alarm('inbox.damaged')).toBeUndefined();
      process.kill(await inboxProcess(), 'SIGSTOP');
      await systemClock.sleep(1_000);
      await stopsSoon();
    },
    limitMs(120_000),
  );

  it(
    'one that is killed leaves no process behind and loses no row',
    async () => {
      const child = await inboxProcess();
      // The row is inserted before the process is frozen, because a frozen process may hold a lock.
      pos(`open().exec("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 73)")`);
      process.kill(child, 'SIGSTOP');
      await daemon.end('SIGKILL');
      await until('its process is gone', () => !existsSync(`/proc/${child}`), 3_000);
      await run();
      await until('the row arrived', () => onPlatform() === 73);
    },
    limitMs(60_000),
  );

  it('has no secret, no socket and no privilege in the process that opens it', async () => {
    const child = await inboxProcess();
    const env = readFileSync(`/proc/${child}/environ`, 'utf8');
    expect(env).not.toContain(SECRET);
    expect(env).not.toContain(place.refreshToken);
    const sockets = readFileSync(`/proc/${child}/net/tcp`, 'utf8')
      .split('\n')
      .slice(1)
      .map((line) => line.trim().split(/\s+/)[9]);
    const own = readdirSync(`/proc/${child}/fd`).map((fd) => /socket:\[(\d+)\]/.exec(linkOf(child, fd))?.[1]);
    expect(own.filter((inode) => inode !== undefined && sockets.includes(inode))).toEqual([]);
    expect(readFileSync(`/proc/${child}/limits`, 'utf8')).toMatch(/Max data size +922746880/);
  });

  it(
    'commands tell of a pipe and end, without a daemon too',
    async () => {
      await stopsSoon();
      pos("require('node:child_process').execFileSync('mkfifo', [file + '-journal'])");
      const startMs = performance.now();
      const doctor = await place.command('doctor', '--only', 'storage');
      expect(doctor.stdout).toMatch(/inbox\.db-journal is a pipe and no plain file/);
      const file = path.join(place.directory, 'copy.tar.gz');
      const backup = await place.command('backup', file);
      expect(backup.stderr).toContain('The inbox is not in the backup');
      const bundle = await place.command('bundle', path.join(place.directory, 'bundle.tar.gz'));
      expect(bundle.code).toBe(0);
      expect(performance.now() - startMs).toBeLessThan(limitMs(60_000));
      const restored = await place.command('restore', file);
      expect(restored.stderr).toBe('');
      await run();
      await until('its way is clear', () => !existsSync(`${inbox}-journal`));
      await worksAgain();
    },
    limitMs(120_000),
  );
});

function linkOf(pid: number, fd: string): string {
  try {
    return execFileSync('readlink', [`/proc/${pid}/fd/${fd}`], { encoding: 'utf8' });
  } catch {
    return '';
  }
}

/** Returns the daemon's last ten log lines about the inbox. */
function aboutInbox(): string {
  return daemon
    .log()
    .split('\n')
    .filter((line) => line.includes('inbox'))
    .slice(-10)
    .join('\n');
}
