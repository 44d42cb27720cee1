import { chmodSync, lstatSync, mkdirSync, mkdtempSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { giveToGroup, setDirectoryMode } from '../../src/core/files.ts';
import { createWithMode } from '../../src/db/sqlite.ts';

const GROUP = 48_213;
let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tillsync-group-'));
});

describe.runIf(process.geteuid?.() === 0)('files for a group', () => {
  it("gives files and directories, and makes a file that is the group's from its first moment", () => {
    const file = join(directory, 'file');
    expect(createWithMode(file, 0o660, GROUP)).toBe(true);
    giveToGroup(GROUP, directory);
    expect([statSync(file).gid, statSync(file).mode & 0o7777, statSync(directory).gid]).toEqual([
      GROUP,
      0o660,
      GROUP,
    ]);
  });

  it('does not follow a link to a file', () => {
    const victim = join(directory, 'victim');
    const link = join(directory, 'mirror.db');
    writeFileSync(victim, 'secret', { mode: 0o640 });
    symlinkSync(victim, link);
    giveToGroup(GROUP, link);
    expect([statSync(victim).gid, lstatSync(link).gid]).toEqual([process.getegid?.(), GROUP]);
  });

  it('follows a link to a storage directory, which an operator may have made', () => {
    const real = join(directory, 'real');
    const link = join(directory, 'link');
    mkdirSync(real);
    symlinkSync(real, link);
    giveToGroup(GROUP, link);
    expect(statSync(real).gid).toBe(GROUP);
  });

  it('does not follow a link where it sets a mode', () => {
    const real = join(directory, 'real');
    const link = join(directory, 'inbox');
    mkdirSync(real);
    chmodSync(real, 0o700);
    symlinkSync(real, link);
    expect(() => setDirectoryMode(link, 0o2770)).toThrow();
    expect(statSync(real).mode & 0o7777).toBe(0o700);
  });
});
