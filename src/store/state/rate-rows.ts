import type Database from 'better-sqlite3';
import type { Wait } from '../../domain/platform/call.ts';
import { ENDPOINTS, type Endpoint, type PlatformLimits } from '../../domain/platform/limits.ts';
import type {
  BlockHistory,
  BlockRecord,
  LaneGrant,
  LaneTicket,
  RateLedger,
} from '../../domain/platform/rate-ledger.ts';
import { storing } from '../sqlite.ts';
import type { BootTime } from './boot-time.ts';
import type { Holders } from './holder.ts';
import { RateStatements } from './rate-statements.ts';
import { type BlockRow, laneWait } from './rate-wait.ts';

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
