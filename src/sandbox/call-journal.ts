import type { Endpoint } from '../domain/platform/limits.ts';
import type { FaultKind } from './faults.ts';
import type { BrokenLimit } from './limit-keeper.ts';

/** One call of the platform's API, as the platform saw it. */
export interface CallRecord {
  seq: number;
  endpoint: Endpoint;
  /** Monotonic milliseconds at arrival, by which the limits are measured. */
  arrivedMs: number;
  /** Platform's wall clock at arrival, ISO 8601. */
  at: string;
  /** HTTP status; `dropped` when the connection ended without an answer, null while there is none yet. */
  status: number | 'dropped' | null;
  /** Items of a batch call. */
  items: number | null;
  /** The fault that was switched on for it. */
  fault: FaultKind | null;
  /** The limit it broke. */
  broken: BrokenLimit | null;
}

export interface CallCounts {
  calls: number;
  rateLimited: number;
  blocked: number;
}

/** The oldest records go when there are more; the counts stay exact. */
const RECORDS_MAX = 200_000;

/** Every call with its arrival and its end, for assertions and for people who watch. */
export class CallJournal {
  #records: CallRecord[] = [];
  #seq = 0;
  readonly #violations: CallRecord[] = [];
  readonly #counts = new Map<Endpoint, CallCounts>();

  arrive(endpoint: Endpoint, arrivedMs: number, nowMs: number): CallRecord {
    this.#seq += 1;
    const record: CallRecord = {
      seq: this.#seq,
      endpoint,
      arrivedMs,
      at: new Date(nowMs).toISOString(),
      status: null,
      items: null,
      fault: null,
      broken: null,
    };
    this.#records.push(record);
    if (this.#records.length > RECORDS_MAX * 1.1) this.#records = this.#records.slice(-RECORDS_MAX);
    this.#countsOf(endpoint).calls += 1;
    return record;
  }

  /** Notes that a call broke a limit of the document. */
  violate(record: CallRecord, broken: BrokenLimit): void {
    record.broken = broken;
    this.#violations.push(record);
    const counts = this.#countsOf(record.endpoint);
    if (broken === 'interval') counts.rateLimited += 1;
    else counts.blocked += 1;
  }

  calls(endpoint?: Endpoint): readonly CallRecord[] {
    return endpoint ? this.#records.filter((record) => record.endpoint === endpoint) : this.#records;
  }

  /** Calls that broke a limit by themselves; a 429 or 403 that was switched on as a fault is none. */
  violations(): readonly CallRecord[] {
    return this.#violations;
  }

  counts(): Partial<Record<Endpoint, CallCounts>> {
    return Object.fromEntries(this.#counts);
  }

  #countsOf(endpoint: Endpoint): CallCounts {
    const known = this.#counts.get(endpoint);
    if (known) return known;
    const counts = { calls: 0, rateLimited: 0, blocked: 0 };
    this.#counts.set(endpoint, counts);
    return counts;
  }
}
