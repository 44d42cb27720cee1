import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { MAIN, NODE, openWorkplace, until, type Workplace } from '../support/workplace.ts';

const SERVICE = 61_001;
const POS = 61_003;
const SHARED_GROUP = 61_002;
const isRoot = process.getuid?.() === 0 && existsSync('/usr/bin/setpriv');
if (!isRoot) console.warn('What root does in a directory of the service is tested by root alone.');
const AS_SERVICE = [
  'setpriv',
  '--reuid',
  `${SERVICE}`,
  '--regid',
  `${SERVICE}`,
  '--groups',
  `${SHARED_GROUP}`,
];
const asService = { uid: SERVICE, gid: SHARED_GROUP, cwd: '/' };
const SECRET = 'a secret of root';

/**
 * A storage directory of the service's user with the files of a daemon, and beside it files that belong only to root.
 */
let place: Workplace;
let rootsOwn: string;
let victim: string;

function root(words: readonly string[], input = ''): { status: number | null; text: string } {
  const { status, stdout, stderr } = spawnSync(NODE, [MAIN, ...words], {
    env: place.env,
    input,
    encoding: 'utf8',
    cwd: rootsOwn,
  });
  return { status, text: stdout + stderr };
}

function service(program: string, ...words: string[]): void {
  execFileSync(program, words, asService);
}

function victimFacts(): unknown {
  const { uid, gid, mode } = statSync(victim);
  return { uid, gid, mode: (mode & 0o7777).toString(8), text: readFileSync(victim, 'utf8') };
}

const UNTOUCHED = { uid: 0, gid: 0, mode: '640', text: SECRET };

function ofRootIn(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter(
    (name) => lstatSync(path.join(directory, name)).uid === 0,
  );
}

async function prepare(): Promise<void> {
  place = await openWorkplace(33);
  chmodSync(place.directory, 0o755);
  chownSync(place.directory, SERVICE, SERVICE);
  rootsOwn = mkdtempSync(path.join(tmpdir(), 'tillsync-roots-'));
  victim = path.join(rootsOwn, 'shadow');
  writeFileSync(victim, SECRET);
  chmodSync(victim, 0o640);
  const config = path.join(rootsOwn, 'config.toml');
  copyFileSync(place.configFile, config);
  chmodSync(config, 0o600);
  place.env.TILLSYNC_STORAGE_GROUP = String(SHARED_GROUP);
  const daemon = await place.run(...AS_SERVICE);
  place.sandbox.control.createOrder();
  await until('an order is here', () => place.mirrorRows().length > 0);
  await until('the inbox is there', () => existsSync(path.join(place.storage, 'inbox', 'inbox.db')));
  await daemon.end('SIGTERM');
  place.env.TILLSYNC_CONFIG = config;
}

async function tidy(): Promise<void> {
  await place.close();
  rmSync(rootsOwn, { recursive: true, force: true });
}

describe.skipIf(!isRoot)('a command of root in a directory of the service user', () => {
  beforeAll(prepare);
  afterAll(tidy);

  it('works, leaves nothing of root there, and gives root what it asked for', () => {
    const order = place.mirrorRows()[0]?.order_id as string;
    writeFileSync(path.join(rootsOwn, 'counts.csv'), 'externalId,qty\nA-1001-1,3\n', { mode: 0o600 });
    const commands: [string[], string?][] = [
      [['order', 'ack', order]],
      [['outbox', 'retry', '1']],
      [['auth', 'set', '--untried'], place.refreshToken],
      [['push', 'stock', 'counts.csv']],
      [['status']],
      [['order', 'list']],
      [['auth', 'status']],
      [['doctor', '--offline']],
      [['backup', 'backup.tar.gz']],
      [['bundle', 'bundle.tar.gz']],
      [['restore', 'backup.tar.gz']],
      [['init', '--yes', '--offline', '--no-start']],
    ];
    for (const [words, input] of commands) {
      const { status, text } = root(words, input);
      const isAnswered = words[0] === 'doctor' ? [0, 1, 3] : words[1] === 'retry' ? [1, 2] : [0];
      expect(isAnswered, `${words.join(' ')}\n${text}`).toContain(status);
      expect(text).not.toContain('permission');
      expect(ofRootIn(place.storage), words.join(' ')).toEqual([]);
    }
    for (const name of ['backup.tar.gz', 'bundle.tar.gz']) {
      const { uid, gid, mode } = statSync(path.join(rootsOwn, name));
      expect([uid, gid, (mode & 0o777).toString(8)], name).toEqual([0, 0, '600']);
    }
    expect(statSync(path.join(rootsOwn, 'config.toml')).uid).toBe(0);
    expect(readdirSync(rootsOwn).filter((name) => name.includes('part'))).toEqual([]);
    expect(readdirSync(place.storage).filter((name) => /^\.(backup|restore)-/.test(name))).toEqual([]);
  });

  it('is noted under the name of who typed it, whoever it acts as', () => {
    const audited = (): { who: string; action: string; detail: string }[] =>
      JSON.parse(root(['audit', '--json']).text).audit;
    expect(root(['order', 'ack', 'order-7']).status).toBe(3);
    place.env.SUDO_USER = 'ana';
    expect(root(['order', 'ack', 'order-8']).status).toBe(3);
    delete place.env.SUDO_USER;
    const env = { ...place.env, TILLSYNC_CONFIG: place.configFile };
    const own = spawnSync(NODE, [MAIN, 'order', 'ack', 'order-9'], { ...asService, env, encoding: 'utf8' });
    expect(own.status, own.stderr).toBe(3);
    expect(audited().slice(0, 3)).toMatchObject([
      { who: `cli ${SERVICE}`, action: 'order.ack', detail: 'order-9' },
      { who: 'cli root (sudo by ana)', action: 'order.ack', detail: 'order-8' },
      { who: 'cli root', action: 'order.ack', detail: 'order-7' },
    ]);
  });
});

