import type { Endpoint } from '../domain/platform/limits.ts';
import type { Clock } from '../domain/time/clock.ts';
import type { CallJournal, CallRecord } from './call-journal.ts';
import { failure, type Reply, type SandboxRequest } from './exchange.ts';
import type { LimitKeeper } from './limit-keeper.ts';
import type { SandboxSettings } from './settings.ts';
import type { Session, TokenOffice } from './token-office.ts';

export interface DoorOptions {
  clock: Clock;
  settings: SandboxSettings;
  tokens: TokenOffice;
  limits: LimitKeeper;
  journal: CallJournal;
}

/** Who calls, or why the call goes no further. */
export type Entry = { session: Session } | { refused: Reply };

/** Authentication and limits: what every call passes before its endpoint's work. */
export class Door {
  readonly #options: DoorOptions;

  constructor(options: DoorOptions) {
    this.#options = options;
  }

  enter(endpoint: Endpoint, request: SandboxRequest, body: unknown, record: CallRecord): Entry {
    const session =
      endpoint === 'token.refresh' ? this.#refreshSession(body) : this.#bearerSession(request.headers);
    if (!session) return { refused: failure(401, 'Unauthorized') };
    const { limits, journal } = this.#options;
    const admission = limits.admit(session, endpoint, record.arrivedMs);
    if (admission.admitted) return { session };
    journal.violate(record, admission.broken);
    if (admission.status === 403) return { refused: failure(403, 'Token temporarily blocked') };
    return { refused: this.tooMany(admission.waitMs) };
  }

  /** 429, naming its wait as the settings say. */
  tooMany(waitMs: number): Reply {
    const { settings, clock } = this.#options;
    const seconds = Math.max(1, Math.ceil(waitMs / 1000));
    const headers: Record<string, string> = {};
    if (settings.retryAfter === 'seconds') headers['retry-after'] = String(seconds);
    if (settings.retryAfter === 'date') {
      const dueMs = clock.nowMs() + settings.clockSkewMs + seconds * 1000;
      headers['retry-after'] = new Date(dueMs).toUTCString();
    }
    return failure(429, 'Too Many Requests', headers);
  }

  #bearerSession(headers: SandboxRequest['headers']): Session | undefined {
    const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '');
    return this.#options.tokens.session(bearer?.[1]);
  }

  #refreshSession(body: unknown): Session | undefined {
    const refreshToken = refreshTokenOf(body);
    return refreshToken === undefined ? undefined : this.#options.tokens.refreshSession(refreshToken);
  }
}

/** The token in a body of POST /token/refresh. */
export function refreshTokenOf(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null || !('refreshToken' in body)) return undefined;
  return typeof body.refreshToken === 'string' ? body.refreshToken : undefined;
}
