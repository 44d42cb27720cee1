import * as z from 'zod';
import type { Random } from '../core/time.ts';
import { ENDPOINTS, type Endpoint } from '../platform/platform.ts';
import { drawChance } from './draws.ts';

/** What can be made to go wrong with a call. */
export const FAULT_KINDS = [
  'status', // answers `status` (500 unless told)
  'rate-limit', // 429 though no limit was broken
  'block', // 403, and the token stays blocked for a while
  'forbid', // 403 on this endpoint only, nothing blocked
  'unauthorized', // 401 though the token is good
  'drop', // the connection ends without an answer
  'hang', // no answer until the caller gives up
  'cut-body', // the connection ends in the middle of the body
  'slow-body', // the body trickles over `delayMs`
  'html', // 200 with a page
  'truncated-json', // 200 with half of the JSON
  'not-success', // success: false
  'wrong-content-type', // right JSON, called text/plain
  'miscount', // batches: one good item is neither applied nor listed
  'batch-refused', // batches: refused whole for one bad or poisonous item
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Kinds that spoil a finished answer unless told otherwise; the others leave the work undone. */
const AFTER: ReadonlySet<FaultKind> = new Set([
  'cut-body',
  'slow-body',
  'truncated-json',
  'wrong-content-type',
]);

export const faultSpec = z.strictObject({
  kind: z.enum(FAULT_KINDS),
  /** One endpoint, or every one when left out. */
  endpoint: z.enum(ENDPOINTS).exactOptional(),
  /** How often it strikes; without it, until cleared. */
  times: z.int().min(1).exactOptional(),
  /** Calls that pass before it can strike. */
  skip: z.int().min(0).exactOptional(),
  /** Chance at each call; 1 unless told. */
  probability: z.number().min(0).max(1).exactOptional(),
  /** Whether the call's work is left undone (`before`) or done with its answer lost or spoiled (`after`). */
  when: z.enum(['before', 'after']).exactOptional(),
  /** HTTP status of `status` and `batch-refused`. */
  status: z.int().min(400).max(599).exactOptional(),
  /** Time of `slow-body`; how long `block` lasts. */
  delayMs: z.number().min(0).exactOptional(),
  /** Retry-After of `rate-limit` as sent; null: none. */
  retryAfter: z.string().nullable().exactOptional(),
  /** `batch-refused`: SKUs or externalIds that spoil a batch though they are valid. */
  poison: z.array(z.union([z.string(), z.number()])).exactOptional(),
});
export type FaultSpec = z.infer<typeof faultSpec>;

/** A fault that strikes one call. */
export type Fault = FaultSpec & { id: number; when: 'before' | 'after' };

/** The faults that are switched on. Of several that could strike one call, the oldest does. */
export class Faults {
  readonly #random: Random;
  #active: { fault: Fault; skip: number; left: number }[] = [];
  #nextId = 1;

  constructor(random: Random) {
    this.#random = random;
  }

  /** Switches a fault on and returns its id. */
  add(spec: FaultSpec): number {
    const when = spec.when ?? (AFTER.has(spec.kind) ? 'after' : 'before');
    const fault = { ...spec, id: this.#nextId, when };
    this.#nextId += 1;
    this.#active.push({ fault, skip: spec.skip ?? 0, left: spec.times ?? Number.POSITIVE_INFINITY });
    return fault.id;
  }

  /** Switches one off, or all. */
  clear(id?: number): void {
    this.#active = id === undefined ? [] : this.#active.filter((entry) => entry.fault.id !== id);
  }

  list(): Fault[] {
    return this.#active.map((entry) => entry.fault);
  }

  /** The fault that strikes this call, used up by one. */
  strike(endpoint: Endpoint): Fault | undefined {
    for (const entry of this.#active) {
      if (entry.fault.endpoint !== undefined && entry.fault.endpoint !== endpoint) continue;
      if (entry.skip > 0) {
        entry.skip -= 1;
        continue;
      }
      if (!drawChance(this.#random, entry.fault.probability ?? 1)) continue;
      entry.left -= 1;
      if (entry.left <= 0) this.clear(entry.fault.id);
      return entry.fault;
    }
    return undefined;
  }
}
