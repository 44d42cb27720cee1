import type { Endpoint } from '../platform/platform.ts';
import {
  type CallJournal,
  type CallRecord,
  envelope,
  failure,
  type LimitKeeper,
  type Reply,
  refusal,
  type SandboxAnswer,
  type SandboxRequest,
} from './exchange.ts';
import type { Fault, Faults } from './faults.ts';
import { endpointOf, platformNowMs, type SandboxEnvironment } from './settings.ts';
import type { Session, TokenOffice } from './tokens.ts';

const PAGE = '<!doctype html><html><head><title>Bad gateway</title></head><body><h1>502</h1></body></html>';

/** An authenticated call within its limits, as an endpoint gets it. */
export interface Call {
  session: Session;
  query: URLSearchParams;
  /** Parsed JSON; undefined if there was no body. */
  body: unknown;
  /** A fault that the endpoint itself simulates (`miscount`, `batch-refused`). */
  fault: Fault | undefined;
  record: CallRecord;
}

export type Endpoints = Record<Endpoint, (call: Call) => Reply>;

/** The platform's rules without its endpoints. Tests read and change the rules directly. */
export interface Rules {
  tokens: TokenOffice;
  limits: LimitKeeper;
  journal: CallJournal;
  faults: Faults;
}

/**
 * Runs the steps of every call: latency, arrival, authentication, limits, faults, endpoint. It uses no
 * socket, so that a simulation with a fake clock can call it under the same rules.
 */
export class Engine {
  readonly #environment: SandboxEnvironment;
  readonly #rules: Rules;
  readonly #endpoints: Endpoints;

  constructor(environment: SandboxEnvironment, rules: Rules, endpoints: Endpoints) {
    this.#environment = environment;
    this.#rules = rules;
    this.#endpoints = endpoints;
  }

  async handle(request: SandboxRequest): Promise<SandboxAnswer> {
    const { clock, random, settings } = this.#environment;
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
    const { clock, settings } = this.#environment;
    const url = new URL(request.url, 'http://sandbox.invalid');
    const endpoint = endpointOf(request.method, url.pathname, settings);
    if (!endpoint) {
      return this.#plain(failure(404, `Cannot ${request.method} ${url.pathname}`));
    }
    const nowMs = platformNowMs(this.#environment);
    const record = this.#rules.journal.arrive(endpoint, clock.monotonicMs(), nowMs);
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
    const parsed = parseBody(request.body);
    const entry = this.#enter(endpoint, request, parsed.body, record);
    if ('refused' in entry) return this.#plain(entry.refused);
    const { session } = entry;
    const fault = this.#rules.faults.strike(endpoint);
    record.fault = fault?.kind ?? null;
    if (fault?.when === 'before' && !isActedOutByEndpoint(fault)) {
      return this.#spoil(fault, undefined, session, request.signal);
    }
    const reply = parsed.valid
      ? this.#endpoints[endpoint]({ session, query, body: parsed.body, fault, record })
      : failure(this.#environment.settings.validationStatus, 'The body is not JSON');
    if (!fault) return this.#plain(reply);
    return this.#spoil(fault, reply, session, request.signal);
  }

  /** Checks authentication and limits. Returns the caller, or the refusal. */
  #enter(
    endpoint: Endpoint,
    { headers }: SandboxRequest,
    body: unknown,
    record: CallRecord,
  ): { session: Session } | { refused: Reply } {
    const { limits, journal, tokens } = this.#rules;
    const session =
      endpoint === 'token.refresh'
        ? tokens.refreshSession(refreshTokenOf(body))
        : tokens.session(/^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1]);
    if (!session) return { refused: failure(401, 'Unauthorized') };
    const admission = limits.admit(session, endpoint, record.arrivedMs);
    if (admission.admitted) return { session };
    journal.violate(record, admission.broken);
    if (admission.status === 403) return { refused: failure(403, 'Token temporarily blocked') };
    return { refused: this.#tooMany(admission.waitMs) };
  }

  /** Returns a 429 with Retry-After in the configured form. */
  #tooMany(waitMs: number): Reply {
    const { retryAfter } = this.#environment.settings;
    const seconds = Math.max(1, Math.ceil(waitMs / 1000));
    const headers: Record<string, string> = {};
    if (retryAfter === 'seconds') headers['retry-after'] = String(seconds);
    if (retryAfter === 'date') {
      headers['retry-after'] = new Date(platformNowMs(this.#environment) + seconds * 1000).toUTCString();
    }
    return failure(429, 'Too Many Requests', headers);
  }

  /** Turns a reply into an answer, without a fault. */
  #plain(reply: Reply): Extract<SandboxAnswer, { kind: 'answer' }> {
    return {
      kind: 'answer',
      status: reply.status,
      headers: {
        'content-type': 'application/json; charset=utf-8',
        date: new Date(platformNowMs(this.#environment)).toUTCString(),
        ...reply.headers,
      },
      body: reply.json ?? JSON.stringify(reply.body),
      slowMs: 0,
    };
  }

  /** Applies a fault. `done` is the endpoint's reply; undefined if it did not run. */
  async #spoil(
    fault: Fault,
    done: Reply | undefined,
    session: Session,
    signal: AbortSignal | undefined,
  ): Promise<SandboxAnswer> {
    const replaced = this.#replacement(fault, session);
    if (replaced) return this.#plain(replaced);
    const answer = this.#plain(done ?? envelope({}));
    switch (fault.kind) {
      case 'drop':
        return { kind: 'dropped' };
      case 'hang':
        await aborted(AbortSignal.any([this.#environment.closing, ...(signal ? [signal] : [])]));
        return { kind: 'dropped' };
      case 'cut-body':
        return { kind: 'dropped', partial: { ...answer, body: half(answer.body) } };
      case 'truncated-json':
        return { ...answer, body: half(answer.body) };
      case 'slow-body':
        return { ...answer, slowMs: fault.delayMs ?? 1000 };
      case 'html':
        return { ...answer, headers: { ...answer.headers, 'content-type': 'text/html' }, body: PAGE };
      case 'wrong-content-type':
        return { ...answer, headers: { ...answer.headers, 'content-type': 'text/plain' } };
      default:
        return answer;
    }
  }

  #replacement(fault: Fault, session: Session): Reply | undefined {
    const { settings, clock } = this.#environment;
    switch (fault.kind) {
      case 'status':
        return failure(fault.status ?? 500, 'Internal server error');
      case 'rate-limit': {
        const reply = this.#tooMany(1000);
        if (fault.retryAfter === undefined) return reply;
        return { ...reply, headers: fault.retryAfter === null ? {} : { 'retry-after': fault.retryAfter } };
      }
      case 'block':
        this.#rules.limits.block(session.lineage, clock.monotonicMs(), fault.delayMs ?? settings.blockMs);
        return failure(403, 'Token temporarily blocked');
      case 'forbid':
        return failure(403, 'Forbidden resource');
      case 'unauthorized':
        return failure(401, 'Unauthorized');
      case 'not-success':
        return refusal(settings.refusalStatus, 'The operation failed');
      default:
        return undefined;
    }
  }
}

/** Returns the token in a body of POST /token/refresh. */
function refreshTokenOf(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null || !('refreshToken' in body)) return undefined;
  return typeof body.refreshToken === 'string' ? body.refreshToken : undefined;
}

function half(text: string): string {
  return text.slice(0, Math.max(1, Math.floor(text.length / 2)));
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
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
