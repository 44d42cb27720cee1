import type { Endpoint } from '../domain/platform/limits.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import type { CallJournal, CallRecord } from './call-journal.ts';
import type { Door } from './door.ts';
import { failure, type Reply, type SandboxAnswer, type SandboxRequest } from './exchange.ts';
import type { FaultAnswers } from './fault-answers.ts';
import type { Fault, Faults } from './faults.ts';
import { endpointOf, type SandboxSettings } from './settings.ts';
import type { Session } from './token-office.ts';

/** A call that passed the door, as an endpoint gets it. */
export interface Call {
  session: Session;
  query: URLSearchParams;
  /** Parsed JSON; undefined when there was no body. */
  body: unknown;
  /** A fault that the endpoint itself has to act out (`miscount`, `batch-refused`). */
  fault: Fault | undefined;
  record: CallRecord;
}

export type Endpoints = Record<Endpoint, (call: Call) => Reply>;

export interface EngineOptions {
  clock: Clock;
  random: Random;
  settings: SandboxSettings;
  door: Door;
  faults: Faults;
  faultAnswers: FaultAnswers;
  journal: CallJournal;
  endpoints: Endpoints;
}

/**
 * The way of every call: latency, arrival, authentication, limits, faults, work. Knows no socket, so that a
 * simulation on a fake clock can call it in its own process and find the same rules.
 */
export class Engine {
  readonly #options: EngineOptions;

  constructor(options: EngineOptions) {
    this.#options = options;
  }

  async handle(request: SandboxRequest): Promise<SandboxAnswer> {
    const { clock, random, settings } = this.#options;
    const [leastMs, mostMs] = settings.latencyMs;
    if (mostMs <= 0) return this.#arrive(request);
    const roundMs = leastMs + random.next() * (mostMs - leastMs);
    const thereMs = roundMs * random.next();
    await clock.sleep(thereMs, request.signal);
    const answer = await this.#arrive(request);
    await clock.sleep(roundMs - thereMs, request.signal);
    return answer;
  }

  async #arrive(request: SandboxRequest): Promise<SandboxAnswer> {
    const { clock, settings, journal, faultAnswers } = this.#options;
    const url = new URL(request.url, 'http://sandbox.invalid');
    const endpoint = endpointOf(request.method, url.pathname, settings);
    if (!endpoint) {
      return faultAnswers.plain(failure(404, `Cannot ${request.method} ${url.pathname}`));
    }
    const record = journal.arrive(endpoint, clock.monotonicMs(), clock.nowMs() + settings.clockSkewMs);
    const answer = await this.#answer(endpoint, url.searchParams, request, record);
    record.status = answer.kind === 'answer' ? answer.status : 'dropped';
    return answer;
  }

  async #answer(
    endpoint: Endpoint,
    query: URLSearchParams,
    request: SandboxRequest,
    record: CallRecord,
  ): Promise<SandboxAnswer> {
    const { door, faults, faultAnswers, endpoints, settings } = this.#options;
    const parsed = parseBody(request.body);
    const entry = door.enter(endpoint, request, parsed.body, record);
    if ('refused' in entry) return faultAnswers.plain(entry.refused);
    const { session } = entry;
    const fault = faults.strike(endpoint);
    record.fault = fault?.kind ?? null;
    if (fault?.when === 'before' && !isActedOutByEndpoint(fault)) {
      return faultAnswers.spoil(fault, undefined, session, request.signal);
    }
    const reply = parsed.valid
      ? endpoints[endpoint]({ session, query, body: parsed.body, fault, record })
      : failure(settings.validationStatus, 'The body is not JSON');
    if (!fault) return faultAnswers.plain(reply);
    return faultAnswers.spoil(fault, reply, session, request.signal);
  }
}

function isActedOutByEndpoint(fault: Fault): boolean {
  return fault.kind === 'miscount' || fault.kind === 'batch-refused';
}

function parseBody(body: SandboxRequest['body']): { valid: boolean; body?: unknown } {
  if (body === undefined || body.length === 0) return { valid: true };
  try {
    return { valid: true, body: JSON.parse(typeof body === 'string' ? body : Buffer.from(body).toString()) };
  } catch {
    return { valid: false };
  }
}
