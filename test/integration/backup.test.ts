import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { observation, sampleNotification } from '../orders/open-test-mirror.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { MAIN, NODE, openWorkplace, runCommand, until, type Workplace } from '../support/workplace.ts';

const SEED = Number(process.env.TILLSYNC_TEST_SEED ?? 41);
let place: Workplace;
let file: string;

beforeEach(async () => {
  place = await openWorkplace(SEED);
  file = path.join(place.directory, 'backup.tar.gz');
});
afterEach(() => place.close());

const mirrorPath = () => path.join(place.storage, 'mirror.db');

function ask<T>(query: string, database = mirrorPath()): T[] {
  const db = new Database(database, { readonly: true });
  try {
    return db.prepare<[], T>(query).all();
  } finally {
    db.close();
  }
}

const newestSeq = () => ask<{ seq: number }>('SELECT max(seq) AS seq FROM order_events')[0]?.seq ?? 0;

async function json(...words: string[]) {
  const result = await place.command(...words, '--json');
  return { ...result, document: JSON.parse(result.stdout) };
}

/** Makes the platform create and change orders until the returned function is called. */
function callbacks(): () => Promise<void> {
  const { control } = place.sandbox;
  const random = seededRandom(SEED);
  let goesOn = true;
  const going = (async () => {
    while (goesOn) {
      const order = control.createOrder();
      if (random.next() < 0.6) control.advanceOrder(order.internalOrderId);
      await systemClock.sleep(5);
    }
  })();
  return async () => {
    goesOn = false;
    await going;
    await control.settled();
  };
}

const listing = (directory: string) =>
  readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .sort()
    .map((name) => {
      const { size, mtimeMs, mode } = statSync(path.join(directory, name));
      return { name, size, mtimeMs, mode };
    });

