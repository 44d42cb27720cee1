import { chmodSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { migrate } from '../../../src/db/migrate.ts';
import { openDatabase } from '../../../src/db/sqlite.ts';
import { ORDER_FIELDS } from '../../../src/orders/merging/field-aliases.ts';
import { weightsText } from '../../../src/orders/merging/merge.ts';
import { NAMED, NOT_SAID } from '../../../src/orders/merging/order.ts';

const ORDERS = 400;

/**
 * Writes files of this version, which is the earlier one for the daemon that is crashed: a mirror with orders, and a
 * `state.db`. Returns the order ids.
 */
export function writeOldFiles(storage: string): string[] {
  mkdirSync(storage, { recursive: true });
  chmodSync(storage, 0o2750);
  const mirror = openOld(storage, 'mirror', 0o640);
  const order = mirror.prepare(
    `INSERT INTO _orders (order_id, status, seq, updated_at, event_source, payload_source, payload, evidence)
     VALUES (?, 'dispatched', ?, '2020-01-01T00:00:00.000Z', 'poll', 'poll', ?, ?)`,
  );
  const event = mirror.prepare(
    `INSERT INTO order_events (seq, order_id, status, source, observed_at)
     VALUES (?, ?, 'dispatched', 'poll', '2020-01-01T00:00:00.000Z')`,
  );
  const evidence = weightsText({
    fields: ORDER_FIELDS.map((name) => (name === 'status' ? NAMED : NOT_SAID)).join(''),
    list: NOT_SAID,
    lines: [],
  });
  const ids = Array.from({ length: ORDERS }, (_, i) => `old-${i + 1}`);
  mirror.transaction(() => {
    ids.forEach((id, i) => {
      order.run(
        id,
        i + 1,
        JSON.stringify({ internalOrderId: id, status: 'dispatched', filling: 'x'.repeat(800) }),
        evidence,
      );
      event.run(i + 1, id);
    });
    mirror.exec("INSERT INTO marks (name, value) VALUES ('feed.begun', 1)");
  })();
  mirror.close();
  openOld(storage, 'state', 0o600).close();
  return ids;
}

function openOld(storage: string, name: 'mirror' | 'state', mode: number) {
  const db = openDatabase({
    path: path.join(storage, `${name}.db`),
    mode,
    busyTimeoutMs: 0,
    pragmas: { journal_mode: 'wal' },
  });
  migrate(db, {
    directory: new URL(`../../../src/db/${name}/migrations/`, import.meta.url),
    name: `${name}.db`,
  });
  return db;
}
