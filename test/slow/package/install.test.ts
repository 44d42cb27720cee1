import { execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtPackage, Machine } from './machine.ts';

const NODE = path.resolve('node_modules/node/bin/node');
const UNITS = 'tillsync.service tillsync.socket tillsync@shop.service tillsync@shop.socket';
const MEBIBYTE = 2 ** 20;

describe('the package', () => {
  it('is no larger than its Node and 15 MB', () => {
    const node = Number(execFileSync('sh', ['-c', `xz -T1 -c ${NODE} | wc -c`], { encoding: 'utf8' }));
    expect(statSync(builtPackage()).size).toBeLessThan(node + 15 * MEBIBYTE);
  });
});

describe('on a machine without a running systemd', () => {
  let machine: Machine;

  beforeAll(async () => {
    machine = await Machine.start('plain');
    machine.run(`dpkg -i ${builtPackage()}`);
  });

  afterAll(() => machine?.stop());

  it('has the program, the configuration and the storage directory', () => {
    expect(machine.run('tillsync --version')).toMatch(/^\d+\.\d+\.\d+$/);
    machine.run('tillsync config check');
    expect(machine.run('stat -c "%a %U:%G" /var/lib/tillsync /var/lib/tillsync/inbox')).toBe(
      '2750 tillsync:tillsync\n2770 tillsync:tillsync',
    );
    expect(machine.run('dpkg-query -s tillsync')).toContain('/etc/tillsync/config.toml');
  });

  it('has its files as they were packed, and none with a wish for a compiler or the network', () => {
    expect(machine.run('dpkg --verify tillsync')).toBe('');
    expect(machine.run('dpkg -L tillsync | grep -E "\\.(ts|c|gyp)$" || true')).toBe('');
  });

  it('has units that systemd-analyze finds nothing to say about', () => {
    const { code, text } = machine.try(`systemd-analyze verify ${UNITS}`);
    expect([code, text]).toEqual([0, '']);
  });

  it.each(['tillsync.service', 'tillsync@.service'])('exposes little in %s', (unit) => {
    const { code, text } = machine.try(
      `systemd-analyze security --offline=true --threshold=15 --no-pager /lib/systemd/system/${unit}`,
    );
    expect([code, text.split('\n').at(-1)]).toEqual([0, expect.stringContaining('exposure')]);
  });

  it('completes commands, and shows them all in its man page', () => {
    const complete =
      'source /usr/share/bash-completion/completions/tillsync; COMP_WORDS=(tillsync sync ""); COMP_CWORD=2; _tillsync; declare -p COMPREPLY';
    expect(machine.run(complete)).toContain('orders');
    expect(machine.run('MANWIDTH=200 man -P cat --warnings tillsync')).toContain('tillsync sync orders');
  });

  it('runs the demo, worker and all, for anybody', () => {
    machine.run('runuser -u nobody -- env HOME=/nonexistent tillsync demo --seconds 8');
  });

  it('refuses a broken configuration without harm, and is upgraded over it', () => {
    machine.run('echo "nonsense = 1" >> /etc/tillsync/config.toml');
    expect(machine.try('tillsync config check').code).toBe(2);
    machine.run(`dpkg -i --force-confold ${builtPackage()}`);
    expect(machine.run('tail -n 1 /etc/tillsync/config.toml')).toBe('nonsense = 1');
  });

  it('is removed and purged without a trace but its user', () => {
    machine.run('dpkg -r tillsync');
    machine.run('test -d /var/lib/tillsync && test -f /etc/tillsync/config.toml');
    machine.run('dpkg -P tillsync');
    expect(
      machine.run(
        'find /etc /usr /var/lib /var/cache -xdev -path "*tillsync*" -not -path "/var/cache/man/*" -not -path "/var/lib/dpkg/*"',
      ),
    ).toBe('');
  });
});
