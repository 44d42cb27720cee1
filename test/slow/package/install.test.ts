import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtPackage, laterPackage, Machine } from './machine.ts';

const UNITS = 'tillsync.service tillsync.socket tillsync@shop.service tillsync@shop.socket';
const MEBIBYTE = 2 ** 20;

it('brings less than 15 MiB beside its Node', () => {
  const rest = `dpkg-deb --fsys-tarfile ${builtPackage()} | tar --delete ./usr/lib/tillsync/node | xz -T1 | wc -c`;
  const bytes = Number(execFileSync('sh', ['-c', rest], { encoding: 'utf8' }));
  expect(bytes).toBeGreaterThan(MEBIBYTE / 2);
  expect(bytes).toBeLessThan(15 * MEBIBYTE);
});

it('has directories that everybody may enter', () => {
  const [first] = execFileSync('dpkg-deb', ['-c', builtPackage()], { encoding: 'utf8' }).split('\n');
  expect(first).toMatch(/^drwxr-xr-x .* \.\/$/);
});

describe('on a machine without a running systemd', () => {
  let machine: Machine;
  let said: string;

  beforeAll(async () => {
    machine = await Machine.start('plain');
    said = machine.run(`dpkg -i ${builtPackage()}`);
  });

  afterAll(() => machine?.stop());

  it('says what to run next, has the program and the storage directory', () => {
    expect(said).toContain('tillsync is installed, but not set up yet. Run: sudo tillsync init');
    expect(machine.run('tillsync --version')).toMatch(/^\d+\.\d+\.\d+(\+\d+\.g[0-9a-f]{9})?$/);
    expect(machine.try('tillsync config check')).toMatchObject({
      code: 2,
      text: expect.stringContaining('tillsync is not set up yet'),
    });
    expect(machine.run('stat -c "%a %U:%G" /var/lib/tillsync')).toBe('2750 tillsync:tillsync');
    expect(machine.run('test -e /root/.cache/tillsync || echo none')).toBe('none');
    expect(machine.run('ls -A /etc/tillsync; dpkg-query -s tillsync | grep -A1 ^Conffiles || true')).toBe('');
    expect(machine.run('zcat -f /usr/share/doc/tillsync/config.sample.toml')).toContain('[platform]');
  });

  it('has its files as they were packed, and none with a wish for a compiler or the network', () => {
    expect(machine.run('dpkg --verify tillsync')).toBe('');
    expect(machine.run('dpkg -L tillsync | grep -v /recipes/ | grep -E "\\.(ts|c|gyp)$" || true')).toBe('');
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
    machine.run(`dpkg -i ${builtPackage()} < /dev/null`);
    expect(machine.run('tail -n 1 /etc/tillsync/config.toml')).toBe('nonsense = 1');
  });

  it('is upgraded over an inbox that the service user made a link without an end', () => {
    machine.run('runuser -u tillsync -- ln -s /nowhere /var/lib/tillsync/inbox');
    machine.run(`dpkg -i ${builtPackage()}`);
    machine.run('test ! -e /nowhere && rm /var/lib/tillsync/inbox');
  });

  it('is removed and purged without a trace but its user', () => {
    machine.run('install -d -m 0700 /etc/credstore && touch /etc/credstore/tillsync.hook-pos');
    machine.run('dpkg -r tillsync');
    machine.run('test -f /etc/credstore/tillsync.hook-pos');
    machine.run('test -d /var/lib/tillsync && test -f /etc/tillsync/config.toml');
    machine.run('dpkg -P tillsync');
    expect(
      machine.run(
        'find /etc /usr /var/lib /var/cache -xdev -path "*tillsync*" -not -path "/var/cache/man/*" -not -path "/var/lib/dpkg/*"',
      ),
    ).toBe('');
  });

  it('tells of the data that a purge leaves: behind a link, and of further companies', () => {
    machine.run(`dpkg -i ${builtPackage()}`);
    machine.run(
      'mv /var/lib/tillsync /srv/shop && ln -s /srv/shop /var/lib/tillsync && touch /srv/shop/kept',
    );
    machine.run('install -d -o tillsync /var/lib/tillsync@second && touch /var/lib/tillsync@second/kept');
    machine.run(`dpkg -i ${builtPackage()}`);
    machine.run('echo "# second" > /etc/tillsync/second.toml');
    machine.run('touch /etc/credstore/tillsync@second.hook-pos');
    const said = machine.run('dpkg -P tillsync');
    expect(said).toContain("sudo rm -r '/srv/shop'");
    expect(said).toContain("sudo rm -r '/var/lib/tillsync@second'");
    expect(said).toContain("sudo rm '/etc/credstore/tillsync@second.hook-pos'");
    machine.run('test -f /etc/credstore/tillsync@second.hook-pos');
    machine.run('test -f /srv/shop/kept && test -f /var/lib/tillsync@second/kept');
    expect(machine.run('test -L /var/lib/tillsync || echo gone; ls /etc/tillsync')).toBe('gone\nsecond.toml');
  });
});

describe('an upgrade from a version that brought its configuration along', () => {
  const place = path.resolve('dist/test-earlier');
  let machine: Machine;
  let earlier: string;

  beforeAll(async () => {
    const deb = laterPackage(builtPackage(), '0.0.9', (tree) => {
      mkdirSync(path.join(tree, 'etc/tillsync'), { recursive: true });
      copyFileSync('config/tillsync.sample.toml', path.join(tree, 'etc/tillsync/config.toml'));
      writeFileSync(path.join(tree, 'DEBIAN/conffiles'), '/etc/tillsync/config.toml\n');
    });
    mkdirSync(place, { recursive: true });
    earlier = path.join(place, path.basename(deb));
    copyFileSync(deb, earlier);
    rmSync(path.dirname(deb), { recursive: true });
    machine = await Machine.start('plain');
  });

  afterAll(async () => {
    await machine?.stop();
    rmSync(place, { recursive: true, force: true });
  });

  it('asks nothing, and leaves what init wrote', () => {
    machine.run(`dpkg -i ${earlier}`);
    machine.run("sed -i 's#https://api.example.com#https://shop.example#' /etc/tillsync/config.toml");
    const before = machine.run('sha256sum /etc/tillsync/config.toml');
    const said = machine.run(`dpkg -i ${builtPackage()} < /dev/null`);
    expect(said).not.toContain('not set up');
    expect(machine.run('sha256sum /etc/tillsync/config.toml')).toBe(before);
    expect(machine.run('ls /etc/tillsync')).toBe('config.toml');
    expect(machine.run('dpkg-query -s tillsync | grep ^Status')).toBe('Status: install ok installed');
    machine.run('dpkg -P tillsync; test ! -e /etc/tillsync');
  });
});
