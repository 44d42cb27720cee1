/** Tests src/app/storage.ts. */

import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { prepareStorage } from '../../src/app/storage.ts';

it('makes the directory and those above it, for its group to read', () => {
  const root = mkdtempSync(join(tmpdir(), 'tillsync-storage-'));
  const directory = join(root, 'a', 'b');
  prepareStorage(directory);
  expect(statSync(directory).mode & 0o7777).toBe(0o2750);
  prepareStorage(directory);
  rmSync(root, { recursive: true });
});

it('gives up at once where no directory can be made', () => {
  expect(() => prepareStorage('/proc/no/such')).toThrow('cannot be made');
});
