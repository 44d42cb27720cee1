import type Database from 'better-sqlite3';
import { setMark } from '../db/marks.ts';
import { sqlOf } from '../db/sqlite.ts';
import { newestSeq } from './mirror-file.ts';

/** The company (`websiteId` in the document) of the oldest and of the newest order in the mirror. */
export interface OrderCompanies {
  oldest: string;
  newest: string;
}

/** Number of oldest and of newest orders that are searched for a company, because some orders name none. */
const LOOKED_AT = 20;

function companyAt(db: Database.Database, order: 'ASC' | 'DESC'): string | undefined {
  const sql = `SELECT website_id FROM (SELECT website_id FROM orders
      WHERE seq > coalesce((SELECT value FROM marks WHERE name = 'orders.company-from'), 0)
      ORDER BY seq ${order} LIMIT ${LOOKED_AT})
    WHERE website_id IS NOT NULL LIMIT 1`;
  return sqlOf(db).value<string>(sql);
}

/** Returns the companies of the orders, or undefined if no order names a company. */
export function orderCompanies(db: Database.Database): OrderCompanies | undefined {
  const [oldest, newest] = [companyAt(db, 'ASC'), companyAt(db, 'DESC')];
  return oldest === undefined || newest === undefined ? undefined : { oldest, newest };
}

/**
 * Records that this mirror's store belongs to another company from now on, so that earlier orders are ignored when the
 * store's company is determined.
 */
export function beginOtherCompany(db: Database.Database): void {
  setMark(db, 'orders.company-from', newestSeq(db));
}
