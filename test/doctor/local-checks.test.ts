/**
 * Tests src/support/doctor/files.ts, src/support/doctor/machine.ts, src/support/doctor/file-modes.ts,
 * src/support/doctor/mirror-files.ts and src/support/doctor/unit.ts.
 */

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { unitOf } from '../../src/app/installation.ts';
import { openMirror } from '../../src/app/mirror.ts';
import { openState } from '../../src/app/state.ts';
import { storagePaths } from '../../src/app/storage.ts';
import { fileProblems, type SeenFile } from '../../src/support/doctor/file-modes.ts';
import { databaseOutcome, filesOutcome } from '../../src/support/doctor/files.ts';
import { apiOutcome, serviceOutcome, versionOutcome } from '../../src/support/doctor/machine.ts';
import { mendMirrorFiles, readersOutcome } from '../../src/support/doctor/mirror-files.ts';
import { parseUnit, type ServiceUnit } from '../../src/support/doctor/unit.ts';
import { FakeClock } from '../support/fake-clock.ts';

describe('files', () => {
  const file = (role: SeenFile['role'], mode: number, uid = 7): SeenFile => ({
    path: `/s/${role}`,
    role,
    mode,
    uid,
    gid: 7,
  });
  const owner = { uid: 7, user: 'tillsync', group: 'till', unit: 'tillsync.service' };
  const problems = (files: SeenFile[]) =>
    fileProblems(files, owner, (uid) => (uid === 0 ? 'root' : `${uid}`));
  const right = [
    file('directory', 0o2750),
    file('mirror', 0o640),
    file('log', 0o640),
    file('state', 0o600),
    file('inbox-directory', 0o2770),
    file('inbox', 0o660, 9),
    file('api-key', 0o640),
  ];

  test('with the promised modes are right, the inbox of whichever owner', () => {
    expect(problems(right)).toEqual([]);
  });

  test.each([
    [file('directory', 0o2770), 'fail', 'can lock tillsync out', 'chmod 2750 /s/directory'],
    [file('directory', 0o700), 'warn', 'cannot read the mirror', 'chmod 2750 /s/directory'],
    [file('mirror', 0o660), 'fail', 'lock or damage it', 'chmod 0640 /s/mirror'],
    [file('mirror', 0o600), 'warn', 'cannot read the mirror', 'chmod 0640 /s/mirror'],
    [file('state', 0o640), 'fail', 'read the tokens', 'chmod 0600 /s/state'],
    [file('inbox', 0o640), 'warn', 'cannot hand over changes', 'chmod 0660 /s/inbox'],
    [file('api-key', 0o644), 'fail', 'outside its group can read it', 'chmod 0640 /s/api-key'],
    [file('api-key', 0o660), 'fail', 'its group can change it', 'chmod 0640 /s/api-key'],
    [file('api-key', 0o600), 'warn', 'cannot read the API key', 'chmod 0640 /s/api-key'],
    [file('inbox-directory', 0o2777), 'fail', 'everybody may write', 'chmod 2770 /s/inbox-directory'],
  ])('%o is told', (seen, level, problem, remedy) => {
    expect(problems([seen])).toEqual([
      { path: seen.path, level, problem: expect.stringContaining(problem), remedy: `sudo ${remedy}` },
    ]);
  });

  test('of another owner than the service are one problem, with one command that mends all', () => {
    const rootsOwn = right.map((each) => ({ ...each, uid: 0 }));
    expect(problems(rootsOwn)).toEqual([
      {
        path: '/s/directory',
        level: 'fail',
        problem: expect.stringContaining('belong to root and not to tillsync, as whom tillsync.service runs'),
        remedy: 'sudo chown -R -h tillsync:till /s/directory',
      },
    ]);
  });

  test('with a key of another group than the directory are told, with the command that mends it', () => {
    const key = { ...file('api-key', 0o640), gid: 8 };
    expect(problems([file('directory', 0o2750), key])).toEqual([
      {
        path: '/s/api-key',
        level: 'fail',
        problem: expect.stringContaining('that group can read the API key'),
        remedy: 'sudo chgrp --reference=/s/directory /s/api-key',
      },
    ]);
  });

  test.each([
    ['the key in use', 'the-key\n', 'the-key', undefined, ''],
    ['a key that another one replaces', 'the-key\n', 'configured', 'warn', 'does not accept'],
    ['no key', '', undefined, 'fail', 'has no key in one line'],
    ['no key, where one is configured', '', 'configured', 'warn', 'has no key in one line'],
  ])('of the API key: %s', (_what, content, apiKey, level, problem) => {
    const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-key-'));
    const key = path.join(directory, 'api-key');
    writeFileSync(key, content);
    chmodSync(key, 0o640);
    chmodSync(directory, 0o2750);
    const { facts } = filesOutcome({ directory, group: '', configFile: 'x.toml', apiKey, running: false });
    const told = { path: key, level, problem: expect.stringContaining(problem), remedy: `sudo rm ${key}` };
    expect(facts).toMatchObject({ problems: level === undefined ? [] : [told] });
    rmSync(directory, { recursive: true });
  });
});

