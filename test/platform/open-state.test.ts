/** Tests src/app/state.ts and src/db/state-file.ts. */

import { copyFileSync, existsSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { openState } from '../../src/app/state.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { documentLimits, tempDirectory, tempState } from './temp-state.ts';

const pair = (refreshToken: string) => ({
  refreshToken,
  accessToken: `${refreshToken}-access`.padEnd(900, 'x'),
  accessExpiresAtMs: 1,
  accessIssuedAtMs: 0,
  refreshExpiresAtMs: null,
  clockSkewMs: 0,
});

function openCode(path: string): string {
  try {
    openState({ path, clock: new FakeClock() }).close();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return 'opened';
}

test('only its owner can read it, and its log is still there after a close', () => {
  const state = tempState(new FakeClock());
  for (const end of ['', '-wal', '-shm']) expect(statSync(state.path + end).mode & 0o777).toBe(0o600);
  state.close();
  expect(statSync(`${state.path}-wal`).size).toBeGreaterThan(100_000);
  const again = tempState(new FakeClock(), state.path);
  expect(again.tokens.read()).toBe(null);
});

test('token saves and rate slots need no room beyond the files as they are', async () => {
  const clock = new FakeClock();
  const state = tempState(clock);
  const sizes = () => [statSync(state.path).size, statSync(`${state.path}-wal`).size];
  const before = sizes();
  for (let i = 0; i < 500; i++) {
    const grant = state.ledger.acquire('product.list', documentLimits, 1000);
    if (grant.granted) state.ledger.settle(grant.ticket);
    expect(state.tokens.save(pair(`token ${i}`), i)).toBe(true);
    await clock.advance(1001);
  }
  expect(sizes()).toEqual(before);
});

test('damage is refused loudly and left as it is', () => {
  const path = join(tempDirectory(), 'state.db');
  tempState(new FakeClock(), path).close();
  const db = new Database(path);
  db.pragma('wal_checkpoint(TRUNCATE)');
  db.pragma('journal_mode = DELETE');
  db.close();
  const good = readFileSync(path);
  writeFileSync(path, Buffer.concat([good.subarray(0, 4096), Buffer.alloc(good.length - 4096, 7)]));
  expect(openCode(path)).toBe('storage-corrupt');
  writeFileSync(path, 'not a database '.repeat(1000));
  const junk = readFileSync(path);
  expect(openCode(path)).toBe('storage-corrupt');
  expect(readFileSync(path).equals(junk)).toBe(true);
});

test('damage that can still be read is refused as well', () => {
  const path = join(tempDirectory(), 'state.db');
  tempState(new FakeClock(), path).close();
  const db = new Database(path);
  db.pragma('wal_checkpoint(TRUNCATE)');
  db.close();
  // The header counts a page that belongs to no table. Only a check of the whole file finds it.
  const bytes = Buffer.concat([readFileSync(path), Buffer.alloc(4096)]);
  bytes.writeUInt32BE(bytes.readUInt32BE(28) + 1, 28);
  writeFileSync(path, bytes);
  expect(openCode(path)).toBe('storage-corrupt');
});

test('what a process that died has left in the log is on the disk before it is used', () => {
  const first = tempState(new FakeClock());
  first.tokens.save(pair('a'), 0);
  const left = join(tempDirectory(), 'state.db');
  for (const suffix of ['', '-wal']) copyFileSync(first.path + suffix, left + suffix);
  expect(tempState(new FakeClock(), left).tokens.read()?.refreshToken).toBe('a');
  const alone = join(tempDirectory(), 'state.db');
  copyFileSync(left, alone);
  const db = new Database(alone);
  expect(db.prepare('SELECT count(*) FROM tokens').pluck().get()).toBe(1);
  db.close();
});

test('a file whose content is gone is not taken for a new one', () => {
  const state = tempState(new FakeClock());
  state.tokens.save(pair('a'), 0);
  state.close();
  truncateSync(state.path, 0);
  expect(openCode(state.path)).toBe('storage-corrupt');
});

test('a newer schema is refused, an unchanged one is opened', () => {
  const state = tempState(new FakeClock());
  state.close();
  expect(openCode(state.path)).toBe('opened');
  const db = new Database(state.path);
  db.exec("INSERT INTO _schema_migrations (name) VALUES ('0002-from-the-future')");
  db.close();
  expect(openCode(state.path)).toBe('storage-newer');
  expect(existsSync(`${state.path}.before-upgrade`)).toBe(false);
});
