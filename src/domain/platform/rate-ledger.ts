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
  /** Keeps a lane for another `holdMs` from now, while its call is under way; nothing once it was overtaken. */
  extend(ticket: LaneTicket, holdMs: number): void;
  /**
   * Ends a call: the interval counts from now, the moment of the answer (or of giving up). A 2xx answer also
   * ends what is left of a block, for it proves that the platform lets calls through again.
   */
  settle(ticket: LaneTicket, limits: PlatformLimits, outcome?: 'answered' | 'failed'): void;
  /** Gives a lane back whose call was never sent, as if it had not been taken. */
  cancel(ticket: LaneTicket): void;
  /** The platform answered 429: nobody calls `endpoint` for `waitMs`. */
  holdBack(endpoint: Endpoint, waitMs: number): void;
  /**
   * The platform answered 403 to `endpoint`: nobody calls anything (or only not `scope`) for `waitMs`. After a
   * block of all, one call at a time probes until a 2xx answer comes.
   */
  block(scope: 'all' | Endpoint, waitMs: number, message: string, endpoint?: Endpoint): void;
  /** What a 403 answer to `endpoint` is judged by. */
  blockHistory(endpoint: Endpoint, limits: PlatformLimits): BlockHistory;
  /** Ends a block before its time, after a call got through. */
  unblock(scope: 'all' | Endpoint): void;
  /** What holds `endpoint` back now; undefined: nothing. */
  waitOf(endpoint: Endpoint, limits: PlatformLimits): Wait | undefined;
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

export interface BlockHistory {
  /** Calls in the current window, of all endpoints and of `order.all`. */
  requests: number;
  orders: number;
  /** The last block of everything, and the last of this endpoint alone; null when there was none. */
  all: BlockRecord | null;
  own: BlockRecord | null;
}

export interface BlockRecord {
  /** Whose 403 began it. */
  endpoint: Endpoint;
  durationMs: number;
  /** Milliseconds since it ended; negative while it lasts. */
  endedMsAgo: number;
  message: string;
  /** Whether, since it ended, another endpoint or this one itself answered 2xx. */
  othersAnswered: boolean;
  endpointAnswered: boolean;
}
