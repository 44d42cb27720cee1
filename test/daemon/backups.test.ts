/** Tests src/daemon/own-command.ts. */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import fsPromises from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import os, { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { Freshness } from '../../src/core/alarm.ts';
import { silentLog } from '../../src/core/log.ts';
import type { ProgramEnd } from '../../src/core/program.ts';
import { BackupLoop, backupLoops } from '../../src/daemon/backups.ts';
import { type OwnCommandEnd, runOwnCommand } from '../../src/daemon/own-command.ts';
import { demoConfig } from '../../src/demo/sandbox-platform.ts';
import { BackupDisk, newestBackup } from '../../src/support/backup-files.ts';
import { openTestMirror } from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MADE: OwnCommandEnd = { exit: 0, stdout: 'its report', stderr: '' };
const ENDED_WELL: ProgramEnd = { ok: true, what: 'ended with 0', said: '', printed: '' };

/** Makes a loop whose backup command writes an empty file. `told.back` and `told.after` set how the next runs end. */
function rig(settings: { keep?: number; everyMs?: number; after?: string[] } = {}) {
  const clock = new FakeClock();
  const storage = mkdtempSync(path.join(tmpdir(), 'tillsync-backups-'));
  const reports: Pick<Freshness, 'state' | 'message'>[] = [];
  const told = {
    back: MADE,
    after: ENDED_WELL as ProgramEnd | Promise<ProgramEnd>,
    handedOn: [] as string[],
    notedMs: 0 as number | undefined,
    handedOnMs: undefined as number | undefined,
    beats: [] as number[],
  };
  const directory = path.join(storage, 'backups');
  const disk = new BackupDisk(directory, clock);
  const { signal } = new AbortController();
  const make = (label = 'till') =>
    new BackupLoop({
      settings: {
        directory: '',
        everyMs: DAY_MS,
        differentialEveryMs: 30_000,
        recipient: '',
        keep: 3,
        after: [],
        ...settings,
      },
      storage,
      label,
      reach: (call) => disk.reach(call, signal),
      isFailing: () => reports.at(-1)?.state === 'failing',
      notedMs: () => told.notedMs,
      note: async (atMs) => {
        told.notedMs = atMs;
      },
      handedOnMs: () => told.handedOnMs,
      noteHandedOn: async (atMs) => {
        told.handedOnMs = atMs;
      },
      back: async (file) => {
        if (told.back.exit === 0) writeFileSync(file, '');
        return told.back.stdout === ''
          ? told.back
          : { ...told.back, stdout: JSON.stringify({ file, bytes: 2_097_152, warnings: [] }) };
      },
      after: async (file) => {
        told.handedOn.push(path.basename(file));
        return told.after;
      },
      freshness: {
        ok: (_, message = '') => void reports.push({ state: 'ok', message }),
        report: (_, state, message) => void reports.push({ state, message }),
      },
      clock,
      log: silentLog,
      beat: () => void told.beats.push(clock.monotonicMs()),
    });
  const names = () => (existsSync(directory) ? readdirSync(directory).sort() : []);
  return { clock, storage, directory, names, reports, told, disk, make };
}

/** Runs the loop once an hour until `ms` have passed. */
async function pass(loop: BackupLoop, clock: FakeClock, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += HOUR_MS) {
    await clock.advance(HOUR_MS);
    await loop.look();
  }
}

it('a backup is made some minutes after the start, for its user alone, and reported with name and size', async () => {
  const { clock, directory, names, reports, make } = rig();
  const loop = make();
  await loop.look();
  expect(names()).toEqual([]);
  await clock.advance(6 * 60_000);
  await loop.look();
  await loop.look();
  expect(names()).toHaveLength(1);
  expect(names()[0]).toMatch(/^tillsync-till-\d{8}T\d{6}Z\.tar\.gz$/);
  expect(statSync(directory).mode & 0o777).toBe(0o700);
  expect(reports).toEqual([{ state: 'ok', message: `${names()[0]}, 2 MiB, read again and checked.` }]);
});

it('what a killed command left unfinished is removed once the next backup is made', async () => {
  const { clock, directory, names, make } = rig();
  const gone = spawnSync('true').pid;
  const started = `tillsync-till-20200101T000000Z.tar.gz.part-`;
  const kept = [`${started}${process.pid}`, `tillsync-other-20200101T000000Z.tar.gz.part-${gone}`];
  for (const name of [
    ...kept,
    `${started}${gone}`,
    `tillsync-till-20200101T000000Z.differential.tar.gz.part-${gone}`,
  ])
    mkdirSync(path.join(directory, name), { recursive: true });
  const loop = make();
  await clock.advance(6 * 60_000);
  await loop.look();
  expect(names()).toEqual([...kept.sort(), expect.stringMatching(/^tillsync-till-\d{8}T\d{6}Z\.tar\.gz$/)]);
});

