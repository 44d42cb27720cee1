import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { whenFree } from '../core/loop.ts';
import type { Clock, Random } from '../core/time.ts';
import type { BootTime, Holders } from '../db/lease.ts';
import { preparedOnUse, storing } from '../db/sqlite.ts';
import { sentMessage, serverDateMs } from './answers.ts';
import {
  type CallOptions,
  ENDPOINTS,
  type Endpoint,
  type PlatformLimits,
  type Wait,
  type WaitReason,
} from './platform.ts';
import {
  type BlockHistory,
  type BlockRecord,
  blockedError,
  forbiddenError,
  judgeForbidden,
  retryAfterMs,
} from './refusals.ts';
import type { CallAnswer } from './transport.ts';

/**
 * Milliseconds by which each call is delayed beyond its limit. Timers and clocks of two processes differ by about a
 * millisecond, and a call must never be early.
 */
const MARGIN_MS = 1;
/** Number of calls per window, at most this share of the limit, reserved for `order.all` and `token.refresh`. */
const RESERVED_PLACES = 20;
const RESERVED_SHARE = 0.2;
/**
 * Time after a block in which the endpoint whose 403 started the block lets other endpoints probe first. If these get a
 * 2xx, that 403 may have meant only a missing permission for the one endpoint.
 */
const PROBE_GRACE_MS = 15_000;
/** Interval at which a waiting call checks whether the probe of another call has ended the block. */
const PROBE_RECHECK_MS = 500;

/** Returns the minimum time between two calls of `endpoint`. */
function intervalMsOf(endpoint: Endpoint, limits: PlatformLimits): number {
  return endpoint === 'order.all' ? limits.ordersIntervalMs : limits.endpointIntervalMs;
}

export interface SlotTicket {
  endpoint: Endpoint;
  /** Fencing number. If another process has taken over the slot, settling the ticket does not free the slot. */
  generation: number;
  /** Id of the call's row in the window. */
  callId: number;
}

type SlotGrant = { granted: true; ticket: SlotTicket } | { granted: false; wait: Wait };

type BlockScope = 'all' | Endpoint;

interface SlotRow {
  generation: number;
  takenMs: number | null;
  takenUntilMs: number | null;
  settledMs: number | null;
  heldFromMs: number | null;
  heldMs: number | null;
}

interface BlockRow {
  scope: BlockScope;
  endpoint: Endpoint;
  fromMs: number;
  durationMs: number;
  message: string;
  othersAnswered: number;
  endpointAnswered: number;
}

type Named = [Record<string, unknown>];

function statements(db: Database.Database) {
  return preparedOnUse({ ...ofSlots(db), ...ofCallsAndBlocks(db) });
}

