import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { API_KEY } from '../support/api-key.ts';
import { type DaemonProcess, openWorkplace, until, type Workplace } from '../support/workplace.ts';

const DAEMON = 61_011;
const POS = 61_013;
const SHARED_GROUP = 61_012;
const AS_DAEMON = ['setpriv', '--reuid', `${DAEMON}`, '--regid', `${DAEMON}`, '--groups', `${SHARED_GROUP}`];
/** Stock of the till's only article at the start. */
const SHELF = 1_000;
const canChangeUser = process.getuid?.() === 0 && existsSync('/usr/bin/setpriv');

interface Language {
  name: string;
  folder: string;
  needs: string[];
  /** Debian packages. */
  packages: string;
  compile: string[][];
  /** The three recipes as commands. */
  till: string[];
  handOver: string[];
  post: string[];
}

const SQLITE = ['-r:System.Data', '-r:Mono.Data.Sqlite'];
const LANGUAGES: Language[] = [
  {
    name: 'PHP',
    folder: 'php',
    needs: ['/usr/bin/php'],
    packages: 'php-cli php-sqlite3',
    compile: [],
    till: ['php', 'till.php'],
    handOver: ['php', 'hand-over-stock.php'],
    post: ['php', 'post-stock.php'],
  },
  {
    name: 'C#',
    folder: 'csharp',
    needs: ['/usr/bin/mcs', '/usr/bin/mono'],
    packages: 'mono-mcs mono-runtime libmono-sqlite4.0-cil libmono-system-runtime-serialization4.0-cil',
    compile: [
      ['mcs', ...SQLITE, 'Till.cs'],
      ['mcs', ...SQLITE, 'HandOverStock.cs'],
      ['mcs', '-r:System.Runtime.Serialization', 'PostStock.cs'],
    ],
    till: ['mono', 'Till.exe'],
    handOver: ['mono', 'HandOverStock.exe'],
    post: ['mono', 'PostStock.exe'],
  },
  {
    name: 'Free Pascal',
    folder: 'pascal',
    needs: ['/usr/bin/fpc'],
    packages: 'fp-compiler fp-units-fcl fp-units-db fp-units-net',
    compile: [
      ['fpc', 'till.pas'],
      ['fpc', 'handoverstock.pas'],
      ['fpc', 'poststock.pas'],
    ],
    till: ['./till'],
    handOver: ['./handoverstock'],
    post: ['./poststock'],
  },
];

const missing = ({ needs }: Language) => needs.some((file) => !existsSync(file));
for (const language of LANGUAGES) {
  if (missing(language))
    console.warn(`Not tested: ${language.name}. Install it: apt install ${language.packages}`);
}
if (!canChangeUser)
  console.warn('Not tested: the recipes run as another Unix user, which takes root and setpriv.');

