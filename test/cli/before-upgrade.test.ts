/** Tests src/support/before-upgrade.ts. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { openState } from '../../src/app/state.ts';
import { markRunning } from '../../src/app/storage.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { observation } from '../orders/open-test-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { NODE } from '../support/workplace.ts';
import { commandsAt } from './invoke.ts';

/**
 * Makes a store with the copies that an upgrade makes, then adds tokens, an order, an acknowledgement and a change. The
 * schema is still that of this version; tests change it with `makeNewer`.
 */
async function upgradedStore() {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-upgraded-'));
  const storage = path.join(directory, 'storage');
  const config = path.join(directory, 'config.toml');
  writeFileSync(
    config,
    `[platform]\nbase_url = "https://platform.test"\n[storage]\ndirectory = "${storage}"\n`,
  );
  const paths = { mirror: path.join(storage, 'mirror.db'), state: path.join(storage, 'state.db') };
  const mirror = openMirror({ path: paths.mirror, clock: systemClock });
  await mirror.save(
    [1, 2].map((n) => ({ kind: 'order', observation: observation('poll', sampleNotification(n)) })),
  );
  await mirror.close();
  const tokens = { ...TOKENS, refreshToken: 'from-before' };
  withState(paths.state, (state) => state.tokens.save(tokens, null));
  for (const file of Object.values(paths)) copyFileSync(file, `${file}.before-upgrade`);

  withState(paths.state, (state) => state.tokens.save({ ...TOKENS, refreshToken: 'rotated-since' }, null));
  const later = openMirror({ path: paths.mirror, clock: systemClock });
  await later.save([{ kind: 'order', observation: observation('poll', sampleNotification(3)) }]);
  await later.close();
  const commands = commandsAt({ env: { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: config } });
  expect((await commands.run(['order', 'ack', idOf(paths.mirror, 2)])).code).toBe(0);
  expect((await commands.run(STOCK_SET)).code).toBe(0);
  return { storage, paths, ...commands };
}

const STOCK_SET = 'stock set --external-id SKU-9 --qty 4 --subsidiary-external-id B1'.split(' ');

const TOKENS = {
  refreshToken: '',
  accessToken: null,
  accessExpiresAtMs: null,
  accessIssuedAtMs: null,
  refreshExpiresAtMs: null,
  clockSkewMs: 0,
};

function withState<T>(file: string, act: (state: ReturnType<typeof openState>) => T): T {
  const state = openState({ path: file, clock: systemClock });
  try {
    return act(state);
  } finally {
    state.close();
  }
}

function sql<T>(file: string, act: (db: Database.Database) => T): T {
  const db = new Database(file);
  try {
    return act(db);
  } finally {
    db.close();
  }
}

const idOf = (mirror: string, seq: number) =>
  sql(mirror, (db) =>
    db.prepare<[number], string>('SELECT order_id FROM order_events WHERE seq = ?').pluck().get(seq),
  ) ?? '';

/** Changes the schema of a database file, as an upgrade to a later version does. */
function makeNewer(file: string, changes: string): void {
  sql(file, (db) =>
    db.exec(`${changes}; INSERT INTO _schema_migrations (name) VALUES ('9999-of-a-later-version')`),
  );
}

const STATE_CHANGES = 'ALTER TABLE tokens ADD COLUMN of_later TEXT; CREATE TABLE later (x)';
const MIRROR_CHANGES = 'ALTER TABLE _orders ADD COLUMN of_later TEXT';

/**
 * Makes another program lock the file for half a second, longer than any busy timeout. Resolves when the file is
 * locked.
 */