function ofSlots(db: Database.Database) {
  return {
    slot: () =>
      db.prepare<[string], SlotRow>(
        `SELECT generation, taken_mono_ms AS takenMs, taken_until_mono_ms AS takenUntilMs,
         settled_mono_ms AS settledMs, held_from_mono_ms AS heldFromMs, held_ms AS heldMs
       FROM lanes WHERE endpoint = ?`,
      ),
    newestTime: () =>
      db
        .prepare<[], number>(
          `SELECT max(t) FROM (
           SELECT max(max(coalesce(taken_mono_ms, 0), coalesce(settled_mono_ms, 0), coalesce(held_from_mono_ms, 0)))
             AS t FROM lanes
           UNION ALL SELECT max(from_mono_ms) FROM blocks)`,
        )
        .pluck(),
    othersInFlight: () =>
      db
        .prepare<[number, string], number>(
          'SELECT 1 FROM lanes WHERE taken_until_mono_ms > ? AND endpoint <> ?',
        )
        .pluck(),
    takenSlots: () =>
      db.prepare<[], { endpoint: string; holder: string }>(
        'SELECT endpoint, holder FROM lanes WHERE taken_until_mono_ms IS NOT NULL AND holder IS NOT NULL',
      ),
    takeSlot: () =>
      db
        .prepare<Named, number>(
          `INSERT INTO lanes (endpoint, generation, taken_mono_ms, taken_until_mono_ms, holder)
           VALUES (:endpoint, 1, :nowMs, :untilMs, :holder)
         ON CONFLICT DO UPDATE SET generation = generation + 1, taken_mono_ms = :nowMs,
           taken_until_mono_ms = :untilMs, holder = :holder
         RETURNING generation`,
        )
        .pluck(),
    extendSlot: () =>
      db.prepare<[number, string, number]>(
        `UPDATE lanes SET taken_until_mono_ms = ?
         WHERE endpoint = ? AND generation = ? AND taken_until_mono_ms IS NOT NULL`,
      ),
    leaveSlot: () =>
      db.prepare<[number, string]>(
        'UPDATE lanes SET taken_mono_ms = NULL, taken_until_mono_ms = NULL, settled_mono_ms = ? WHERE endpoint = ?',
      ),
    giveSlotBack: () =>
      db.prepare<[string, number]>(
        'UPDATE lanes SET taken_mono_ms = NULL, taken_until_mono_ms = NULL WHERE endpoint = ? AND generation = ?',
      ),
    holdSlot: () =>
      db.prepare<Named>(
        `INSERT INTO lanes (endpoint, generation, held_from_mono_ms, held_ms) VALUES (:endpoint, 0, :nowMs, :waitMs)
         ON CONFLICT DO UPDATE SET held_from_mono_ms = :nowMs, held_ms = :waitMs`,
      ),
  };
}

function ofCallsAndBlocks(db: Database.Database) {
  const count = 'SELECT count(*) FROM calls WHERE counts_from_mono_ms > ?';
  const nth = (where: string) =>
    `SELECT counts_from_mono_ms FROM calls ${where} ORDER BY counts_from_mono_ms DESC LIMIT 1 OFFSET ?`;
  return {
    addCall: () =>
      db.prepare<[string, number]>('INSERT INTO calls (endpoint, counts_from_mono_ms) VALUES (?, ?)'),
    dateCall: () =>
      db.prepare<[number, number]>('UPDATE calls SET counts_from_mono_ms = ? WHERE call_id = ?'),
    dropCall: () => db.prepare<[number]>('DELETE FROM calls WHERE call_id = ?'),
    pruneCalls: () => db.prepare<[number]>('DELETE FROM calls WHERE counts_from_mono_ms < ?'),
    countCalls: () => db.prepare<[number], number>(count).pluck(),
    countOrders: () => db.prepare<[number], number>(`${count} AND endpoint = 'order.all'`).pluck(),
    nthCall: () => db.prepare<[number], number>(nth('')).pluck(),
    nthOrder: () => db.prepare<[number], number>(nth("WHERE endpoint = 'order.all'")).pluck(),
    blocks: () =>
      db.prepare<[], BlockRow>(
        `SELECT scope, endpoint, from_mono_ms AS fromMs, duration_ms AS durationMs, message,
         others_answered AS othersAnswered, endpoint_answered AS endpointAnswered FROM blocks`,
      ),
    // `webhook.get` is left out. The document does not show it, so a platform may refuse it for good.
    forbidden: () =>
      db.prepare<[], { endpoint: Endpoint; message: string }>(
        `SELECT endpoint, message FROM blocks
         WHERE scope = endpoint AND endpoint_answered = 0 AND endpoint <> 'webhook.get' ORDER BY endpoint`,
      ),
    block: () =>
      db.prepare<Named>(
        `INSERT OR REPLACE INTO blocks (scope, endpoint, from_mono_ms, duration_ms, message)
         VALUES (:scope, :endpoint, :nowMs, :waitMs, :message)`,
      ),
    /** Records an answer in the rows of blocks that had ended before this call was sent. */
    noteAnswer: () =>
      db.prepare<Named>(
        `UPDATE blocks SET endpoint_answered = endpoint_answered OR endpoint = :endpoint,
         others_answered = others_answered OR endpoint <> :endpoint
       WHERE from_mono_ms + duration_ms <= :takenMs AND (scope = 'all' OR endpoint = :endpoint)
         AND iif(endpoint = :endpoint, endpoint_answered, others_answered) = 0`,
      ),
  };
}