it('the newest are kept, and what others put beside them stays', async () => {
  const { clock, directory, names, make } = rig({ keep: 3 });
  mkdirSync(directory);
  const foreign = ['tillsync-till-2-20200101T000000Z.tar.gz', 'tillsync-till-20200101T000000Z.tar.gz.old'];
  for (const name of foreign) writeFileSync(path.join(directory, name), '');
  await pass(make(), clock, 10 * DAY_MS);
  const own = names().filter((name) => !foreign.includes(name));
  expect(own).toHaveLength(3);
  expect(names()).toEqual(expect.arrayContaining(foreign));
  // The first backup is of the 15th at 13:00. The newest three are kept.
  expect(own.map((name) => name.slice(14, 22))).toEqual(['20260122', '20260123', '20260124']);
});

it('a restart makes none before the next is due, and one that was deleted is made again', async () => {
  const { clock, directory, names, make } = rig();
  await pass(make(), clock, HOUR_MS);
  await pass(make(), clock, 20 * HOUR_MS);
  expect(names()).toHaveLength(1);
  const [first = ''] = names();
  rmSync(path.join(directory, first));
  await pass(make(), clock, HOUR_MS);
  expect(names()).toHaveLength(1);
});

it('a backup of a clock that was ahead does not hold up the next one', async () => {
  const { clock, directory, names, make } = rig();
  mkdirSync(directory);
  writeFileSync(path.join(directory, 'tillsync-till-20990101T000000Z.tar.gz'), '');
  await pass(make(), clock, 5 * HOUR_MS);
  expect(names()).toHaveLength(2);
  // It is the first to be deleted, though its name is the last.
  await pass(make(), clock, 3 * DAY_MS);
  expect(names()).toHaveLength(3);
  expect(names().at(-1)).not.toContain('2099');
  expect(newestBackup(directory, clock.nowMs())).toBe(path.join(directory, names().at(-1) ?? ''));
});

it('a clock that is set back after the start does not put off the backup that is due', async () => {
  const { clock, names, make } = rig();
  const loop = make();
  clock.jumpWall(-21 * DAY_MS);
  await clock.advance(6 * 60_000);
  await loop.look();
  expect(names()).toHaveLength(1);
});

it('the newest backup is that of a right clock, if there is one', () => {
  const { clock, directory } = rig();
  mkdirSync(directory);
  const ahead = path.join(directory, 'tillsync-till-20990101T000000Z.tar.gz');
  writeFileSync(ahead, '');
  expect(newestBackup(directory, clock.nowMs())).toBe(ahead);
  const right = path.join(directory, 'tillsync-till-20200101T000000Z.tar.gz');
  writeFileSync(right, '');
  expect(newestBackup(directory, clock.nowMs())).toBe(right);
});

it('a long way of the backup to another machine is no silence, and goes on after a restart', async () => {
  const { clock, names, told, make } = rig({ after: ['/bin/copy'] });
  const { promise, resolve } = Promise.withResolvers<ProgramEnd>();
  told.after = promise;
  const loop = make();
  await clock.advance(HOUR_MS);
  const looked = loop.look();
  await vi.waitFor(() => expect(told.handedOn).toHaveLength(1));
  await clock.advance(HOUR_MS);
  const gaps = told.beats.slice(1).map((atMs, i) => atMs - (told.beats[i] ?? 0));
  expect(Math.max(...gaps)).toBeLessThanOrEqual(60_000);
  expect(gaps.length).toBeGreaterThan(50);
  // The process is killed meanwhile.
  told.after = ENDED_WELL;
  await pass(make(), clock, 2 * HOUR_MS);
  expect(told.handedOn).toEqual([names()[0], names()[0]]);
  await pass(make(), clock, 2 * HOUR_MS);
  expect(told.handedOn).toHaveLength(2);
  resolve(ENDED_WELL);
  await looked;
});

it('one that fails is tried again every hour, says why and which one is the newest', async () => {
  const { clock, names, reports, told, make } = rig();
  const loop = make();
  await pass(loop, clock, HOUR_MS);
  const [first = ''] = names();
  told.back = { exit: 1, stdout: '', stderr: 'tillsync: The disk has no room.\nFree some space.\n' };
  await pass(loop, clock, DAY_MS + 3 * HOUR_MS);
  const failures = reports.filter(({ state }) => state === 'failing');
  expect(failures).toHaveLength(4);
  expect(failures[0]?.message).toBe(
    `No backup was made. The disk has no room. The newest backup is ${first}.`,
  );
  told.back = MADE;
  await pass(loop, clock, HOUR_MS);
  expect(reports.at(-1)?.state).toBe('ok');
  expect(names()).toHaveLength(2);
});

