import { execFileSync } from 'node:child_process';
import { appendFileSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPackage } from '../../../config/package/read-package.ts';
import { publish } from '../../../config/package/repository.ts';
import { debianWithServices } from './clean-debian.ts';
import { builtHubPackage, builtPackage, laterPackage, Machine } from './machine.ts';

const DATE = new Date('2026-01-10T12:00:00Z');
const SYSTEMS = [
  { name: 'Debian 12', root: debianWithServices('bookworm') },
  { name: 'Debian 13', root: debianWithServices('trixie') },
];

let place: string;
let directory: string;
let later: string;
let fingerprint: string;
let debs: string[];

beforeAll(() => {
  place = mkdtempSync(path.join(tmpdir(), 'tillsync-repository-'));
  process.env.GNUPGHOME = path.join(place, 'gnupg');
  mkdirSync(process.env.GNUPGHOME, { mode: 0o700 });
  directory = path.join(place, 'repository');
  const made = laterPackage(builtPackage(), '0.9.0', () => {});
  later = path.join(place, path.basename(made));
  copyFileSync(made, later);
  copyFileSync(builtPackage().replace(/deb$/, 'cdx.json'), later.replace(/deb$/, 'cdx.json'));
  rmSync(path.dirname(made), { recursive: true });
  debs = [builtPackage('amd64'), builtPackage('arm64'), builtHubPackage()];
  fingerprint = publish({ directory, debs, date: DATE });
});

afterAll(() => {
  execFileSync('gpgconf', ['--kill', 'gpg-agent']);
  delete process.env.GNUPGHOME;
  rmSync(place, { recursive: true, force: true });
});

const read = (name: string) => readFileSync(path.join(directory, name), 'utf8');

