/** Tests src/support/restored-mirror.ts. */

import { chmodSync, closeSync, mkdtempSync, openSync, statSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { beforeEach, describe, expect, it } from 'vitest';
import { Audit, type AuditEntry } from '../../src/db/audit.ts';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { copyDatabase } from '../../src/db/sqlite.ts';
import {
  checkMirrorCopy,
  hasEvent,
  knownSince,
  prepareRestoredMirror,
} from '../../src/support/restored-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';

const AT = '2026-03-01T00:00:00.000Z';
let source: string;
let copy: string;
let db: Database.Database;

beforeEach(() => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-copy-'));
  source = path.join(directory, 'mirror.db');
  copy = path.join(directory, 'copy.db');
  db = openConnection({ path: source, readonly: false, group: undefined });
  return () => {
    db.close();
  };
});

const clock = new FakeClock();
const auditEvent = { who: 'cli ana', action: 'restore' } as const;
const prepared = (continueAfterSeq: number, audited: AuditEntry[] = []) =>
  prepareRestoredMirror(copy, { continueAfterSeq, audited, auditEvent, clock });

const event = (orderId: string) =>
  db
    .prepare(
      "INSERT INTO order_events (order_id, status, source, observed_at) VALUES (?, 'pending', 'poll', ?)",
    )
    .run(orderId, AT);

interface Change {
  id: number;
  target: string;
  body: object;
  state?: string;
  guard?: string;
}

const change = ({ id, target, body, state = 'pending', guard }: Change) =>
  db
    .prepare(
      `INSERT INTO _outbox (change_id, kind, target, conflict_key, body, fields, state, created_at, priority, queue_seq,
         basis, source, version, held_guard)
       VALUES (?, ?, ?, ?, ?, 'x', ?, ?, 1, ?, 'mirror', 'cli', ?, ?)`,
    )
    .run(
      id,
      'qty' in body ? 'stock' : 'product',
      target,
      target,
      JSON.stringify(body),
      state,
      AT,
      id,
      id,
      guard ?? null,
    );

function inCopy<T>(query: string): T[] {
  const opened = new Database(copy, { readonly: true });
  try {
    return opened.prepare<[], T>(query).all();
  } finally {
    opened.close();
  }
}

