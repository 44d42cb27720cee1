import type { Clock, Random } from '../../src/domain/clock.ts';

interface Sleeper {
  wakeMonoMs: number;
  order: number;
  resolve: () => void;
}

/**
 * A clock that stands still until a test moves it. Sleepers wake in the order of their times; between two of them
 * everything that is ready runs. The wall clock can jump without the monotonic one noticing.
 */
export class FakeClock implements Clock {
  bootId = 'boot-1';
  #monoMs: number;
  #wallOffsetMs: number;
  #sleepers: Sleeper[] = [];
  #order = 0;

  constructor(startWallMs = Date.UTC(2026, 0, 15, 12), startMonoMs = 1_000_000) {
    this.#monoMs = startMonoMs;
    this.#wallOffsetMs = startWallMs - startMonoMs;
  }

  nowMs(): number {
    return this.#monoMs + this.#wallOffsetMs;
  }

  monotonicMs(): number {
    return this.#monoMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const sleeper: Sleeper = {
        wakeMonoMs: this.#monoMs + Math.max(0, ms),
        order: this.#order++,
        resolve: () => {
          signal?.removeEventListener('abort', abort);
          resolve();
        },
      };
      const abort = () => {
        this.#sleepers = this.#sleepers.filter((other) => other !== sleeper);
        resolve();
      };
      signal?.addEventListener('abort', abort, { once: true });
      this.#sleepers.push(sleeper);
    });
  }

  /** Moves time on by `ms`, waking whoever's time comes, each at its own moment. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#monoMs + ms;
    await settle();
    for (;;) {
      const next = this.#sleepers
        .filter((sleeper) => sleeper.wakeMonoMs <= endMs)
        .sort((a, b) => a.wakeMonoMs - b.wakeMonoMs || a.order - b.order)[0];
      if (!next) break;
      this.#sleepers = this.#sleepers.filter((other) => other !== next);
      this.#monoMs = Math.max(this.#monoMs, next.wakeMonoMs);
      next.resolve();
      await settle();
    }
    this.#monoMs = endMs;
    await settle();
  }

  /** The wall clock alone jumps, as when a time server corrects it. */
  jumpWall(ms: number): void {
    this.#wallOffsetMs += ms;
  }

  /** The machine restarts: another boot, whose monotonic clock begins near zero; real time went on. */
  reboot(downMs: number, uptimeMs = 0): void {
    const wallMs = this.nowMs() + downMs;
    this.bootId = `boot-${Number(this.bootId.slice(5)) + 1}`;
    this.#monoMs = uptimeMs;
    this.#wallOffsetMs = wallMs - uptimeMs;
    this.#sleepers = [];
  }

  get sleeping(): number {
    return this.#sleepers.length;
  }
}

/** Lets everything that is ready run: a few turns of the event loop. */
export async function settle(turns = 4): Promise<void> {
  for (let i = 0; i < turns; i++) await new Promise<void>((resolve) => setImmediate(resolve));
}

/** A small seeded generator (mulberry32), so that a run can be repeated from its seed. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return {
    next() {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
    },
  };
}
