import type Database from 'better-sqlite3';
import type { BlockRow, LaneRow } from './rate-wait.ts';

type Named = [Record<string, unknown>];

/** The prepared statements of the rate rows. */
export class RateStatements {
  readonly lane: Database.Statement<[string], LaneRow>;
  readonly newestTime: Database.Statement<[], number>;
  readonly othersInFlight: Database.Statement<[number, string], number>;
  /** Lanes that were taken and not left. */
  readonly takenLanes: Database.Statement<[], { endpoint: string; holder: string }>;
  readonly takeLane: Database.Statement<Named, number>;
  readonly extendLane: Database.Statement<[number, string, number]>;
  readonly leaveLane: Database.Statement<[number, string]>;
  readonly giveLaneBack: Database.Statement<[string, number]>;
  readonly holdLane: Database.Statement<Named>;
  readonly addCall: Database.Statement<[string, number]>;
  readonly dateCall: Database.Statement<[number, number]>;
  readonly dropCall: Database.Statement<[number]>;
  readonly pruneCalls: Database.Statement<[number]>;
  readonly countCalls: Database.Statement<[number], number>;
  readonly countOrders: Database.Statement<[number], number>;
  readonly nthCall: Database.Statement<[number], number>;
  readonly nthOrder: Database.Statement<[number], number>;
  readonly blocks: Database.Statement<[], BlockRow>;
  readonly block: Database.Statement<Named>;
  readonly unblock: Database.Statement<[string]>;
  readonly othersAnswered: Database.Statement<[string]>;
  readonly endpointAnswered: Database.Statement<[string]>;

  constructor(db: Database.Database) {
    this.lane = db.prepare('SELECT * FROM lanes WHERE endpoint = ?');
    this.newestTime = db
      .prepare<[], number>(
        `SELECT max(t) FROM (
           SELECT max(max(coalesce(taken_mono_ms, 0), coalesce(settled_mono_ms, 0), coalesce(held_from_mono_ms, 0)))
             AS t FROM lanes
           UNION ALL SELECT max(from_mono_ms) FROM blocks)`,
      )
      .pluck();
    this.othersInFlight = db
      .prepare<[number, string], number>(
        'SELECT 1 FROM lanes WHERE taken_until_mono_ms > ? AND endpoint <> ?',
      )
      .pluck();
    this.takenLanes = db.prepare(
      'SELECT endpoint, holder FROM lanes WHERE taken_until_mono_ms IS NOT NULL AND holder IS NOT NULL',
    );
    this.takeLane = db
      .prepare<Named, number>(
        `INSERT INTO lanes (endpoint, generation, taken_mono_ms, taken_until_mono_ms, holder)
           VALUES (:endpoint, 1, :nowMs, :untilMs, :holder)
         ON CONFLICT DO UPDATE SET generation = generation + 1, taken_mono_ms = :nowMs, taken_until_mono_ms = :untilMs,
           holder = :holder
         RETURNING generation`,
      )
      .pluck();
    this.extendLane = db.prepare(
      `UPDATE lanes SET taken_until_mono_ms = ?
         WHERE endpoint = ? AND generation = ? AND taken_until_mono_ms IS NOT NULL`,
    );
    this.leaveLane = db.prepare(
      'UPDATE lanes SET taken_mono_ms = NULL, taken_until_mono_ms = NULL, settled_mono_ms = ? WHERE endpoint = ?',
    );
    this.giveLaneBack = db.prepare(
      'UPDATE lanes SET taken_mono_ms = NULL, taken_until_mono_ms = NULL WHERE endpoint = ? AND generation = ?',
    );
    this.holdLane = db.prepare(
      `INSERT INTO lanes (endpoint, generation, held_from_mono_ms, held_ms) VALUES (:endpoint, 0, :nowMs, :waitMs)
         ON CONFLICT DO UPDATE SET held_from_mono_ms = :nowMs, held_ms = :waitMs`,
    );
    this.addCall = db.prepare('INSERT INTO calls (endpoint, counts_from_mono_ms) VALUES (?, ?)');
    this.dateCall = db.prepare('UPDATE calls SET counts_from_mono_ms = ? WHERE call_id = ?');
    this.dropCall = db.prepare('DELETE FROM calls WHERE call_id = ?');
    this.pruneCalls = db.prepare('DELETE FROM calls WHERE counts_from_mono_ms < ?');
    const count = 'SELECT count(*) FROM calls WHERE counts_from_mono_ms > ?';
    this.countCalls = db.prepare<[number], number>(count).pluck();
    this.countOrders = db.prepare<[number], number>(`${count} AND endpoint = 'order.all'`).pluck();
    const nth = (where: string) =>
      `SELECT counts_from_mono_ms FROM calls ${where} ORDER BY counts_from_mono_ms DESC LIMIT 1 OFFSET ?`;
    this.nthCall = db.prepare<[number], number>(nth('')).pluck();
    this.nthOrder = db.prepare<[number], number>(nth("WHERE endpoint = 'order.all'")).pluck();
    this.blocks = db.prepare('SELECT * FROM blocks');
    this.block = db.prepare(
      `INSERT OR REPLACE INTO blocks (scope, endpoint, from_mono_ms, duration_ms, message)
         VALUES (:scope, :endpoint, :nowMs, :waitMs, :message)`,
    );
    this.unblock = db.prepare('DELETE FROM blocks WHERE scope = ?');
    this.othersAnswered = db.prepare('UPDATE blocks SET others_answered = 1 WHERE scope = ?');
    this.endpointAnswered = db.prepare('UPDATE blocks SET endpoint_answered = 1 WHERE scope = ?');
  }
}
