import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { Audit } from '../../src/db/audit.ts';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { FakeClock } from '../support/fake-clock.ts';

function mirror(): Database.Database {
  const file = path.join(mkdtempSync(path.join(tmpdir(), 'tillsync-audit-')), 'mirror.db');
  return openConnection({ path: file, readonly: false, group: undefined });
}

test('who did what comes back newest first, since a time, and cut where it is long', async () => {
  const clock = new FakeClock();
  const audit = new Audit({ db: mirror(), clock });
  audit.note({ who: 'cli ana', action: 'outbox.discard', subject: 'change 1' });
  await clock.advance(60_000);
  const since = new Date(clock.nowMs()).toISOString();
  audit.note({ who: 'x'.repeat(500), action: 'restore', detail: 'd' });
  const all = audit.list({ limit: 10 });
  expect(all.map(({ action }) => action)).toEqual(['restore', 'outbox.discard']);
  expect(all[0]?.who).toHaveLength(300);
  expect(all[1]).toEqual({
    auditId: 1,
    at: expect.any(String),
    who: 'cli ana',
    action: 'outbox.discard',
    subject: 'change 1',
    detail: null,
  });
  expect(audit.list({ since, limit: 10 })).toEqual([all[0]]);
  expect(audit.list({ limit: 1 })).toEqual([all[0]]);
});

test('an entry goes with the transaction that it tells of', () => {
  const db = mirror();
  const audit = new Audit({ db, clock: new FakeClock() });
  const fails = db.transaction(() => {
    audit.note({ who: 'cli ana', action: 'outbox.discard' });
    throw new Error('the disk is full');
  });
  expect(fails).toThrow('the disk is full');
  expect(audit.list({ limit: 10 })).toEqual([]);
});
