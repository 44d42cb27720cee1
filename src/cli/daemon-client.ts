import { accessSync, constants, existsSync } from 'node:fs';
import type { Dispatcher } from 'undici';
import { loadSetup, OWN_STORE } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { isSetUp, notSetUp } from '../config/source.ts';
import { type ErrorCode, sameCommandWithSudo, TillsyncError } from '../core/errors.ts';
import { type Call, sourceOf } from './command.ts';

/** Longest wait for an answer, because tillsync may read the whole catalogue before it answers a whole inventory. */
const ANSWER_WITHIN_MS = 30 * 60_000;

/** An answer of the running tillsync. */
interface ApiAnswer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: the API's own schemas describe it
  body: any;
}

/**
 * Sends a command to the running tillsync, for a user who may not write the service's files, such as the till's user.
 * It tries the Unix socket first, then the local address. Both get the API key, if this command has one.
 */
export class DaemonClient {
  readonly #config: Config;
  readonly #apiKey: string | undefined;
  /** Path of the API: `/v1`, or that of the shop on the hub's machine. */
  readonly #base: string;
  readonly #signal: AbortSignal;

  constructor({ cli, options }: Call, config: Config, apiKey: string | undefined) {
    this.#config = config;
    this.#apiKey = apiKey;
    this.#base = options.ownStore ? `/${OWN_STORE}/v1` : '/v1';
    this.#signal = cli.signal;
  }

  get(path: string): Promise<ApiAnswer> {
    return this.#ask({ path, method: 'GET' });
  }

  post(path: string, body: unknown): Promise<ApiAnswer> {
    const headers = { 'content-type': 'application/json' };
    return this.#ask({ path, method: 'POST', headers, body: JSON.stringify(body) });
  }

  async #ask(asked: { path: string; method: 'GET' | 'POST'; headers?: object; body?: string }) {
    const { host, port, socket } = this.#config.local;
    const { Agent } = await import('undici');
    const tried: string[] = [];
    if (socket !== '') {
      const bySocket = new Agent({ connect: { socketPath: socket } });
      const answer = await this.#askAt('http://localhost', bySocket, asked);
      if (typeof answer !== 'string') return answer;
      tried.push(`${socket} (${answer})`);
    }
    if (port !== 0) {
      const url = `http://${reachable(host)}:${port}`;
      const answer = await this.#askAt(url, new Agent(), asked);
      if (typeof answer !== 'string') return answer;
      tried.push(`${url} (${answer})`);
    }
    throw this.#unanswered(tried);
  }

  /** Returns the answer, or the system's error code if there is no connection. Throws `internal` for a cut answer. */
  async #askAt(
    url: string,
    dispatcher: Dispatcher,
    {
      path,
      method,
      headers,
      body,
    }: { path: string; method: 'GET' | 'POST'; headers?: object; body?: string },
  ): Promise<ApiAnswer | string> {
    const { request } = await import('undici');
    const key = this.#apiKey === undefined ? {} : { 'x-api-key': this.#apiKey };
    try {
      const answer = await request(`${url}${this.#base}${path}`, {
        ...{ method, dispatcher, headersTimeout: ANSWER_WITHIN_MS, bodyTimeout: ANSWER_WITHIN_MS },
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

  #unanswered(tried: readonly string[]): TillsyncError {
    const { directory } = this.#config.storage;
    const message = `You do not have permission to write ${directory}, and no tillsync answers at ${tried.join(' or ')}. Nothing was taken.`;
    return new TillsyncError('storage-readonly', message, {
      hint: `Start it: {start}. Or run: ${sameCommandWithSudo()}`,
    });
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
  if (!isSetUp(config)) throw notSetUp();
  if (!existsSync(config.storage.directory) || mayWrite(config.storage.directory)) return undefined;
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
