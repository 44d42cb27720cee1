import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { onTestFinished } from 'vitest';
import { Inbox, type InboxBatch, type InboxRow, type InboxTrouble } from '../../src/outbox/intake/inbox.ts';
import { FakeClock } from '../support/fake-clock.ts';

export function tempInbox(directory = mkdtempSync(join(tmpdir(), 'tillsync-inbox-'))) {
  const path = join(directory, 'inbox', 'inbox.db');
  const troubles: InboxTrouble[] = [];
  const clock = new FakeClock();
  const inbox = new Inbox({ path, clock, onTrouble: (trouble) => troubles.push(trouble) });
  inbox.prepare();
  onTestFinished(() => inbox.close());
  return { path, inbox, troubles, clock };
}

/** Opens a connection to the inbox as a POS does. It is closed after the test. */
export function pos(path: string): Database.Database {
  const db = new Database(path, { timeout: 0 });
  onTestFinished(() => {
    db.close();
  });
  return db;
}

export const insert = (db: Database.Database, externalId: string, qty: number) =>
  db.prepare('INSERT INTO stock_changes (external_id, qty) VALUES (?, ?)').run(externalId, qty);

/** Returns all rows of a batch, to be deleted in the inbox after they were copied. */
export const rowsOf = ({ changes, acks }: InboxBatch): InboxRow[] => [...changes, ...acks];
