import type { Clock } from '../../src/core/time.ts';

export { seededRandom } from '../../src/sandbox/draws.ts';

interface Sleeper {
  wakeMonoMs: number;
  order: number;
  resolve: () => void;
}

/**
 * A clock that stands still until a test moves it. Sleepers wake in the order of their times; between two of them
 * everything that is ready runs. The wall clock can jump without the monotonic one.
 */
export class FakeClock implements Clock {
  bootId = 'boot-1';
  #monoMs: number;
  #wallOffsetMs: number;
  readonly #settle: () => Promise<void>;
  #sleepers: Sleeper[] = [];
  #order = 0;

  /** `settleAll` lets everything that is ready run between two sleepers. */
  constructor(
    startWallMs = Date.UTC(2026, 0, 15, 12),
    startMonoMs = 1_000_000,
    settleAll: () => Promise<void> = settle,
  ) {
    this.#monoMs = startMonoMs;
    this.#wallOffsetMs = startWallMs - startMonoMs;
    this.#settle = settleAll;
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
        this.#remove(sleeper);
        resolve();
      };
      signal?.addEventListener('abort', abort, { once: true });
      this.#sleepers.push(sleeper);
    });
  }

  /** Advances time by `ms` and wakes each sleeper at its own time. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#monoMs + ms;
    await this.#settle();
    for (;;) {
      const next = this.#next();
      if (!next || next.wakeMonoMs > endMs) break;
      this.#remove(next);
      this.#monoMs = Math.max(this.#monoMs, next.wakeMonoMs);
      next.resolve();
      await this.#settle();
    }
    this.#monoMs = endMs;
    await this.#settle();
  }

  /**
   * Returns the sleeper that wakes next. Scanning costs less than sorting, because there are at most a few dozen
   * sleepers.
   */
  #next(): Sleeper | undefined {
    let next: Sleeper | undefined;
    for (const sleeper of this.#sleepers) {
      const isSooner =
        !next ||
        sleeper.wakeMonoMs < next.wakeMonoMs ||
        (sleeper.wakeMonoMs === next.wakeMonoMs && sleeper.order < next.order);
      if (isSooner) next = sleeper;
    }
    return next;
  }

  #remove(sleeper: Sleeper): void {
    const at = this.#sleepers.indexOf(sleeper);
    if (at >= 0) this.#sleepers.splice(at, 1);
  }

  /** Makes only the wall clock jump, as a time server does. */
  jumpWall(ms: number): void {
    this.#wallOffsetMs += ms;
  }

  /** Restarts the machine. The monotonic clock of the new boot begins near zero; the wall clock has advanced. */
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

/** Waits a few turns of the event loop, so that everything ready runs. */
export async function settle(turns = 4): Promise<void> {
  for (let i = 0; i < turns; i++) await new Promise<void>((resolve) => setImmediate(resolve));
}

const WORKER_LOOK_MS = 2;

/**
 * Waits until nothing more can run, including worker threads and the inbox's process. So a program that waits for no
 * socket and no file does the same work on a slow machine as on a quick one.
 */
export async function untilIdle(): Promise<void> {
  for (;;) {
    await new Promise<void>((resolve) => setImmediate(resolve));
    const under = process.getActiveResourcesInfo();
    // A request to the inbox's process keeps a timer for its timeout. While such a request is open or a worker thread
    // is busy, real time has to pass.
    const asksInbox = under.includes('ProcessWrap') && under.includes('Timeout');
    if (asksInbox || under.includes('MessagePort'))
      await new Promise((resolve) => setTimeout(resolve, WORKER_LOOK_MS));
    else if (!under.includes('Immediate')) return;
  }
}
