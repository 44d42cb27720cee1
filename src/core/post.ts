import type { Agent } from 'undici';
import { TillsyncError } from './errors.ts';

const TEXT_MAX = 2_000;
/** More of an answer is not read, and its connection is not used again. */
const ANSWER_BYTES_MAX = 64 * 1024;
const RETRY_AFTER_MAX_MS = 3_600_000;

export interface PostEnd {
  /** Whether a 2xx was answered. */
  ok: boolean;
  /** Such as `example.com answered 404`. */
  what: string;
  /** The beginning of what was answered; empty without an answer. */
  text: string;
  /** What the receiver asked for by `Retry-After`, an hour at most. */
  retryAfterMs?: number;
}

/**
 * Sends JSON to one address by POST, or asks it by GET. Redirects are not followed: what is signed for one receiver is for nobody else.
 * The address may hold a secret, so no error tells more of it than its host.
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

  /** `url`: another one of the same receiver. Throws `aborted` alone. */
  get(url: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<PostEnd> {
    return this.#send(url, { method: 'GET', headers }, signal);
  }

  async #send(
    url: string,
    what: { method: 'GET' | 'POST'; headers: Readonly<Record<string, string>>; body?: string },
    signal: AbortSignal,
  ): Promise<PostEnd> {
    // Few shops send anything elsewhere, and it takes memory.
    const { Agent, request } = await import('undici');
    this.#agent ??= new Agent({ connections: 1 });
    // One controller for both ends, let go at once: composed signals live on until their time is over.
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
      // Its words may repeat the address.
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

/** What can be read of it; whether the receiver took what was sent is said already. */
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
