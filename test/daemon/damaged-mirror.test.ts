/** Tests src/db/mirror-head.ts and src/support/damaged-mirror.ts. */

import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { pino } from 'pino';
import { expect, it, onTestFinished } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { readConfig } from '../../src/config/config.ts';
import type { Config } from '../../src/config/config-type.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { headDamage } from '../../src/db/mirror-head.ts';
import { rescueMirror } from '../../src/support/damaged-mirror.ts';
import { commandsAt } from '../cli/invoke.ts';
import { observation } from '../orders/open-test-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { rowsIn } from '../support/rows.ts';

const clock = systemClock;
const log = pino({ level: 'silent' });

/** Makes a store with one acknowledged order. */
async function store(more = '') {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-head-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const storage = path.join(directory, 'storage');
  const file = path.join(directory, 'config.toml');
  const text = `[platform]\nbase_url = "https://platform.test"\n[storage]\ndirectory = "${storage}"\n${more}`;
  writeFileSync(file, text);
  const read = readConfig({ file, env: {}, text });
  if ('faults' in read) throw new Error(JSON.stringify(read.faults));
  const mirrorFile = path.join(storage, 'mirror.db');
  const mirror = openMirror({ path: mirrorFile, clock });
  await mirror.save([{ kind: 'order', observation: observation('poll', sampleNotification(1)) }]);
  await mirror.write((db) =>
    db.exec(
      "INSERT INTO _order_acks (order_id, branch, acked_at, source) VALUES ('booked', '', '2026-03-01T09:00:00.000Z', 'http')",
    ),
  );
  await mirror.close();
  for (const suffix of ['-wal', '-shm']) rmSync(mirrorFile + suffix, { force: true });
  const { json, run } = commandsAt({ env: { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: file } });
  return { directory, storage, mirrorFile, config: read.config, json, run };
}

function damage(file: string, at: number, change: (byte: number) => number): void {
  const bytes = readFileSync(file);
  bytes[at] = change(bytes[at] ?? 0);
  writeFileSync(file, bytes);
}

function rescue(config: Config, backups: string[] = []) {
  return rescueMirror('damaged', {
    ...{ config, clock, log },
    backups: async () => backups,
    passphrase: undefined,
  });
}

it('no byte of the head ends the start: the mirror opens, or its damage is seen', async () => {
  const { mirrorFile, storage } = await store();
  const sound = readFileSync(mirrorFile);
  const copy = path.join(storage, 'copy.db');
  const seen: number[] = [];
  for (let at = 0; at < 112; at++) {
    for (const change of [(byte: number) => byte ^ 0xff, (byte: number) => byte ^ 1]) {
      writeFileSync(copy, sound);
      for (const suffix of ['-wal', '-shm']) rmSync(copy + suffix, { force: true });
      damage(copy, at, change);
      if (headDamage(copy) !== undefined) {
        seen.push(at);
        continue;
      }
      const opened = openMirror({ path: copy, clock });
      expect(opened.orders.newestSeq(), `byte ${at}`).toBe(1);
      await opened.close();
    }
  }
  // Magic, page size, versions, schema format, and the root of the list of tables.
  for (const at of [0, 15, 16, 18, 19, 21, 47, 59, 100, 104]) expect(seen).toContain(at);
});

it('a sound mirror, none and a database of another program are left alone', async () => {
  const { mirrorFile, storage } = await store();
  expect(headDamage(mirrorFile)).toBeUndefined();
  expect(headDamage(path.join(storage, 'none.db'))).toBeUndefined();
  const foreign = path.join(storage, 'foreign.db');
  const db = new Database(foreign);
  db.exec('CREATE TABLE notes (text)');
  db.close();
  expect(headDamage(foreign)).toBeUndefined();
});

it('all that it had is in the new one where only the header is damaged', async () => {
  const { mirrorFile, storage, config } = await store();
  damage(mirrorFile, 0, () => 0);
  const damaged = readFileSync(mirrorFile);
  const text = await rescue(config);
  expect(text).toMatch(/was damaged at its beginning and is kept as .*All that is in it could be read/);
  const kept = readdirSync(storage).find((name) => name.startsWith('mirror.db.damaged-')) ?? '';
  expect(readFileSync(path.join(storage, kept)).equals(damaged)).toBe(true);
  expect(rowsIn(mirrorFile, 'SELECT order_id FROM _orders')).toHaveLength(1);
  expect(rowsIn(mirrorFile, 'SELECT order_id FROM _order_acks')).toEqual([{ order_id: 'booked' }]);
  const [{ seq } = { seq: 0 }] = rowsIn<{ seq: number }>(
    mirrorFile,
    "SELECT seq FROM sqlite_sequence WHERE name = 'order_events'",
  );
  expect(seq).toBeGreaterThan(1);
  expect(headDamage(mirrorFile)).toBeUndefined();
});

it('the newest backup is taken where the list of tables is lost', async () => {
  const { mirrorFile, config, directory, json } = await store();
  const backup = path.join(directory, 'tillsync-till-20260301T080000Z.tar.gz');
  expect((await json(['backup', backup])).code).toBe(0);
  damage(mirrorFile, 100, () => 0);
  expect(await rescue(config, [backup])).toContain(`The new one is of the backup ${path.basename(backup)}`);
  expect(rowsIn(mirrorFile, 'SELECT order_id FROM _order_acks')).toEqual([{ order_id: 'booked' }]);
});

it('what is missing is told with the command where no backup can be opened here', async () => {
  const recipient = 'age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p';
  const { mirrorFile, config, directory, json } = await store();
  // Somebody put a plain backup there, but this machine's are encrypted.
  const planted = path.join(directory, 'tillsync-till-20260301T080000Z.tar.gz');
  expect((await json(['backup', planted])).code).toBe(0);
  copyFileSync(mirrorFile, path.join(directory, 'before.db'));
  damage(mirrorFile, 100, () => 0);
  const text = await rescue({ ...config, backup: { ...config.backup, recipient } }, [planted]);
  expect(text).toContain('What the POS acknowledged is not in it.');
  expect(text).toContain('{tillsync} restore');
  expect(rowsIn(mirrorFile, 'SELECT order_id FROM _orders')).toEqual([]);
});
