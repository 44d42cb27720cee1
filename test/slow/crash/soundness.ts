import { cpSync, existsSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import type { WebhookSender } from '../../../src/sandbox/webhook.ts';
import { LATER_TABLE } from './daemon-life.ts';
import type { SubmittedChange } from './handed-over.ts';
import { appliedValue } from './platform-gate.ts';

/** Facts against which the files are checked after each crash; they accumulate over all crashes of a store. */
export interface Expectations {
  deliveries: ReturnType<WebhookSender['deliveries']>;
  handedOver: SubmittedChange;
  /** Orders that were in the mirror before the upgrade. */
  oldOrders: readonly string[];
  /** Order id and status of each event that an earlier check found in the mirror, by seq. */
  events: Map<number, string>;
}

export interface Findings {
  /** A sentence for each fault; empty if all is well. */
  faults: string[];
  /** The stored refresh token; undefined if none was stored yet. */
  refreshToken: string | undefined;
  /** Whether the mirror has the tables of the later version. */
  isUpgraded: boolean;
}

/** Checks a copy of the files that a crash left, so that the daemon finds the originals untouched. */
export function inspect(storage: string, copy: string, expected: Expectations): Findings {
  rmSync(copy, { recursive: true, force: true });
  if (!existsSync(storage)) return { faults: [], refreshToken: undefined, isUpgraded: false };
  cpSync(storage, copy, { recursive: true, filter: (file) => !file.endsWith('.sock') });
  const faults: string[] = [];
  const using = <T>(name: string, none: T, look: (db: Database.Database) => T): T => {
    const file = path.join(copy, name);
    if (!existsSync(file)) return none;
    const db = new Database(file);
    try {
      const verdict = db.pragma('quick_check', { simple: true });
      if (verdict !== 'ok') faults.push(`${name}: ${String(verdict)}`);
      return look(db);
    } finally {
      db.close();
    }
  };
  const refreshToken = using('state.db', undefined, (db) =>
    has(db, 'tokens') ? db.prepare<[], string>('SELECT refresh_token FROM tokens').pluck().get() : undefined,
  );
  const inbox = using('inbox/inbox.db', undefined, (db) =>
    has(db, 'order_acks') ? inboxRows(db) : undefined,
  );
  const schema = using('mirror.db', { isThere: false, isUpgraded: false }, (db) => {
    if (!has(db, '_orders')) return { isThere: false, isUpgraded: false };
    faults.push(...orderFaults(db, expected));
    faults.push(...changeFaults(db, inbox ?? { changes: [], acks: [] }, expected.handedOver));
    return { isThere: true, isUpgraded: has(db, LATER_TABLE) };
  });
  if (!schema.isThere) {
    const kept = new Map(inbox?.changes.map((change) => [change.target, change.value]));
    faults.push(...expected.handedOver.missing(kept));
  }
  return { faults, refreshToken, isUpgraded: schema.isUpgraded };
}

/**
 * Returns a sentence for each file of the mirror that is missing, or whose mode or group does not suit a POS with
 * another Unix user.
 */
export function modeFaults(storage: string): string[] {
  const { gid } = statSync(storage);
  return ['mirror.db', 'mirror.db-wal', 'mirror.db-shm'].flatMap((name) => {
    const facts = statSync(path.join(storage, name), { throwIfNoEntry: false });
    if (!facts) return [`${name} is not there`];
    const mode = (facts.mode & 0o777).toString(8);
    return mode === '640' && facts.gid === gid ? [] : [`${name} has mode ${mode}, group ${facts.gid}`];
  });
}

interface EventRow {
  seq: number;
  orderId: string;
  status: string;
  previous: string | null;
}

function orderFaults(db: Database.Database, { deliveries, oldOrders, events }: Expectations): string[] {
  const faults: string[] = [];
  const known = new Set(db.prepare<[], string>('SELECT order_id FROM orders').pluck().all());
  for (const orderId of oldOrders) if (!known.has(orderId)) faults.push(`order ${orderId} is gone`);
  const rows = db
    .prepare<[], EventRow>(
      'SELECT seq, order_id AS orderId, status, previous_status AS previous FROM order_events ORDER BY seq',
    )
    .all();
  const seen = new Set<string>();
  const last = new Map<string, string>();
  for (const { seq, orderId, status, previous } of rows) {
    const word = `${orderId} ${status}`;
    const before = last.get(orderId) ?? null;
    if (before === status || previous !== before) {
      faults.push(`event ${seq} says ${previous} to ${status} of order ${orderId}, which was ${before}`);
    }
    last.set(orderId, status);
    seen.add(word);
    const was = events.get(seq);
    if (was !== undefined && was !== word) faults.push(`event ${seq} was ${was} and is ${word}`);
    events.set(seq, word);
  }
  const newest = rows.at(-1)?.seq ?? 0;
  for (const seq of events.keys()) if (seq > newest) faults.push(`event ${seq} was seen and is gone`);
  const held = db
    .prepare<[], string>("SELECT order_id || ' ' || status FROM _held_notifications")
    .pluck()
    .all();
  for (const word of held) seen.add(word);
  for (const { orderId, status, outcome } of deliveries) {
    if (outcome !== 'confirmed') continue;
    if (!known.has(orderId)) faults.push(`order ${orderId} was acknowledged and is not in the mirror`);
    else if (!seen.has(`${orderId} ${status}`))
      faults.push(`${status} of ${orderId} was acknowledged and lost`);
  }
  return faults;
}

interface InboxContent {
  changes: { key: string; target: string; value: number }[];
  acks: string[];
}

function inboxRows(db: Database.Database): InboxContent {
  const changes = db
    .prepare<[], { key: string; target: string; value: number }>(
      `SELECT 'stock:' || change_key AS key, 'stock:' || external_id AS target, qty AS value FROM stock_changes
       UNION ALL
       SELECT 'product:' || change_key, 'price:' || sku, price FROM product_changes ORDER BY value`,
    )
    .all();
  return { changes, acks: db.prepare<[], string>('SELECT order_id FROM order_acks').pluck().all() };
}

function changeFaults(db: Database.Database, inbox: InboxContent, handedOver: SubmittedChange): string[] {
  const found = new Map<string, number>();
  const find = (target: string, value: number) => {
    if ((found.get(target) ?? 0) < value) found.set(target, value);
  };
  for (const body of db.prepare<[], string>('SELECT body FROM outbox').pluck().iterate()) {
    for (const { target, value } of appliedValue(JSON.parse(body))) find(target, value);
  }
  for (const { target, value } of inbox.changes) find(target, value);
  const faults = handedOver.missing(found);

  const copied = new Set(
    db.prepare<[], string>("SELECT name FROM _seen WHERE kind = 'inbox-row'").pluck().all(),
  );
  const waiting = inbox.changes.filter(({ key }) => !copied.has(key)).length;
  const taken = db.prepare<[], number>("SELECT value FROM marks WHERE name = 'outbox.version'").pluck().get();
  const all = (taken ?? 0) + waiting;
  if (all < handedOver.accepted || all > handedOver.submitted) {
    faults.push(`${all} changes are here; ${handedOver.accepted} were accepted of ${handedOver.submitted}`);
  }
  const acks = new Set([
    ...db.prepare<[], string>('SELECT order_id FROM order_acks').pluck().all(),
    ...inbox.acks,
  ]);
  for (const orderId of handedOver.acks) if (!acks.has(orderId)) faults.push(`the ack of ${orderId} is lost`);
  return faults;
}

function has(db: Database.Database, table: string): boolean {
  return db.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?").get(table) !== undefined;
}
