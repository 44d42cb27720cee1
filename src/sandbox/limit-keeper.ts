import { type Endpoint, intervalMsOf, type PlatformLimits } from '../domain/platform/limits.ts';
import type { SandboxSettings } from './settings.ts';
import type { Session } from './token-office.ts';

/** Which rule a call broke. */
export type BrokenLimit = 'interval' | 'window' | 'orders-window' | 'blocked';

export type Admission =
  | { admitted: true }
  | { admitted: false; status: 429 | 403; broken: BrokenLimit; waitMs: number };

export interface LimitKeeperOptions {
  limits: PlatformLimits;
  settings: SandboxSettings;
}

/**
 * The platform's limits, measured at arrival: the interval per company and endpoint since the last call that
 * passed, the sliding windows per token over every call, passed or not. Going over a window blocks the token.
 */
export class LimitKeeper {
  readonly #limits: PlatformLimits;
  readonly #settings: SandboxSettings;
  readonly #lastPassed = new Map<string, number>();
  readonly #windows = new Map<string, number[]>();
  readonly #blockedUntil = new Map<string, number>();

  constructor(options: LimitKeeperOptions) {
    this.#limits = options.limits;
    this.#settings = options.settings;
  }

  admit(session: Session, endpoint: Endpoint, arrivedMs: number): Admission {
    const { lineage, company } = session;
    const blockedMs = (this.#blockedUntil.get(lineage) ?? arrivedMs) - arrivedMs;
    if (blockedMs > 0) return { admitted: false, status: 403, broken: 'blocked', waitMs: blockedMs };

    const { requestsPerWindow, ordersPerWindow } = this.#limits;
    const over =
      this.#countIn(lineage, arrivedMs) > requestsPerWindow
        ? 'window'
        : endpoint === 'order.all' && this.#countIn(`${lineage} orders`, arrivedMs) > ordersPerWindow
          ? 'orders-window'
          : undefined;
    if (over) {
      this.block(lineage, arrivedMs);
      return { admitted: false, status: 403, broken: over, waitMs: this.#settings.blockMs };
    }

    const lane = `${company} ${endpoint}`;
    const passed = this.#lastPassed.get(lane);
    const dueMs =
      passed === undefined
        ? arrivedMs
        : passed + intervalMsOf(endpoint, this.#limits) - this.#settings.slackMs;
    if (arrivedMs < dueMs) {
      return { admitted: false, status: 429, broken: 'interval', waitMs: dueMs - arrivedMs };
    }
    this.#lastPassed.set(lane, arrivedMs);
    return { admitted: true };
  }

  /** Blocks a token and all that came from it by rotation, as the platform does after abuse. */
  block(lineage: string, atMs: number, blockMs = this.#settings.blockMs): void {
    this.#blockedUntil.set(lineage, atMs + blockMs);
  }

  unblockAll(): void {
    this.#blockedUntil.clear();
  }

  /** Notes an arrival in a window and returns how many lie in it now. */
  #countIn(key: string, arrivedMs: number): number {
    const kept = (this.#windows.get(key) ?? []).filter((at) => at > arrivedMs - this.#limits.windowMs);
    kept.push(arrivedMs);
    this.#windows.set(key, kept);
    return kept.length;
  }
}
