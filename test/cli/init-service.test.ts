/** Tests src/cli/init/machine.ts. */

import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { groupSocketOf, isInstalled, startAnew, unitsOf } from '../../src/cli/init/machine.ts';

const SERVICE = { unit: 'tillsync.service', socket: 'tillsync.socket' };

/** Makes a fake `systemctl` that records its arguments; `body` is the rest of its shell script. */
function systemctl(body: string) {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-systemctl-'));
  const program = join(directory, 'systemctl');
  const log = join(directory, 'log');
  writeFileSync(program, `#!/bin/sh\necho "$*" >> ${log}\n${body}\n`);
  chmodSync(program, 0o755);
  const env = { PATH: `${directory}:/usr/bin:/bin` };
  return { env, told: () => readFileSync(log, 'utf8').trim().split('\n') };
}

describe('the service', () => {
  test('of a file is the one that reads it', () => {
    expect(unitsOf('/etc/tillsync/config.toml')).toEqual(SERVICE);
    expect(unitsOf('/etc/tillsync/shop.toml')?.unit).toBe('tillsync@shop.service');
    expect(unitsOf('/etc/tillsync/config.toml.bak')).toBeUndefined();
    expect(unitsOf('/home/ana/config.toml')).toBeUndefined();
  });

  test('is there only where systemd runs and knows it', async () => {
    expect(await isInstalled(SERVICE, systemctl('echo loaded').env)).toBe(true);
    expect(await isInstalled(SERVICE, systemctl('echo not-found').env)).toBe(false);
    expect(await isInstalled(SERVICE, systemctl('echo "Not booted with systemd" >&2; exit 1').env)).toBe(
      false,
    );
    expect(await isInstalled(SERVICE, { PATH: '/nonexistent' })).toBe(false);
  });

  test('has a socket for the group of the POS where its unit makes the directory', async () => {
    const { env } = systemctl('echo loaded');
    expect(await groupSocketOf('/etc/tillsync/config.toml', env)).toBe('/run/tillsync/api.sock');
    expect(await groupSocketOf('/etc/tillsync/shop.toml', env)).toBe('/run/tillsync@shop/api.sock');
    expect(await groupSocketOf('/home/ana/config.toml', env)).toBeUndefined();
    const none = systemctl('echo not-found').env;
    expect(await groupSocketOf('/etc/tillsync/config.toml', none)).toBeUndefined();
  });

  test('is restarted; its socket, where callbacks wait, closes only to move', async () => {
    const stays = systemctl('');
    expect(await startAnew(SERVICE, false, stays.env)).toBeUndefined();
    expect(stays.told()).toEqual([
      'daemon-reload',
      'enable tillsync.service',
      'start tillsync.socket',
      'restart tillsync.service',
    ]);
    const moves = systemctl('');
    await startAnew(SERVICE, true, moves.env);
    expect(moves.told()).toContain('stop tillsync.service tillsync.socket');
  });

  test('that does not start is told with where to look', async () => {
    const failing = systemctl('[ "$1" = restart ] && { echo "Job failed." >&2; exit 1; }; exit 0');
    expect(await startAnew(SERVICE, false, failing.env)).toBe(
      'systemctl restart tillsync.service failed: Job failed. Look at: journalctl -u tillsync.service -n 50',
    );
  });
});
