import type { WaitReason } from '../../domain/platform/call.ts';
import { type Endpoint, intervalMsOf, type PlatformLimits } from '../../domain/platform/limits.ts';

/** Timers and two processes' readings of one clock may differ by a little; never be early. */
const MARGIN_MS = 1;
/** Places of the general cap that only order.all and token.refresh may use, and how much of a small cap. */
const RESERVED_PLACES = 20;
const RESERVED_SHARE = 0.2;
/** After a block, whoever brought it on lets others probe first: a 2xx of theirs tells a permission matter. */
const PROBE_GRACE_MS = 15_000;
/** How soon to look again while another call probes. */
const PROBE_RECHECK_MS = 500;

export interface LaneRow {
  endpoint: Endpoint;
  generation: number;
  taken_mono_ms: number | null;
  taken_until_mono_ms: number | null;
  settled_mono_ms: number | null;
  held_from_mono_ms: number | null;
  held_ms: number | null;
}

export interface BlockRow {
  scope: 'all' | Endpoint;
  endpoint: Endpoint;
  from_mono_ms: number;
  duration_ms: number;
  message: string;
  others_answered: number;
  endpoint_answered: number;
}

/** What the wait of one endpoint depends on, all read in one transaction. */
export interface LaneView {
  nowMs: number;
  endpoint: Endpoint;
  limits: PlatformLimits;
  lane: LaneRow | undefined;
  blocks: BlockRow[];
  /** Whether a call of another endpoint is under way. */
  othersInFlight: boolean;
  /** The moment from which the n-th youngest call of the window counts (n from 1), if there are so many. */
  nthYoungest(n: number, ordersOnly: boolean): number | undefined;
}

export interface LaneWait {
  reason: WaitReason;
  waitMs: number;
}

/** Why `endpoint` may not be called now, by the reason that lasts longest; undefined: it may. */
export function laneWait(view: LaneView): LaneWait | undefined {
  let longest: LaneWait | undefined;
  for (const wait of waitsOf(view)) {
    if (wait.waitMs > 0 && (!longest || wait.waitMs > longest.waitMs)) longest = wait;
  }
  return longest;
}

function* waitsOf(view: LaneView): Generator<LaneWait> {
  const { nowMs, endpoint, limits, lane } = view;
  const intervalMs = intervalMsOf(endpoint, limits) + MARGIN_MS;
  if (lane?.taken_until_mono_ms != null) {
    // The earliest case: it is answered right now, or its holder died and the hold has run out.
    const freeFromMs = Math.min(nowMs, lane.taken_until_mono_ms) + intervalMs;
    yield { reason: 'in-flight', waitMs: freeFromMs - nowMs };
  } else if (lane?.settled_mono_ms != null) {
    yield { reason: 'interval', waitMs: lane.settled_mono_ms + intervalMs - nowMs };
  }
  if (lane?.held_from_mono_ms != null) {
    yield { reason: 'retry-after', waitMs: lane.held_from_mono_ms + (lane.held_ms ?? 0) - nowMs };
  }
  yield* blockWaits(view);
  yield { reason: 'window', waitMs: windowWait(view, generalPlaces(endpoint, limits), false) };
  if (endpoint === 'order.all') {
    yield { reason: 'window', waitMs: windowWait(view, limits.ordersPerWindow, true) };
  }
}

function* blockWaits({ nowMs, endpoint, blocks, othersInFlight }: LaneView): Generator<LaneWait> {
  for (const block of blocks) {
    if (block.scope !== 'all' && block.scope !== endpoint) continue;
    const restMs = block.from_mono_ms + block.duration_ms - nowMs;
    const probing = block.scope === 'all' && !block.others_answered && !block.endpoint_answered;
    const graceMs =
      probing && block.endpoint === endpoint ? Math.min(PROBE_GRACE_MS, block.duration_ms / 4) : 0;
    yield { reason: 'blocked', waitMs: restMs + graceMs };
    if (probing && othersInFlight) yield { reason: 'blocked', waitMs: PROBE_RECHECK_MS };
  }
}

/** A place is free once the oldest of as many calls as there are places has left the window. */
function windowWait(view: LaneView, places: number, ordersOnly: boolean): number {
  const countsFromMs = view.nthYoungest(Math.max(1, places), ordersOnly);
  return countsFromMs === undefined ? 0 : countsFromMs + view.limits.windowMs + MARGIN_MS - view.nowMs;
}

function generalPlaces(endpoint: Endpoint, limits: PlatformLimits): number {
  const all = limits.requestsPerWindow;
  if (endpoint === 'order.all' || endpoint === 'token.refresh') return all;
  return all - Math.min(RESERVED_PLACES, Math.floor(all * RESERVED_SHARE));
}