let place: Workplace;
let daemon: DaemonProcess;
let home: string;
let mirror: string;
let inbox: string;
/** Environment for the till; the other recipes ignore it. */
let tillEnv: Record<string, string>;

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Starts a recipe as the POS's Unix user. */
function start(
  [program = '', ...words]: string[],
  ...more: string[]
): { child: ChildProcess; ended: Promise<Ended> } {
  const child = spawn(program, [...words, ...more], {
    cwd: home,
    uid: POS,
    gid: SHARED_GROUP,
    env: { PATH: process.env.PATH ?? '', HOME: home, LANG: 'C.UTF-8', TILL_KEY: API_KEY, ...tillEnv },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, stderr] = ['', ''];
  child.stdout?.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr?.on('data', (chunk) => {
    stderr += chunk;
  });
  return { child, ended: once(child, 'close').then(() => ({ code: child.exitCode, stdout, stderr })) };
}

const run = (recipe: string[], ...more: string[]) => start(recipe, ...more).ended;

describe.each(LANGUAGES)('the recipes in $name', (language) => {
  const tried = it.skipIf(!canChangeUser || missing(language));
  beforeEach(async () => {
    place = await openWorkplace(41);
    chmodSync(place.directory, 0o755);
    chownSync(place.directory, DAEMON, DAEMON);
    place.env.TILLSYNC_STORAGE_GROUP = String(SHARED_GROUP);
    home = path.join(place.directory, 'pos');
    mkdirSync(home);
    cpSync(path.join(import.meta.dirname, language.folder), home, { recursive: true });
    for (const [compiler = '', ...words] of language.compile) {
      execFileSync(compiler, words, { cwd: home, stdio: 'pipe' });
    }
    chownSync(home, POS, SHARED_GROUP);
    mirror = path.join(place.storage, 'mirror.db');
    inbox = path.join(place.storage, 'inbox', 'inbox.db');
    const [articles, sales, report] = ['articles.tsv', 'sales.tsv', 'report.tsv'].map((name) =>
      path.join(home, name),
    ) as [string, string, string];
    writeFileSync(articles, `sku\texternal_id\tname\tqty\tprice\n1001\tA-1001-1\tEmpanada\t${SHELF}\t990\n`);
    for (const file of [sales, report]) writeFileSync(file, '');
    chownSync(report, POS, SHARED_GROUP);
    tillEnv = {
      ...{ TILL_STORE: 'B1', TILL_MIRROR: mirror, TILL_INBOX: inbox, TILL_DIRECTORY: home },
      ...{ TILL_ARTICLES: articles, TILL_SALES: sales, TILL_REPORT: report },
    };
    daemon = await place.run(...AS_DAEMON);
    await until('the catalogue is here', () => daemon.log().includes('catalogue swept'));
  });
  afterEach(() => place.close());

  tried('book every order once, as another user, and go on after a stop of either side', async () => {
    const { control } = place.sandbox;
    const sold = { subsidiaryId: 'sub-1', status: 'payment-approved', items: [{ sku: 1001, qty: 2 }] };
    const booked = () =>
      readFileSync(tillEnv.TILL_REPORT ?? '', 'utf8')
        .split('\n')
        .filter((line) => line.startsWith('booked'))
        .map((line) => line.split('\t')[1]);
    const isAcknowledged = (orderId: string) => {
      const db = new Database(mirror, { readonly: true });
      try {
        return db.prepare('SELECT 1 FROM order_acks WHERE order_id = ?').get(orderId) !== undefined;
      } finally {
        db.close();
      }
    };
    const first = control.createOrder(sold).internalOrderId;
    const before = start(language.till);
    await until('its count arrives', () => control.stockOf(1001, 'sub-1') === SHELF - 2);
    await until('it is acknowledged', () => isAcknowledged(first));
    expect(booked()).toEqual([first]);

    before.child.kill('SIGKILL');
    await before.ended;
    await daemon.end('SIGKILL');
    const after = start(language.till);
    daemon = await place.run(...AS_DAEMON);
    const second = control.createOrder(sold).internalOrderId;
    await until('the next one is acknowledged', () => isAcknowledged(second));
    await until('its count stands', () => control.stockOf(1001, 'sub-1') === SHELF - 4);
    expect(booked()).toEqual([first, second]);
    expect(await daemon.end('SIGTERM')).toBe(0);
    after.child.kill('SIGKILL');
    await after.ended;
  });

  tried('hand over by SQL, wait while the inbox is locked, and tell what became of it', async () => {
    const { control } = place.sandbox;
    const isMade = () => {
      if (!existsSync(inbox)) return false;
      const db = new Database(inbox, { readonly: true });
      try {
        return db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'stock_changes'").get() !== undefined;
      } finally {
        db.close();
      }
    };
    await until('the inbox is there', isMade);
    const holder = new Database(inbox, { fileMustExist: true });
    holder.exec('BEGIN EXCLUSIVE');
    const waiting = start(language.handOver, inbox, mirror, 'A-1001-1', '17.5', 'B1');
    await systemClock.sleep(1_000);
    expect(waiting.child.exitCode).toBeNull();
    holder.exec('COMMIT');
    holder.close();
    expect(await waiting.ended).toEqual({ code: 0, stdout: 'done\n', stderr: '' });
    expect(control.stockOf(1001, 'sub-1')).toBe(17.5);

    const refused = await run(language.handOver, inbox, mirror, 'A-1001-1', '99999999999999999999', 'B1');
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/^Not handed over: .*qty must be a number/s);
    const unknown = await run(language.handOver, inbox, mirror, 'NOT-THERE', '3', 'B1');
    expect(unknown.code).toBe(1);
    expect(unknown.stderr).toMatch(/^rejected: .*NOT-THERE/);
    expect(control.stockOf(1001, 'sub-1')).toBe(17.5);
  });

  tried('hand over by HTTP, with an answer for each item', async () => {
    const { control } = place.sandbox;
    const posted = await run(
      language.post,
      daemon.localUrl,
      'A-1001-1=7.5@B1',
      'A-1001-1=99999999999999999999@B1',
    );
    expect(posted).toMatchObject({ code: 3, stderr: '' });
    expect(posted.stdout).toMatch(
      /^A-1001-1 pending\s*\nA-1001-1 rejected (qty .* is too large to|The number 9{20} cannot) be kept exactly\.\n$/,
    );
    await until('it arrived', () => control.stockOf(1001, 'sub-1') === 7.5);
    expect(await run(language.post, daemon.localUrl, 'A-1001-1=8@B1')).toMatchObject({ code: 0 });

    const refused = await run(language.post, daemon.localUrl);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('Nothing was taken: There is no item in the body.');
    await daemon.end('SIGTERM');
    const alone = await run(language.post, daemon.localUrl, 'A-1001-1=9@B1');
    expect(alone.code).toBe(1);
    expect(alone.stderr).toMatch(/^Nothing was taken: /);
  });
});
