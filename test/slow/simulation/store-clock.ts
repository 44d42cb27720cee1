import type { Clock } from '../../../src/domain/time/clock.ts';
import type { Holders } from '../../../src/store/state/holder.ts';
import { FakeClock } from '../../support/fake-clock.ts';

/** No timer is shorter. */
const TIMER_MS_MIN = 1;

/**
 * The world's time, in whole milliseconds as timers have it. With parts of them a rest could be shorter than a wall
 * clock can tell, and while time stands still it would never end.
 */
export class WorldClock extends FakeClock {
  override sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return super.sleep(Math.ceil(ms), signal);
  }

  override advance(ms: number): Promise<void> {
    return super.advance(Math.ceil(ms));
  }
}

/** The clock of the store's machine for one boot. The platform and the people go by the world's. */
export class StoreClock implements Clock {
  readonly bootId: string;
  readonly #world: FakeClock;
  readonly #bootedMs: number;
  /** How far the wall clock is off. */
  wrongByMs: number;

  constructor(world: FakeClock, boot: number, wrongByMs: number) {
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

/** The daemon's processes by number, of which the newest alone may live. */
export class Lives {
  #newest = 0;
  #isRunning = false;

  begin(): Holders {
    const self = `life-${++this.#newest}`;
    this.#isRunning = true;
    return { self, isAlive: (holder) => this.#isRunning && holder === `life-${this.#newest}` };
  }

  end(): void {
    this.#isRunning = false;
  }
}
