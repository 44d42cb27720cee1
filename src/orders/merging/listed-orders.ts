import type Database from 'better-sqlite3';
import { counted } from '../../core/errors.ts';
import { isoUtc } from '../../core/time.ts';
import { noteSeen, seen } from '../../db/seen.ts';
import { sqlOf } from '../../db/sqlite.ts';
import type { MirrorFile } from '../reading/mirror-file.ts';
import { addDays, liesWithin, type PollWindow } from '../receiving/poll-window.ts';
import { type ImportReport, IS_OPEN } from './order.ts';

/**
 * Notes which orders were in an answer of GET /order/all, to notice open orders that are in it no longer. Nothing is
 * concluded for the order itself: it stays as it is until the platform says otherwise.
 */

/** An open order that the list of its day lacks now. */
export interface UnlistedOrder {
  orderId: string;
  code: number | null;
  /** Time of the last answer that had it, ISO 8601 UTC. */
  listedAt: string;
  /** Time of the first answer that lacked it. */
  since: string;
}

/** Records that an answer has an order that is in the mirror, in the caller's transaction. */
export function noteListed(db: Database.Database, orderId: string, at: string): void {
  sqlOf(db).run('UPDATE _orders SET listed_at = ? WHERE order_id = ?', at, orderId);
}

/** Returns the open orders that their list lacks, oldest first. */
function unlistedOrders(db: Database.Database): UnlistedOrder[] {
  const sql = `SELECT order_id AS orderId, code, listed_at AS listedAt, missing_since AS since
    FROM _orders WHERE missing_since IS NOT NULL AND missing_told = 1 AND ${IS_OPEN} ORDER BY missing_since, order_id`;
  return sqlOf(db).rows<UnlistedOrder>(sql);
}

/** Returns since when the list of the order's day lacks it; undefined if it does not. */
export function unlistedOrder(db: Database.Database, orderId: string): UnlistedOrder | undefined {
  return unlistedOrders(db).find((order) => order.orderId === orderId);
}

const NAMED_MAX = 10;

/** Returns the text of the alarm; null if no list lacks an order. */
export function unlistedText(orders: readonly UnlistedOrder[]): string | null {
  if (orders.length === 0) return null;
  const named = orders
    .slice(0, NAMED_MAX)
    .map(({ orderId, code, listedAt }) => `${code ?? orderId} (last listed ${listedAt.slice(0, 16)}Z)`);
  const rest = orders.length > NAMED_MAX ? ', …' : '';
  return `The platform's list lacks ${counted(orders.length, 'open order')} that it had: ${named.join(', ')}${rest}.`;
}

export class ListedOrders {
  readonly #file: Pick<MirrorFile, 'read' | 'write'>;

  constructor(file: Pick<MirrorFile, 'read' | 'write'>) {
    this.#file = file;
  }

  /**
   * Returns the ids of the open orders that an answer for this window must have, in whatever time zone the platform
   * reads dates, because an earlier answer had them; and of all orders that were missing before.
   */
  watched(window: PollWindow): string[] {
    return this.#file.read((db) => expected(db, window).map(({ orderId }) => orderId));
  }

  unlisted(orderId: string): UnlistedOrder | undefined {
    return this.#file.read((db) => unlistedOrder(db, orderId));
  }

