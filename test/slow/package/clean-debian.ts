import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';

const SUITE = 'bookworm';
const MIRROR = process.env.TILLSYNC_DEBIAN_MIRROR ?? 'http://deb.debian.org/debian';

/**
 * The files of a Debian 12 with a service manager and nothing else, made once by debootstrap (`apt-get install -y
 * debootstrap`) and kept; undefined where that cannot be had.
 */
export function cleanDebian(directory = '/var/cache/clean-debian'): string | undefined {
  const root = path.join(directory, SUITE);
  if (existsSync(root)) return root;
  if (spawnSync('debootstrap', ['--version']).status !== 0) return undefined;
  const unfinished = `${root}.part`;
  rmSync(unfinished, { recursive: true, force: true });
  execFileSync('mkdir', ['-p', unfinished]);
  const packages = '--include=systemd,systemd-sysv,dbus';
  const made = spawnSync('debootstrap', ['--variant=minbase', packages, SUITE, unfinished, MIRROR]);
  if (made.status !== 0) return undefined;
  renameSync(unfinished, root);
  return root;
}
