import type Database from 'better-sqlite3';
import { BoardRows } from './board-rows.ts';
import { OrderMerge } from './order-merge.ts';
import { OrderQueries } from './order-queries.ts';
import { QuarantineRows } from './quarantine-rows.ts';

/** The statements of every table family on one connection; a connection that is opened anew gets new ones. */
export interface MirrorTables {
  db: Database.Database;
  merge: OrderMerge;
  queries: OrderQueries;
  quarantine: QuarantineRows;
  board: BoardRows;
}

export function mirrorTables(db: Database.Database): MirrorTables {
  return {
    db,
    merge: new OrderMerge(db),
    queries: new OrderQueries(db),
    quarantine: new QuarantineRows(db),
    board: new BoardRows(db),
  };
}
