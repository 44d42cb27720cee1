import type Database from 'better-sqlite3';
import { sqlOf } from '../db/sqlite.ts';
import type { Mirror } from './mirror.ts';
import { continueFeedAfter, newestSeq } from './mirror-file.ts';
import { SEQ_JUMP } from './order.ts';

interface OwnOrders {
  /** Path of the `mirror.db` that has the orders of all shops. */
  from: string;
  /** Ids by which orders name the shop. */
  stores: readonly string[];
  /** Names of the shop's hooks, which continue at their present position. */
  hooks: readonly string[];
}

/** Tables that are copied with their row numbers, because a POS may have stored these numbers. */
const TABLES = [
  ...['order_items', 'order_item_modifiers', 'order_events', 'order_payloads', 'held_notifications'],
  'order_acks',
];

/**
 * Fills a shop's new mirror with its orders from the hub's mirror. Events keep their numbers, so that a POS continues
 * where it was; the next event gets a much higher number than any that the POS may still read at the old path. A
 * mirror that has used a number already is left unchanged.
 */
export async function beginOwnOrders(mirror: Mirror, { from, stores, hooks }: OwnOrders): Promise<void> {
  if (mirror.orders.newestSeq() > 0) return;
  mirror.read((db) => db.prepare('ATTACH ? AS hub').run(from));
  try {
    await mirror.write((db) => {
      if (newestSeq(db) > 0) return;
      const named = JSON.stringify(stores);
      copy(db, 'orders', 'store_external_id IN (SELECT value FROM json_each(?))', named);
      for (const table of TABLES) copy(db, table, 'order_id IN (SELECT order_id FROM main.orders)');
      // The shop's mirror numbers its settled changes from 1, so only the hooks' positions in the order feed are
      // copied.
      const which = "event = 'order' AND name IN (SELECT value FROM json_each(?))";
      copy(db, 'hooks', which, JSON.stringify(hooks));
      const trimmed = `UPDATE main.marks SET value = (SELECT value FROM hub.marks WHERE name = 'events.trimmed')
        WHERE name = 'events.trimmed'`;
      db.exec(trimmed);
      const newest = db.prepare("SELECT seq FROM hub.sqlite_sequence WHERE name = 'order_events'").pluck();
      continueFeedAfter(db, Number(newest.get() ?? 0) + SEQ_JUMP);
    });
  } finally {
    mirror.read((db) => db.exec('DETACH hub'));
  }
}

function copy(db: Database.Database, table: string, which: string, ...values: string[]): void {
  const columns = sqlOf(db).values<string>(`SELECT name FROM pragma_table_info('${table}')`).join(', ');
  const sql = `INSERT INTO main.${table} (${columns}) SELECT ${columns} FROM hub.${table} WHERE ${which}`;
  // The statements are not cached, because the hub's mirror is detached afterwards.
  db.prepare(sql).run(...values);
}
