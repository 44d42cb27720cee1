import { accessSync, constants, existsSync } from 'node:fs';
import { ownSocket, RUNNING, storagePaths } from '../app/storage.ts';
import { loadSetup } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { keyFile, storedKey } from '../config/key-file.ts';
import { isSetUp, notSetUp } from '../config/source.ts';
import { type ErrorCode, sameCommandWithSudo, TillsyncError } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import { whenFree } from '../core/loop.ts';
import { isOwnListener } from '../core/own-listener.ts';
import type { Clock } from '../core/time.ts';
import { becomeOwner, type Call, sourceOf } from './command.ts';

/**
 * Longest wait for an answer to a change, because tillsync may read the whole catalogue before it answers a whole
 * inventory.
 */
const ANSWER_WITHIN_MS = 30 * 60_000;

/** Time for which a command waits for the answer to a test beyond the test's own time limit. */
const DAEMON_PATIENCE_MS = 10_000;

/** An answer of the running tillsync. */
interface ApiAnswer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: the API's own schemas describe it
  body: any;
}

interface Asked {
  path: string;
  method: 'GET' | 'POST';
  headers?: object;
  body?: string;
  withinMs?: number;
  /** Whether the API key is left out, because the socket needs none, and the running tillsync may have another. */
  isKeyless?: boolean;
}

/** An address of the running tillsync: a Unix socket, or where it listens. */
type Place = { socket: string } | { url: string };

/**
 * Sends a command to the running tillsync. For a user who may not write the service's files, such as the till's user,
 * it tries the group's Unix socket, then the local address, unless a program of another user listens there. Both get
 * the API key, if this command has one.
 */
export class DaemonClient {
  readonly #config: Config;
  readonly #apiKey: string | undefined;
  /** Whether the key comes from the storage directory, so that a key that was handed to tillsync may win over it. */
  readonly #isStored: boolean;
  readonly #signal: AbortSignal;

  constructor({ cli }: Call, config: Config, apiKey: string | undefined) {
    this.#config = config;
    this.#apiKey = apiKey;
    this.#isStored = apiKey === storedKey(config.storage.directory);
    this.#signal = cli.signal;
  }

  get(path: string): Promise<ApiAnswer> {
    return this.#ask({ path, method: 'GET' });
  }

  post(path: string, body: unknown): Promise<ApiAnswer> {
    return this.#ask(posted(path, body));
  }

  /** Sends to a Unix socket of the service alone: its own, or its group's. Returns undefined if none answers. */
  async postBySocket(path: string, body: unknown, withinMs: number): Promise<ApiAnswer | undefined> {
    const { local, storage } = this.#config;
    for (const socket of [ownSocket(storage.directory), local.socket]) {
      if (socket === '') continue;
      const answer = await this.#askAt({ socket }, { ...posted(path, body), withinMs, isKeyless: true });
      if (typeof answer !== 'string') return answer;
    }
    return undefined;
  }

  async #ask(asked: Asked): Promise<ApiAnswer> {
    const { host, port, socket } = this.#config.local;
    const places: Place[] = [];
    if (socket !== '') places.push({ socket });
    if (port !== 0) places.push({ url: `http://${reachable(host)}:${port}` });
    const tried: string[] = [];
    for (const place of places) {
      const isKeyless = 'socket' in place && this.#isStored;
      const answer = await this.#askAt(place, { ...asked, isKeyless });
      if (typeof answer !== 'string') {
        if (answer.status === 401 && this.#apiKey === undefined) throw this.#keyless();
        return answer;
      }
      tried.push(`${'socket' in place ? place.socket : place.url} (${answer})`);
    }
    throw this.#unanswered(tried);
  }

