import type Database from 'better-sqlite3';
import { sqlOf } from '../db/sqlite.ts';
import type { Mirror } from './mirror.ts';
import { continueFeedAfter, newestSeq } from './mirror-file.ts';
import { FEED_JUMP } from './order.ts';

export interface OwnOrders {
  /** `mirror.db` of all shops. */
  from: string;
  /** How orders name the shop. */
  stores: readonly string[];
  /** Hooks of the shop, which go on where they are. */
  hooks: readonly string[];
}

/** What a POS knows by their numbers, without what the hub alone works with. */
const TABLES = [
  ...['order_items', 'order_item_modifiers', 'order_events', 'order_payloads', 'held_notifications'],
  'order_acks',
];

/**
 * Begins the mirror of one shop with its orders out of that of all shops: the same events under the same numbers, so that
 * a POS that has read them there goes on where it was. The next event has a number far above all that it may read there
 * until its path is changed. A mirror that gave a number already stays as it is.
 */
export async function beginOwnOrders(mirror: Mirror, { from, stores, hooks }: OwnOrders): Promise<void> {
  if (mirror.newestSeq() > 0) return;
  mirror.read((db) => db.prepare('ATTACH ? AS hub').run(from));
  try {
    await mirror.write((db) => {
      if (newestSeq(db) > 0) return;
      const named = JSON.stringify(stores);
      copy(db, 'orders', 'store_external_id IN (SELECT value FROM json_each(?))', named);
      for (const table of TABLES) copy(db, table, 'order_id IN (SELECT order_id FROM main.orders)');
      copy(db, 'hooks', 'name IN (SELECT value FROM json_each(?))', JSON.stringify(hooks));
      const trimmed = `UPDATE main.marks SET value = (SELECT value FROM hub.marks WHERE name = 'events.trimmed')
        WHERE name = 'events.trimmed'`;
      db.exec(trimmed);
      const newest = db.prepare("SELECT seq FROM hub.sqlite_sequence WHERE name = 'order_events'").pluck();
      continueFeedAfter(db, Number(newest.get() ?? 0) + FEED_JUMP);
    });
  } finally {
    mirror.read((db) => db.exec('DETACH hub'));
  }
}

function copy(db: Database.Database, table: string, which: string, ...values: string[]): void {
  const columns = sqlOf(db).values<string>(`SELECT name FROM pragma_table_info('${table}')`).join(', ');
  const sql = `INSERT INTO main.${table} (${columns}) SELECT ${columns} FROM hub.${table} WHERE ${which}`;
  // None of these is kept: the hub's mirror is let go again.
  db.prepare(sql).run(...values);
}