const COMMANDS = [
  ['order', 'ack', 'order-1'],
  ['outbox', 'retry', '1'],
  ['auth', 'set', '--untried'],
  ['status'],
  ['order', 'list'],
  ['doctor', '--offline'],
  ['auth', 'status'],
  ['backup', 'backup.tar.gz', '--force', '--with-tokens'],
  ['bundle', 'bundle.tar.gz', '--force'],
  ['init', '--yes', '--offline', '--no-start'],
];

describe.skipIf(!isRoot)('the service user who plants links for root', () => {
  beforeAll(prepare);
  afterAll(tidy);

  it.each([
    ['mirror.db'],
    ['mirror.db-wal', 'mirror.db-shm', 'state.db-wal', 'inbox/inbox.db', 'inbox/inbox.db-journal'],
  ])('gets nothing by a link in place of %s', (...names) => {
    const keep = path.join(place.directory, 'kept');
    service('cp', '-a', place.storage, keep);
    for (const words of COMMANDS) {
      for (const name of names) service('ln', '-sf', victim, path.join(place.storage, name));
      const { text } = root(words, place.refreshToken);
      expect(victimFacts(), `${words.join(' ')}\n${text}`).toEqual(UNTOUCHED);
      expect(spawnSync('cat', [victim], asService).status).not.toBe(0);
      expect(text).not.toContain(SECRET);
    }
    rmSync(place.storage, { recursive: true });
    service('mv', keep, place.storage);
  });
});

/** Starts a process that repeats a user's attack. Returns a function that kills it. */
async function attack(user: { uid: number; gid: number }, program: string): Promise<() => Promise<void>> {
  const text = `const fs = require('fs'), path = require('path');
    const storage = ${JSON.stringify(place.storage)}, victim = ${JSON.stringify(victim)};
    const again = (step) => { for (;;) { try { step(); } catch {} } };
    process.stdout.write('ready');
    ${program}`;
  const child = spawn(process.execPath, ['-e', text], {
    ...user,
    cwd: '/',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  return async () => {
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
}

describe.skipIf(!isRoot)('a restore by root', () => {
  const ROUNDS = 3;
  const backup = () => path.join(rootsOwn, 'backup.tar.gz');

  beforeEach(async () => {
    await prepare();
    const inbox = path.join(place.storage, 'inbox', 'inbox.db');
    const insert = "INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 5)";
    const program = `const D = require(${JSON.stringify(path.resolve('node_modules/better-sqlite3'))});
      new D(${JSON.stringify(inbox)}).exec(${JSON.stringify(insert)})`;
    execFileSync(process.execPath, ['-e', program], asService);
    expect(root(['backup', backup()]).text).toContain('read again');
    // The POS acknowledges after the backup, and the restore puts the acknowledgement into the inbox.
    root(['order', 'ack', place.mirrorRows()[0]?.order_id as string]);
  });
  afterEach(tidy);

  it('gives a POS that exchanges the inbox for a link nothing', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      rmSync(path.join(place.storage, 'inbox', 'inbox.db'), { force: true });
      const stop = await attack(
        { uid: POS, gid: SHARED_GROUP },
        `const inbox = path.join(storage, 'inbox/inbox.db');
         again(() => { if (fs.lstatSync(inbox).isFile()) { fs.unlinkSync(inbox); fs.symlinkSync(victim, inbox); } });`,
      );
      root(['restore', backup()]);
      await stop();
      expect(victimFacts()).toEqual(UNTOUCHED);
    }
    expect(spawnSync('cat', [victim], { uid: POS, gid: SHARED_GROUP, cwd: '/' }).status).not.toBe(0);
  });

  it('gives a service user that exchanges its directory for links nothing', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const stop = await attack(
        { uid: SERVICE, gid: SHARED_GROUP },
        // The attack begins only after the restore has replaced the mirror, because a restore notices missing files
        // before that.
        `const number = () => fs.statSync(path.join(storage, 'mirror.db')).ino, before = number();
         again(() => {
           const name = fs.readdirSync(storage).find((each) => each.startsWith('.restore-'));
           if (number() === before) return;
           const staging = path.join(storage, name);
           fs.renameSync(staging, path.join(storage, 'away-' + process.hrtime.bigint()));
           fs.mkdirSync(staging);
           fs.symlinkSync(victim, path.join(staging, 'stock-changes.ndjson'));
         });`,
      );
      root(['restore', backup()]);
      await stop();
      expect(victimFacts()).toEqual(UNTOUCHED);
    }
  });

  it('reads a backup and writes a configuration that only root may read, with --with-config', () => {
    chmodSync(backup(), 0o600);
    const config = path.join(rootsOwn, 'config.toml');
    const before = readFileSync(config, 'utf8');
    writeFileSync(config, `${before}\n# changed since`);
    const { status, text } = root(['restore', backup(), '--with-config', '--json']);
    expect([status, text]).toEqual([0, expect.stringContaining('"configuration": "replaced"')]);
    expect([readFileSync(config, 'utf8'), (statSync(config).mode & 0o777).toString(8)]).toEqual([
      before,
      '600',
    ]);
    const kept = readdirSync(rootsOwn).find((name) => name.startsWith('config.toml.bak-')) as string;
    expect(readFileSync(path.join(rootsOwn, kept), 'utf8')).toBe(`${before}\n# changed since`);
  });
});

