/** Tests src/link/copies.ts and src/link/branch-copy.ts. */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import type { DiskSpace } from '../../src/health/facts.ts';
import { CopySender, fetchCopies } from '../../src/link/branch-copy.ts';
import { CopyStore } from '../../src/link/copies.ts';
import { COPY, COPY_PART_BYTES } from '../../src/link/link.ts';
import { BackupDisk } from '../../src/support/backup-files.ts';
import { FakeClock } from '../support/fake-clock.ts';

const FIRST = 'tillsync-b1-20261125T080000Z.tar.gz.age';
const SECOND = 'tillsync-b1-20261126T080000Z.tar.gz.age';
const THIRD = 'tillsync-b1-20261127T080000Z.tar.gz.age';
const DIFFERENTIAL = 'tillsync-b1-20261126T080000Z.differential.tar.gz.age';
const THREE_PARTS = 2 * COPY_PART_BYTES.up + 10;
const HOUR_MS = 3_600_000;

let hub: string;
let branch: string;
let maxBytes: number;
let space: DiskSpace | null;
/** Number of parts sent to the hub. Parts after number `cutAfter` are lost, as if the line were cut. */
let parts: number;
let cutAfter: number;
/** Pauses between the parts, in milliseconds. */
let pauses: number[];
let store: CopyStore;

const nowMs = { jumped: 0 };
const clock = {
  ...systemClock,
  monotonicMs: () => nowMs.jumped,
  sleep: async (ms: number) => void pauses.push(ms),
};
const signal = new AbortController().signal;

const askAs =
  (name: string) =>
  async (question: object): Promise<string> => {
    const asked = COPY.parse({ instance: 'one', ...question });
    if (asked.do === 'put' && asked.part !== '') {
      parts += 1;
      if (parts > cutAfter) throw new TillsyncError('link-down', 'The line is cut.');
    }
    return JSON.stringify(await store.answer(name, asked));
  };

const at = (name: string) => path.join(branch, name);
const heldBy = (name: string) => {
  const directory = path.join(hub, 'copies', name);
  return existsSync(directory) ? readdirSync(directory).sort() : [];
};
const namesOf = (files: string[]) => files.map((file) => file.replace(/\.[0-9a-f]{64}/, ''));

/** Writes a file that begins like one that age encrypted for a key, filled with `fill` up to `bytes`. */
function backup(name: string, bytes = THREE_PARTS, fill = name): string {
  const head = 'age-encryption.org/v1\n-> X25519 ';
  writeFileSync(at(name), head + fill.repeat(Math.ceil(bytes / fill.length)).slice(0, bytes - head.length));
  return at(name);
}

function sender(as = 'B1'): CopySender {
  return new CopySender({ ask: askAs(as), reach: (call) => call(), clock, beat: () => {} });
}

async function fetched(as = 'B1', name?: string): Promise<Map<string, string>> {
  const into = mkdtempSync(path.join(tmpdir(), 'tillsync-fetched-'));
  onTestFinished(() => rmSync(into, { recursive: true }));
  await fetchCopies(() => into, { ask: askAs(as), clock, name, signal });
  return new Map(readdirSync(into).map((file) => [file, readFileSync(path.join(into, file), 'utf8')]));
}

beforeEach(() => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-copies-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  [hub, branch] = [path.join(directory, 'hub'), path.join(directory, 'branch')];
  for (const each of [hub, branch]) mkdirSync(each);
  [maxBytes, space, parts, cutAfter, pauses] = [10_000_000, null, 0, Number.POSITIVE_INFINITY, []];
  nowMs.jumped = 0;
  store = new CopyStore({ storage: hub, maxBytes, space: () => space, clock });
});

it('brings the files of a branch to the hub byte for byte, readable for nobody else, and back', async () => {
  const files = [backup(DIFFERENTIAL, 500), backup(SECOND)];
  expect(await sender().send(files, HOUR_MS, signal)).toBe(true);
  expect(namesOf(heldBy('B1'))).toEqual([DIFFERENTIAL, SECOND]);
  expect(parts).toBe(4);
  const [file = ''] = heldBy('B1');
  const directory = path.join(hub, 'copies/B1');
  expect(statSync(directory).mode & 0o777).toBe(0o700);
  expect(statSync(path.join(directory, file)).mode & 0o777).toBe(0o600);
  const back = await fetched();
  expect([...back.keys()].sort()).toEqual([DIFFERENTIAL, SECOND]);
  expect(back.get(SECOND)).toBe(readFileSync(at(SECOND), 'utf8'));
});

it('asks an hour later whether the hub still has a file, and sends again what was lost there', async () => {
  const [own, file] = [sender(), backup(FIRST)];
  expect(await own.send([file], HOUR_MS, signal)).toBe(true);
  rmSync(path.join(hub, 'copies'), { recursive: true });
  expect(await own.send([file], HOUR_MS, signal)).toBe(true);
  expect(heldBy('B1')).toEqual([]);
  nowMs.jumped = HOUR_MS;
  expect(await own.send([file], HOUR_MS, signal)).toBe(true);
  expect(namesOf(heldBy('B1'))).toEqual([FIRST]);
});