describe('the repository', () => {
  it('lists both architectures, each with the hub too, with checksums of every file that are signed too', () => {
    for (const architecture of ['amd64', 'arm64']) {
      expect(read(`dists/stable/main/binary-${architecture}/Packages`)).toMatch(
        new RegExp(
          `^Package: tillsync\\n[^]*Architecture: ${architecture}\\n[^]*\\n\\nPackage: tillsync-hub\\n[^]*Architecture: all\\n`,
        ),
      );
    }
    execFileSync('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: directory, stdio: 'ignore' });
    expect(read('SHA256SUMS').match(/\.cdx\.json$/gm)).toHaveLength(3);
    execFileSync('gpg', ['--verify', 'SHA256SUMS.asc', 'SHA256SUMS'], { cwd: directory, stdio: 'ignore' });
    expect(execFileSync('find', [directory, '-name', '*private*'], { encoding: 'utf8' })).toBe('');
    expect(read('tillsync.asc')).toContain('PUBLIC KEY');
  });

  it('is the same when it is made again, of the same packages at the same date', () => {
    const second = path.join(place, 'second');
    publish({ directory: second, debs, date: DATE });
    const lists = ['amd64', 'arm64'].map((name) => `dists/stable/main/binary-${name}/Packages.gz`);
    for (const name of [...lists, 'dists/stable/Release', 'SHA256SUMS']) {
      expect(
        readFileSync(path.join(second, name)).equals(readFileSync(path.join(directory, name))),
        name,
      ).toBe(true);
    }
  });

  it('takes no second package under the same version, and no other key', () => {
    const other = path.join(place, 'other');
    mkdirSync(other);
    const changed = path.join(other, path.basename(builtPackage()));
    copyFileSync(builtPackage(), changed);
    appendFileSync(changed, ' ');
    expect(() => publish({ directory, debs: [changed], date: DATE })).toThrow(
      'has other content. Raise the version',
    );
    expect(() => publish({ directory, debs: [], key: 'nobody@tillsync.invalid', date: DATE })).toThrow(
      'gpg has no secret key nobody@tillsync.invalid',
    );
    const make = [
      '--batch',
      '--quiet',
      '--passphrase',
      '',
      '--quick-generate-key',
      'another',
      'ed25519',
      'sign',
    ];
    execFileSync('gpg', make, { stdio: 'ignore' });
    expect(() => publish({ directory, debs: [], key: 'another', date: DATE })).toThrow(
      `was signed by ${fingerprint} until now`,
    );
  });
});

describe.each(SYSTEMS.filter((system) => system.root))('apt of $name', ({ root }) => {
  let machine: Machine;
  const repository = '/root/place/repository';

  beforeAll(async () => {
    const copy = path.join(place, 'place');
    rmSync(copy, { recursive: true, force: true });
    mkdirSync(copy);
    execFileSync('cp', ['-r', directory, copy]);
    // A later state of the repository, with the newer version in it.
    execFileSync('cp', ['-r', directory, path.join(copy, 'newer')]);
    publish({ directory: path.join(copy, 'newer'), debs: [later], date: new Date(DATE.getTime() + 60_000) });
    machine = await Machine.start('plain', { root: root as string, file: copy });
    machine.run(`chmod 755 /root; rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
      install -D -m 644 ${repository}/tillsync.asc /etc/apt/keyrings/tillsync.asc
      echo 'deb [signed-by=/etc/apt/keyrings/tillsync.asc] file:${repository} stable main' > /etc/apt/sources.list.d/tillsync.list`);
  });

  afterAll(() => machine?.stop());

  /** Replaces a byte in the middle of each file, runs the command, and restores the repository. */
  const withChangedByte = (files: string, command: string) => {
    machine.run(`rm -rf /root/whole; cp -a ${repository} /root/whole; cd ${repository}
      for file in $(find . -path '${files}' -type f); do
        middle=$(($(stat -c %s $file) / 2))
        byte=$(dd if=$file bs=1 skip=$middle count=1 status=none)
        if [ "$byte" = x ]; then byte=y; else byte=x; fi
        printf %s $byte | dd of=$file bs=1 seek=$middle conv=notrunc status=none
      done`);
    const tried = machine.try(command);
    machine.run(`rm -rf ${repository}; mv /root/whole ${repository}`);
    return tried;
  };
  const forget = 'rm -rf /var/lib/apt/lists/*; apt-get clean';

  it('takes nothing that was signed by another key, or by none', () => {
    machine.run(
      `cp /etc/apt/keyrings/tillsync.asc /root/ours; cp /usr/share/keyrings/debian-archive-keyring.gpg /etc/apt/keyrings/tillsync.asc`,
    );
    expect(machine.try('apt-get update -qq').code).not.toBe(0);
    machine.run('cp /root/ours /etc/apt/keyrings/tillsync.asc');
    machine.run(`mv ${repository}/dists/stable/InRelease /root/`);
    expect(machine.try('apt-get update -qq').code).not.toBe(0);
    machine.run(`mv /root/InRelease ${repository}/dists/stable/`);
  });

  it('refuses an index with one other byte', () => {
    for (const file of ['./dists/stable/InRelease', './dists/stable/main/*']) {
      const { code, text } = withChangedByte(file, `${forget}; apt-get update -qq`);
      expect([file, code, text]).toEqual([
        file,
        100,
        expect.stringMatching(
          /not signed|GPG error|OpenPGP|invalid|Hash Sum mismatch|unexpected size|clearsigned/i,
        ),
      ]);
    }
  });

  it('refuses a package with one other byte', () => {
    machine.run('apt-get update -qq');
    const { code, text } = withChangedByte('./pool/*.deb', 'apt-get install -y -qq tillsync');
    expect([code, text]).toEqual([100, expect.stringMatching(/hash sum mismatch/i)]);
    expect(machine.try('dpkg -s tillsync').code).not.toBe(0);
  });

  it('installs from it, and then updates to what is published next', () => {
    machine.run('apt-get update -qq; apt-get install -y -qq tillsync');
    const { version } = readPackage(process.cwd());
    expect(machine.run('tillsync --version')).toBe(version);
    machine.run(`rm -r ${repository}; mv /root/place/newer ${repository}; apt-get update -qq`);
    expect(machine.run('apt-get -s upgrade')).toContain(`Inst tillsync [${version}] (0.9.0`);
    machine.run('apt-get upgrade -y -qq');
    expect(machine.run('dpkg-query -W tillsync')).toBe('tillsync\t0.9.0');
  });
});