  /**
   * Returns the answer, or as a text why there is none: the system's error code, or a listener that is not tillsync's.
   * Throws `internal` for a cut answer.
   */
  async #askAt(
    place: Place,
    { path, method, headers, body, withinMs = ANSWER_WITHIN_MS, isKeyless = false }: Asked,
  ): Promise<ApiAnswer | string> {
    const { local, storage } = this.#config;
    const isOwn = 'socket' in place || isOwnListener(local.port, storage.directory);
    if (isOwn === false) return 'a program of another user';
    const { Agent, request } = await import('undici');
    const url = 'url' in place ? place.url : 'http://localhost';
    const dispatcher = new Agent('socket' in place ? { connect: { socketPath: place.socket } } : {});
    const isSent = this.#apiKey !== undefined && isOwn === true && !isKeyless;
    const key = isSent ? { 'x-api-key': this.#apiKey } : {};
    try {
      const answer = await request(`${url}/v1${path}`, {
        ...{ method, dispatcher, headersTimeout: withinMs, bodyTimeout: withinMs },
        headers: { ...headers, ...key },
        signal: this.#signal,
        ...(body !== undefined && { body }),
      });
      const document = await answer.body.json();
      return { status: answer.statusCode, body: document };
    } catch (error) {
      if (this.#signal.aborted) throw new TillsyncError('aborted', 'Stopped. What was sent may be taken.');
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
      if (['ENOENT', 'ECONNREFUSED', 'EACCES', 'EPERM'].includes(code)) return code;
      throw new TillsyncError(
        'internal',
        `tillsync broke off its answer (${code}). What was sent may be taken.`,
        {
          cause: error,
          hint: 'See what was taken with: {tillsync} outbox list. Sending it again does no harm.',
        },
      );
    } finally {
      await dispatcher.destroy();
    }
  }

  /** Returns the error for a user who can read no key. */
  #keyless(): TillsyncError {
    const { directory, group } = this.#config.storage;
    const file = keyFile(directory);
    const readers = group === '' ? 'the group of the file' : `the group ${group}`;
    const message = `This user has no API key: it is in ${file}, which ${readers} may read. Nothing was taken.`;
    return new TillsyncError('unauthorized', message, {
      hint: `Run it as a member, or: ${sameCommandWithSudo()}`,
    });
  }

  #unanswered(tried: readonly string[]): TillsyncError {
    const { directory } = this.#config.storage;
    const message = `You do not have permission to write ${directory}, and no tillsync answers at ${tried.join(' or ')}. Nothing was taken.`;
    return new TillsyncError('storage-readonly', message, {
      hint: `Start it: {start}. Or run: ${sameCommandWithSudo()}`,
    });
  }
}

function posted(path: string, body: unknown): Asked {
  const headers = { 'content-type': 'application/json' };
  return { path, method: 'POST', headers, body: JSON.stringify(body) };
}

/**
 * Has the running tillsync do the work, as its user and inside its sandbox, so that the result is the same as when it
 * works by itself. Root becomes the service's user. `timeoutMs` is the time limit of the work. Returns undefined if no
 * tillsync runs. Throws the error with which tillsync answers.
 */
export async function askRunning(
  call: Call,
  { path, body, timeoutMs }: { path: string; body?: unknown; timeoutMs: number },
): Promise<ApiAnswer['body'] | undefined> {
  const guest = throughDaemon(call);
  const { config, secrets } = loadSetup(sourceOf(call));
  if (!guest) becomeOwner(call, config, false);
  const client = guest?.client ?? new DaemonClient(call, config, secrets.localApiKey);
  const answer = guest
    ? await client.post(path, body)
    : await client.postBySocket(path, body, timeoutMs + DAEMON_PATIENCE_MS);
  if (answer === undefined) {
    if (!(await isRunning(config, call.cli.clock))) return undefined;
    throw new TillsyncError('internal', 'The running tillsync did not answer.', {
      hint: 'Its socket could not be opened when it started; the log says why. {restart}',
    });
  }
  refusedBy(answer);
  return answer.body;
}

/** Returns whether a daemon runs on the storage directory. Throws `storage-…` if this user may not look. */
async function isRunning({ storage }: Pick<Config, 'storage'>, clock: Clock): Promise<boolean> {
  const { state: path } = storagePaths(storage.directory);
  if (!existsSync(path)) return false;
  const { openState } = await import('../app/state.ts');
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    return await whenFree(clock, () => state.leases.isHeld(RUNNING));
  } finally {
    state.close();
  }
}

/** Throws the error that an answer contains, unless the answer also has results. */
export function refusedBy({ status, body }: ApiAnswer): void {
  const { error } = body ?? {};
  if (status < 400 || error === undefined || body.results !== undefined) return;
  throw new TillsyncError(error.code as ErrorCode, error.message, { hint: error.hint ?? '' });
}

/** Returns the host to call. For a wildcard address, this is the loopback address. */
function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  const v6 = host === '::' ? '::1' : host;
  return v6.includes(':') ? `[${v6}]` : v6;
}

/** Returns the client for a user who may not write the storage directory; undefined for any other user. */
export function throughDaemon(call: Call): { client: DaemonClient; config: Config } | undefined {
  if (process.geteuid?.() === 0) return undefined;
  const { config, secrets } = loadSetup(sourceOf(call));
  if (!existsSync(config.storage.directory) || mayWrite(config.storage.directory)) return undefined;
  if (!isSetUp(config)) throw notSetUp();
  return { client: new DaemonClient(call, config, secrets.localApiKey), config };
}

function mayWrite(directory: string): boolean {
  try {
    accessSync(directory, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
