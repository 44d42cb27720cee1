import type Database from 'better-sqlite3';
import type { BootTime, Holders } from '../db/lease.ts';
import { storing } from '../db/sqlite.ts';
import {
  ENDPOINTS,
  type Endpoint,
  intervalMsOf,
  type PlatformLimits,
  type Wait,
  type WaitReason,
} from './platform.ts';
import type { BlockHistory, BlockRecord, LaneGrant, LaneTicket, RateLedger } from './rate-budget.ts';

/** Timers and two processes' readings of one clock may differ by a little; never be early. */
const MARGIN_MS = 1;
/** Places of the general cap that only order.all and token.refresh may use, and how much of a small cap. */
const RESERVED_PLACES = 20;
const RESERVED_SHARE = 0.2;
/** After a block, whoever brought it on lets others probe first: a 2xx of theirs tells a permission matter. */
const PROBE_GRACE_MS = 15_000;
/** How soon to look again while another call probes. */
const PROBE_RECHECK_MS = 500;

export interface LaneRow {
  endpoint: Endpoint;
  generation: number;
  taken_mono_ms: number | null;
  taken_until_mono_ms: number | null;
  settled_mono_ms: number | null;
  held_from_mono_ms: number | null;
  held_ms: number | null;
}

export interface BlockRow {
  scope: 'all' | Endpoint;
  endpoint: Endpoint;
  from_mono_ms: number;
  duration_ms: number;
  message: string;
  others_answered: number;
  endpoint_answered: number;
}

/** What the wait of one endpoint depends on, all read in one transaction. */
export interface LaneView {
  nowMs: number;
  endpoint: Endpoint;
  limits: PlatformLimits;
  lane: LaneRow | undefined;
  blocks: BlockRow[];
  /** Whether a call of another endpoint is under way. */
  othersInFlight: boolean;
  /** The moment from which the n-th youngest call of the window counts (n from 1), if there are so many. */
  nthYoungest(n: number, ordersOnly: boolean): number | undefined;
}

export interface LaneWait {
  reason: WaitReason;
  waitMs: number;
}

/** Why `endpoint` may not be called now, by the reason that lasts longest; undefined: it may. */
export function laneWait(view: LaneView): LaneWait | undefined {
  let longest: LaneWait | undefined;
  for (const wait of waitsOf(view)) {
    if (wait.waitMs > 0 && (!longest || wait.waitMs > longest.waitMs)) longest = wait;
  }
  return longest;
}

function* waitsOf(view: LaneView): Generator<LaneWait> {
  const { nowMs, endpoint, limits, lane } = view;
  const intervalMs = intervalMsOf(endpoint, limits) + MARGIN_MS;
  if (lane?.taken_until_mono_ms != null) {
    // The earliest case: it is answered right now, or its holder died and the hold has run out.
    const freeFromMs = Math.min(nowMs, lane.taken_until_mono_ms) + intervalMs;
    yield { reason: 'in-flight', waitMs: freeFromMs - nowMs };
  } else if (lane?.settled_mono_ms != null) {
    yield { reason: 'interval', waitMs: lane.settled_mono_ms + intervalMs - nowMs };
  }
  if (lane?.held_from_mono_ms != null) {
    yield { reason: 'retry-after', waitMs: lane.held_from_mono_ms + (lane.held_ms ?? 0) - nowMs };
  }
  yield* blockWaits(view);
  yield { reason: 'window', waitMs: windowWait(view, generalPlaces(endpoint, limits), false) };
  if (endpoint === 'order.all') {
    yield { reason: 'window', waitMs: windowWait(view, limits.ordersPerWindow, true) };
  }
}

function* blockWaits({ nowMs, endpoint, blocks, othersInFlight }: LaneView): Generator<LaneWait> {
  for (const block of blocks) {
    if (block.scope !== 'all' && block.scope !== endpoint) continue;
    const restMs = block.from_mono_ms + block.duration_ms - nowMs;
    const probing = block.scope === 'all' && !block.others_answered && !block.endpoint_answered;
    const graceMs =
      probing && block.endpoint === endpoint ? Math.min(PROBE_GRACE_MS, block.duration_ms / 4) : 0;
    yield { reason: 'blocked', waitMs: restMs + graceMs };
    if (probing && othersInFlight) yield { reason: 'blocked', waitMs: PROBE_RECHECK_MS };
  }
}

