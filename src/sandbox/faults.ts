import * as z from 'zod';
import type { Random } from '../core/time.ts';
import { ENDPOINTS, type Endpoint } from '../platform/platform.ts';
import { drawChance } from './draws.ts';

/** Faults that can be applied to a call. */
export const FAULT_KINDS = [
  'status', // answers `status` (500 if left out)
  'rate-limit', // 429 although no limit was broken
  'block', // 403, and the token stays blocked for a while
  'forbid', // 403 on this endpoint only; nothing is blocked
  'unauthorized', // 401 although the token is valid
  'drop', // the connection ends without an answer
  'hang', // no answer until the caller stops waiting
  'cut-body', // the connection ends in the middle of the body
  'slow-body', // the body trickles over `delayMs`
  'html', // 200 with an HTML page
  'truncated-json', // 200 with half of the JSON
  'not-success', // success: false
  'wrong-content-type', // correct JSON with the content type text/plain
  'miscount', // batches: one good item is neither applied nor listed
  'batch-refused', // batches: the whole batch is refused because of one bad or poisoned item
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Kinds for which `when` is `after` by default, because they damage a finished answer; else it is `before`. */
const AFTER: ReadonlySet<FaultKind> = new Set([
  'cut-body',
  'slow-body',
  'truncated-json',
  'wrong-content-type',
]);

export const faultSpec = z.strictObject({
  kind: z.enum(FAULT_KINDS),
  /** The endpoint that fails; if left out, every endpoint does. */
  endpoint: z.enum(ENDPOINTS).exactOptional(),
  /** Number of calls to which the fault applies; if left out, it applies until cleared. */
  times: z.int().min(1).exactOptional(),
  /** Number of calls that pass before the fault applies. */
  skip: z.int().min(0).exactOptional(),
  /** Probability at each call; 1 if left out. */
  probability: z.number().min(0).max(1).exactOptional(),
  /** Whether the call does nothing (`before`), or works and its answer is lost or damaged (`after`). */
  when: z.enum(['before', 'after']).exactOptional(),
  /** HTTP status of `status` and `batch-refused`. */
  status: z.int().min(400).max(599).exactOptional(),
  /** Duration of `slow-body` or of `block`. */
  delayMs: z.number().min(0).exactOptional(),
  /** Retry-After header of `rate-limit`; null sends none. If left out, it is one second in the form of the settings. */
  retryAfter: z.string().nullable().exactOptional(),
  /** `batch-refused`: SKUs or externalIds that make a batch be refused although they are valid. */
  poison: z.array(z.union([z.string(), z.number()])).exactOptional(),
});
export type FaultSpec = z.infer<typeof faultSpec>;

/** A fault applied to one call. */
export type Fault = FaultSpec & { id: number; when: 'before' | 'after' };

/** The active faults. If several match a call, the oldest applies. */
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

  /** Switches a fault off; all faults if `id` is left out. */
  clear(id?: number): void {
    this.#active = id === undefined ? [] : this.#active.filter((entry) => entry.fault.id !== id);
  }

  list(): Fault[] {
    return this.#active.map((entry) => entry.fault);
  }

  /** Returns the fault for this call, and counts it as used once. */
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
