import { cpSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { migrate } from '../../src/db/migrate.ts';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { openDatabase } from '../../src/db/sqlite.ts';
import { order, outgoing } from '../outbox/outbox-fixture.ts';

const MIGRATIONS = fileURLToPath(new URL('../../src/db/mirror/migrations/', import.meta.url));
/** The last step before stock became a ledger. */
const BEFORE = 6;
const HOLDING = { skipUnchanged: true, holdBack: true, sendAsIs: false };

/** A mirror of that time: counts sent short of orders, a correction in line, a count under way, one held, acknowledgements. */
function oldMirror(): string {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-old-stock-'));
  const steps = mkdtempSync(join(tmpdir(), 'tillsync-steps-'));
  for (const name of readdirSync(MIGRATIONS).filter((each) => Number(each.slice(0, 4)) <= BEFORE)) {
    cpSync(join(MIGRATIONS, name), join(steps, name));
  }
  const path = join(directory, 'mirror.db');
  const db = openDatabase({ path, mode: 0o640, busyTimeoutMs: 50, pragmas: { journal_mode: 'wal' } });
  db.exec('CREATE TABLE schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)');
  migrate(db, { directory: pathToFileURL(`${steps}/`), name: 'mirror.db' });
  const skus = ['10', '11', '12', '13', '14'];
  for (const [i, sku] of skus.entries()) {
    db.exec(`
      INSERT INTO products (product_id, name, updated_at, payload) VALUES ('p${sku}', 'Name ${sku}', 'now', '{}');
      INSERT INTO skus (sku, product_id) VALUES ('${sku}', 'p${sku}');
      INSERT INTO stocks (sku, subsidiary_id, qty, confirmed_seq) VALUES ('${sku}', 's1', ${8 + i}, 1);
      INSERT INTO integrations (sku, subsidiary_id, ext_id, product_id) VALUES ('${sku}', 's1', 'E${sku}', 'p${sku}');
      INSERT INTO orders (order_id, status, seq, updated_at, event_source, store_external_id, payload_source, payload)
        VALUES ('o${sku}', 'pending', ${i + 1}, 'now', 'poll', 'B1', 'poll', '{}');
      INSERT INTO order_items (order_id, line, product_external_id, quantity) VALUES ('o${sku}', 1, 'E${sku}', 2);
      INSERT INTO order_events (order_id, status, source, observed_at) VALUES ('o${sku}', 'pending', 'poll', 'now');
      INSERT INTO unbooked_orders (order_id, first_seq) VALUES ('o${sku}', ${i + 1});`);
  }
  const body = (sku: string, qty: number) =>
    JSON.stringify({ externalId: `E${sku}`, subsidiaryId: 's1', qty });
  const count = (sku: string, state: string, qty: number, more: { guard?: string; version?: number } = {}) =>
    db
      .prepare(
        `INSERT INTO outbox (kind, target, conflict_key, body, fields, state, created_at, priority, queue_seq, basis,
           sku, subsidiary_id, source, version, as_of_seq, held_guard, call_id, sent_qty, held_back, sent_as_of_seq)
         VALUES ('stock', @target, @target, @body, 'qty', @state, 'then', 1, 1, 'mirror', @sku, 's1', 'http', @version, 5,
           @guard, iif(@state = 'sending', 1, NULL), @sent, 2, 5)`,
      )
      .run({
        ...{ target: `sku:${sku}@s1`, body: body(sku, qty), state, sku, sent: qty - 2 },
        ...{ version: more.version ?? 1, guard: more.guard ?? null },
      });
  const kept = (sku: string, qty: number) =>
    db
      .prepare(
        `INSERT INTO held_back_counts (target, body, conflict_key, basis, sku, subsidiary_id, as_of_seq, sent_qty,
           held_back, sent_at, version, heard_seq)
         VALUES (@target, @body, @target, 'mirror', @sku, 's1', 5, @sent, 2, '2026-01-01T00:00:00.000Z', 1, 5)`,
      )
      .run({ target: `sku:${sku}@s1`, body: body(sku, qty), sku, sent: qty - 2 });
  // Sent as 8, and not booked yet.
  count('10', 'done', 10);
  kept('10', 10);
  // Booked since, with its correction in line.
  count('11', 'done', 11);
  kept('11', 11);
  db.exec(
    "UPDATE unbooked_orders SET acknowledged = 1 WHERE order_id = 'o11'; INSERT INTO order_acks VALUES ('o11', 'now', 'http');",
  );
  count('11', 'pending', 11, { version: 2 });
  // Under way as the old version stopped.
  count('12', 'sending', 12);
  // Held by a guard rail.
  count('13', 'pending', 0, { guard: 'zero-items' });
  // Acknowledged as the old version stopped, and not corrected yet.
  count('14', 'done', 14);
  kept('14', 14);
  db.exec(
    "UPDATE unbooked_orders SET acknowledged = 1 WHERE order_id = 'o14'; INSERT INTO order_acks VALUES ('o14', 'now', 'http');",
  );
  db.exec("UPDATE marks SET value = 5 WHERE name IN ('orders.seen', 'orders.corrected', 'outbox.version')");
  db.close();
  return path;
}

test('a store that holds back unbooked stock goes on after the upgrade where it was', () => {
  const db = openConnection({ path: oldMirror(), readonly: false, group: undefined });
  onTestFinished(() => {
    db.close();
  });
  const out = outgoing(db);
  expect(out.settlement.reclaim()).toBe(1);
  const send = () => {
    const { callId, items } = out.claims.claim('stock', 100, HOLDING);
    if (callId !== null) {
      out.settlement.settle(
        callId,
        items.map(({ changeId }) => ({ changeId, state: 'done' })),
      );
    }
    return Object.fromEntries(items.map(({ target, body }) => [target, 'qty' in body && body.qty]));
  };
  const sent = send();
  expect(sent).toMatchObject({ 'sku:11@s1': 11, 'sku:12@s1': 10, 'sku:14@s1': 14 });
  // What nobody can be sure of is sent again once; what is held is not.
  expect(sent['sku:10@s1'] ?? 8).toBe(8);
  expect(sent).not.toHaveProperty('sku:13@s1');
  expect(send()).toEqual({});

  out.takings.acknowledge(['o10', 'o12'], 'http');
  expect(send()).toEqual({ 'sku:10@s1': 10, 'sku:12@s1': 12 });
  order(out, 'o10', 'B1', [['E10', 2]], 'cancel');
  const [held] = out.queries.list({ state: 'held', limit: 1 });
  out.decisions.release({ changeId: held?.changeId ?? 0 });
  expect(send()).toEqual({ 'sku:10@s1': 10, 'sku:13@s1': 0 });
});
