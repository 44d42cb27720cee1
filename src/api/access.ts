import { hash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, lchownSync, lstatSync, unlinkSync } from 'node:fs';
import type { Server } from 'node:http';
import { connect, createServer, type Server as NetServer, type Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { TillsyncError } from '../core/errors.ts';
import { hostOf, isFromThisMachine, isPassedOn } from '../core/listen.ts';

/** A Unix socket that one group may use for the API. */
export interface GroupSocket {
  path: string;
  /** Number of the group. */
  gid: number;
}

const MODE = 0o660;
const ANSWER_WITHIN_MS = 1_000;

const cameByGroup = new WeakSet<Socket>();

/** Whether the request came through the Unix socket, which only its group can open. */
export function isByGroupSocket({ raw }: FastifyRequest): boolean {
  return cameByGroup.has(raw.socket);
}

/** Connects the Unix socket to `server`. Throws `config-invalid`. */
export async function listenForGroup(server: Server, { path, gid }: GroupSocket): Promise<NetServer> {
  await removeStale(path);
  const door = await letInto(server, { path }, (socket) => cameByGroup.add(socket));
  try {
    chmodSync(path, MODE);
    if (lstatSync(path).gid !== gid) lchownSync(path, -1, gid);
  } catch (cause) {
    door.close();
    throw new TillsyncError('config-invalid', `${path} cannot be given to the group ${gid}.`, {
      cause,
      hint: 'Make the user of tillsync a member of storage.group.',
    });
  }
  return door;
}

/** Opens another address for `server`, with the same limits. Rejects with the system's error. */
export async function letInto(
  server: Server,
  place: { path: string } | { host: string; port: number },
  onSocket: (socket: Socket) => void = () => {},
): Promise<NetServer> {
  const door = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    onSocket(socket);
    server.emit('connection', socket);
  });
  door.listen(place);
  await once(door, 'listening');
  return door;
}

/** Removes the socket that a killed process left, and nothing else. */
async function removeStale(path: string): Promise<void> {
  const there = lstatSync(path, { throwIfNoEntry: false });
  if (!there) return;
  if (there.isSocket() && !(await isAnswered(path))) return unlinkSync(path);
  const what = there.isSocket() ? 'Another program serves' : 'There is something else at';
  throw new TillsyncError('config-invalid', `${what} ${path}.`, { hint: 'Change local.socket.' });
}

function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const end = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => end(true));
    socket.once('error', () => end(false));
    socket.setTimeout(ANSWER_WITHIN_MS, () => end(true));
  });
}

/** Called with the address of a request with a wrong key. */
export type WrongKeyListener = (from: string) => void;

export interface AccessOptions {
  /** The key that every request needs. If left out, only this machine has access. */
  apiKey?: string | undefined;
  onWrongKey?: WrongKeyListener | undefined;
}

/** `socket` for the Unix socket. */
export function addressOf(request: FastifyRequest): string {
  return isByGroupSocket(request) ? 'socket' : request.ip;
}

/**
 * Decides who may use the API. A configured key is required from everybody, as `Authorization: Bearer KEY` or
 * `x-api-key: KEY`, because every user of this machine reaches its ports, and so does everybody behind a proxy.
 * Without a key only programs on this machine have access. The Unix socket needs no key, because its group decides. A
 * wrong key is always refused, so that it is noticed.
 */
export class AccessGate {
  readonly #digest: Buffer | undefined;
  readonly #onWrongKey: WrongKeyListener;

  /** Without a key only this machine has access. */
  constructor({ apiKey, onWrongKey = () => {} }: AccessOptions) {
    this.#digest = apiKey === undefined ? undefined : digestOf(apiKey, 'utf8');
    this.#onWrongKey = onWrongKey;
  }

  /** Throws `unauthorized` or `forbidden`. */
  check(request: FastifyRequest): void {
    refuseOtherSites(request);
    const offered = keyOf(request);
    if (offered === undefined || this.#digest === undefined) {
      if (isByGroupSocket(request) && !isPassedOn(request)) return;
      if (this.#digest !== undefined) throw keyMissing();
      if (isFromThisMachine(request)) return;
      throw noKeyHere();
    }
    // Node gives one character per byte. Digests have equal length, so the time reveals nothing about the key.
    if (timingSafeEqual(digestOf(offered, 'latin1'), this.#digest)) return;
    this.#onWrongKey(addressOf(request));
    throw keyWrong();
  }

  /** Whether `check` would accept it. */
  admits(request: FastifyRequest): boolean {
    try {
      this.check(request);
      return true;
    } catch {
      return false;
    }
  }
}

/** Returns the sender of an accepted request, as far as the connection shows it: `http 192.168.1.7, with the key`. */
export function originOf(request: FastifyRequest, hasKey: boolean): string {
  const withKey = hasKey && keyOf(request) !== undefined;
  const how = `${isPassedOn(request) ? ' through a proxy' : ''}${withKey ? ', with the key' : ''}`;
  return `http ${addressOf(request)}${how}`;
}

function keyMissing(): TillsyncError {
  return new TillsyncError('unauthorized', 'The key is needed.', {
    hint: 'Send it as "Authorization: Bearer KEY" or "x-api-key: KEY". `{tillsync} key --show` shows it.',
  });
}

function keyWrong(): TillsyncError {
  return new TillsyncError('unauthorized', 'The key is wrong.', {
    hint: '`{tillsync} key --show` shows the right one.',
  });
}

function noKeyHere(): TillsyncError {
  return new TillsyncError('unauthorized', 'From another machine a key is needed.', {
    hint: 'Make one with `{tillsync} key`, then send it.',
  });
}

/**
 * Refuses requests from web pages of other sites and other servers on this machine; the browser names the origin. A
 * followed link is accepted, because only the person sees its answer.
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

function digestOf(key: string, encoding: 'utf8' | 'latin1'): Buffer {
  return hash('sha256', Buffer.from(key, encoding), 'buffer');
}
