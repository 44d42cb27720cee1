/** Tests src/db/wal.ts and src/db/file-locks.ts. */

import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { LOCKING, lockPids, READ_MARKS } from '../../src/db/file-locks.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { openTestMirror } from './open-test-mirror.ts';

/**
 * A clock that sleeps at least 500 ms, so that a locked file is tried only a few times; each try takes 10 ms of real
 * time.
 */
class CoarseClock extends FakeClock {
  override sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return super.sleep(Math.max(ms, 500), signal);
  }
}

it('says that the mirror is locked while nothing can be written into it, and takes that back by itself', async () => {
  const clock = new CoarseClock();
  const { mirror, path } = openTestMirror({ clock });
  const unwritten: string[][] = [];
  mirror.health.onUnwritten = (alarms) => unwritten.push(alarms.map(({ key }) => key));
  const other = new Database(path);
  other.exec('BEGIN IMMEDIATE');
  const writing = expect(mirror.write(() => {})).rejects.toMatchObject({ code: 'storage-busy' });
  await clock.advance(9_000);
  expect(mirror.health.raised()).toEqual([]);
  await clock.advance(2_000);
  await writing;
  expect(mirror.health.raised()).toMatchObject([{ key: 'mirror.locked' }]);
  await clock.advance(15_000);
  expect(unwritten.at(-1)).toEqual(['mirror.locked']);
  other.exec('COMMIT');
  await clock.advance(15_000);
  await mirror.health.flush();
  expect(mirror.health.raised()).toEqual([]);
  expect(unwritten.at(-1)).toEqual([]);
  other.close();
});

it('finds who holds a lock that a writer needs', () => {
  const lines = [
    '1: POSIX  ADVISORY  READ 811 fe:01:77 120 120',
    '2: POSIX  ADVISORY  READ 812 fe:01:77 124 124',
    '3: POSIX  ADVISORY  WRITE 813 fe:01:77 123 123',
    '4: -> POSIX  ADVISORY  WRITE 814 fe:01:77 120 120',
    '5: POSIX  ADVISORY  READ 815 fe:01:78 120 120',
    '6: OFDLCK ADVISORY  WRITE 816 fe:01:77 0 EOF',
    '7: POSIX  ADVISORY  READ 817 fe:01:77 121 121',
  ].join('\n');
  const pids = (bytes: typeof LOCKING) =>
    lockPids(
      lines,
      bytes.map((each) => ({ inode: 77, ...each })),
    );
  expect(pids(LOCKING)).toEqual([811, 813, 816]);
  expect(pids(READ_MARKS)).toEqual([812]);
});