describe('databases', () => {
  const clock = new FakeClock();
  let directory: string;
  const paths = () => storagePaths(directory);
  const configOf = (role: 'store' | 'hub' | 'branch') => ({
    storage: { directory, group: '' },
    hub: {
      nats: role === 'hub' ? 'nats://127.0.0.1:4222' : '',
      publicUrl: '',
      store: '',
    },
    link: { hub: role === 'branch' ? 'nats://127.0.0.1:4222' : '', otherHubs: [], branch: 'B1', caFile: '' },
  });
  const check = (kind: 'mirror' | 'state' | 'inbox', role: Parameters<typeof configOf>[0] = 'store') =>
    databaseOutcome(kind, configOf(role), clock, new AbortController().signal);

  beforeEach(async () => {
    directory = mkdtempSync(path.join(tmpdir(), 'tillsync-doctor-'));
    await openMirror({ path: paths().mirror, clock }).close();
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  test('that are sound are well, those that are not there are not judged', async () => {
    expect(await check('mirror')).toMatchObject({
      level: 'ok',
      facts: { damage: null, readThrough: true },
    });
    expect(await check('state')).toMatchObject({ level: 'skipped' });
  });

  test('that are damaged are told, and left as they are', async () => {
    mkdirSync(path.dirname(paths().inbox));
    writeFileSync(paths().inbox, 'this is no database, and never was one, however long one looks at it');
    expect(await check('inbox')).toMatchObject({
      level: 'fail',
      remedy: expect.stringContaining('moves it away'),
    });
  });

  test('state.db is another loss for a hub and for a branch than for a store, and the words say so', async () => {
    writeFileSync(paths().state, 'this is no database, and never was one, however long one looks at it');
    const remedy = async (role: Parameters<typeof configOf>[0]) => (await check('state', role)).remedy;
    expect(await remedy('store')).toMatch(/start it and hand in new tokens/);
    expect(await remedy('hub')).toMatch(/restore FILE.* hub server-config.* branch invite NAME$/);
    const branch = await remedy('branch');
    expect(branch).toMatch(/branch invite B1\).* init --join -\)/);
    expect(branch).not.toContain('auth set');
    const opened = () => openState({ path: paths().state, clock });
    expect(opened).toThrow(expect.objectContaining({ hint: 'To see what to do, run: tillsync doctor' }));
  });

  test('-wal and -shm of a stopped mirror are made anew, and never while it runs', () => {
    const { mirror } = paths();
    expect(mendMirrorFiles(mirror, false)).toBeUndefined();
    rmSync(`${mirror}-shm`);
    expect(mendMirrorFiles(mirror, true)).toMatchObject({
      level: 'fail',
      remedy: expect.stringContaining('systemctl restart'),
    });
    expect(mendMirrorFiles(mirror, null)).toMatchObject({ level: 'skipped', isHidden: true });
    expect(mendMirrorFiles(mirror, false)).toMatchObject({
      level: 'warn',
      facts: { missing: [`${mirror}-shm`], madeAnew: true },
    });
    expect(mendMirrorFiles(mirror, false)).toBeUndefined();
    chmodSync(directory, 0o750);
  });
});