/**
 * Rows of the rate budget in state.db, shared by all processes. Each method is one short transaction and may throw
 * `storage-busy`. A call is committed before it is sent, so a crash cannot leave it uncounted.
 */
export class RateStore {
  readonly #transaction: Database.Transaction<(action: (nowMs: number) => unknown) => unknown>;
  readonly #sql: ReturnType<typeof statements>;
  readonly #holders: Holders;

  constructor({ db, time, holders }: { db: Database.Database; time: BootTime; holders: Holders }) {
    this.#sql = statements(db);
    this.#holders = holders;
    this.#transaction = db.transaction((action) => {
      const { clock } = time;
      const nowMs = time.bootId === clock.bootId ? clock.monotonicMs() : time.now();
      if ((this.#sql.newestTime.get() ?? 0) > nowMs) time.clamp(nowMs);
      return action(nowMs);
    });
  }

  /**
   * Takes the endpoint's slot if the interval, the windows and all blocks allow a call. Otherwise returns the reason
   * and the wait. If the process dies, the slot is free after `holdMs` plus the interval.
   */
  acquire(endpoint: Endpoint, limits: PlatformLimits, holdMs: number): SlotGrant {
    return this.#immediately((nowMs) => {
      this.#leaveForTheDead(nowMs);
      const wait = this.#wait(endpoint, limits, nowMs);
      if (wait) return { granted: false, wait };
      this.#sql.pruneCalls.run(nowMs - limits.windowMs - 1000);
      const untilMs = nowMs + holdMs;
      // A call that is never settled counts as if it had ended when its slot expires.
      const callId = Number(this.#sql.addCall.run(endpoint, untilMs).lastInsertRowid);
      const slot = { endpoint, nowMs, untilMs, holder: this.#holders.self };
      const generation = this.#sql.takeSlot.get(slot) as number;
      return { granted: true, ticket: { endpoint, generation, callId } };
    });
  }

