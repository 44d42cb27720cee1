import type { Clock } from '../../../src/core/time.ts';
import type { Holders } from '../../../src/db/lease.ts';

/** Shortest time of a timer. */
const TIMER_MS_MIN = 1;

interface Sleeper {
  wakeMs: number;
  order: number;
  isOver: boolean;
  resolve: () => void;
}

/**
 * The world's time, in whole milliseconds like timers. With fractions, a pause could be shorter than a wall clock can
 * show, and while time stands still it would never end. Sleepers with the same wake-up time wake together, in the order
 * in which they went to sleep, as with timers; then everything that is ready runs before time advances.
 */
export class WorldClock implements Clock {
  readonly bootId = 'world';
  #monoMs = 1_000_000;
  readonly #aheadMs: number;
  readonly #settle: () => Promise<void>;
  #order = 0;
  /** A binary heap by time; aborted sleepers stay until their time comes. */
  readonly #sleepers: Sleeper[] = [];

  constructor(startWallMs: number, settle: () => Promise<void>) {
    this.#aheadMs = startWallMs - this.#monoMs;
    this.#settle = settle;
  }

  nowMs(): number {
    return this.#monoMs + this.#aheadMs;
  }

  monotonicMs(): number {
    return this.#monoMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const wakeMs = this.#monoMs + Math.max(0, Math.ceil(ms));
      const sleeper: Sleeper = { wakeMs, order: this.#order++, isOver: false, resolve };
      if (signal) {
        const giveUp = () => {
          sleeper.isOver = true;
          resolve();
        };
        signal.addEventListener('abort', giveUp, { once: true });
        sleeper.resolve = () => {
          signal.removeEventListener('abort', giveUp);
          resolve();
        };
      }
      this.#push(sleeper);
    });
  }

  /** Lets `ms` pass; every sleeper wakes at its own time. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#monoMs + Math.ceil(ms);
    await this.#settle();
    for (let next = this.#next(); next && next.wakeMs <= endMs; next = this.#next()) {
      const nowMs = Math.max(this.#monoMs, next.wakeMs);
      this.#monoMs = nowMs;
      for (let due: Sleeper | undefined = next; due && due.wakeMs <= nowMs; due = this.#next()) {
        due.isOver = true;
        due.resolve();
      }
      await this.#settle();
    }
    this.#monoMs = endMs;
    await this.#settle();
  }

  #next(): Sleeper | undefined {
    while (this.#sleepers[0]?.isOver) this.#pop();
    return this.#sleepers[0];
  }

  #push(sleeper: Sleeper): void {
    const heap = this.#sleepers;
    let at = heap.length;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above] as Sleeper;
      if (!isSooner(sleeper, parent)) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = sleeper;
  }

  #pop(): void {
    const heap = this.#sleepers;
    const last = heap.pop();
    if (!last || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= heap.length) break;
      if (below + 1 < heap.length && isSooner(heap[below + 1] as Sleeper, heap[below] as Sleeper)) below += 1;
      if (!isSooner(heap[below] as Sleeper, last)) break;
      heap[at] = heap[below] as Sleeper;
      at = below;
    }
    heap[at] = last;
  }
}

function isSooner(a: Sleeper, b: Sleeper): boolean {
  return a.wakeMs < b.wakeMs || (a.wakeMs === b.wakeMs && a.order < b.order);
}

/** The clock of the store's machine for one boot. The platform and people use the world's. */
export class StoreClock implements Clock {
  readonly bootId: string;
  readonly #world: WorldClock;
  readonly #bootedMs: number;
  /** Error of the wall clock. */
  wrongByMs: number;

  constructor(world: WorldClock, boot: number, wrongByMs: number) {
    this.#world = world;
    this.bootId = `boot-${boot}`;
    this.#bootedMs = world.monotonicMs();
    this.wrongByMs = wrongByMs;
  }

  nowMs(): number {
    return this.#world.nowMs() + this.wrongByMs;
  }

  monotonicMs(): number {
    return this.#world.monotonicMs() - this.#bootedMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return this.#world.sleep(Math.max(TIMER_MS_MIN, ms), signal);
  }
}

/** The simulated processes of the store's machine. Each start of the program gets a new number. */
export class Lives {
  #count = 0;
  readonly #running = new Set<string>();

  begin(): Holders {
    const self = `life-${++this.#count}`;
    this.#running.add(self);
    return { self, isAlive: (holder) => this.#running.has(holder) };
  }

  end({ self }: Holders): void {
    this.#running.delete(self);
  }

  endAll(): void {
    this.#running.clear();
  }
}