it('sends nothing twice: a hub that has a file says so', async () => {
  const file = backup(FIRST);
  await sender().send([file], HOUR_MS, signal);
  const before = parts;
  expect(await sender().send([file], HOUR_MS, signal)).toBe(true);
  expect(parts).toBe(before);
});

it('a copy that is cut leaves the older one whole, and goes on where it was', async () => {
  await sender().send([backup(FIRST)], HOUR_MS, signal);
  cutAfter = parts + 1;
  await expect(sender().send([backup(SECOND)], HOUR_MS, signal)).rejects.toMatchObject({ code: 'link-down' });
  expect(namesOf(heldBy('B1'))).toEqual([FIRST, `${SECOND}.part`]);
  expect([...(await fetched()).keys()]).toEqual([FIRST]);
  cutAfter = Number.POSITIVE_INFINITY;
  parts = 0;
  expect(await sender().send([at(SECOND)], HOUR_MS, signal)).toBe(true);
  expect(parts).toBe(2);
  expect((await fetched()).get(SECOND)).toBe(readFileSync(at(SECOND), 'utf8'));
});

it('a hub that was killed after the last part takes the file into use at the next question', async () => {
  await sender().send([backup(FIRST)], HOUR_MS, signal);
  const bytes = readFileSync(backup(SECOND));
  const name = `${SECOND}.${createHash('sha256').update(bytes).digest('hex')}`;
  writeFileSync(path.join(hub, 'copies/B1', `${name}.part`), bytes);
  expect(await sender().send([at(SECOND)], HOUR_MS, signal)).toBe(true);
  expect(parts).toBe(3);
  expect(namesOf(heldBy('B1'))).toEqual([FIRST, SECOND]);
});

it('a copy that arrives altered is thrown away and sent again; the older one stays', async () => {
  await sender().send([backup(FIRST)], HOUR_MS, signal);
  cutAfter = parts + 1;
  await sender()
    .send([backup(SECOND)], HOUR_MS, signal)
    .catch(() => {});
  const [part = ''] = heldBy('B1').filter((file) => file.endsWith('.part'));
  truncateSync(path.join(hub, 'copies/B1', part), 100);
  appendFileSync(path.join(hub, 'copies/B1', part), 'x'.repeat(200));
  cutAfter = Number.POSITIVE_INFINITY;
  await expect(sender().send([at(SECOND)], HOUR_MS, signal)).rejects.toThrow('arrived altered');
  expect([...(await fetched()).keys()]).toEqual([FIRST]);
  expect(await sender().send([at(SECOND)], HOUR_MS, signal)).toBe(true);
  expect((await fetched()).get(SECOND)).toBe(readFileSync(at(SECOND), 'utf8'));
});

it('keeps the two backups that came last, whatever their names say, and a differential one in the place of its earlier', async () => {
  const own = sender();
  // The clock of the branch was a year ahead at first.
  const ahead = 'tillsync-b1-20271125T080000Z.tar.gz.age';
  for (const name of [ahead, FIRST, SECOND]) await own.send([backup(name)], HOUR_MS, signal);
  for (const fill of ['a', 'b']) await own.send([backup(DIFFERENTIAL, 500, fill)], HOUR_MS, signal);
  expect(namesOf(heldBy('B1'))).toEqual([FIRST, DIFFERENTIAL, SECOND]);
  await own.send([backup(THIRD)], HOUR_MS, signal);
  expect(namesOf(heldBy('B1'))).toEqual([DIFFERENTIAL, SECOND, THIRD]);
  expect((await fetched()).get(DIFFERENTIAL)).toContain('bbb');
  expect((await fetched('B1', SECOND)).has(THIRD)).toBe(false);
});

it('stops when its time is over, and goes on with the next call', async () => {
  const own = sender();
  const file = backup(FIRST);
  expect(await own.send([file], 0, signal)).toBe(false);
  expect(heldBy('B1')).toEqual([]);
  expect(await own.send([file], HOUR_MS, signal)).toBe(true);
});