test('a program that holds the log is named, and blamed only when the log is large', () => {
  const held = [{ pid: 812, program: 'pos.exe' }];
  expect(readersOutcome([], 0)).toMatchObject({ level: 'ok' });
  expect(readersOutcome(held, 1024)).toMatchObject({
    level: 'ok',
    message: expect.stringContaining('pos.exe'),
  });
  const large = readersOutcome(held, 64 * 1024 ** 2);
  expect(large).toMatchObject({ level: 'warn', message: expect.stringContaining('pos.exe (process 812)') });
  expect(readersOutcome([], 64 * 1024 ** 2).level).toBe('ok');
});

describe('the service', () => {
  const text = 'LoadState=loaded\nActiveState=failed\nUnitFileState=enabled\nMainPID=0\nNRestarts=3\n';
  const unit = (more: Partial<ServiceUnit> = {}): ServiceUnit => ({
    name: 'tillsync.service',
    activeState: 'active',
    unitFileState: 'enabled',
    mainPid: 5,
    restarts: 0,
    ...more,
  });

  test('is the unit that serves the configuration file', () => {
    expect(unitOf('/etc/tillsync/config.toml')).toBe('tillsync.service');
    expect(unitOf('/etc/tillsync/north.toml')).toBe('tillsync@north.service');
    expect(unitOf('/home/me/config.toml')).toBeNull();
    expect(parseUnit('tillsync.service', text)).toEqual(
      unit({ activeState: 'failed', mainPid: null, restarts: 3 }),
    );
    expect(parseUnit('x', 'LoadState=not-found\nActiveState=inactive\n')).toBeNull();
  });

  test.each([
    [true, unit(), 'ok', 'runs as tillsync', null],
    [true, null, 'ok', 'tillsync runs', null],
    [null, null, 'skipped', 'do not have permission', 'Run: sudo tillsync'],
    [false, null, 'fail', 'is not running', 'tillsync run'],
    [false, unit({ activeState: 'inactive' }), 'fail', 'is not running', 'systemctl start tillsync'],
    [false, unit({ activeState: 'failed' }), 'fail', 'failed', 'journalctl -u tillsync'],
    [
      true,
      unit({ activeState: 'inactive' }),
      'warn',
      'not as tillsync of systemd',
      'systemctl start tillsync',
    ],
    [
      true,
      unit({ unitFileState: 'disabled' }),
      'warn',
      'start with the machine',
      'systemctl enable tillsync',
    ],
  ] as const)('running %s as %o is %s', (running, seen, level, message, remedy) => {
    expect(serviceOutcome(running, seen)).toMatchObject({
      level,
      message: expect.stringContaining(message),
      remedy: remedy === null ? null : expect.stringContaining(remedy),
    });
  });

  test('of another version asks for a restart; a part of it that stopped does too', () => {
    expect(versionOutcome('0.1.0', '0.2.0')).toMatchObject({
      level: 'warn',
      message: 'The service still runs 0.1.0, and 0.2.0 is installed.',
      remedy: 'Restart the service: systemctl restart tillsync',
    });
    expect(versionOutcome('0.2.0', '0.2.0').level).toBe('ok');
    expect(versionOutcome(null, '0.2.0').level).toBe('skipped');
    const answer = { url: 'http://127.0.0.1:1', stalled: [], version: null, fault: null, otherStorage: null };
    expect(apiOutcome(true, { ...answer, health: 'failing', stalled: ['orders'] })).toMatchObject({
      level: 'fail',
      message: expect.stringContaining('orders'),
    });
    const down = { ...answer, health: 'down', fault: 'ECONNREFUSED' } as const;
    expect(apiOutcome(true, down).level).toBe('fail');
    expect(apiOutcome(false, down).level).toBe('skipped');
  });
});
