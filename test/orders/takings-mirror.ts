import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { migrate } from '../../src/db/migrate.ts';
import { openDatabase } from '../../src/db/sqlite.ts';

const MIGRATIONS = fileURLToPath(new URL('../../src/db/mirror/migrations/', import.meta.url));
/** Number of the last schema in which an order had one quantity per stock (`order_takings`) and one flag `booked`. */
export const TAKINGS_SCHEMA = 28;
const NOON = '2026-01-15T12:00:00.000Z';
const NOON_MS = Date.parse(NOON);

interface Count {
  qty: number;
  version: number;
  state: 'pending' | 'sending' | 'done' | 'rejected';
  guard?: string;
}

/**
 * Makes a mirror as the last version with `order_takings` left it when it was killed. Each stock, 10 to 15 at s1, has
 * one open order that takes 2; the orders of stocks 11 and 14 were acknowledged.
 */
export function takingsMirror(path: string): void {
  const steps = mkdtempSync(join(tmpdir(), 'tillsync-steps-'));
  for (const name of readdirSync(MIGRATIONS).filter((each) => Number(each.slice(0, 4)) <= TAKINGS_SCHEMA)) {
    cpSync(join(MIGRATIONS, name), join(steps, name));
  }
  const db = openDatabase({ path, mode: 0o640, busyTimeoutMs: 50, pragmas: { journal_mode: 'wal' } });
  db.exec('CREATE TABLE schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)');
  migrate(db, { directory: pathToFileURL(`${steps}/`), name: 'mirror.db' });
  rmSync(steps, { recursive: true });

  const shelf = (sku: string, seq: number, platformQty: number, isBooked = false) =>
    db.exec(`
      INSERT INTO products (product_id, name, updated_at, payload) VALUES ('p${sku}', 'Name ${sku}', '${NOON}', '{}');
      INSERT INTO skus (sku, product_id) VALUES ('${sku}', 'p${sku}');
      INSERT INTO stocks (sku, subsidiary_id, qty, confirmed_seq, confirmed_ms)
        VALUES ('${sku}', 's1', ${platformQty}, 6, ${NOON_MS});
      INSERT INTO integrations (sku, subsidiary_id, ext_id, product_id) VALUES ('${sku}', 's1', 'E${sku}', 'p${sku}');
      INSERT INTO orders (order_id, status, seq, updated_at, event_source, store_external_id, payload_source, payload)
        VALUES ('o${sku}', 'pending', ${seq}, '${NOON}', 'poll', 'B1', 'poll', '{}');
      INSERT INTO order_items (order_id, line, product_external_id, quantity) VALUES ('o${sku}', 1, 'E${sku}', 2);
      INSERT INTO order_events (order_id, status, source, observed_at) VALUES ('o${sku}', 'pending', 'poll', '${NOON}');
      INSERT INTO ledger_orders (order_id, takes, booked, placed_ms, live_since_seq, changed_seq)
        VALUES ('o${sku}', 1, ${Number(isBooked)}, ${NOON_MS - 60_000}, ${seq}, 0);
      INSERT INTO order_takings (sku, subsidiary_id, order_id, qty) VALUES ('${sku}', 's1', 'o${sku}', 2);
      ${isBooked ? `INSERT INTO order_acks (order_id, acked_at, source) VALUES ('o${sku}', '${NOON}', 'http');` : ''}`);
  const change = (sku: string, { qty, version, state, guard }: Count) =>
    Number(
      db
        .prepare(
          `INSERT INTO outbox (kind, target, conflict_key, body, fields, state, created_at, settled_at, priority, queue_seq,
             basis, sku, subsidiary_id, source, version, as_of_seq, held_guard, call_id, sent_qty, sent_as_of_seq, message)
           VALUES ('stock', @target, @target, @body, 'qty', @state, @at, iif(@state IN ('done', 'rejected'), @at, NULL), 1,
             @version, 'mirror', @sku, 's1', 'http', @version, 6, @guard, iif(@state = 'sending', 1, NULL),
             iif(@state = 'pending', NULL, @qty - 2), 6, iif(@state = 'rejected', 'No such product.', NULL))`,
        )
        .run({
          target: `sku:${sku}@s1`,
          sku,
          qty,
          version,
          state,
          guard: guard ?? null,
          at: NOON,
          body: JSON.stringify({ externalId: `E${sku}`, subsidiaryId: 's1', qty }),
        }).lastInsertRowid,
    );
  const counted = (sku: string, count: Count, more: { callQty?: number; isDirty?: boolean } = {}) =>
    db
      .prepare(
        `INSERT INTO stock_counts (sku, subsidiary_id, counted_qty, counted_seq, counted_version, change_id, address,
           refused_version, call_id, call_qty, call_seq, dirty)
         VALUES (@sku, 's1', @qty, 6, @version, @changeId, @address, @refused, iif(@callQty IS NULL, NULL, 1), @callQty,
           iif(@callQty IS NULL, NULL, 6), @dirty)`,
      )
      .run({
        sku,
        qty: count.qty,
        version: count.version,
        changeId: change(sku, count),
        address: JSON.stringify({ externalId: `E${sku}`, subsidiaryId: 's1' }),
        refused: count.state === 'rejected' ? count.version : 0,
        callQty: more.callQty ?? null,
        dirty: Number(more.isDirty ?? false),
      });

  db.transaction(() => {
    shelf('10', 1, 8);
    counted('10', { qty: 10, version: 1, state: 'done' });
    shelf('11', 2, 11, true);
    counted('11', { qty: 11, version: 2, state: 'done' });
    // The count of stock 12 was in a call to the platform when the old version was killed.
    shelf('12', 3, 7);
    counted('12', { qty: 12, version: 3, state: 'sending' }, { callQty: 10 });
    // Stock 13 was sent as 11; then a guard held a count of zero.
    shelf('13', 4, 11);
    counted('13', { qty: 13, version: 4, state: 'done' });
    change('13', { qty: 0, version: 8, state: 'pending', guard: 'zero-items' });
    // The platform refused the count of stock 14. The acknowledgement then marked the stock dirty, as that version did.
    shelf('14', 5, 3, true);
    counted('14', { qty: 14, version: 5, state: 'rejected' }, { isDirty: true });
    // The count of stock 15 waits to be sent.
    shelf('15', 6, 5);
    change('15', { qty: 15, version: 9, state: 'pending' });
    db.exec(`
      INSERT INTO stock_safety (sku, subsidiary_id, qty) VALUES ('15', 's1', 1);
      INSERT INTO order_acks (order_id, acked_at, source) VALUES ('o99', '${NOON}', 'inbox');
      UPDATE marks SET value = 6 WHERE name = 'ledger.seen';
      UPDATE marks SET value = 1 WHERE name IN ('ledger.holds', 'outbox.call', 'acks.used', 'push');
      UPDATE marks SET value = 9 WHERE name = 'outbox.version';`);
  })();
  db.close();
}
