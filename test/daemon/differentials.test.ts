/** Tests src/daemon/differentials.ts. */

import { existsSync, mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import type { ProgramEnd } from '../../src/core/program.ts';
import { DifferentialLoop } from '../../src/daemon/differentials.ts';
import type { OwnCommandEnd } from '../../src/daemon/own-command.ts';
import { FakeClock } from '../support/fake-clock.ts';

const MADE: OwnCommandEnd = { exit: 0, stdout: '{}', stderr: '' };
const ENDED_WELL: ProgramEnd = { ok: true, what: 'ended with 0', said: '', printed: '' };
const AT_MS = Date.UTC(2026, 10, 25, 8);
const HOUR_MS = 3_600_000;

/** Makes a loop whose backup command writes an empty file. */
function rig({ after = [], ending = '' }: { after?: string[]; ending?: string } = {}) {
  const directory = path.join(mkdtempSync(path.join(tmpdir(), 'tillsync-differentials-')), 'backups');
  const told = {
    back: MADE,
    disk: Promise.resolve(),
    after: ENDED_WELL,
    state: { notedMs: AT_MS as number | undefined, news: '1' },
    wholeMs: [] as number[],
    sinces: [] as string[],
    handedOn: [] as string[],
    alarms: [] as (string | null)[],
  };
  const loop = new DifferentialLoop({
    settings: {
      directory: '',
      everyMs: HOUR_MS,
      differentialEveryMs: 30_000,
      recipient: '',
      keep: 3,
      after,
    },
    directory,
    label: 'till',
    reach: (call) => told.disk.then(call),
    wholeMs: () => told.wholeMs,
    state: () => told.state,
    back: async (file, since) => {
      told.sinces.push(since);
      if (told.back.exit === 0) writeFileSync(file + ending, '');
      return { ...told.back, stdout: JSON.stringify({ file: file + ending }) };
    },
    after: async (file) => {
      told.handedOn.push(path.basename(file));
      return told.after;
    },
    alarms: { note: (_, message) => void told.alarms.push(message) },
    clock: new FakeClock(),
    log: silentLog,
    beat: () => {},
  });
  const names = () => (existsSync(directory) ? readdirSync(directory).sort() : []);
  return { directory, told, loop, names };
}

it('one is written when there is something new, and not otherwise', async () => {
  const { told, loop, names } = rig();
  await loop.look();
  await loop.look();
  expect(names()).toEqual(['tillsync-till-20261125T080000Z.differential.tar.gz']);
  expect(told.sinces).toEqual(['2026-11-25T07:50:00.000Z']);
  told.state = { notedMs: AT_MS, news: '2' };
  await loop.look();
  expect(told.sinces).toHaveLength(2);
});

it('none is written before the mirror noted a backup, so that those of a lost machine stay', async () => {
  const { told, loop, names } = rig();
  told.state = { notedMs: undefined, news: '1' };
  await loop.look();
  expect(names()).toEqual([]);
});

it('it reaches back to the backup before the noted one, and goes with the oldest whole one', async () => {
  const { directory, told, loop, names } = rig();
  mkdirSync(directory);
  const others = [
    'tillsync-till-2-20261120T080000Z.differential.tar.gz',
    'tillsync-till-20261124T080000Z.tar.gz',
  ];
  const early = 'tillsync-till-20261120T080000Z.differential.tar.gz.age';
  const between = 'tillsync-till-20261125T020000Z.differential.tar.gz';
  for (const name of [...others, early, between]) writeFileSync(path.join(directory, name), '');
  told.wholeMs = [AT_MS - 24 * HOUR_MS, AT_MS];
  await loop.look();
  expect(told.sinces).toEqual(['2026-11-24T07:50:00.000Z']);
  expect(names()).toEqual([...others, between, 'tillsync-till-20261125T080000Z.differential.tar.gz'].sort());
});

it('backup.after gets it by its name, also encrypted, again until it succeeds, and a person is told', async () => {
  const { told, loop } = rig({ after: ['copy-away'], ending: '.age' });
  told.after = { ok: false, what: 'ended with 1', said: 'no line', printed: '' };
  for (let tries = 0; tries < 4; tries++) await loop.look();
  expect(told.handedOn).toEqual(Array(4).fill('tillsync-till-20261125T080000Z.differential.tar.gz.age'));
  expect(told.alarms).toEqual([
    null,
    null,
    null,
    'The backup was made, but backup.after ended with 1. It said: no line',
  ]);
  told.after = ENDED_WELL;
  await loop.look();
  expect(told.alarms.at(-1)).toBeNull();
});

it('one that fails is tried again, and the reason is told', async () => {
  const { told, loop } = rig();
  told.back = { exit: 1, stdout: '', stderr: 'tillsync: The disk has no room.\nFree some space.\n' };
  for (let tries = 0; tries < 4; tries++) await loop.look();
  expect(told.alarms).toEqual([null, null, null, 'No differential backup was made. The disk has no room.']);
  told.back = MADE;
  await loop.look();
  expect(told.alarms.at(-1)).toBeNull();
});
