import type * as z from 'zod';
import type { Endpoint, PlatformLimits } from '../platform/platform.ts';
import type { FaultKind } from './faults.ts';
import type { SandboxSettings } from './settings.ts';
import type { Session } from './tokens.ts';

/** A request to the sandbox, from a socket or from a simulation in the same process. */
export interface SandboxRequest {
  method: string;
  /** Path with its query, such as `/order/all?startDate=2026-01-01`. */
  url: string;
  /** Headers, with names in lower case. */
  headers: Record<string, string | undefined>;
  body?: string | Uint8Array | undefined;
  /** Aborted when the caller stops waiting; a hanging answer then ends. */
  signal?: AbortSignal | undefined;
}

/** The sandbox's answer to a call. */
export type SandboxAnswer =
  | {
      kind: 'answer';
      status: number;
      headers: Record<string, string>;
      body: string;
      /** Time over which the body is sent in pieces; 0 sends it at once. */
      slowMs: number;
    }
  /** The connection ends; `partial` is the part of the answer that was sent before. */
  | { kind: 'dropped'; partial?: { status: number; headers: Record<string, string>; body: string } };

/** Result of an endpoint before headers and faults. */
export interface Reply {
  status: number;
  body?: unknown;
  /** The body, if it is JSON text already. */
  json?: string;
  headers?: Record<string, string>;
}

/** Returns the envelope of the modification endpoints and the webhook configuration. */
export function envelope(data: unknown, message = 'OK'): Reply {
  return { status: 200, body: { success: true, message, data } };
}

/** Returns the reply to a failed operation: the document's envelope with success: false. */
export function refusal(status: number, message: string): Reply {
  return { status, body: { success: false, message, data: {} } };
}

/** Returns a 4xx or 5xx. The document does not show their bodies; this is a common plain form. */
export function failure(status: number, message: string, headers: Record<string, string> = {}): Reply {
  return { status, body: { success: false, statusCode: status, message }, headers };
}

/** Returns the reply to an invalid request. It names the first fault of the request. */
export function invalid(status: number, error: z.ZodError): Reply {
  return failure(status, firstFault(error));
}

export function firstFault(error: z.ZodError): string {
  const issue = error.issues[0];
  return issue ? `${issue.path.join('.')} ${issue.message}`.trim() : 'Invalid';
}

type BrokenLimit = 'interval' | 'window' | 'orders-window' | 'blocked';

type Admission =
  | { admitted: true }
  | { admitted: false; status: 429 | 403; broken: BrokenLimit; waitMs: number };

/**
 * Checks the platform's limits at arrival: the interval per company and endpoint since the last accepted call, and
 * the sliding windows per token over every call, accepted or not. Exceeding a window blocks the token.
 */
export class LimitKeeper {
  readonly #limits: PlatformLimits;
  readonly #settings: SandboxSettings;
  readonly #lastPassed = new Map<string, number>();
  readonly #windows = new Map<string, number[]>();
  readonly #blockedUntil = new Map<string, number>();

  constructor(limits: PlatformLimits, settings: SandboxSettings) {
    this.#limits = limits;
    this.#settings = settings;
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
    const { ordersIntervalMs, endpointIntervalMs } = this.#limits;
    const intervalMs = endpoint === 'order.all' ? ordersIntervalMs : endpointIntervalMs;
    const dueMs = passed === undefined ? arrivedMs : passed + intervalMs - this.#settings.slackMs;
    if (arrivedMs < dueMs) {
      return { admitted: false, status: 429, broken: 'interval', waitMs: dueMs - arrivedMs };
    }
    this.#lastPassed.set(lane, arrivedMs);
    return { admitted: true };
  }

  /** Blocks a token and all tokens rotated from it, as the platform does after abuse. */
  block(lineage: string, atMs: number, blockMs = this.#settings.blockMs): void {
    this.#blockedUntil.set(lineage, atMs + blockMs);
  }

  unblockAll(): void {
    this.#blockedUntil.clear();
  }

  /** Adds an arrival to a window. Returns the number of arrivals that are in the window now. */
  #countIn(key: string, arrivedMs: number): number {
    const kept = (this.#windows.get(key) ?? []).filter((at) => at > arrivedMs - this.#limits.windowMs);
    kept.push(arrivedMs);
    this.#windows.set(key, kept);
    return kept.length;
  }
}

/** A call of the platform's API, as the platform saw it. */
export interface CallRecord {
  seq: number;
  endpoint: Endpoint;
  /** Monotonic milliseconds at arrival, by which the limits are measured. */
  arrivedMs: number;
  /** The platform's wall clock at arrival, ISO 8601. */
  at: string;
  /** HTTP status; `dropped` if the connection ended before a whole answer, null before the answer. */
  status: number | 'dropped' | null;
  /** Number of items of a batch call; null for other calls. */
  items: number | null;
  /** Fault that was applied to the call; null if none. */
  fault: FaultKind | null;
  /** Limit that the call broke; null if none. */
  broken: BrokenLimit | null;
}

interface CallCounts {
  calls: number;
  rateLimited: number;
  blocked: number;
}

/** Number of newest records that stay when older ones are deleted. The counts include deleted records. */
const RECORDS_MAX = 200_000;

/** Records every call with its arrival and end, for assertions and for people who watch. */
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

  /** Records that a call broke a limit of the document. */
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

  /** Returns calls that broke a limit themselves; a 429 or 403 by a fault does not count. */
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
