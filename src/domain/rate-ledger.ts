import type { Wait } from './call.ts';
import type { Endpoint, PlatformLimits } from './limits.ts';

/**
 * The durable, shared memory of the rate budget. Every process asks it before each call; each method is one
 * short immediate transaction and may throw `storage-busy`.
 */
export interface RateLedger {
  /**
   * Takes the endpoint's lane when the interval since the last answer, the window caps and any block allow it,
   * else says why not and for how long. A lane that was taken and never settled (its process died) frees
   * itself after `holdMs` plus the interval.
   */
  acquire(endpoint: Endpoint, limits: PlatformLimits, holdMs: number): LaneGrant;
  /** Ends a call: the interval counts from now, the moment of the answer (or of giving up). */
  settle(ticket: LaneTicket, limits: PlatformLimits): void;
  /** The platform answered 429: nobody calls `endpoint` for `waitMs`. */
  holdBack(endpoint: Endpoint, waitMs: number): void;
  /** The platform answered 403: nobody calls anything (or only not `endpoint`) for `waitMs`. */
  block(scope: 'all' | Endpoint, waitMs: number, message: string): void;
  /** Ends a block before its time, after a call got through. */
  unblock(scope: 'all' | Endpoint): void;
  /** For status: what is held back now. */
  waits(limits: PlatformLimits): Wait[];
}

export type LaneGrant = { granted: true; ticket: LaneTicket } | { granted: false; wait: Wait };

export interface LaneTicket {
  endpoint: Endpoint;
  /** Fencing number: settling a ticket that another process has overtaken changes nothing. */
  generation: number;
  /** Key of the window entry that this call occupies. */
  callId: number;
}