/** A place is free once the oldest of as many calls as there are places has left the window. */
function windowWait(view: LaneView, places: number, ordersOnly: boolean): number {
  const countsFromMs = view.nthYoungest(Math.max(1, places), ordersOnly);
  return countsFromMs === undefined ? 0 : countsFromMs + view.limits.windowMs + MARGIN_MS - view.nowMs;
}

function generalPlaces(endpoint: Endpoint, limits: PlatformLimits): number {
  const all = limits.requestsPerWindow;
  if (endpoint === 'order.all' || endpoint === 'token.refresh') return all;
  return all - Math.min(RESERVED_PLACES, Math.floor(all * RESERVED_SHARE));
}

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

/**
 * The rate budget's memory as rows. A refused call writes nothing, a granted one commits durably before it is
 * sent, so that no crash can make it uncounted.
 */
export class RateRows implements RateLedger {
  readonly #transaction: Database.Transaction<(action: (nowMs: number) => unknown) => unknown>;
  readonly #time: BootTime;
  readonly #sql: RateStatements;
  readonly #holders: Holders;

  constructor(options: { db: Database.Database; time: BootTime; holders: Holders }) {
    this.#transaction = options.db.transaction((action) => {
      const nowMs = this.#time.now();
      if ((this.#sql.newestTime.get() ?? 0) > nowMs) this.#time.clamp(nowMs);
      return action(nowMs);
    });
    this.#time = options.time;
    this.#sql = new RateStatements(options.db);
    this.#holders = options.holders;
  }

