import type { Clock } from '../domain/time/clock.ts';
import type { Door } from './door.ts';
import { envelope, failure, type Reply, refusal, type SandboxAnswer } from './exchange.ts';
import type { Fault } from './faults.ts';
import type { LimitKeeper } from './limit-keeper.ts';
import type { SandboxSettings } from './settings.ts';
import type { Session } from './token-office.ts';

const PAGE = '<!doctype html><html><head><title>Bad gateway</title></head><body><h1>502</h1></body></html>';

export interface FaultAnswersOptions {
  clock: Clock;
  settings: SandboxSettings;
  door: Door;
  limits: LimitKeeper;
  /** Ends every hang when the sandbox closes. */
  closing: AbortSignal;
}

/** Turns a call's reply, or its absence, into what a fault makes of it. */
export class FaultAnswers {
  readonly #options: FaultAnswersOptions;

  constructor(options: FaultAnswersOptions) {
    this.#options = options;
  }

  /** A reply as it leaves when nothing is wrong. */
  plain(reply: Reply): Extract<SandboxAnswer, { kind: 'answer' }> {
    const { clock, settings } = this.#options;
    return {
      kind: 'answer',
      status: reply.status,
      headers: {
        'content-type': 'application/json; charset=utf-8',
        date: new Date(clock.nowMs() + settings.clockSkewMs).toUTCString(),
        ...reply.headers,
      },
      body: reply.json ?? JSON.stringify(reply.body),
      slowMs: 0,
    };
  }

  /** `done`: the reply of the work; undefined when it was left undone. */
  async spoil(
    fault: Fault,
    done: Reply | undefined,
    session: Session,
    signal: AbortSignal | undefined,
  ): Promise<SandboxAnswer> {
    const replaced = this.#replacement(fault, session);
    if (replaced) return this.plain(replaced);
    const answer = this.plain(done ?? envelope({}));
    switch (fault.kind) {
      case 'drop':
        return { kind: 'dropped' };
      case 'hang':
        await aborted(signal ? AbortSignal.any([signal, this.#options.closing]) : this.#options.closing);
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
    const { settings, door, limits, clock } = this.#options;
    switch (fault.kind) {
      case 'status':
        return failure(fault.status ?? 500, 'Internal server error');
      case 'rate-limit': {
        const reply = door.tooMany(1000);
        if (fault.retryAfter === undefined) return reply;
        return { ...reply, headers: fault.retryAfter === null ? {} : { 'retry-after': fault.retryAfter } };
      }
      case 'block':
        limits.block(session.lineage, clock.monotonicMs(), fault.delayMs ?? settings.blockMs);
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

function half(text: string): string {
  return text.slice(0, Math.max(1, Math.floor(text.length / 2)));
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