/** Makes `readdir` hang until `answer` is called. `calls.count` counts the calls meanwhile. */
function hangingDisk() {
  const { readdir } = fsPromises;
  const calls = { count: 0 };
  const { promise, resolve } = Promise.withResolvers<void>();
  const restore = () => {
    fsPromises.readdir = readdir;
    syncBuiltinESMExports();
  };
  fsPromises.readdir = (async (...words: Parameters<typeof readdir>) => {
    calls.count += 1;
    await promise;
    return readdir(...words);
  }) as typeof readdir;
  syncBuiltinESMExports();
  onTestFinished(restore);
  const answer = async () => {
    restore();
    resolve();
    await promise;
  };
  return { calls, answer };
}

it('a disk that does not answer is told after a minute, is asked once, and is used again when it answers', async () => {
  const { clock, directory, names, reports, told, disk, make } = rig();
  const loop = make();
  await pass(loop, clock, HOUR_MS);
  const [first = ''] = names();
  const { calls, answer } = hangingDisk();
  const looked = loop.look();
  await clock.advance(59_000);
  expect(reports.at(-1)?.state).toBe('ok');
  await clock.advance(1_000);
  await looked;
  expect(reports.at(-1)).toEqual({
    state: 'failing',
    message: `backup.directory (${directory}) has not answered for a minute. See that its disk is on and can be reached. The newest backup is ${first}.`,
  });
  await clock.advance(HOUR_MS);
  const again = loop.look();
  // Other loops that use this disk wait, too, and make no call of their own.
  const other = disk.reach(async () => told.handedOn.push('called'), new AbortController().signal);
  const refused = expect(other).rejects.toMatchObject({ code: 'storage-failed' });
  await clock.advance(60_000);
  await Promise.all([again, refused]);
  expect(calls.count).toBe(1);
  expect(told.handedOn).toEqual([]);
  await answer();
  // Also after a restart.
  await pass(make(), clock, HOUR_MS);
  expect(reports.at(-1)).toEqual({ state: 'ok', message: `${first}.` });
  expect(names()).toEqual([first]);
});

it('a stop does not wait for a disk that does not answer', async () => {
  const { disk } = rig();
  const stopping = new AbortController();
  const hanging = disk.reach(() => new Promise(() => {}), stopping.signal);
  const waiting = disk.reach(async () => {}, stopping.signal);
  stopping.abort();
  await expect(hanging).rejects.toMatchObject({ code: 'aborted' });
  await expect(waiting).rejects.toMatchObject({ code: 'aborted' });
});

it('a program that cannot take a backup elsewhere is tried again with the same file', async () => {
  const { clock, names, reports, told, make } = rig({ after: ['/bin/copy'] });
  told.after = { ok: false, what: 'ended with 1', said: 'no route', printed: '' };
  const loop = make();
  await pass(loop, clock, 5 * HOUR_MS);
  expect(names()).toHaveLength(1);
  expect(reports.at(-1)).toEqual({
    state: 'failing',
    message: `The backup was made, but backup.after ended with 1. It said: no route The newest backup is ${names()[0]}.`,
  });
  told.after = ENDED_WELL;
  await pass(loop, clock, HOUR_MS);
  expect(reports.at(-1)?.state).toBe('ok');
  expect(new Set(told.handedOn)).toEqual(new Set(names()));
});

it.each([
  [{ everyMs: 0 }, []],
  [{ differentialEveryMs: 0 }, ['backup']],
  [{}, ['backup', 'backup.differential']],
])(
  '%j: only loops that have work are started, because one that ends is started again for ever',
  (wanted, names) => {
    const { clock, storage, disk } = rig();
    const { mirror } = openTestMirror();
    const config = demoConfig({ baseUrl: 'http://platform.test', directory: storage, webhookPort: 1 });
    const backup = { ...config.backup, everyMs: DAY_MS, differentialEveryMs: 30_000, ...wanted };
    const configFile = path.join(storage, 'config.toml');
    const loops = backupLoops(
      { config: { ...config, backup }, configFile, clock, log: silentLog },
      { mirror },
      disk,
    );
    expect(loops.map(({ name }) => name)).toEqual(names);
    const [told] = mirror.health.freshness().filter(({ subject }) => subject === 'backup');
    expect(told?.state === 'off').toBe(names.length === 0);
  },
);

it('a command runs to its end where the system lets nobody lower its priority', async () => {
  const { storage } = rig();
  const main = path.join(storage, 'main.mjs');
  writeFileSync(main, "console.log('its report'); console.error('a warning'); process.exitCode = 3;");
  const { argv } = process;
  const { setPriority } = os;
  onTestFinished(() => {
    process.argv = argv;
    os.setPriority = setPriority;
    syncBuiltinESMExports();
  });
  process.argv = [process.execPath, main];
  os.setPriority = () => {
    throw new Error('A system error occurred: uv_os_setpriority returned EPERM (operation not permitted)');
  };
  syncBuiltinESMExports();
  const { signal } = new AbortController();
  const end = await runOwnCommand(['backup'], { configFile: '/config.toml', timeoutMs: 60_000, signal });
  expect(end).toEqual({ exit: 3, stdout: 'its report\n', stderr: expect.stringContaining('a warning') });
});