  /**
   * Records the outcome of a poll. `report.unlisted` are the watched orders that its answer lacks. Returns all open
   * orders that their list lacks.
   */
  settle(
    window: PollWindow,
    watched: readonly string[],
    report: Pick<ImportReport, 'unlisted' | 'mayBeCut' | 'codes'>,
    { asOfSeq, at, isWhole }: { asOfSeq: number; at: string; isWhole: boolean },
  ): Promise<UnlistedOrder[]> {
    return this.#file.write((db) => {
      const sql = sqlOf(db);
      const missing = new Set(report.unlisted);
      for (const orderId of watched) {
        if (!missing.has(orderId)) sql.run(`${LISTED_AGAIN} AND order_id = ?`, at, orderId);
      }
      if (isWhole) {
        // Not read if nothing is missing, because it takes as long as ten orders for each thousand that are open.
        const inWindow =
          missing.size === 0 ? [] : expected(db, window).filter(({ isInWindow }) => isInWindow);
        const lost = inWindow.filter(
          ({ orderId, seq, code }) => missing.has(orderId) && seq <= asOfSeq && isBesideOthers(code, report),
        );
        // Where most are missing, the answer may be a part; the next one decides.
        const areFew = lost.length * 2 <= inWindow.length;
        for (const { orderId, createdAt, missingSince } of lost) {
          if (missingSince === null)
            sql.run(MISSING, lastListedAt(db, createdAt), at, Number(areFew), orderId);
          else
            sql.run('UPDATE _orders SET missing_told = 1 WHERE order_id = ? AND missing_told = 0', orderId);
        }
        if (!report.mayBeCut) noteDays(db, window, at);
      }
      return unlistedOrders(db);
    });
  }
}

const LISTED_AGAIN = 'UPDATE _orders SET listed_at = ?, missing_since = NULL WHERE missing_since IS NOT NULL';
const MISSING = `UPDATE _orders SET listed_at = max(listed_at, ?), missing_since = ?, missing_told = ?
  WHERE order_id = ?`;

interface Expected {
  orderId: string;
  code: number | null;
  createdAt: string;
  seq: number;
  missingSince: string | null;
  isInWindow: boolean;
}

function expected(db: Database.Database, window: PollWindow): Expected[] {
  const sql = `SELECT order_id AS orderId, code, created_at AS createdAt, seq, missing_since AS missingSince
    FROM _orders WHERE ${IS_OPEN} AND listed_at IS NOT NULL AND ((created_at >= ? AND created_at < ?) OR missing_since IS NOT NULL)`;
  return sqlOf(db)
    .rows<Omit<Expected, 'isInWindow'>>(sql, window.startDate, addDays(window.endDate, 1))
    .map((row) => ({ ...row, isInWindow: liesWithin(window, Date.parse(row.createdAt)) }))
    .filter(({ isInWindow, missingSince }) => isInWindow || missingSince !== null);
}

/** Returns whether the answer has older and newer orders, by their numbers. It must, if it may lack some at an end. */
function isBesideOthers(
  code: number | null,
  { mayBeCut, codes }: Pick<ImportReport, 'mayBeCut' | 'codes'>,
): boolean {
  if (!mayBeCut) return true;
  return code !== null && codes !== null && codes.min < code && code < codes.max;
}

const ROUND_MIN = 10;

/** Returns whether a list of so many records may be limited to so many, such as 25, 64 or 100. */
export function isRound(records: number): boolean {
  return records >= ROUND_MIN && (records % 5 === 0 || Number.isInteger(Math.log2(records)));
}

/** Returns the time of the last whole answer that had each date on which the order may be; '' if there was none. */
function lastListedAt(db: Database.Database, createdAt: string): string {
  const day = createdAt.slice(0, 10);
  const sql = `SELECT count(*) AS days, min(last_at) AS at FROM ${seen('polled-day')} AND name IN (?, ?, ?)`;
  const found = sqlOf(db).row<{ days: number; at: string | null }>(
    sql,
    addDays(day, -1),
    day,
    addDays(day, 1),
  );
  return found?.days === 3 ? (found.at ?? '') : '';
}

const DAYS_KEPT = 400;

function noteDays(db: Database.Database, { startDate, endDate }: PollWindow, at: string): void {
  const sql = sqlOf(db);
  const note = noteSeen('polled-day');
  for (let day = startDate; day <= endDate; day = addDays(day, 1)) sql.run(note, { name: day, at });
  const keptFrom = addDays(isoUtc(Date.parse(at)).slice(0, 10), -DAYS_KEPT);
  sql.run(`DELETE FROM ${seen('polled-day')} AND name < ?`, keptFrom);
}