describe('a copy of a mirror', () => {
  it('is whole, of one moment, in one file, while somebody writes', () => {
    event('a');
    db.exec('BEGIN IMMEDIATE');
    event('b');
    copyDatabase(source, copy);
    db.exec('COMMIT');
    expect(checkMirrorCopy(copy)).toMatchObject({
      events: 1,
      newestSeq: 1,
      newestEvent: { seq: 1, orderId: 'a' },
    });
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    expect(inCopy('PRAGMA journal_mode')).toEqual([{ journal_mode: 'delete' }]);
  });

  it('gives no number of the feed twice, also where its newest events are deleted', () => {
    for (const id of ['a', 'b', 'c']) event(id);
    db.exec('DELETE FROM order_events WHERE seq > 1');
    copyDatabase(source, copy);
    const { newestEvent, newestSeq } = checkMirrorCopy(copy);
    expect([newestEvent?.seq, newestSeq]).toEqual([1, 3]);
    event('d');
    db.exec(
      "INSERT INTO _order_acks (order_id, branch, acked_at, source) VALUES ('before', '', '2026-02-01', 'http'), ('since', '', '2026-04-01', 'http')",
    );
    expect(knownSince(db, { since: AT, clock })).toMatchObject({
      mark: null,
      known: { newestSeq: 4, acks: [{ orderId: 'since', seq: null }] },
    });
    expect(knownSince(db, { since: '2026-03-02', clock }).mark).toMatchObject({ seq: 4, orderId: 'd' });
    expect(newestEvent !== null && hasEvent(db, newestEvent)).toBe(true);
    expect(hasEvent(db, { seq: 1, orderId: 'other', observedAt: AT })).toBe(false);
    prepared(4);
    const restored = new Database(copy);
    restored.exec(`INSERT INTO order_events (order_id, source, observed_at) VALUES ('e', 'poll', '${AT}')`);
    restored.close();
    expect(inCopy('SELECT max(seq) AS seq FROM order_events')).toEqual([{ seq: 5 }]);
  });

  it('is readable for the POS in the end, however closed the archive had it', () => {
    copyDatabase(source, copy);
    chmodSync(copy, 0o600);
    prepared(0);
    expect(statSync(copy).mode & 0o777).toBe(0o640);
  });

  it('continues a feed that never gave a number', () => {
    copyDatabase(source, copy);
    expect(prepared(1_000_000).continuesAfterSeq).toBe(1_000_000);
  });

  it('holds all that was not sent, one for each target, and trusts no value of the catalogue', () => {
    change({ id: 1, target: 'a', body: { sku: 'a', subsidiaryId: 's', qty: 1 } });
    change({ id: 2, target: 'b', body: { sku: 'b', name: 'sent', price: 5 }, state: 'sending' });
    change({ id: 3, target: 'b', body: { sku: 'b', price: 6 } });
    change({ id: 4, target: 'c', body: { sku: 'c', price: 7 } });
    change({ id: 5, target: 'c', body: { sku: 'c', price: 700 }, guard: 'price-factor' });
    change({ id: 6, target: 'd', body: { sku: 'd', price: 8 }, state: 'done' });
    change({ id: 7, target: 'e', body: { sku: 'e', price: 9 }, state: 'rejected' });
    db.exec(`
      INSERT INTO _stocks (sku, subsidiary_id, qty) VALUES ('a', 's', 4);
      INSERT INTO _sweeps (branch, subsidiary_id, started_at, completed_at, as_of_seq, pages, products)
        VALUES ('s', 's', '${AT}', '${AT}', 0, 1, 1);`);
    copyDatabase(source, copy);
    expect(prepared(0).held).toBe(3);
    const rows = inCopy<{ change_id: number; held_guard: string; body: string }>(
      "SELECT change_id, held_guard, body FROM outbox WHERE state = 'pending' ORDER BY target",
    );
    expect(rows.map(({ body, ...row }) => ({ ...row, body: JSON.parse(body) }))).toEqual([
      { change_id: 1, held_guard: 'restored', body: { sku: 'a', subsidiaryId: 's', qty: 1 } },
      { change_id: 3, held_guard: 'restored', body: { sku: 'b', name: 'sent', price: 6 } },
      { change_id: 5, held_guard: 'price-factor', body: { sku: 'c', price: 700 } },
    ]);
    expect(inCopy("SELECT change_id, state FROM outbox WHERE state <> 'pending' ORDER BY 1")).toEqual([
      { change_id: 2, state: 'superseded' },
      { change_id: 4, state: 'superseded' },
      { change_id: 6, state: 'done' },
      { change_id: 7, state: 'rejected' },
    ]);
    expect(inCopy('SELECT uncertain FROM _stocks')).toEqual([{ uncertain: 1 }]);
    expect(inCopy('SELECT * FROM _sweeps')).toEqual([]);
  });

  it('keeps what operators did since the backup, and notes the restore', () => {
    copyDatabase(source, copy);
    const since = new Date(clock.nowMs()).toISOString();
    new Audit({ db, clock }).note({ who: 'cli ana', action: 'outbox.discard', subject: 'change 7' });
    const { audited } = knownSince(db, { since, clock }).known;
    expect(audited).toMatchObject([{ action: 'outbox.discard', subject: 'change 7' }]);
    prepared(0, audited);
    expect(inCopy('SELECT who, action FROM _audit ORDER BY audit_id')).toEqual([
      { who: 'cli ana', action: 'outbox.discard' },
      { who: 'cli ana', action: 'restore' },
    ]);
  });

  it('of a newer tillsync, or damaged, is refused', () => {
    event('a');
    copyDatabase(source, copy);
    const newer = new Database(copy);
    newer.exec("INSERT INTO _schema_migrations (name) VALUES ('0099-of-tomorrow')");
    newer.close();
    const prepare = () => prepared(1);
    expect(prepare).toThrow(expect.objectContaining({ code: 'storage-newer' }));
    const index = new Database(copy, { readonly: true });
    const page = Number(
      index.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'orders_by_seq'").pluck().get(),
    );
    const pageBytes = Number(index.pragma('page_size', { simple: true }));
    index.close();
    const file = openSync(copy, 'r+');
    writeSync(file, Buffer.alloc(pageBytes, 0xa5), 0, pageBytes, (page - 1) * pageBytes);
    closeSync(file);
    expect(() => checkMirrorCopy(copy)).toThrow(expect.objectContaining({ code: 'storage-corrupt' }));
  });
});
