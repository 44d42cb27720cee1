import type { Agent } from 'undici';
import { TillsyncError } from './errors.ts';

const TEXT_MAX = 2_000;
/** Maximum number of bytes of an answer that are read. The connection of a longer answer is closed. */
const ANSWER_BYTES_MAX = 64 * 1024;
const RETRY_AFTER_MAX_MS = 3_600_000;

interface PostEnd {
  /** Whether the answer was a 2xx. */
  ok: boolean;
  /** Result in words, such as `example.com answered 404`. */
  what: string;
  /** Beginning of the answer; '' if there was none. */
  text: string;
  /** `Retry-After` of the receiver, at most an hour. */
  retryAfterMs?: number;
}

/**
 * Sends JSON to one address by POST, or reads JSON by GET. It follows no redirects, because a signed request is meant
 * for one receiver. The address may contain a secret, so errors name only its host.
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

  /** Sends a body. Throws only `aborted`. */
  post(body: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<PostEnd> {
    const all = { 'content-type': 'application/json', ...headers };
    return this.#send(this.#url, { method: 'POST', headers: all, body }, signal);
  }

  /** Reads from `url`, which is another address of the same receiver. Throws only `aborted`. */
  get(url: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<PostEnd> {
    return this.#send(url, { method: 'GET', headers }, signal);
  }

  async #send(
    url: string,
    what: { method: 'GET' | 'POST'; headers: Readonly<Record<string, string>>; body?: string },
    signal: AbortSignal,
  ): Promise<PostEnd> {
    // undici is loaded on first use, because it needs memory, and few shops have a hook or an alarm with an address.
    const { Agent, request } = await import('undici');
    this.#agent ??= new Agent({ connections: 1 });
    // Timeout and signal share a controller that is released with the call. A signal of AbortSignal.any would live
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
      // The message of the error may contain the address, so only the code is used.
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

/**
 * Returns the beginning of an answer as text. An error is ignored, because the status already says whether the request
 * succeeded.
 */
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
    // The answer was cut off or too slow; its beginning is enough.
  }
  return Buffer.concat(chunks).toString('utf8').slice(0, TEXT_MAX).trim();
}

function retryAfterOf(header: string | string[] | undefined): number | undefined {
  if (typeof header !== 'string' || !/^\d{1,9}$/.test(header.trim())) return undefined;
  return Math.min(Number(header) * 1_000, RETRY_AFTER_MAX_MS);
}
