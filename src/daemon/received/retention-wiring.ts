import type Database from 'better-sqlite3';
import type { Mirror } from '../../store/mirror/mirror.ts';
import {
  DROP_ROWS,
  RETENTION_FAMILIES,
  type RetentionFamily,
  RetentionRows,
} from '../../store/mirror/retention-rows.ts';
import { WAL_BYTES_MAX } from '../../store/mirror/wal-care.ts';
import { type RetentionStore, retentionLoop } from '../../sync/retention-loop.ts';
import type { Parts, PartsOptions } from '../parts.ts';

/** The mirror as retention wants it. */
export function retentionStore(
  mirror: Pick<Mirror, 'read' | 'write' | 'walBytes'>,
): RetentionStore<RetentionFamily> {
  // A connection that is opened anew needs statements of its own.
  const known = new WeakMap<Database.Database, RetentionRows>();
  const rowsOf = (db: Database.Database): RetentionRows => {
    const rows = known.get(db) ?? new RetentionRows(db);
    known.set(db, rows);
    return rows;
  };
  return {
    families: RETENTION_FAMILIES,
    look: (family, cuts, from) => mirror.read(({ db }) => rowsOf(db).look(family, cuts, from)),
    dropsAtOnce: (family) => DROP_ROWS[family],
    drop: (family, cuts, keys) => mirror.write(({ db }) => rowsOf(db).drop(family, cuts, keys)),
    usedBytes: () => mirror.read(({ db }) => rowsOf(db).usedBytes()),
    isLogHeld: () => mirror.walBytes() > WAL_BYTES_MAX,
  };
}

/** The loop that lets what is past its time go. */
export function retention({ config, clock, log }: PartsOptions, { mirror, state }: Parts) {
  const { retention: settings } = config;
  const shared = { store: retentionStore(mirror), settings, leases: state.leases, alarms: mirror.alarms };
  return (signal: AbortSignal, beat: () => void): Promise<void> =>
    retentionLoop({ ...shared, clock, log, beat }, signal);
}