  /**
   * Extends a slot to `holdMs` from now, while its call runs. Does nothing if another process has taken over the slot.
   */
  extend(ticket: SlotTicket, holdMs: number): void {
    this.#immediately((nowMs) => {
      const untilMs = nowMs + holdMs;
      const kept = this.#sql.extendSlot.run(untilMs, ticket.endpoint, ticket.generation);
      if (kept.changes === 1) this.#sql.dateCall.run(untilMs, ticket.callId);
    });
  }

  /**
   * Ends a call, at its answer or when the caller stops waiting. The endpoint's interval starts now. A 2xx to a call
   * that was sent after the end of a block is recorded in the block's row.
   */
  settle({ endpoint, generation, callId }: SlotTicket, outcome: 'answered' | 'failed' = 'failed'): void {
    this.#immediately((nowMs) => {
      this.#sql.dateCall.run(nowMs, callId);
      const slot = this.#sql.slot.get(endpoint);
      if (slot?.generation !== generation) return;
      this.#sql.leaveSlot.run(nowMs, endpoint);
      const { takenMs } = slot;
      if (outcome === 'answered' && takenMs !== null) this.#sql.noteAnswer.run({ endpoint, takenMs });
    });
  }

  /** Gives a slot back, because its call was never sent. */
  cancel(ticket: SlotTicket): void {
    this.#immediately(() => {
      this.#sql.dropCall.run(ticket.callId);
      this.#sql.giveSlotBack.run(ticket.endpoint, ticket.generation);
    });
  }

  /** Blocks an endpoint for `waitMs` in all processes, after a 429. */
  holdBack(endpoint: Endpoint, waitMs: number): void {
    this.#immediately((nowMs) => {
      const slot = this.#sql.slot.get(endpoint);
      const heldUntilMs = (slot?.heldFromMs ?? 0) + (slot?.heldMs ?? 0);
      if (heldUntilMs < nowMs + waitMs) this.#sql.holdSlot.run({ endpoint, nowMs, waitMs });
    });
  }

  /**
   * Blocks all endpoints, or only `scope`, for `waitMs` after a 403 of `endpoint`. After a block of all endpoints, one
   * call at a time probes until the platform answers 2xx.
   */
  block(scope: BlockScope, waitMs: number, message: string, endpoint: Endpoint): void {
    this.#immediately((nowMs) => {
      this.#sql.block.run({ scope, endpoint, nowMs, waitMs, message });
    });
  }

  /** Returns the facts by which a 403 of `endpoint` is judged. */
  blockHistory(endpoint: Endpoint, limits: PlatformLimits): BlockHistory {
    return this.#immediately((nowMs) => {
      const blocks = this.#sql.blocks.all();
      const lastOf = (scope: BlockScope): BlockRecord | null => {
        const row = blocks.find((block) => block.scope === scope);
        if (!row) return null;
        return {
          endpoint: row.endpoint,
          durationMs: row.durationMs,
          endedMsAgo: nowMs - row.fromMs - row.durationMs,
          message: row.message,
          othersAnswered: row.othersAnswered === 1,
          endpointAnswered: row.endpointAnswered === 1,
        };
      };
      const sinceMs = nowMs - limits.windowMs;
      return {
        requests: this.#sql.countCalls.get(sinceMs) ?? 0,
        orders: this.#sql.countOrders.get(sinceMs) ?? 0,
        all: lastOf('all'),
        own: lastOf(endpoint),
      };
    });
  }

  /** Returns the endpoints whose last answer was a 403 while others answered, with the platform's message. */
  forbidden(): { endpoint: Endpoint; message: string }[] {
    return this.#sql.forbidden.all();
  }

  /** Returns the wait of `endpoint` now; undefined if it may be called. */
  waitOf(endpoint: Endpoint, limits: PlatformLimits): Wait | undefined {
    return this.waits(limits, [endpoint])[0];
  }

  /** Returns the waits of the endpoints that may not be called now. */
  waits(limits: PlatformLimits, endpoints: readonly Endpoint[] = ENDPOINTS): Wait[] {
    return this.#immediately((nowMs) => {
      this.#leaveForTheDead(nowMs);
      return endpoints.flatMap((endpoint) => this.#wait(endpoint, limits, nowMs) ?? []);
    });
  }

  /**
   * Frees the slots of dead processes. The interval starts now, because a dead process sends nothing more. In the
   * window, its call counts as if it had ended when its slot would have expired.
   */
  #leaveForTheDead(nowMs: number): void {
    for (const { endpoint, holder } of this.#sql.takenSlots.all()) {
      if (this.#holders.isAlive(holder) === false) this.#sql.leaveSlot.run(nowMs, endpoint);
    }
  }

  /** Returns why `endpoint` may not be called now: the reason with the longest wait. */
  #wait(endpoint: Endpoint, limits: PlatformLimits, nowMs: number): Wait | undefined {
    let longest: Wait | undefined;
    for (const [reason, waitMs] of this.#reasons(endpoint, limits, nowMs)) {
      if (waitMs > (longest?.waitMs ?? 0)) longest = { endpoint, reason, waitMs };
    }
    return longest;
  }

  *#reasons(
    endpoint: Endpoint,
    limits: PlatformLimits,
    nowMs: number,
  ): Generator<[reason: WaitReason, waitMs: number]> {
    const slot = this.#sql.slot.get(endpoint);
    const intervalMs = intervalMsOf(endpoint, limits) + MARGIN_MS;
    if (slot && slot.takenUntilMs !== null) {
      // Assumes the earliest possible end: the answer comes now, or the holder is dead and its slot has expired.
      yield ['in-flight', Math.min(nowMs, slot.takenUntilMs) + intervalMs - nowMs];
    } else if (slot && slot.settledMs !== null) {
      yield ['interval', slot.settledMs + intervalMs - nowMs];
    }
    if (slot && slot.heldFromMs !== null) {
      yield ['retry-after', slot.heldFromMs + (slot.heldMs ?? 0) - nowMs];
    }
    for (const block of this.#sql.blocks.all()) {
      if (block.scope !== 'all' && block.scope !== endpoint) continue;
      const isProbed = block.scope === 'all' && !block.othersAnswered && !block.endpointAnswered;
      const isOwn = block.endpoint === endpoint;
      const graceMs = isProbed && isOwn ? Math.min(PROBE_GRACE_MS, block.durationMs / 4) : 0;
      yield ['blocked', block.fromMs + block.durationMs + graceMs - nowMs];
      if (isProbed && this.#sql.othersInFlight.get(nowMs, endpoint)) yield ['blocked', PROBE_RECHECK_MS];
    }
    // If n calls are allowed in the window, the next one may be sent when the n-th newest has left the window.
    const { nthCall, nthOrder } = this.#sql;
    const freeInMs = (nth: typeof nthCall, places: number) => {
      const countsFromMs = nth.get(Math.max(1, places) - 1);
      return countsFromMs === undefined ? 0 : countsFromMs + limits.windowMs + MARGIN_MS - nowMs;
    };
    const all = limits.requestsPerWindow;
    const mayUseAll = endpoint === 'order.all' || endpoint === 'token.refresh';
    const reserved = mayUseAll ? 0 : Math.min(RESERVED_PLACES, Math.floor(all * RESERVED_SHARE));
    yield ['window', freeInMs(nthCall, all - reserved)];
    if (endpoint === 'order.all') yield ['window', freeInMs(nthOrder, limits.ordersPerWindow)];
  }

  #immediately<T>(action: (nowMs: number) => T): T {
    return storing(() => this.#transaction.immediate(action) as T);
  }
}

