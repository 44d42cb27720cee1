import { createHash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { takesNothing } from '../../../src/orders/merging/order.ts';
import { BRANCHES, order, outgoing, product } from '../../outbox/outbox-fixture.ts';
import type { PlatformKind } from '../../outbox/stock-model.ts';
import type { Look } from './exploration.ts';
import { inMemory } from './in-memory.ts';

const RULES = { holdBack: true, sendAsIs: false, skipUnchanged: true, trustMs: 600_000_000 };

interface SmallOrder {
  id: 'A' | 'B';
  qty: number;
  status: 'pending' | 'cancel';
  createdAt: string;
  isHeard: boolean;
  isNews: boolean;
  /** Pieces that each event took or gave back; `booked` is the newest count's version at its acknowledgement. */
  moves: { qty: number; seq: number; booked: number | null }[];
  isBookedEarly: boolean;
}

/** State outside the mirror: the platform, the shop, the steps. It is a plain value, so that a step can be undone. */
interface World {
  platform: number;
  orders: SmallOrder[];
  count: { qty: number; asOfSeq: number; version: number } | null;
  /** The safety stock. */
  kept: number;
  call: { id: number; changeId: number; qty: number; isApplied: boolean } | null;
  sweep: { mark: { push: number; orderSeq: number }; seen: number | null } | null;
  done: string[];
  nowMs: number;
}

export interface Exploration {
  states: number;
  /** The first sequence of steps that leads to a fault, and the fault; null if none does. */
  fault: string | null;
}

/** Events that each part of the search leaves out, because all at once take too long; each event is in some part. */
export const PARTS: readonly (readonly string[])[] = [
  ['begin to sweep', 'edit A', 'lose the answer', 'cancel B', 'keep 19'],
  ['place B', 'cancel B', 'crash', 'count 15', 'book A', 'keep 19'],
  ['begin to sweep', 'edit A', 'crash', 'count 15', 'keep 19'],
  ['place B', 'cancel B', 'begin to sweep', 'edit A', 'crash'],
  ['place B', 'cancel B', 'edit A', 'lose the answer', 'count 15'],
];

/**
 * Tries every sequence in which two orders, an edit, a cancellation, an acknowledgement, two counts, a safety stock, a
 * call, a lost answer, a crash and a sweep can happen to one stock, on the mirror's real SQL. In each state it then
 * sends until nothing is due: after at most one call the platform must have the last count, less sold pieces that the
 * count still contains, less the safety stock.
 */
export class Interleavings {
  readonly #kind: PlatformKind;
  readonly #without: ReadonlySet<string>;
  readonly #out = outgoing(inMemory());
  readonly #seen = new Set<string>();
  readonly #looks = new Map<string, Database.Statement<[], unknown[]>>();
  readonly #rested = new Set<string>();
  readonly #savepoint = this.#out.db.prepare('SAVEPOINT step');
  readonly #rollback = this.#out.db.prepare('ROLLBACK TO step');
  readonly #release = this.#out.db.prepare('RELEASE step');
  readonly #look: Look;
  #world: World;
  #fault: string | null = null;

  /** `without` lists events to leave out, which makes the exploration smaller. */
  constructor(kind: PlatformKind, without: readonly string[] = [], look: Look = () => null) {
    this.#look = look;
    this.#kind = kind;
    this.#without = new Set(without);
    this.#out.sweep([this.#record(40)]);
    this.#out.reservations.begin(true);
    const nowMs = this.#out.clock.nowMs() + 3_600_000;
    this.#world = {
      platform: 40,
      orders: [],
      count: null,
      kept: 0,
      call: null,
      sweep: null,
      done: [],
      nowMs,
    };
  }

  explore(): Exploration {
    this.#out.db.exec('BEGIN IMMEDIATE');
    this.#visit();
    this.#out.db.exec('ROLLBACK');
    return { states: this.#seen.size, fault: this.#fault };
  }

  #visit(): void {
    const key = this.#key();
    if (this.#fault !== null || this.#seen.has(key)) return;
    this.#seen.add(key);
    this.#fault ??= this.#look(this.#out.db);
    if (this.#world.count !== null) this.#try(this.#rest);
    for (const [name, act] of this.#steps()) {
      if (this.#fault !== null) return;
      this.#try(() => {
        this.#world.done.push(name);
        this.#world.nowMs += 61_000;
        this.#out.clock.jumpWall(this.#world.nowMs - this.#out.clock.nowMs());
        act();
        this.#visit();
      });
    }
  }

  /** Runs the action and undoes it, in the mirror and in the model. */
  #try(action: () => void): void {
    const before = structuredClone(this.#world);
    this.#savepoint.run();
    try {
      action();
    } catch (error) {
      this.#fault ??= `${this.#world.done.join(', ')}: ${error instanceof Error ? error.stack : error}`;
    } finally {
      this.#rollback.run();
      this.#release.run();
      this.#world = before;
      this.#out.clock.jumpWall(before.nowMs - this.#out.clock.nowMs());
    }
  }

  #steps(): [string, () => void][] {
    const { orders, call, sweep, done } = this.#world;
    const once = (name: string, isOpen: boolean, act: () => void): [string, () => void][] =>
      isOpen && !done.includes(name) && !this.#without.has(name) ? [[name, act]] : [];
    const find = (id: 'A' | 'B') => orders.find((each) => each.id === id);
    const [a, b] = [find('A'), find('B')];
    const heardSteps = orders
      .filter(({ isNews }) => isNews)
      .map((each): [string, () => void] => [`hear ${each.id}`, () => this.#hear(each.id)]);
    return [
      ...once('place A', true, () => this.#place('A', 2)),
      ...once('place B', true, () => this.#place('B', 1)),
      ...heardSteps,
      ...once('edit A', a?.status === 'pending', () => this.#edit()),
      ...once('cancel B', b !== undefined, () => this.#cancel()),
      ...once('book A', a !== undefined, () => this.#book()),
      ...once('count 20', true, () => this.#count(20)),
      ...once('count 15', true, () => this.#count(15)),
      ...once('keep 19', true, () => this.#keep(19)),
      ...(call === null ? ([['claim', () => this.#claim()]] as [string, () => void][]) : []),
      ...(call && !call.isApplied ? ([['apply', () => this.#apply()]] as [string, () => void][]) : []),
      ...(call?.isApplied ? ([['settle', () => this.#settle('done')]] as [string, () => void][]) : []),
      ...once('lose the answer', call !== null, () => this.#settle('retry')),
      ...once('crash', true, () => this.#crash()),
      ...once('begin to sweep', sweep === null, () => this.#beginSweep()),
      ...once('read', sweep !== null && sweep.seen === null, () => this.#read()),
      ...once('end the sweep', sweep?.seen != null, () => this.#endSweep()),
    ];
  }

  #place(id: 'A' | 'B', qty: number): void {
    if (this.#kind !== 'neither') this.#move(-qty);
    const createdAt = new Date(this.#world.nowMs).toISOString();
    const known = { isHeard: false, isNews: true, isBookedEarly: false, moves: [] };
    this.#world.orders.push({ id, qty, status: 'pending', createdAt, ...known });
  }

  #hear(id: 'A' | 'B'): void {
    const heard = this.#world.orders.find((each) => each.id === id);
    if (!heard) return;
    const { qty, status, createdAt, isHeard } = heard;
    order(this.#out, id, 'B1', [['X', qty]], status, { createdAt });
    const before = heard.moves.reduce((sum, move) => sum + move.qty, 0);
    const now = takesNothing(status) ? 0 : qty;
    const booked = heard.isBookedEarly && !isHeard ? (this.#world.count?.version ?? 0) : null;
    if (now !== before) heard.moves.push({ qty: now - before, seq: this.#seq(), booked });
    // Each event is applied alone, because two events that are applied together become one step with the newer number.
    while (this.#out.dispatcher.catchUp({ holdBack: true }));
    heard.isHeard = true;
    heard.isNews = false;
  }

  /**
   * Edits order A. The platform subtracts the order as it is when tillsync first hears of it. Whether the real platform
   * follows a later edit is unknown, so this one does not.
   */
  #edit(): void {
    const edited = this.#world.orders.find(({ id }) => id === 'A');
    if (!edited) return;
    if (this.#kind !== 'neither' && !edited.isHeard) this.#move(edited.qty - 3);
    edited.qty = 3;
    edited.isNews = true;
  }

  #cancel(): void {
    const cancelled = this.#world.orders.find(({ id }) => id === 'B');
    if (!cancelled) return;
    if (this.#kind === 'takes-off-and-gives-back') this.#move(cancelled.qty);
    cancelled.status = 'cancel';
    cancelled.isNews = true;
  }

  #book(): void {
    const booked = this.#world.orders.find(({ id }) => id === 'A');
    const version = this.#world.count?.version ?? 0;
    if (booked && !booked.isHeard) booked.isBookedEarly = true;
    for (const move of booked?.moves ?? []) move.booked ??= version;
    this.#out.reservations.acknowledge(['A'], 'http');
  }

  #count(qty: number): void {
    this.#out.accept('stock', [{ externalId: 'X', qty }]);
    const version = (this.#world.count?.version ?? 0) + 1;
    this.#world.count = { qty, asOfSeq: this.#seq(), version };
  }

  /** Sets the safety stock. With 19, little is left of a count of 20, and nothing of a count of 15. */
  #keep(qty: number): void {
    this.#out.safety.set({ sku: '10', subsidiaryId: null, qty });
    this.#world.kept = qty;
  }

  #claim(): boolean {
    const { callId, items } = this.#out.dispatcher.claim('stock', 100, {
      ...RULES,
      platformDeducts: this.#kind !== 'neither',
    });
    const [item] = items;
    if (callId === null || !item) return false;
    const qty = 'qty' in item.body ? item.body.qty : Number.NaN;
    this.#world.call = { id: callId, changeId: item.changeId, qty, isApplied: false };
    return true;
  }

  #apply(): void {
    const { call } = this.#world;
    if (!call) return;
    this.#world.platform = call.qty;
    call.isApplied = true;
  }

  #settle(state: 'done' | 'retry'): void {
    const { call } = this.#world;
    if (!call) return;
    this.#world.call = null;
    this.#out.dispatcher.settle(call.id, [{ changeId: call.changeId, state }]);
  }

  #crash(): void {
    this.#world.call = null;
    this.#world.sweep = null;
    this.#out.dispatcher.reclaim();
  }

  #beginSweep(): void {
    this.#world.sweep = { mark: this.#out.store.readMark(), seen: null };
  }

  #read(): void {
    if (this.#world.sweep) this.#world.sweep.seen = this.#world.platform;
  }

  #endSweep(): void {
    const { sweep } = this.#world;
    const [branch] = BRANCHES;
    if (sweep?.seen == null || !branch) return;
    const { mark } = sweep;
    this.#world.sweep = null;
    this.#out.store.applyPage(branch, [this.#record(sweep.seen)], mark);
    const startedAtMs = this.#world.nowMs;
    this.#out.store.completeSweep({ branch, mark, startedAtMs, pages: 1, seen: new Set(['pX']) });
  }

  /**
   * Lets all events arrive, ends the call, and checks the state at rest. Many states lead to the same one, so each
   * state at rest is checked only once.
   */
  readonly #rest = (): void => {
    for (const { id, isNews } of this.#world.orders) if (isNews) this.#hear(id);
    if (this.#world.call) {
      if (!this.#world.call.isApplied) this.#apply();
      this.#settle('done');
    }
    const key = this.#key(false);
    if (this.#rested.has(key)) return;
    this.#rested.add(key);
    let calls = 0;
    while (this.#claim()) {
      calls += 1;
      if (calls > 3) break;
      this.#apply();
      this.#settle('done');
    }
    const { orders, count, kept, platform, done } = this.#world;
    if (count === null) return;
    const taken = orders.reduce((all, { moves }) => {
      const live = moves.reduce((sum, move) => sum + move.qty, 0);
      const open = moves.reduce((sum, move) => {
        const isIn = move.seq <= count.asOfSeq;
        if (isIn && move.booked !== null && move.booked <= count.version) return sum;
        return move.qty > 0 || !isIn ? sum + move.qty : sum;
      }, 0);
      return all + Math.max(0, Math.min(live, open));
    }, 0);
    const wanted = Math.max(0, count.qty - taken - kept);
    if (platform === wanted && calls <= 1) return;
    this.#fault ??= `${done.join(', ')}: the platform has ${platform}, wanted is ${wanted}, after ${calls} calls`;
  };

  #move(by: number): void {
    this.#world.platform = Math.max(0, this.#world.platform + by);
  }

  #record(qty: number) {
    return product('pX', 'Name of X', [{ sku: '10', stocks: { s1: ['X', qty] } }]);
  }

  #seq(): number {
    return this.#out.store.readMark().orderSeq;
  }

  #rows(sql: string): unknown[][] {
    const known = this.#looks.get(sql) ?? this.#out.db.prepare<[], unknown[]>(sql).raw();
    this.#looks.set(sql, known);
    return known.all();
  }

  /** Returns a hash of what decides the further course. Of times and feed numbers, only the order is hashed. */
  #key(isOpen = true): string {
    const seqs = new Set<number>();
    const seq = (value: unknown) => {
      seqs.add(Number(value));
      return { seq: Number(value) };
    };
    // In each row, columns from index `plain` on are numbers of the feed.
    const rows = (sql: string, plain: number) =>
      this.#rows(sql).map((row) => row.map((value, n) => (n < plain || value === null ? value : seq(value))));
    const { done, nowMs: _nowMs, sweep, call, count, kept, orders, platform } = this.#world;
    const onceDone = [...new Set(done)].filter((name) => !/^(hear|claim|apply|settle)/.test(name)).sort();
    const state = [
      rows(
        `SELECT counted_qty, believed_qty, show, wanted_qty, expected_qty, ordered_qty, is_moved, call_qty, dirty,
           call_id IS NULL, given_up = 0, safety_qty, counted_seq, confirmed_seq, call_seq FROM _stock_ledger`,
        12,
      ),
      rows('SELECT believed_qty, confirmed_seq FROM _stock_beliefs', 1),
      rows(
        `SELECT l.order_id, takes, t.qty, t.is_first,
           coalesce(t.booked_version - (SELECT max(counted_version) FROM _stock_ledger), -1000),
           t.placed_ms <= coalesce((SELECT max(confirmed_ms) FROM _stock_beliefs), 0), l.seq, t.seq
         FROM _ledger_orders l LEFT JOIN _stock_steps t USING (order_id) ORDER BY 1, t.seq`,
        6,
      ),
      rows(
        `SELECT body, state, sent_qty, as_of_seq, sent_as_of_seq FROM _outbox
         WHERE state IN ('pending', 'sending') ORDER BY change_id`,
        3,
      ),
      rows(
        `SELECT order_id, status, previous_status, seq FROM order_events
         WHERE seq > (SELECT value FROM marks WHERE name = 'ledger.seen') ORDER BY seq`,
        3,
      ),
      rows("SELECT value, (SELECT max(seq) FROM order_events) FROM marks WHERE name = 'ledger.seen'", 0),
      rows(
        'SELECT o.order_id, o.status, quantity, o.seq FROM orders o JOIN order_items USING (order_id) ORDER BY 1',
        3,
      ),
      platform,
      kept,
      orders
        .map(({ createdAt: _createdAt, moves, ...each }) => ({
          ...each,
          moves: moves.map((move) => ({ ...move, seq: seq(move.seq) })),
        }))
        .sort((one, other) => (one.id < other.id ? -1 : 1)),
      count && { qty: count.qty, version: count.version, asOfSeq: seq(count.asOfSeq) },
      call?.isApplied,
      isOpen && onceDone,
      // The mark of a sweep decides whether the sweep is older or newer than a push and an event.
      isOpen &&
        sweep && [sweep.seen, seq(sweep.mark.orderSeq), sweep.mark.push - this.#out.store.readMark().push],
    ];
    const ranks = new Map([...seqs, 0].sort((one, other) => one - other).map((value, rank) => [value, rank]));
    const ranked = (_name: string, value: unknown) =>
      typeof value === 'object' && value !== null && 'seq' in value ? ranks.get(Number(value.seq)) : value;
    return createHash('sha1').update(JSON.stringify(state, ranked)).digest('base64');
  }
}
