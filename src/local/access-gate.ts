import { hash, timingSafeEqual } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { TillsyncError } from '../domain/errors.ts';
import { isByGroupSocket } from './group-socket.ts';
import { hostOf, isFromThisMachine, isPassedOn } from './loopback.ts';

export interface AccessGateOptions {
  /** Left out: only this machine is let in. */
  apiKey?: string | undefined;
}

/**
 * Who may use the API. Where there is a key, it is asked of everybody, as `Authorization: Bearer KEY` or
 * `x-api-key: KEY`: every user of this machine reaches its ports, and so does whoever a proxy lets through. Without
 * one only programs on this machine are let in. Who comes by the Unix socket needs none: its group is the right.
 * A wrong key is refused from anywhere, so that it is noticed.
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
      if (isByGroupSocket(request) && !isPassedOn(request)) return;
      if (this.#digest !== undefined) throw keyMissing;
      if (isFromThisMachine(request)) return;
      throw noKeyHere;
    }
    // Node gives one character per byte. Digests of equal length: the time taken says nothing of the key.
    if (timingSafeEqual(digestOf(Buffer.from(offered, 'latin1')), this.#digest)) return;
    throw keyWrong;
  }

  /** Whether `check` would let it in. */
  admits(request: FastifyRequest): boolean {
    try {
      this.check(request);
      return true;
    } catch {
      return false;
    }
  }
}

const keyMissing = new TillsyncError('unauthorized', 'The key is needed.', {
  hint: 'Send it as "Authorization: Bearer KEY" or "x-api-key: KEY". `sudo tillsync key --show` shows it.',
});
const keyWrong = new TillsyncError('unauthorized', 'The key is wrong.', {
  hint: '`sudo tillsync key --show` shows the right one.',
});
const noKeyHere = new TillsyncError('unauthorized', 'From another machine a key is needed.', {
  hint: 'Make one with `sudo tillsync key`, then send it.',
});

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