export interface RateBudgetOptions {
  ledger: RateStore;
  limits: PlatformLimits;
  clock: Clock;
  random: Random;
  log: Log;
  /** Called after each 429. */
  onLimited?: (endpoint: Endpoint) => void;
  /** Called after each wait, with its real length. */
  onWaited?: ((wait: Wait) => void) | undefined;
}

/**
 * Time after the holder last extended its slot until the slot is free. It is long enough for a busy event loop, and
 * short enough that a restart after a crash need not wait for the time limit of a dead process's call.
 */
const HOLD_MS = 20_000;
const SIGN_OF_LIFE_MS = 5_000;
/** Interval at which a long wait checks again, because a block may have ended or a person may have acted. */
const LOOK_AGAIN_MS = 60_000;
const JITTER_MAX_MS = 250;
const JITTER_SHARE = 0.05;

/** Waits until the shared rate budget allows a call, and records how the call ended. */
export class RateBudget {
  readonly #o: RateBudgetOptions;
  /** Number of successive 429 answers of each endpoint. */
  readonly #limited = new Map<Endpoint, number>();

  constructor(options: RateBudgetOptions) {
    this.#o = options;
  }

  /**
   * Waits for the endpoint's slot and takes it. Throws `aborted`, or at once `forbidden` if the platform refuses only
   * this endpoint. `giveUp` is called before each try; if it returns true, the result is undefined.
   */
  async enter(
    endpoint: Endpoint,
    { signal, onWait, giveUp }: Pick<CallOptions, 'signal' | 'onWait'> & { giveUp?: () => boolean },
  ): Promise<SlotTicket | undefined> {
    const { clock, ledger, limits, random } = this.#o;
    for (;;) {
      if (signal?.aborted) throw new TillsyncError('aborted', 'Stopped before the call was sent.');
      if (giveUp?.()) return undefined;
      const grant = await whenFree(clock, () => ledger.acquire(endpoint, limits, HOLD_MS), undefined, signal);
      if (grant.granted) return grant.ticket;
      const { wait } = grant;
      if (wait.reason === 'blocked') {
        const history = () => ledger.blockHistory(endpoint, limits);
        const { own } = await whenFree(clock, history, undefined, signal);
        if (own && own.endedMsAgo < 0) throw forbiddenError(endpoint, -own.endedMsAgo, own.message);
      }
      onWait?.(wait);
      const jitterMs = Math.min(JITTER_MAX_MS, wait.waitMs * JITTER_SHARE) * random.next();
      const startMs = clock.monotonicMs();
      await clock.sleep(Math.min(wait.waitMs + jitterMs, LOOK_AGAIN_MS), signal);
      this.#o.onWaited?.({ ...wait, waitMs: clock.monotonicMs() - startMs });
    }
  }