async function lockForAMoment(file: string): Promise<void> {
  const hold = `const db = new (require('node:sqlite').DatabaseSync)(process.argv[1]);
    db.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE');
    process.stdout.write('held');
    setTimeout(() => process.exit(), 500);`;
  const child = spawn(NODE, ['-e', hold, file], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  await once(child.stdout, 'data');
}

it('restore --before-upgrade waits for a program that keeps the mirror locked, and loses nothing for it', {
  tags: ['bulk'],
}, async () => {
  const { paths, run, json } = await upgradedStore();
  makeNewer(paths.state, STATE_CHANGES);
  makeNewer(paths.mirror, MIRROR_CHANGES);
  await lockForAMoment(paths.mirror);
  const { code, document, stderr } = await json(['restore', '--before-upgrade']);
  expect([code, stderr]).toEqual([0, '']);
  expect(document.mirror).toMatchObject({ acks: 1, changes: [{ kind: 'stock' }] });
  expect((await run(['order', 'list'])).code).toBe(0);
});

it('restore of a backup waits for a program that keeps the mirror locked, and takes over what it knows', {
  tags: ['bulk'],
}, async () => {
  const { storage, paths, run, json } = await upgradedStore();
  const backup = path.join(storage, '../backup.tar.gz');
  expect((await run(['backup', backup])).code).toBe(0);
  expect((await run(['order', 'ack', idOf(paths.mirror, 3)])).code).toBe(0);
  await lockForAMoment(paths.mirror);
  const { code, document } = await json(['restore', backup]);
  expect(code).toBe(0);
  expect(document).toMatchObject({ feedJumped: false, acks: 1 });
});

it('restore --before-upgrade gives the earlier version its files, with what came since', async () => {
  const { storage, paths, run, json } = await upgradedStore();
  const acked = idOf(paths.mirror, 2);
  makeNewer(paths.state, STATE_CHANGES);
  makeNewer(paths.mirror, MIRROR_CHANGES);
  expect((await run(['status'])).stderr).toMatch(/newer tillsync/);
  const { code, document, stderr } = await json(['restore', '--before-upgrade']);
  expect([code, stderr]).toEqual([0, '']);
  expect(document.mirror).toMatchObject({ feedJumped: false, continuesAfterSeq: 3, acks: 1 });

  // A refresh token works once, so an earlier one would lock the store out.
  expect(withState(paths.state, ({ tokens }) => tokens.read()?.refreshToken)).toBe('rotated-since');
  expect((await json(['order', 'list'])).document.orders).toHaveLength(2);
  const inbox = path.join(storage, 'inbox/inbox.db');
  expect(sql(inbox, (db) => db.prepare('SELECT order_id FROM order_acks').pluck().all())).toEqual([acked]);
  const [changes] = document.mirror.changes;
  expect(JSON.parse(readFileSync(changes.path, 'utf8'))).toMatchObject({ externalId: 'SKU-9', qty: 4 });
  expect((await run(['push', 'stock', changes.path])).code).toBe(0);
  const kept = readdirSync(storage).filter((name) => name.includes('.before-restore-'));
  expect(kept.map((name) => name.split('.before')[0]).sort()).toEqual(['mirror.db', 'state.db']);

  const mirror = openMirror({ path: paths.mirror, clock: systemClock });
  await mirror.save([{ kind: 'order', observation: observation('poll', sampleNotification(3)) }]);
  expect(mirror.orders.newestSeq()).toBe(4);
  await mirror.close();
});

it('what this version can read stays as it is', async () => {
  const { paths, json } = await upgradedStore();
  makeNewer(paths.state, STATE_CHANGES);
  const { code, document } = await json(['restore', '--before-upgrade']);
  expect([code, document.mirror]).toEqual([0, null]);
  expect(withState(paths.state, ({ tokens }) => tokens.read()?.refreshToken)).toBe('rotated-since');
  expect((await json(['order', 'list'])).document.orders).toHaveLength(3);
});

it('repeated after it was killed between the two files, it does the rest', async () => {
  const { paths, json } = await upgradedStore();
  makeNewer(paths.mirror, MIRROR_CHANGES);
  expect((await json(['restore', '--before-upgrade'])).document).toMatchObject({
    stateKeptAt: null,
    mirror: { continuesAfterSeq: 3 },
  });
  expect(withState(paths.state, ({ tokens }) => tokens.read()?.refreshToken)).toBe('rotated-since');
});

it('restore --before-upgrade refuses without a newer file, without a copy, and while tillsync runs', async () => {
  const { paths, run } = await upgradedStore();
  const none = await run(['restore', '--before-upgrade']);
  expect([none.code, none.stderr]).toEqual([2, expect.stringContaining('of this version')]);
  makeNewer(paths.mirror, MIRROR_CHANGES);
  const state = openState({ path: paths.state, clock: systemClock });
  const end = await markRunning({
    leases: state.leases,
    directory: '/d',
    clock: systemClock,
    log: silentLog,
  });
  const running = await run(['restore', '--before-upgrade']);
  expect([running.code, running.stderr]).toEqual([2, expect.stringContaining('tillsync runs on')]);
  makeNewer(paths.state, STATE_CHANGES);
  const stillRunning = await run(['restore', '--before-upgrade']);
  expect([stillRunning.code, stillRunning.stderr]).toEqual([2, expect.stringContaining('tillsync runs on')]);
  await end();
  state.close();
  rmSync(`${paths.state}.before-upgrade`);
  const before = readFileSync(paths.mirror);
  const lost = await run(['restore', '--before-upgrade']);
  expect([lost.code, lost.stderr]).toEqual([1, expect.stringContaining('state.db.before-upgrade')]);
  expect(readFileSync(paths.mirror).equals(before)).toBe(true);
  expect((await run(['restore', '--before-upgrade', '--check'])).code).toBe(2);
  expect((await run(['restore'])).code).toBe(2);
});
