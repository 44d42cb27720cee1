import { mkdtempSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { replaceSecret } from '../../src/core/files.ts';

/** Returns the files in the directory that this process has open. */
function openIn(directory: string): string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      const file = readlinkSync(`/proc/self/fd/${fd}`);
      return file.startsWith(directory) ? [path.relative(directory, file)] : [];
    } catch {
      return [];
    }
  });
}

it('replaceSecret leaves the secret alone behind, for this user, and no file open', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-secret-'));
  const file = path.join(directory, 'new', 'key');
  for (const secret of ['first', 'second']) {
    replaceSecret(file, secret);
    expect(readFileSync(file, 'utf8')).toBe(`${secret}\n`);
    expect(statSync(file).mode & 0o777).toBe(0o600);
  }
  expect(readdirSync(path.dirname(file))).toEqual(['key']);
  expect(openIn(directory)).toEqual([]);
});
