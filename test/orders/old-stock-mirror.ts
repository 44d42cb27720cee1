import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { migrate } from '../../src/db/migrate.ts';
import { openDatabase } from '../../src/db/sqlite.ts';

const MIGRATIONS = fileURLToPath(new URL('../../src/db/mirror/migrations/', import.meta.url));

/**
 * Makes a mirror from before the stock ledger, with the first `schemaSteps` migrations. It has counts from which
 * unbooked orders were subtracted, a queued correction, a count being sent, a held count, and acknowledgements.
 */
export function oldStockMirror(path: string, schemaSteps: number): void {
  const steps = mkdtempSync(join(tmpdir(), 'tillsync-steps-'));
  for (const name of readdirSync(MIGRATIONS).filter((each) => Number(each.slice(0, 4)) <= schemaSteps)) {
    cpSync(join(MIGRATIONS, name), join(steps, name));
  }
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
        target: `sku:${sku}@s1`,
        body: body(sku, qty),
        state,
        sku,
        sent: qty - 2,
        version: more.version ?? 1,
        guard: more.guard ?? null,
      });
  const kept = (sku: string, qty: number) =>
    db
      .prepare(
        `INSERT INTO held_back_counts (target, body, conflict_key, basis, sku, subsidiary_id, as_of_seq, sent_qty,
           held_back, sent_at, version, heard_seq)
         VALUES (@target, @body, @target, 'mirror', @sku, 's1', 5, @sent, 2, '2026-01-01T00:00:00.000Z', 1, 5)`,
      )
      .run({ target: `sku:${sku}@s1`, body: body(sku, qty), sku, sent: qty - 2 });
  // Sku 10 was counted as 10 and sent as 8, because an order of 2 is not booked yet.
  count('10', 'done', 10);
  kept('10', 10);
  // The order of sku 11 was acknowledged, and the correction is queued.
  count('11', 'done', 11);
  kept('11', 11);
  db.exec(
    "UPDATE unbooked_orders SET acknowledged = 1 WHERE order_id = 'o11'; INSERT INTO order_acks VALUES ('o11', 'now', 'http');",
  );
  count('11', 'pending', 11, { version: 2 });
  // Sku 12 was being sent when the old version stopped.
  count('12', 'sending', 12);
  // The count of sku 13 is held by a guard.
  count('13', 'pending', 0, { guard: 'zero-items' });
  // The order of sku 14 was acknowledged just before the old version stopped, so no correction is queued.
  count('14', 'done', 14);
  kept('14', 14);
  db.exec(
    "UPDATE unbooked_orders SET acknowledged = 1 WHERE order_id = 'o14'; INSERT INTO order_acks VALUES ('o14', 'now', 'http');",
  );
  db.exec("UPDATE marks SET value = 5 WHERE name IN ('orders.seen', 'orders.corrected', 'outbox.version')");
  db.close();
  rmSync(steps, { recursive: true });
}