describe.skipIf(!isRoot)('a user who may not look into the storage directory', () => {
  const STRANGER = { uid: 61_009, gid: 61_009 };
  beforeAll(async () => {
    await prepare();
    chmodSync(rootsOwn, 0o755);
    chmodSync(place.env.TILLSYNC_CONFIG as string, 0o644);
    writeFileSync(path.join(rootsOwn, 'counts.csv'), 'externalId,qty\nA-1001-1,3\n', { mode: 0o644 });
  });
  afterAll(tidy);

  const stranger = (words: string[]) =>
    spawnSync(NODE, [MAIN, ...words], { env: place.env, encoding: 'utf8', ...STRANGER, cwd: rootsOwn });

  it.each([
    ['status'],
    ['order', 'list'],
    ['auth', 'status'],
    ['backup', '/tmp/no-such-backup.tar.gz'],
    ['outbox', 'retry', '1'],
    ['push', 'stock', 'counts.csv', '--full', '--dry-run'],
  ])('is told so by %s %s', (...words) => {
    const { status, stderr } = stranger(words);
    expect(stderr).toContain(`You do not have permission to`);
    expect(stderr).toMatch(
      new RegExp(`[Rr]un: sudo .* --config ${place.env.TILLSYNC_CONFIG} ${words.join(' ')}\n`),
    );
    expect(status).toBe(1);
  });

  it('is told by doctor which checks it may not make, and never that all is well', () => {
    const { status, stdout } = stranger(['doctor', '--offline']);
    expect(stdout).not.toContain('All is well');
    expect(stdout).not.toContain('There is no mirror');
    expect(stdout).toMatch(/You do not have permission for: .*Mirror, State/);
    expect(stdout).toMatch(/Run: sudo .* doctor --offline\n$/);
    expect(status).not.toBe(0);
  });
});

describe.skipIf(!isRoot)('a directory that nobody made yet', () => {
  beforeEach(prepare);
  afterEach(tidy);

  it('is made by the owner of what is above it', () => {
    const storage = path.join(place.directory, 'another', 'storage');
    delete place.env.TILLSYNC_STORAGE_GROUP;
    place.env.TILLSYNC_STORAGE_DIRECTORY = storage;
    expect(root(['auth', 'set', '--untried'], place.refreshToken).status).toBe(0);
    expect([statSync(storage).uid, ofRootIn(storage)]).toEqual([SERVICE, []]);
  });

  it("stays root's own where all above is root's and no service reads the configuration", () => {
    const storage = path.join(rootsOwn, 'storage');
    mkdirSync(path.join(rootsOwn, 'x'));
    delete place.env.TILLSYNC_STORAGE_GROUP;
    place.env.TILLSYNC_STORAGE_DIRECTORY = storage;
    expect(root(['auth', 'set', '--untried'], place.refreshToken).status).toBe(0);
    expect(statSync(storage).uid).toBe(0);
  });
});
