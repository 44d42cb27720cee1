/** Tests src/cli/add-branch.ts and src/cli/invite.ts. */

import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { openState } from '../../src/app/state.ts';
import { hubKeys } from '../../src/link/server-file.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror, freshState } from '../support/fresh-mirror.ts';
import { invoke } from './invoke.ts';

const LOADED = 'case "$*" in *LoadState*) echo loaded;; *ActiveState*) echo inactive;; esac';

/** A clock whose sleeps take no time. */
class QuickClock extends FakeClock {
  override async sleep(ms: number): Promise<void> {
    await this.advance(ms);
  }
}

/**
 * Makes the machine of a hub with branches B1 and B2, whose nats-server does not run. `systemctl` is the shell script in
 * place of the program. Root is acted where the tests run as another user.
 */
async function hubMachine({ systemctl = LOADED, uid = 0 } = {}) {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-add-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const clock = new QuickClock();
  vi.spyOn(process, 'getuid').mockReturnValue(uid);
  for (const name of ['seteuid', 'setegid', 'setgroups'] as const) {
    vi.spyOn(process, name).mockReturnValue(undefined as never);
  }
  onTestFinished(() => void vi.restoreAllMocks());
  const bin = path.join(directory, 'bin');
  const log = path.join(directory, 'systemctl.log');
  mkdirSync(bin);
  writeFileSync(path.join(bin, 'systemctl'), `#!/bin/sh\necho "$*" >> ${log}\n${systemctl}\n`);
  chmodSync(path.join(bin, 'systemctl'), 0o755);
  const storage = path.join(directory, 'storage');
  mkdirSync(storage);
  freshMirror(storage);
  freshState(storage);
  const file = path.join(directory, 'config.toml');
  writeFileSync(
    file,
    `[platform]
base_url = "http://platform.test"
[storage]
directory = ${JSON.stringify(storage)}
[hub]
nats = "nats://127.0.0.1:9"
[[branches]]
subsidiary_id = "sub-1"
external_id = "B1"
[[branches]]
subsidiary_id = "sub-2"
external_id = "B2"
`,
  );
  const withHub = <T>(use: (rows: ReturnType<typeof openState>['hub']) => T): T => {
    const state = openState({ path: path.join(storage, 'state.db'), clock, role: 'hub' });
    try {
      return use(state.hub);
    } finally {
      state.close();
    }
  };
  const state = openState({ path: path.join(storage, 'state.db'), clock, role: 'hub' });
  await hubKeys(state.hub);
  const nats = path.join(storage, 'nats');
  const place = {
    file: path.join(nats, 'server.conf'),
    storeDirectory: path.join(nats, 'jetstream'),
    tls: null,
  };
  state.hub.noteServerConfig(place);
  state.close();
  const own = path.join(directory, 'branch');
  return {
    own,
    withHub,
    add: (...words: string[]) =>
      invoke(['branch', 'add', ...words, '--directory', own], {
        env: { TILLSYNC_CONFIG: file, PATH: `${bin}:/usr/bin:/bin` },
        clock,
      }),
    /** Whether nothing of a branch is there: no invitation, no files, no service that was enabled or started. */
    isUntouched: () =>
      withHub((rows) => rows.branches().every(({ invitedKey }) => invitedKey === null)) &&
      !existsSync(path.join(own, 'state.db')) &&
      !existsSync('/etc/tillsync/B1.toml') &&
      !(existsSync(log) && /^(?!show)/m.test(readFileSync(log, 'utf8').trim())),
  };
}

const RUNS = LOADED.replace('inactive', 'active');

test.each([
  ['without --here', {}, ['B1'], 'Say where: --here'],
  ['for who is not root', { uid: 1000 }, ['B1', '--here'], 'Only root can start a service.'],
  ['for a branch of no table', {}, ['B9', '--here'], 'There is no branch B9'],
  [
    'where systemd is missing',
    { systemctl: 'exit 1' },
    ['B1', '--here'],
    'systemd has no tillsync@B1.service',
  ],
  ['of a service that runs', { systemctl: RUNS }, ['B1', '--here'], 'tillsync@B1.service runs already.'],
  ['by a name of no service', {}, ['config', '--here'], 'No service can be called tillsync@config.'],
  ['at no address', {}, ['B1', '--here', '--local-listen', 'x'], '--local-listen x is no host:port.'],
  ['for a group that is not there', {}, ['B1', '--here', '--group', 'no-such'], 'no-such'],
])('branch add %s is refused, and nothing is made', async (_name, how, words, said) => {
  const machine = await hubMachine(how);
  const { code, stderr } = await machine.add(...words);
  expect(stderr).toContain(said);
  expect(code).not.toBe(0);
  expect(machine.isUntouched()).toBe(true);
  expect(existsSync(machine.own)).toBe(false);
});

test('branch add on a port of another program is refused, and nothing is made', async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => new Promise<void>((resolve) => server.close(() => resolve())));
  const { port } = server.address() as { port: number };
  const machine = await hubMachine();
  const { code, stderr } = await machine.add('B1', '--here', '--local-listen', `127.0.0.1:${port}`);
  expect([code, stderr]).toEqual([2, expect.stringContaining(`Port ${port} is already used`)]);
  expect(machine.isUntouched()).toBe(true);
  expect(existsSync(machine.own)).toBe(false);
});

test('branch add into a directory with files is refused, and these stay', async () => {
  const machine = await hubMachine();
  mkdirSync(machine.own);
  const file = path.join(machine.own, 'mirror.db');
  writeFileSync(file, 'of somebody');
  const { code, stderr } = await machine.add('B1', '--here');
  expect([code, stderr]).toEqual([2, expect.stringContaining(`${machine.own} is there already.`)]);
  expect(readFileSync(file, 'utf8')).toBe('of somebody');
  expect(machine.isUntouched()).toBe(true);
});

test('branch add of a branch that works elsewhere is refused, and that one keeps its key', async () => {
  const machine = await hubMachine();
  const key = `U${'D'.repeat(55)}`;
  machine.withHub((rows) => {
    rows.invite('B1', key, Number.MAX_SAFE_INTEGER / 4);
    rows.join('B1', key, 0);
  });
  const { code, stderr } = await machine.add('B1', '--here');
  expect([code, stderr]).toEqual([2, expect.stringContaining('Branch B1 works on another machine.')]);
  expect(machine.withHub((rows) => rows.hasJoined('B1'))).toBe(true);
  expect(machine.isUntouched()).toBe(true);
});

test('branch add takes everything back where the hub does not answer', async () => {
  const machine = await hubMachine();
  const { code, stderr } = await machine.add('B1', '--here');
  expect(stderr).toContain('nats://127.0.0.1:9 cannot be reached');
  expect(stderr).toContain('Nothing of branch B1 was kept on this machine.');
  expect(code).toBe(1);
  expect(machine.isUntouched()).toBe(true);
  expect(existsSync(machine.own)).toBe(false);
});