  /** Runs `action`, and extends the slot until `action` has ended. */
  async during<T>(ticket: SlotTicket, action: () => Promise<T>): Promise<T> {
    const over = new AbortController();
    void this.#keep(ticket, over.signal);
    try {
      return await action();
    } finally {
      over.abort();
    }
  }

  /** Settles a call that got a complete and successful answer. */
  async answered(ticket: SlotTicket): Promise<void> {
    this.#limited.delete(ticket.endpoint);
    await this.#note(() => this.#o.ledger.settle(ticket, 'answered'));
  }

  /** Settles a call that failed or was refused. */
  async failed(ticket: SlotTicket): Promise<void> {
    await this.#note(() => this.#o.ledger.settle(ticket, 'failed'));
  }

  /** Gives back the slot of a call that was never sent. */
  async cancel(ticket: SlotTicket): Promise<void> {
    await this.#note(() => this.#o.ledger.cancel(ticket));
  }

  /** Handles a 403 or 429: blocks endpoints in all processes as needed, and returns the error for the caller. */
  refused(ticket: SlotTicket, answer: CallAnswer): Promise<TillsyncError> {
    if (answer.status === 403) return this.#forbidden(ticket, sentMessage(answer));
    const serverNowMs = serverDateMs(answer.headers) ?? this.#o.clock.nowMs();
    return this.#rateLimited(ticket, answer.headers['retry-after'], serverNowMs);
  }

  async #rateLimited(
    ticket: SlotTicket,
    header: string | undefined,
    serverNowMs: number,
  ): Promise<TillsyncError> {
    const { ledger, limits, random } = this.#o;
    const { endpoint } = ticket;
    const before = this.#limited.get(endpoint) ?? 0;
    this.#limited.set(endpoint, before + 1);
    this.#o.onLimited?.(endpoint);
    const intervalMs = intervalMsOf(endpoint, limits);
    const waitMs = retryAfterMs({ header, serverNowMs, intervalMs, before, random });
    await this.#note(() => ledger.holdBack(endpoint, waitMs));
    await this.failed(ticket);
    return new TillsyncError('rate-limited', `The platform asks to wait with ${endpoint} (HTTP 429).`, {
      httpStatus: 429,
      retryAfterMs: waitMs,
      hint: 'tillsync keeps to the published limits; look for another program that uses the same token.',
    });
  }

  async #forbidden(ticket: SlotTicket, message = 'HTTP 403'): Promise<TillsyncError> {
    const { ledger, limits, log } = this.#o;
    const { endpoint } = ticket;
    let waitMs = 0;
    let kind = 'block';
    await this.#note(() => {
      ({ waitMs, kind } = judgeForbidden(ledger.blockHistory(endpoint, limits), limits, endpoint));
      if (kind !== 'known') ledger.block(kind === 'block' ? 'all' : endpoint, waitMs, message, endpoint);
    });
    await this.failed(ticket);
    log.warn({ endpoint, kind, waitMs }, 'The platform answered 403.');
    return (kind === 'forbidden' ? forbiddenError : blockedError)(endpoint, waitMs, message);
  }

  async #keep(ticket: SlotTicket, over: AbortSignal): Promise<void> {
    for (;;) {
      await this.#o.clock.sleep(SIGN_OF_LIFE_MS, over);
      if (over.aborted) return;
      await this.#note(() => {
        if (!over.aborted) this.#o.ledger.extend(ticket, HOLD_MS);
      });
    }
  }

  /**
   * Writes to state.db. A failure is only logged, because the result of a call must not be lost; the slot then expires.
   */
  async #note(action: () => void): Promise<void> {
    try {
      await whenFree(this.#o.clock, action);
    } catch (error) {
      this.#o.log.warn({ err: error }, 'The rate budget could not be written.');
    }
  }
}