it('a disk that does not answer ends the try after a minute, and the file is closed once it answers', async () => {
  // Opening a pipe hangs until somebody writes to it.
  execFileSync('mkfifo', [at(FIRST)]);
  const fake = new FakeClock();
  const disk = new BackupDisk(branch, fake);
  const own = new CopySender({
    ask: askAs('B1'),
    reach: (call) => disk.reach(call, signal),
    clock: fake,
    beat: () => {},
  });
  const refused = expect(own.send([at(FIRST)], HOUR_MS, signal)).rejects.toMatchObject({
    code: 'storage-failed',
    message: expect.stringContaining(`backup.directory (${branch})`),
  });
  await fake.advance(60_000);
  await refused;
  const writer = openSync(at(FIRST), 'r+');
  const stillOpen = () =>
    readdirSync('/proc/self/fd').filter((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`) === at(FIRST);
      } catch {
        return false;
      }
    });
  try {
    await vi.waitFor(() => expect(stillOpen()).toEqual([`${writer}`]));
  } finally {
    closeSync(writer);
  }
});

it('pauses after each part, and longer the more all branches send', async () => {
  await Promise.all(
    ['B1', 'B2', 'B3', 'B4'].map((as, i) =>
      sender(as).send([backup(FIRST, THREE_PARTS + i)], HOUR_MS, signal),
    ),
  );
  expect(Math.min(...pauses)).toBeGreaterThanOrEqual(150);
  // The four branches send eight large parts of 85 KiB in base64, which take 333 ms at 2 MiB a second.
  expect(Math.max(...pauses)).toBeGreaterThan(300);
});

it.each([
  [
    'is larger than the hub allows',
    () => {
      maxBytes = THREE_PARTS - 1;
    },
    /at most 128 KiB of a branch \(hub.copies_max_bytes\)/,
  ],
  [
    'does not fit on the disk',
    () => {
      space = { freeBytes: 500 * 1024 ** 2, totalBytes: 1024 ** 3 };
    },
    /The disk of the hub has no room for a copy of 128 KiB: 500 MiB are free/,
  ],
])('refuses in one sentence a copy that %s, and keeps the older one', async (_what, set, says) => {
  await sender().send([backup(FIRST, 1_000)], HOUR_MS, signal);
  set();
  store = new CopyStore({ storage: hub, maxBytes, space: () => space, clock });
  await expect(sender().send([backup(SECOND)], HOUR_MS, signal)).rejects.toMatchObject({
    code: 'storage-full',
    message: expect.stringMatching(says),
  });
  expect(namesOf(heldBy('B1'))).toEqual([FIRST]);
});

it('gives up the last but one backup for a new one where both do not fit, and never the newest', async () => {
  store = new CopyStore({ storage: hub, maxBytes: 2.5 * THREE_PARTS, space: () => null, clock });
  const own = sender();
  for (const name of [FIRST, SECOND]) await own.send([backup(name)], HOUR_MS, signal);
  cutAfter = parts;
  await own.send([backup(THIRD)], HOUR_MS, signal).catch(() => {});
  expect(namesOf(heldBy('B1'))).toEqual([SECOND]);
  cutAfter = Number.POSITIVE_INFINITY;
  await own.send([at(THIRD)], HOUR_MS, signal);
  expect(namesOf(heldBy('B1'))).toEqual([SECOND, THIRD]);
});

it('gives up the backup that came first, also if the clock of its branch was ahead then', async () => {
  store = new CopyStore({ storage: hub, maxBytes: 2.5 * THREE_PARTS, space: () => null, clock });
  const own = sender();
  for (const name of [THIRD, FIRST, SECOND]) await own.send([backup(name)], HOUR_MS, signal);
  expect(namesOf(heldBy('B1'))).toEqual([FIRST, SECOND]);
});

it.each([
  ['is not encrypted', 'a mirror with customers'],
  ['is encrypted for a passphrase', 'age-encryption.org/v1\n-> scrypt abc 16\n'],
])('takes nothing that %s: neither does the branch send it, nor the hub keep it', async (_what, content) => {
  writeFileSync(at(FIRST), content);
  await expect(sender().send([at(FIRST)], HOUR_MS, signal)).rejects.toMatchObject({ code: 'usage' });
  const sha256 = createHash('sha256').update(content).digest('hex');
  const put = { do: 'put', name: FIRST, bytes: content.length, sha256, at: 0 };
  const part = Buffer.from(content).toString('base64');
  await expect(askAs('B1')({ ...put, part })).rejects.toThrow('encrypted for a key');
  expect(heldBy('B1')).toEqual([]);
});

it('names files of its own alone: no path, no other ending, and another branch has its own directory', async () => {
  await sender().send([backup(FIRST)], HOUR_MS, signal);
  await expect(fetched('B2')).rejects.toMatchObject({ code: 'not-found' });
  const sha256 = 'a'.repeat(64);
  for (const name of ['../B1/x', `../B1/${FIRST}`, 'state.db', `${FIRST}/x`, `tillsync-../../${FIRST}`]) {
    for (const question of [
      { do: 'get', name, sha256, at: 0 },
      { do: 'put', name, bytes: 9, sha256, at: 0, part: '' },
    ]) {
      expect(COPY.safeParse({ instance: 'one', ...question }).success).toBe(false);
    }
  }
});

it('tells which copies there are where the named one is not', async () => {
  await sender().send([backup(FIRST)], HOUR_MS, signal);
  await expect(fetched('B1', SECOND)).rejects.toMatchObject({
    code: 'not-found',
    hint: expect.stringContaining(FIRST),
  });
});