  acquire(endpoint: Endpoint, limits: PlatformLimits, holdMs: number): LaneGrant {
    return this.#immediately((nowMs) => {
      this.#leaveForTheDead(nowMs);
      const wait = this.#wait(endpoint, limits, nowMs);
      if (wait) return { granted: false, wait };
      this.#sql.pruneCalls.run(nowMs - limits.windowMs - 1000);
      // Unsettled, it counts as if answered at the end of its hold.
      const call = this.#sql.addCall.run(endpoint, nowMs + holdMs);
      const lane = { endpoint, nowMs, untilMs: nowMs + holdMs, holder: this.#holders.self };
      const generation = this.#sql.takeLane.get(lane) as number;
      return { granted: true, ticket: { endpoint, generation, callId: Number(call.lastInsertRowid) } };
    });
  }

  extend(ticket: LaneTicket, holdMs: number): void {
    this.#immediately((nowMs) => {
      const untilMs = nowMs + holdMs;
      const kept = this.#sql.extendLane.run(untilMs, ticket.endpoint, ticket.generation);
      if (kept.changes === 1) this.#sql.dateCall.run(untilMs, ticket.callId);
    });
  }

  settle(ticket: LaneTicket, _limits: PlatformLimits, outcome: 'answered' | 'failed' = 'failed'): void {
    this.#immediately((nowMs) => {
      this.#sql.dateCall.run(nowMs, ticket.callId);
      const lane = this.#sql.lane.get(ticket.endpoint);
      if (lane?.generation !== ticket.generation) return;
      this.#sql.leaveLane.run(nowMs, ticket.endpoint);
      if (outcome === 'answered' && lane.taken_mono_ms !== null) {
        this.#noteAnswer(ticket.endpoint, lane.taken_mono_ms);
      }
    });
  }

  cancel(ticket: LaneTicket): void {
    this.#immediately(() => {
      this.#sql.dropCall.run(ticket.callId);
      this.#sql.giveLaneBack.run(ticket.endpoint, ticket.generation);
    });
  }

  holdBack(endpoint: Endpoint, waitMs: number): void {
    this.#immediately((nowMs) => {
      const lane = this.#sql.lane.get(endpoint);
      const heldUntilMs = (lane?.held_from_mono_ms ?? 0) + (lane?.held_ms ?? 0);
      if (heldUntilMs < nowMs + waitMs) this.#sql.holdLane.run({ endpoint, nowMs, waitMs });
    });
  }

  block(scope: 'all' | Endpoint, waitMs: number, message: string, endpoint?: Endpoint): void {
    const trigger = endpoint ?? (scope === 'all' ? 'order.all' : scope);
    this.#immediately((nowMs) => {
      this.#sql.block.run({ scope, endpoint: trigger, nowMs, waitMs, message });
    });
  }

  unblock(scope: 'all' | Endpoint): void {
    storing(() => this.#sql.unblock.run(scope));
  }

  blockHistory(endpoint: Endpoint, limits: PlatformLimits): BlockHistory {
    return this.#immediately((nowMs) => {
      const blocks = this.#sql.blocks.all();
      const record = (scope: string): BlockRecord | null => {
        const row = blocks.find((block) => block.scope === scope);
        return row ? recordOf(row, nowMs) : null;
      };
      const sinceMs = nowMs - limits.windowMs;
      return {
        requests: this.#sql.countCalls.get(sinceMs) ?? 0,
        orders: this.#sql.countOrders.get(sinceMs) ?? 0,
        all: record('all'),
        own: record(endpoint),
      };
    });
  }

  waitOf(endpoint: Endpoint, limits: PlatformLimits): Wait | undefined {
    return this.#immediately((nowMs) => {
      this.#leaveForTheDead(nowMs);
      return this.#wait(endpoint, limits, nowMs);
    });
  }

  waits(limits: PlatformLimits): Wait[] {
    return this.#immediately((nowMs) => {
      this.#leaveForTheDead(nowMs);
      return ENDPOINTS.flatMap((endpoint) => this.#wait(endpoint, limits, nowMs) ?? []);
    });
  }

  /**
   * A process that died during a call sends nothing any more, and what it sent has left before now: the interval
   * counts from here, not from the end of its hold. Its call keeps its place in the window for longer.
   */
  #leaveForTheDead(nowMs: number): void {
    for (const { endpoint, holder } of this.#sql.takenLanes.all()) {
      if (this.#holders.isAlive(holder) === false) this.#sql.leaveLane.run(nowMs, endpoint);
    }
  }

  #wait(endpoint: Endpoint, limits: PlatformLimits, nowMs: number): Wait | undefined {
    const sql = this.#sql;
    const wait = laneWait({
      nowMs,
      endpoint,
      limits,
      lane: sql.lane.get(endpoint),
      blocks: sql.blocks.all(),
      othersInFlight: sql.othersInFlight.get(nowMs, endpoint) !== undefined,
      nthYoungest: (n, ordersOnly) => (ordersOnly ? sql.nthOrder : sql.nthCall).get(n - 1),
    });
    return wait && { endpoint, ...wait };
  }

  /** A 2xx answer to a call that was sent after a block's end tells something of that block. */
  #noteAnswer(endpoint: Endpoint, takenMs: number): void {
    for (const block of this.#sql.blocks.all()) {
      if (takenMs < block.from_mono_ms + block.duration_ms) continue;
      if (block.endpoint === endpoint && !block.endpoint_answered)
        this.#sql.endpointAnswered.run(block.scope);
      if (block.endpoint !== endpoint && block.scope === 'all' && !block.others_answered) {
        this.#sql.othersAnswered.run(block.scope);
      }
    }
  }

  #immediately<T>(action: (nowMs: number) => T): T {
    return storing(() => this.#transaction.immediate(action) as T);
  }
}

function recordOf(row: BlockRow, nowMs: number): BlockRecord {
  return {
    endpoint: row.endpoint,
    durationMs: row.duration_ms,
    endedMsAgo: nowMs - row.from_mono_ms - row.duration_ms,
    message: row.message,
    othersAnswered: row.others_answered === 1,
    endpointAnswered: row.endpoint_answered === 1,
  };
}
