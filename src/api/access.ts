import { timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, lchownSync, lstatSync, unlinkSync } from 'node:fs';
import type { Server } from 'node:http';
import { connect, createServer, type Server as NetServer, type Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { TillsyncError } from '../core/errors.ts';
import { hostOf, isPassedOn } from '../core/listen.ts';
import { type ApiKeyRows, keyDigest, type Right } from '../db/api-keys.ts';

/** A Unix socket through which the members of one group may use the API. */
export interface GroupSocket {
  path: string;
  /** Numeric id of the group. */
  gid: number;
}

const OWN_MODE = 0o600;
const GROUP_MODE = 0o660;
const ANSWER_WITHIN_MS = 1_000;

const cameBy = new WeakMap<Socket, 'own' | 'group'>();

/** Returns whether the request came through a Unix socket, which only the service's user or a group can open. */
function isBySocket({ raw }: FastifyRequest): boolean {
  return cameBy.has(raw.socket);
}

/**
 * Opens the Unix socket for `server` that only the service's user and root can open. Throws `config-invalid`, or the
 * error of the operating system.
 */
export async function listenForOwn(server: Server, path: string): Promise<NetServer> {
  await removeStale(path);
  const door = await letInto(server, { path }, (socket) => cameBy.set(socket, 'own'));
  chmodSync(path, OWN_MODE);
  return door;
}

/** Opens the Unix socket for `server` that a group can open. Throws `config-invalid`. */
export async function listenForGroup(server: Server, { path, gid }: GroupSocket): Promise<NetServer> {
  await removeStale(path);
  const door = await letInto(server, { path }, (socket) => cameBy.set(socket, 'group'));
  try {
    chmodSync(path, GROUP_MODE);
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

/**
 * Opens another address for `server`, whose timeouts apply there too. Rejects with the error of the operating system.
 */
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

/** Deletes a socket file that a killed process left behind. Throws `config-invalid` if anything else is there. */
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

/** Called for each request with a wrong or withdrawn API key. `from` describes the sender. */
export type WrongKeyListener = (from: string) => void;

export interface AccessOptions {
  /** Main API key, which has all rights. */
  apiKey: string;
  /** Path of the file with the main key; undefined if the key was handed in. */
  keyFile?: string | undefined;
  /** Further API keys, each with a name and rights. */
  namedKeys?: Pick<ApiKeyRows, 'find'> | undefined;
  onWrongKey?: WrongKeyListener | undefined;
}

/** Returns the sender's address, or `socket` for the Unix socket. */
function addressOf(request: FastifyRequest): string {
  return isBySocket(request) ? 'socket' : request.ip;
}

/** Returns for whom the places of an accepted request are counted: `key NAME` of a named key, else its address. */
export function sharerOf(request: FastifyRequest): string {
  const key = keyInUse.get(request);
  return key ? `key ${key.name}` : addressOf(request);
}

interface KeyInUse {
  name: string;
  may: readonly Right[];
  /** Reads the key again. Throws `storage-…`, or `unauthorized` if it was withdrawn. */
  checkAgain: () => void;
}

/** Named API key of each accepted request; null for the main key, which has all rights. */
const keyInUse = new WeakMap<FastifyRequest, KeyInUse | null>();

/**
 * Decides who may use the API. Every request must have a valid key, either as `Authorization: Bearer KEY` or as
 * `x-api-key: KEY`, because every user of this machine, and everybody behind a proxy on it, reaches its ports. Requests
 * through a Unix socket need no key, because only the service's user or members of its group can open it; but a wrong
 * key is refused there too, so that the mistake is noticed.
 */
export class AccessGate {
  readonly #digest: Buffer;
  readonly #keyFile: string | undefined;
  readonly #namedKeys: AccessOptions['namedKeys'];
  readonly #onWrongKey: WrongKeyListener;

  constructor({ apiKey, keyFile, namedKeys, onWrongKey = () => {} }: AccessOptions) {
    this.#digest = keyDigest(apiKey, 'utf8');
    this.#keyFile = keyFile;
    this.#namedKeys = namedKeys;
    this.#onWrongKey = onWrongKey;
  }

  /** Accepts the request, or throws `unauthorized` or `forbidden`. */
  check(request: FastifyRequest): void {
    refuseOtherSites(request);
    const offered = keyOf(request);
    if (offered === undefined) {
      if (isBySocket(request) && !isPassedOn(request)) return;
      throw this.#refusal('The key is needed.');
    }
    // Node decodes headers as latin1: one character per byte.
    const digest = keyDigest(offered, 'latin1');
    if (timingSafeEqual(digest, this.#digest)) {
      keyInUse.set(request, null);
      return;
    }
    // The same answer for every key that is not valid, so that it does not tell whether a key ever was.
    const wrong = () => this.#refusal('The key is wrong.');
    const find = () => this.#namedKeys?.find(digest);
    const named = find();
    if (named?.withdrawnAt === null) {
      const checkAgain = () => {
        if (find()?.withdrawnAt !== null) throw wrong();
      };
      keyInUse.set(request, { ...named, checkAgain });
      return;
    }
    const from = addressOf(request);
    this.#onWrongKey(named ? `${from} with ${named.name}, which was withdrawn` : from);
    throw wrong();
  }

  #refusal(what: string): TillsyncError {
    const place = this.#keyFile === undefined ? '' : ` It is in ${this.#keyFile}.`;
    return new TillsyncError('unauthorized', what, {
      hint: `Send the key as "Authorization: Bearer KEY" or "x-api-key: KEY".${place} \`{tillsync} key show\` shows it.`,
    });
  }

  /** Returns whether `check` would accept the request. */
  admits(request: FastifyRequest): boolean {
    try {
      this.check(request);
      return true;
    } catch {
      return false;
    }
  }
}

/**
 * Throws `forbidden` if the accepted request has a named key with none of these rights. An empty list needs no right.
 */
export function requireRight(request: FastifyRequest, rights: readonly Right[]): void {
  const key = keyInUse.get(request);
  if (!key || rights.length === 0 || rights.some((right) => key.may.includes(right))) return;
  throw new TillsyncError(
    'forbidden',
    `The key ${key.name} has not the right ${rights.join(' or ')}. Nothing was done.`,
    { hint: `Make a key that has it: \`{tillsync} key add NAME --may ${rights[0]}\`.` },
  );
}

/**
 * Whether an accepted request may read how to reach a customer: telephone, e-mail, address, and the order as received.
 * A named key with the right `screen` alone may not.
 */
export function maySeeContact(request: FastifyRequest): boolean {
  return keyInUse.get(request)?.may.includes('orders') ?? true;
}

/**
 * Throws `unauthorized` if the key of an accepted request was withdrawn meanwhile. An answer that takes long must ask
 * before it gives out more.
 */
export function refuseWithdrawnKey(request: FastifyRequest): void {
  keyInUse.get(request)?.checkAgain();
}

/**
 * Returns whether an accepted request shows that a POS runs. `may` are the rights of which its route needs one. A key
 * with the right `screen` alone only watches, and so do a browser and, without a named key, routes for screens alone. An
 * acknowledgement is noted with its order: it comes with orders, not with the hours of the POS. Through the service's
 * own socket come commands.
 */
export function isOfPos(request: FastifyRequest, may: readonly Right[]): boolean {
  if (cameBy.get(request.raw.socket) === 'own') return false;
  const { 'sec-fetch-site': site, 'user-agent': agent = '' } = request.headers;
  if (site !== undefined || agent.startsWith('Mozilla/')) return false;
  if (may.length === 1 && may[0] === 'ack') return false;
  return (keyInUse.get(request)?.may ?? may).some((right) => right !== 'screen');
}

/** Returns a description of an accepted request's sender for the audit: `http 192.168.1.7, with the key till-1`. */
export function originOf(request: FastifyRequest): string {
  const key = keyInUse.get(request);
  const withKey = key === undefined ? '' : `, with the key${key === null ? '' : ` ${key.name}`}`;
  return `http ${addressOf(request)}${isPassedOn(request) ? ' through a proxy' : ''}${withKey}`;
}

/**
 * Refuses requests that the browser sends from web pages of other sites, or of other servers on this machine. A
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