describe('backup and restore', () => {
  it(
    `is made under callbacks, survives being killed, and comes back whole (seed ${SEED})`,
    async () => {
      const daemon = await place.run();
      const stop = callbacks();
      await until('orders are there', () => newestSeq() > 50);

      const random = seededRandom(SEED);
      for (let round = 0; round < 4; round++) {
        const child = spawn(NODE, [MAIN, 'backup', file], { env: place.env, stdio: 'ignore' });
        await systemClock.sleep(200 + random.next() * 500);
        child.kill('SIGKILL');
        if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
        // A file under the final name of the backup is complete.
        if (existsSync(file)) expect((await place.command('restore', file, '--check')).code).toBe(0);
        rmSync(file, { force: true });
      }

      const made = await json('backup', file);
      expect(made.code, made.stderr).toBe(0);
      expect(made.document.mirror.newestSeq).toBeGreaterThan(50);
      expect(statSync(file).mode & 0o777).toBe(0o600);
      expect(readdirSync(place.directory).filter((name) => name.includes('.part-'))).toEqual([]);
      const again = await place.command('backup', file);
      expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining('--force') });

      const refused = await place.command('restore', file);
      expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('Stop it first') });
      await stop();
      await until('mirror and platform are equal', () => place.differences().length === 0);
      const booked = place.mirrorRows().at(-1)?.order_id ?? '';
      expect((await place.command('order', 'ack', booked)).code).toBe(0);
      const read = newestSeq();
      expect(read).toBeGreaterThan(made.document.mirror.newestSeq);
      expect(await daemon.end('SIGTERM')).toBe(0);

      // A restore that is killed at any moment leaves either the old mirror or the new one, and neither is damaged.
      const sizes = [place.mirrorRows().length, made.document.mirror.orders];
      for (let round = 0; round < 5; round++) {
        const child = spawn(NODE, [MAIN, 'restore', file], { env: place.env, stdio: 'ignore' });
        await systemClock.sleep(300 + random.next() * 300);
        child.kill('SIGKILL');
        if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
        expect(ask('PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
        expect(sizes).toContain(place.mirrorRows().length);
      }

      const restored = await json('restore', file);
      expect(restored.code, restored.stderr).toBe(0);
      expect(readdirSync(place.storage).filter((name) => name.startsWith('.'))).toEqual([]);
      expect(restored.document).toMatchObject({ feedJumped: false, continuesAfterSeq: read, tokens: 'none' });
      expect(ask('PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
      expect(newestSeq()).toBe(made.document.mirror.newestSeq);
      const kept = readdirSync(place.storage).filter((name) => /before-restore-\w+(-\d+)?$/.test(name));
      const newest = (name: string) =>
        ask<{ seq: number }>('SELECT max(seq) AS seq FROM order_events', path.join(place.storage, name))[0]
          ?.seq;
      expect(kept.map(newest)).toContain(read);
      expect(statSync(mirrorPath()).mode & 0o777).toBe(0o640);
      for (const suffix of ['-wal', '-shm']) expect(existsSync(mirrorPath() + suffix), suffix).toBe(true);

      const next = await place.run();
      await until('mirror and platform are equal again', () => place.differences().length === 0);
      await until('what was booked since is known', () =>
        ask<{ id: string }>('SELECT order_id AS id FROM order_acks').some(({ id }) => id === booked),
      );
      const after = ask<{ seq: number }>(
        `SELECT seq FROM order_events WHERE seq > ${made.document.mirror.newestSeq}`,
      );
      expect(after.length).toBeGreaterThan(0);
      expect(Math.min(...after.map(({ seq }) => seq))).toBeGreaterThan(read);
      expect(place.sandbox.control.violations()).toEqual([]);
      expect(place.sandbox.control.deadRefreshUses()).toEqual([]);
      expect(await next.end('SIGTERM')).toBe(0);
    },
    limitMs(90_000),
  );

  it(
    'is made and comes back at a branch, which has no platform of its own',
    async () => {
      const storage = path.join(place.directory, 'branch');
      const configFile = path.join(place.directory, 'branch.toml');
      const configure = (hub: string) =>
        writeFileSync(
          configFile,
          `[storage]\ndirectory = "${storage}"\n[link]\nhub = "tls://${hub}:4222"\nbranch = "B1"\n`,
        );
      configure('hub.example.com');
      mkdirSync(storage);
      const mirror = openMirror({ path: path.join(storage, 'mirror.db'), clock: systemClock });
      for (const number of [1, 2]) {
        await mirror.save([{ kind: 'order', observation: observation('poll', sampleNotification(number)) }]);
      }
      await mirror.close();
      const orders = () =>
        ask('SELECT order_id, code, status FROM orders ORDER BY order_id', path.join(storage, 'mirror.db'));
      const before = orders();
      expect(before).toHaveLength(2);
      const run = async (...words: string[]) => {
        const env = { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: configFile };
        const { code, stdout, stderr } = await runCommand(env, [...words, '--json']);
        expect(code, stderr).toBe(0);
        return JSON.parse(stdout);
      };
      expect((await run('backup', file)).platform).toBe('hub.example.com:4222');
      expect((await run('restore', file, '--check')).mirror.orders).toBe(2);
      const { advice } = await run('restore', file);
      expect(advice.join(' ')).toContain('Start tillsync');
      expect(advice.join(' ')).not.toContain('talks to');
      expect(orders()).toEqual(before);
      configure('other.example.com');
      expect((await run('restore', file)).advice[0]).toBe(
        'The backup is of hub.example.com:4222, but the configuration talks to other.example.com:4222.',
      );
    },
    limitMs(60_000),
  );

  it(
    'refuses what is cut, altered or newer, and leaves all as it was',
    async () => {
      const daemon = await place.run();
      for (let i = 0; i < 40; i++) place.sandbox.control.createOrder();
      await until('mirror and platform are equal', () => place.differences().length === 0);
      expect(await daemon.end('SIGTERM')).toBe(0);
      expect((await place.command('backup', file)).code).toBe(0);
      const before = listing(place.storage);
      const whole = readFileSync(file);
      const bad = path.join(place.directory, 'bad.tar.gz');
      const cuts = [0, 5, 300, Math.floor(whole.length / 2), whole.length - 9, whole.length - 1];
      for (const bytes of cuts) {
        copyFileSync(file, bad);
        truncateSync(bad, bytes);
        const result = await json('restore', bad);
        expect([bytes, result.code, result.document.error.code]).toEqual([bytes, 1, 'storage-corrupt']);
      }
      for (const share of [0.1, 0.5, 0.9]) {
        const altered = Buffer.from(whole);
        const at = Math.floor(whole.length * share);
        altered[at] = (altered[at] as number) ^ 0x40;
        writeFileSync(bad, altered);
        const result = await json('restore', bad);
        expect([share, result.code, result.document.error.code]).toEqual([share, 1, 'storage-corrupt']);
        expect(result.document.error.hint).toContain('another backup');
      }
      expect(listing(place.storage)).toEqual(before);
    },
    limitMs(60_000),
  );

  it(
    'tells which secrets are not handed in where it is restored',
    async () => {
      const daemon = await place.run();
      expect(await daemon.end('SIGTERM')).toBe(0);
      appendFileSync(place.configFile, '[[hooks]]\nname = "pos"\nurl = "https://pos.invalid"\n');
      const handIn = (...names: string[]) => {
        const directory = path.join(place.directory, `credentials-${names.length}`);
        mkdirSync(directory);
        for (const name of names) writeFileSync(path.join(directory, name), 'https://pos.invalid/4711');
        place.env.CREDENTIALS_DIRECTORY = directory;
      };
      handIn('alarm-url', 'hook-pos', 'hook-pos-url');
      const made = await json('backup', file);
      const names = [
        'refresh-token',
        'local-api-key',
        'alarm-url',
        'webhook-secret',
        'hook-pos',
        'hook-pos-url',
      ];
      expect(made.document.handedIn).toEqual(names);

      handIn('hook-pos');
      delete place.env.TILLSYNC_REFRESH_TOKEN;
      const restored = await json('restore', file);
      expect(restored.document.missingSecrets).toEqual(['alarm-url', 'hook-pos-url']);
      expect(restored.document.advice[0]).toContain('set them: TILLSYNC_ALARM_URL, TILLSYNC_HOOK_POS_URL');
      expect(made.stdout + restored.stdout).not.toContain('4711');
    },
    limitMs(60_000),
  );

  it(
    'brings a store to a machine that has nothing, and sends nothing old by itself',
    async () => {
      const daemon = await place.run();
      for (let i = 0; i < 10; i++) place.sandbox.control.createOrder();
      await until('mirror and platform are equal', () => place.differences().length === 0);
      await until(
        'the catalogue is there',
        () => ask<{ n: number }>('SELECT count(*) AS n FROM _sweeps')[0]?.n === 2,
      );
      expect(await daemon.end('SIGTERM')).toBe(0);
      const set = await place.command('stock', 'set', '--external-id', 'A-1001-1', '--qty', '77');
      expect(set.code, set.stderr).toBe(0);
      const inbox = new Database(path.join(place.storage, 'inbox', 'inbox.db'));
      inbox.prepare("INSERT INTO stock_changes (external_id, qty) VALUES ('A-1001-1', 78)").run();
      inbox.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(place.mirrorRows()[0]?.order_id);
      inbox.close();
      const made = await json('backup', file, '--with-tokens');
      expect(made.code, made.stderr).toBe(0);
      expect(made.document.hasTokens).toBe(true);
      expect(made.stdout + made.stderr).not.toContain(place.refreshToken);
      const seq = newestSeq();
      const rows = place.mirrorRows();

      rmSync(place.storage, { recursive: true });
      const config = readFileSync(place.configFile, 'utf8');
      rmSync(place.configFile);
      const restored = await json('restore', file, '--yes');
      expect(restored.code, restored.stderr).toBe(0);
      expect(restored.document).toMatchObject({
        configuration: 'restored',
        feedJumped: true,
        continuesAfterSeq: seq + 1_000_000,
        tokens: 'taken',
        held: 1,
        acks: 1,
        changes: [{ kind: 'stock' }],
      });
      expect(readFileSync(place.configFile, 'utf8')).toBe(config);
      expect(place.mirrorRows()).toEqual(rows);
      const [kept] = restored.document.changes as { path: string }[];
      expect(JSON.parse(readFileSync(kept?.path ?? '', 'utf8'))).toEqual({ externalId: 'A-1001-1', qty: 78 });

      const next = await place.run();
      await until(
        'what was booked is known',
        () => ask<{ n: number }>('SELECT count(*) AS n FROM order_acks')[0]?.n === 1,
      );
      expect(await next.end('SIGTERM')).toBe(0);
      expect(ask('SELECT state, held_guard AS guard FROM outbox')).toEqual([
        { state: 'pending', guard: 'restored' },
      ]);
      expect([77, 78]).not.toContain(place.sandbox.control.stockOf(1001, 'sub-1'));
    },
    limitMs(60_000),
  );
});
