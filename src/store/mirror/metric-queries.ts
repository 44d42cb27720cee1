import type Database from 'better-sqlite3';

/** Word for word the condition of the index `orders_open`. */
const OPEN = "(status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))";
/** Bounds the time this takes where orders are never closed. */
const OPEN_MAX = 500;

/** Of the newest open orders, how many have each status; one indexed read. */
export function openOrdersByStatus(db: Database.Database): { status: string | null; orders: number }[] {
  return db
    .prepare<[number], { status: string | null; orders: number }>(
      `SELECT status, count(*) AS orders FROM
         (SELECT status FROM orders INDEXED BY orders_open WHERE ${OPEN} ORDER BY created_at DESC LIMIT ?)
       GROUP BY status`,
    )
    .all(OPEN_MAX);
}

/**
 * Entries in quarantine by where they came from. Reads all of them, so ask again only once `quarantineMark` has changed: every
 * entry that comes or goes changes it.
 */
export function quarantineBySource(db: Database.Database): { source: string; entries: number }[] {
  return db
    .prepare<[], { source: string; entries: number }>(
      'SELECT source, count(*) AS entries FROM quarantine GROUP BY source',
    )
    .all();
}

export function quarantineMark(db: Database.Database): string {
  return (
    db
      .prepare<[], string>(
        `SELECT (SELECT count(*) FROM quarantine) || '/' ||
           coalesce((SELECT max(quarantine_id) FROM quarantine), 0)`,
      )
      .pluck()
      .get() ?? ''
  );
}
