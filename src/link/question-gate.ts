import type { Clock } from '../core/time.ts';

/**
 * Longest accepted question of a branch, in bytes. A question with five hundred changes has some 100,000
 * bytes.
 */
export const QUESTION_BYTES_MAX = 2_000_000;
/** A question counts as one more question for each of this many bytes, so one with 100,000 bytes counts as three. */
const BYTES_OF_ONE = 50_000;
/** Questions that a branch may ask at once and per second. A healthy branch never asks so many. */
const BURST = 60;
const PER_SECOND = 20;
/**
 * Changes and acknowledgements that one branch may send at once and per second; the platform accepts no more from the
 * whole company.
 */
const ITEMS_BURST = 5_000;
const ITEMS_PER_SECOND = 330;
const TOLD_EVERY_MS = 60_000;
/** Maximum number of snapshots that one branch may cause within a minute. */
const SNAPSHOTS_MAX = 10;
const SNAPSHOTS_WINDOW_MS = 60_000;
/** Maximum number of refusals sent to a branch per second; further questions get no answer. */
const REFUSALS_PER_SECOND = 20;

/**
 * Whether a question is handled. `dropped` means that the branch gets no answer at all, not even a refusal.
 */
export type Entry = 'admitted' | 'refused' | 'dropped';

interface Asker {
  isAsking: boolean;
  left: number;
  itemsLeft: number;
  filledMs: number;
  toldMs: number;
  snapshots: number;
  snapshotsSinceMs: number;
  refusals: number;
  refusalsSinceMs: number;
}

/** Limits the questions of each branch, so that a flood of questions costs other branches no time. */
export class QuestionGate {
  readonly #clock: Clock;
  readonly #askers = new Map<string, Asker>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Decides whether a question is handled. After `admitted`, call `leave` once the question is answered. */
  enter(branch: string, bytes: number): Entry {
    const asker = this.#asker(branch);
    const nowMs = this.#clock.monotonicMs();
    const seconds = (nowMs - asker.filledMs) / 1_000;
    asker.left = Math.min(BURST, asker.left + seconds * PER_SECOND);
    asker.itemsLeft = Math.min(ITEMS_BURST, asker.itemsLeft + seconds * ITEMS_PER_SECOND);
    asker.filledMs = nowMs;
    if (asker.isAsking || asker.left < 1 || bytes > QUESTION_BYTES_MAX) {
      if (nowMs >= asker.refusalsSinceMs + 1_000) {
        asker.refusals = 0;
        asker.refusalsSinceMs = nowMs;
      }
      asker.refusals += 1;
      return asker.refusals > REFUSALS_PER_SECOND ? 'dropped' : 'refused';
    }
    asker.left -= 1 + bytes / BYTES_OF_ONE;
    asker.isAsking = true;
    return 'admitted';
  }

  /**
   * Returns the milliseconds to wait before `items` items may be sent. If it returns 0, the items are counted
   * as sent.
   */
  waitMs(branch: string, items: number): number {
    const asker = this.#asker(branch);
    const missing = items - asker.itemsLeft;
    if (missing > 0) return Math.ceil((missing * 1_000) / ITEMS_PER_SECOND);
    asker.itemsLeft -= items;
    return 0;
  }

  /** Returns whether a hello of the branch may cause a snapshot now. */
  mayCause(branch: string): boolean {
    const asker = this.#asker(branch);
    const nowMs = this.#clock.monotonicMs();
    if (nowMs >= asker.snapshotsSinceMs + SNAPSHOTS_WINDOW_MS) {
      asker.snapshots = 0;
      asker.snapshotsSinceMs = nowMs;
    }
    return asker.snapshots < SNAPSHOTS_MAX;
  }

  /** Counts a snapshot that the branch caused. */
  noteCaused(branch: string): void {
    this.#asker(branch).snapshots += 1;
  }

  leave(branch: string): void {
    this.#asker(branch).isAsking = false;
  }

  /** Returns whether a log line about the branch is due, at most one a minute. If so, records the time. */
  isToTell(branch: string): boolean {
    const asker = this.#asker(branch);
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < asker.toldMs + TOLD_EVERY_MS) return false;
    asker.toldMs = nowMs;
    return true;
  }

  #asker(branch: string): Asker {
    const there = this.#askers.get(branch);
    if (there) return there;
    const nowMs = this.#clock.monotonicMs();
    const asker = {
      isAsking: false,
      left: BURST,
      itemsLeft: ITEMS_BURST,
      filledMs: nowMs,
      toldMs: Number.NEGATIVE_INFINITY,
      snapshots: 0,
      snapshotsSinceMs: nowMs,
      refusals: 0,
      refusalsSinceMs: nowMs,
    };
    this.#askers.set(branch, asker);
    return asker;
  }
}
