import { whenFree } from '../domain/busy.ts';
import type { Leases } from '../domain/leases.ts';
import type { Clock } from '../domain/time/clock.ts';

const LEASE = 'outbox.push';
/** Long, so that an idle process writes nothing: the lease of a process that has died ends at once anyway. */
const HOLD_MS = 3_600_000;
const RENEW_EVERY_MS = 1_800_000;
/** Given up this long before it ends, so that a call that was just begun is over when another process starts. */
const MARGIN_MS = 10_000;

export interface SendLeaseOptions {
  leases: Leases;
  clock: Clock;
  /** Called with the lease taken and before anything is sent; when it throws, it is not taken. */
  onTaken: () => Promise<void>;
}

/** The lease of sending, so that one process sends at a time. Held only while it is certain that it is. */
export class SendLease {
  readonly #options: SendLeaseOptions;
  #fence: number | undefined;
  #renewDueMs = 0;
  #endsMs = 0;

  constructor(options: SendLeaseOptions) {
    this.#options = options;
  }

  get isHeld(): boolean {
    return this.#fence !== undefined && this.#options.clock.monotonicMs() < this.#endsMs - MARGIN_MS;
  }

  /** Takes the lease when it is free and renews it in time; to be called every second or so. */
  async keep(): Promise<void> {
    const { leases, clock, onTaken } = this.#options;
    const fence = this.#fence;
    const nowMs = clock.monotonicMs();
    if (fence === undefined) {
      const taken = await whenFree(clock, () => leases.acquire(LEASE, HOLD_MS));
      if (taken === undefined) return;
      try {
        await onTaken();
      } catch (error) {
        await whenFree(clock, () => leases.release(LEASE, taken));
        throw error;
      }
      this.#fence = taken;
    } else if (nowMs < this.#renewDueMs) {
      return;
    } else if (!(await whenFree(clock, () => leases.renew(LEASE, fence, HOLD_MS)))) {
      this.#fence = undefined;
      return;
    }
    this.#endsMs = nowMs + HOLD_MS;
    this.#renewDueMs = nowMs + RENEW_EVERY_MS;
  }

  async release(): Promise<void> {
    const { leases, clock } = this.#options;
    const fence = this.#fence;
    this.#fence = undefined;
    if (fence !== undefined) await whenFree(clock, () => leases.release(LEASE, fence)).catch(() => {});
  }
}
