/** Tests src/outbox/intake/inbox-file.ts. */

import fs, { mkdtempSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { setAside } from '../../src/db/damaged-files.ts';
import { makeDirectory } from '../../src/db/sqlite.ts';
import { openInboxFile } from '../../src/outbox/intake/inbox-file.ts';
import { FakeClock } from '../support/fake-clock.ts';

/** Synced files in order, each with its path at that time. */
const synced: string[] = [];
const { fsyncSync } = fs;

beforeAll(() => {
  fs.fsyncSync = (file) => {
    synced.push(readlinkSync(`/proc/self/fd/${file}`));
    fsyncSync(file);
  };
  syncBuiltinESMExports();
});
afterAll(() => {
  fs.fsyncSync = fsyncSync;
  syncBuiltinESMExports();
});

let directory: string;
let inbox: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-inbox-'));
  inbox = path.join(directory, 'inbox', 'inbox.db');
  synced.length = 0;
});
afterEach(() => rmSync(directory, { recursive: true }));

// A simulated power cut is among the slow tests. The tests here show at once which sync is missing.
it('an inbox is there after a power cut: the file, its directory and that one’s entry are synced', () => {
  openInboxFile({ path: inbox }).db.close();
  expect(statSync(inbox).size).toBeGreaterThan(0);
  const made = `${inbox}.new-${process.pid}`;
  expect(synced).toEqual([directory, made, path.dirname(inbox), path.dirname(inbox)]);
});

it('every new directory on the way is synced into the one above', () => {
  makeDirectory(path.join(directory, 'a', 'b'), 0o700);
  expect(synced).toEqual([directory, path.join(directory, 'a')]);
});

it('a taken row stays gone: a commit syncs the removal of its journal too', () => {
  const { db } = openInboxFile({ path: inbox });
  // 3 means EXTRA. With FULL, the system decides when it syncs the deletion of the journal from the directory.
  expect(db.pragma('synchronous', { simple: true })).toBe(3);
  expect(db.pragma('journal_mode', { simple: true })).toBe('delete');
  db.close();
});

it('a damaged inbox that was moved away stays there', () => {
  openInboxFile({ path: inbox }).db.close();
  synced.length = 0;
  setAside(inbox, new FakeClock());
  expect(synced).toEqual([path.dirname(inbox)]);
});
