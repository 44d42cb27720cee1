import { hash, timingSafeEqual } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { TillsyncError } from '../domain/errors.ts';
import { hostOf, isFromThisMachine } from './loopback.ts';

export interface AccessGateOptions {
  /** Left out: only this machine is let in. */
  apiKey?: string | undefined;
}

/**
 * Who may use the API: programs on this machine without a key, everybody else with it, as
 * `Authorization: Bearer KEY` or `x-api-key: KEY`. Where there is a key, what a person decides in a browser needs it
 * on this machine too. A wrong key is refused from anywhere, so that it is noticed.
 */
export class AccessGate {
  readonly #digest: Buffer | undefined;

  constructor({ apiKey }: AccessGateOptions) {
    this.#digest = apiKey === undefined ? undefined : digestOf(Buffer.from(apiKey, 'utf8'));
  }

  /** Throws `unauthorized` or `forbidden`. */
  check(request: FastifyRequest): void {
    refuseOtherSites(request);
    const offered = keyOf(request);
    if (offered === undefined || this.#digest === undefined) {
      const isHere = isFromThisMachine(request);
      if (isHere && (this.#digest === undefined || !isAction(request))) return;
      throw this.#keyMissing(isHere);
    }
    // Node gives one character per byte. Digests of equal length: the time taken says nothing of the key.
    if (timingSafeEqual(digestOf(Buffer.from(offered, 'latin1')), this.#digest)) return;
    throw new TillsyncError('unauthorized', 'The key is wrong.', {
      hint: WHICH_KEY,
    });
  }

  #keyMissing(isHere: boolean): TillsyncError {
    if (isHere) {
      return new TillsyncError('unauthorized', 'To decide this in a browser, the key is needed.', {
        hint: WHICH_KEY,
      });
    }
    const hint =
      this.#digest === undefined
        ? 'Set a local-api-key among the secrets of tillsync, then send it.'
        : 'Send it as "Authorization: Bearer KEY" or "x-api-key: KEY".';
    return new TillsyncError('unauthorized', 'From another machine a key is needed.', { hint });
  }
}

const WHICH_KEY = 'It is the local-api-key among the secrets of tillsync.';

/** What is no mere look and comes from a browser, which says so. */
function isAction({ method, headers }: FastifyRequest): boolean {
  if (method === 'GET' || method === 'HEAD') return false;
  return headers.origin !== undefined || headers['sec-fetch-site'] !== undefined;
}

/**
 * Web pages of other sites, and of other servers on this machine, may neither write nor read: a browser says
 * where a request comes from. A link that a person follows is let through, for it shows them the answer alone.
 */
function refuseOtherSites(request: FastifyRequest): void {
  const { origin, host } = request.headers;
  const site = request.headers['sec-fetch-site'];
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  const isOwn = site === undefined || site === 'same-origin' || site === 'none';
  const isFollowedLink = isRead && request.headers['sec-fetch-mode'] === 'navigate';
  if ((isOwn || isFollowedLink) && (origin === undefined || isSameHost(origin, host))) return;
  throw new TillsyncError('forbidden', 'A web page of another site may not use this address.', {
    hint: 'Call it from a program, or open the page that this address itself serves.',
  });
}

function isSameHost(origin: string, host: string | undefined): boolean {
  const [scheme, rest] = origin.split('://', 2);
  if (rest === undefined || (scheme !== 'http' && scheme !== 'https')) return false;
  return rest.toLowerCase() === host?.trim().toLowerCase() && hostOf(rest) !== '';
}

function keyOf({ headers }: FastifyRequest): string | undefined {
  const { authorization } = headers;
  const named = headers['x-api-key'];
  const offered = /^bearer +(.+)$/i.exec(authorization ?? '')?.[1] ?? named;
  return typeof offered === 'string' && offered !== '' ? offered : undefined;
}

function digestOf(bytes: Buffer): Buffer {
  return hash('sha256', bytes, 'buffer');
}
