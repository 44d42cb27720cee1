import type Database from 'better-sqlite3';

/** Of which companies the orders are (document, `websiteId` of the notification): the oldest one here, and the newest. */
export interface OrderCompanies {
  oldest: string;
  newest: string;
}

/** Orders of these many looked at from either end: one that names no company says nothing. */
const LOOKED_AT = 20;

/** Undefined while no order says of which company it is. */
export function orderCompanies(db: Database.Database): OrderCompanies | undefined {
  const end = (order: 'ASC' | 'DESC') =>
    db
      .prepare<[], string>(
        `SELECT website_id FROM (SELECT website_id FROM orders
           WHERE seq > coalesce((SELECT value FROM marks WHERE name = 'orders.company-from'), 0)
           ORDER BY seq ${order} LIMIT ${LOOKED_AT})
         WHERE website_id IS NOT NULL LIMIT 1`,
      )
      .pluck()
      .get();
  const [oldest, newest] = [end('ASC'), end('DESC')];
  return oldest === undefined || newest === undefined ? undefined : { oldest, newest };
}

/** This store belongs to another company from now on: what came before says nothing of it. To be used in a transaction. */
export function beginOtherCompany(db: Database.Database): void {
  db.prepare(
    `INSERT INTO marks (name, value)
     SELECT 'orders.company-from', coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0) WHERE true
     ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
  ).run();
}
