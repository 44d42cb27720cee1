import type { Agent } from 'undici';
import { TillsyncError } from './errors.ts';

const TEXT_MAX = 2_000;
/** Most bytes read of an answer. After a longer one its connection is not used again. */
const ANSWER_BYTES_MAX = 64 * 1024;
const RETRY_AFTER_MAX_MS = 3_600_000;

interface PostEnd {
  /** Whether the answer was a 2xx. */
  ok: boolean;
  /** Words on the result, such as `example.com answered 404`. */
  what: string;
  /** Beginning of the answer; empty without an answer. */
  text: string;
  /** The receiver's `Retry-After`, at most an hour. */
  retryAfterMs?: number;
}

/**
 * Sends JSON to one address by POST, or reads it by GET. It follows no redirects, because a signed request is for one
 * receiver only. The address may hold a secret, so errors name only its host.
 */
export class Poster {
  readonly host: string;
  readonly #url: string;
  readonly #timeoutMs: number;
  #agent: Agent | undefined;

  constructor(url: string, timeoutMs: number) {
    this.host = new URL(url).host;
    this.#url = url;
    this.#timeoutMs = timeoutMs;
  }

  /** Throws `aborted` alone. */
  post(body: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<PostEnd> {
    const all = { 'content-type': 'application/json', ...headers };
    return this.#send(this.#url, { method: 'POST', headers: all, body }, signal);
  }

  /** `url` is another address of the same receiver. Throws only `aborted`. */
  get(url: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<PostEnd> {
    return this.#send(url, { method: 'GET', headers }, signal);
  }

  async #send(
    url: string,
    what: { method: 'GET' | 'POST'; headers: Readonly<Record<string, string>>; body?: string },
    signal: AbortSignal,
  ): Promise<PostEnd> {
    // undici is loaded on use, because few shops send anything and it needs memory.
    const { Agent, request } = await import('undici');
    this.#agent ??= new Agent({ connections: 1 });
    // The timeout and the signal share a controller that is released at once. AbortSignal.any would live
    // until the timeout.
    const limit = new AbortController();
    const cut = () => limit.abort();
    const timer = setTimeout(cut, this.#timeoutMs);
    signal.addEventListener('abort', cut, { once: true });
    if (signal.aborted) cut();
    try {
      const answer = await request(url, { ...what, dispatcher: this.#agent, signal: limit.signal });
      const status = answer.statusCode;
      const isElsewhere = status >= 300 && status < 400;
      const retryAfterMs = retryAfterOf(answer.headers['retry-after']);
      return {
        ok: status >= 200 && status < 300,
        what: `${this.host} answered ${status}${isElsewhere ? ', and redirects are not followed' : ''}`,
        text: await beginningOf(answer.body),
        ...(retryAfterMs !== undefined && { retryAfterMs }),
      };
    } catch (error) {
      if (signal.aborted) throw new TillsyncError('aborted', 'Stopped while something was sent.');
      if (limit.signal.aborted) {
        return { ok: false, what: `${this.host} gave no answer within ${this.#timeoutMs} ms`, text: '' };
      }
      // The error's message may contain the address.
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'connection failed';
      return { ok: false, what: `${this.host} cannot be reached (${code})`, text: '' };
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', cut);
    }
  }

  close(): void {
    void this.#agent?.destroy();
    this.#agent = undefined;
  }
}

/** Returns the readable beginning of an answer; its status has been judged already. */
async function beginningOf(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body) {
      bytes += chunk.length;
      if (bytes - chunk.length < TEXT_MAX) chunks.push(chunk);
      if (bytes > ANSWER_BYTES_MAX) break;
    }
  } catch {
    // Cut off, or too slow.
  }
  return Buffer.concat(chunks).toString('utf8').slice(0, TEXT_MAX).trim();
}

function retryAfterOf(header: string | string[] | undefined): number | undefined {
  if (typeof header !== 'string' || !/^\d{1,9}$/.test(header.trim())) return undefined;
  return Math.min(Number(header) * 1_000, RETRY_AFTER_MAX_MS);
}
