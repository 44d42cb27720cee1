import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';

const PROGRAM = path.resolve('.ci/remove-debian');

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tillsync-remove-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

it('removes an unfinished Debian with the mounts that a killed run left in it, and touches no other', () => {
  for (const tree of ['debian.part', 'debian.part-2'])
    mkdirSync(path.join(folder, tree, 'dev'), { recursive: true });
  // In a mount namespace of its own, so that this machine keeps none of the mounts.
  const script = `
    mount -t tmpfs tmpfs debian.part/dev
    mkdir debian.part/dev/shm debian.part/dev/pts
    mount -t tmpfs tmpfs debian.part/dev/shm
    mount -t devpts devpts debian.part/dev/pts
    mount -t tmpfs tmpfs debian.part-2/dev
    touch debian.part-2/dev/kept debian.part/dev/shm/in-use
    exec 3< debian.part/dev/shm/in-use
    "$1" debian.part
    ls debian.part-2/dev`;
  const said = execFileSync('unshare', ['--mount', 'sh', '-euc', script, 'sh', PROGRAM], {
    cwd: folder,
    encoding: 'utf8',
  });
  expect(said).toBe('kept\n');
  expect(existsSync(path.join(folder, 'debian.part'))).toBe(false);
});
