/** Tests src/orders/reading/mirror-file.ts. */

import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { lockPids, READ_MARKS } from '../../src/db/file-locks.ts';
import { findWalReaders } from '../../src/db/wal.ts';
import { quarantine } from '../../src/orders/receiving/quarantine.ts';
import { openTestMirror, poll, readerProcess, receive, sampleNotification } from './open-test-mirror.ts';

it('commits are synced: every connection runs FULL', () => {
  const { mirror } = openTestMirror();
  expect(
    mirror.read((db) => [
      db.pragma('synchronous', { simple: true }),
      db.pragma('journal_mode', { simple: true }),
    ]),
  ).toEqual([2, 'wal']);
});

it('what only works off what is stored is not synced and not followed by a checkpoint, and the next commit is', async () => {
  const { mirror } = openTestMirror();
  const settings = () =>
    mirror.read((db) =>
      ['synchronous', 'wal_autocheckpoint'].map((name) => db.pragma(name, { simple: true })),
    );
  const before = settings();
  expect(before).toEqual([2, 1_900]);
  expect(await mirror.writeDerived(settings)).toEqual([1, 0]);
  expect(settings()).toEqual(before);
  const failed = mirror.writeDerived(() => {
    throw new Error('not done');
  });
  await expect(failed).rejects.toThrow('not done');
  expect(settings()).toEqual(before);
});

it('a turn of the event loop has one transaction beside those of callbacks, which wait for no other', async () => {
  const { mirror } = openTestMirror();
  let turn = 0;
  let isOver = false;
  const count = () => {
    turn += 1;
    if (!isOver) setImmediate(count);
  };
  count();
  const turns: Record<string, number> = {};
  const note = (name: string) => () => {
    turns[name] = turn;
  };
  const others = ['first', 'second', 'third'].map((name) =>
    name === 'second' ? mirror.writeDerived(note(name)) : mirror.write(note(name)),
  );
  const stored = receive(mirror, sampleNotification(1)).then(note('callback'));
  await Promise.all([...others, stored]);
  isOver = true;
  const { first = 0, second = 0, third = 0, callback = 0 } = turns;
  expect(first).toBeLessThan(second);
  expect(second).toBeLessThan(third);
  expect(callback).toBeLessThan(second);
});

it('readers are told from the kernel table of locks', () => {
  const locks = [
    '1: POSIX  ADVISORY  READ 812 fe:01:1311 124 124',
    '2: POSIX  ADVISORY  READ 813 fe:01:1311 128 128',
    '3: POSIX  ADVISORY  WRITE 814 fe:01:1311 120 120',
    '4: POSIX  ADVISORY  READ 815 fe:01:1312 124 124',
    '4: -> POSIX  ADVISORY  READ 816 fe:01:1311 123 127',
    '5: FLOCK  ADVISORY  READ 817 fe:01:1311 0 EOF',
    '',
  ].join('\n');
  expect(
    lockPids(
      locks,
      READ_MARKS.map((each) => ({ inode: 1311, ...each })),
    ),
  ).toEqual([812, 816]);
});

it('a reader that holds the log is named in an alarm, which ends with it', async () => {
  const { mirror, path, clock } = openTestMirror();
  await receive(mirror, sampleNotification(1));
  const reader = await readerProcess(path);

  const grow = Array.from({ length: 40 }, (_, i) => sampleNotification(1, { name: `${i},`.repeat(150_000) }));
  await receive(mirror, ...grow);
  await clock.advance(1_000);
  await receive(mirror, sampleNotification(1));
  expect(mirror.walBytes()).toBeGreaterThan(16 * 1024 * 1024);
  expect(findWalReaders(path)).toEqual([{ pid: reader.pid, program: expect.any(String) }]);
  expect(mirror.health.raised()).toMatchObject([
    { key: 'mirror.reader-holds-wal', message: expect.stringContaining(`process ${reader.pid}`) },
  ]);

  await reader.end();
  await clock.advance(1_000);
  await receive(mirror, sampleNotification(2));
  expect(mirror.health.raised()).toEqual([]);
  expect(mirror.walBytes()).toBeLessThan(16 * 1024 * 1024);
  expect(findWalReaders(path)).toEqual([]);
});

it('a store without callbacks is told of a reader that holds the log as well', async () => {
  const { mirror, path, clock } = openTestMirror();
  const reader = new Database(path, { readonly: true });
  reader.exec('BEGIN');
  reader.prepare('SELECT count(*) FROM orders').get();
  const grow = async (letter: string) => {
    await clock.advance(1_000);
    const unreadable = { source: 'inbox' as const, receivedAtMs: 0, reason: 'test' };
    const payload = letter.repeat(9 * 1024 * 1024);
    await mirror.write((db) => quarantine(db, { ...unreadable, payload }));
  };
  await grow('a');
  await grow('b');
  expect(mirror.health.raised()).toMatchObject([{ key: 'mirror.reader-holds-wal' }]);
  reader.close();
  await grow('c');
  expect(mirror.health.raised()).toEqual([]);
  expect(mirror.walBytes()).toBeLessThan(16 * 1024 * 1024);
});

it('an alarm of an earlier run ends with the first write', async () => {
  const { mirror } = openTestMirror();
  mirror.health.note('mirror.reader-holds-wal', 'A reader that is gone by now.');
  await mirror.health.flush();
  await receive(mirror, sampleNotification(1));
  expect(mirror.health.raised()).toEqual([]);
});

it('an import leaves the log empty', { tags: ['bulk'] }, async () => {
  const { mirror, path } = openTestMirror();
  const report = await poll(
    mirror,
    Array.from({ length: 3_000 }, (_, i) => sampleNotification(i)),
  );
  expect(report.createdIds).toHaveLength(1_000);
  expect(mirror.walBytes()).toBe(0);
  const db = new Database(path, { readonly: true });
  expect(db.prepare('SELECT count(*) FROM orders').pluck().get()).toBe(3_000);
  db.close();
});
