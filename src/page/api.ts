import type * as z from 'zod';
import type * as changes from '../api/change-schemas.ts';
import type * as api from '../api/schemas.ts';
import type * as status from '../api/status-schemas.ts';

export type StatusAnswer = z.output<typeof status.statusAnswer>;
export type BoardAnswer = z.output<typeof api.boardAnswer>;
export type TrendsAnswer = z.output<typeof api.trendsAnswer>;
export type FoundOrders = z.output<typeof api.foundOrders>;
export type OrderAnswer = z.output<typeof api.orderAnswer>;
export type OrderExplained = z.output<typeof api.orderExplanation>;
export type StocksExplained = z.output<typeof api.stockExplanations>;
export type BranchesAnswer = z.output<typeof status.branchesAnswer>;
export type Branch = BranchesAnswer['branches'][number];
export type Change = z.output<typeof changes.change>;
export type OutboxAnswer = z.output<typeof changes.outboxPage>;
export type ProductsAnswer = z.output<typeof api.productPage>;

/** An error answer of the API, or a missing answer. */
export class ApiFault extends Error {
  /** Error code of the API; `unreachable` if there was no answer. */
  readonly code: string;
  readonly hint: string | null;

  constructor(code: string, message: string, hint: string | null = null) {
    super(message);
    this.code = code;
    this.hint = hint;
  }
}

/** Stores the API key for this tab or, with `forGood`, for this browser. null deletes it from both. */
type KeepKey = (key: string | null, forGood: boolean) => void;

const TIMEOUT_MS = 15_000;

/** Calls the local API that served this page. */
export class Api {
  /** Command that prints the API key, as the API's last refusal named it. */
  keyCommand = '';
  /** The shop's name, as the API's last refusal named it. */
  shop: string | null = null;
  #key: string | null;
  readonly #keep: KeepKey;

  constructor(key: string | null, keep: KeepKey) {
    this.#key = key;
    this.#keep = keep;
  }

  get hasKey(): boolean {
    return this.#key !== null;
  }

  useKey(key: string | null, forGood = false): void {
    this.#key = key;
    this.#keep(key, forGood);
  }

  get<T>(path: string): Promise<T> {
    return this.#call<T>(path, { method: 'GET' });
  }

  post<T>(path: string): Promise<T> {
    return this.#call<T>(path, { method: 'POST' });
  }

  /** Opens a streaming response. Throws `ApiFault` if the response does not begin. */
  async open(path: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const answer = await this.#send(path, { method: 'GET', signal }, 'text/event-stream');
    if (!answer.ok || answer.body === null) throw await this.#faultOf(answer);
    return answer.body;
  }

  async #call<T>(path: string, init: RequestInit): Promise<T> {
    const answer = await this.#send(path, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!answer.ok) throw await this.#faultOf(answer);
    return (await answer.json()) as T;
  }

  async #faultOf(answer: Response): Promise<ApiFault> {
    this.shop = realmOf(answer) ?? this.shop;
    try {
      const { error } = (await answer.json()) as {
        error: { code: string; message: string; hint: string | null };
      };
      if (error.code === 'unauthorized') this.keyCommand = /`(.+?)`/.exec(error.hint ?? '')?.[1] ?? '';
      return new ApiFault(error.code, error.message, error.hint);
    } catch {
      return new ApiFault('internal', `${answer.status} ${answer.statusText}`);
    }
  }

  async #send(path: string, init: RequestInit, accept = 'application/json'): Promise<Response> {
    const headers: Record<string, string> = { accept };
    if (this.#key !== null) headers['x-api-key'] = headerText(this.#key);
    try {
      return await fetch(`/v1${path}`, {
        ...init,
        headers,
        cache: 'no-store',
        redirect: 'error',
      });
    } catch (cause) {
      throw new ApiFault('unreachable', cause instanceof Error ? cause.message : String(cause));
    }
  }
}

/**
 * Returns the shop's name from the header in which tillsync asks for the API key. Returns null for another scheme, such
 * as a proxy's, or an unreadable name.
 */
function realmOf({ headers }: Response): string | null {
  const realm = /^Bearer realm="([^"]+)"/.exec(headers.get('www-authenticate') ?? '')?.[1] ?? null;
  try {
    return realm && decodeURIComponent(realm);
  } catch {
    return null;
  }
}

/** Encodes an API key for a header, which has one character for each byte. */
function headerText(key: string): string {
  return Array.from(new TextEncoder().encode(key), (byte) => String.fromCharCode(byte)).join('');
}

/**
 * Follows the order feed after its newest event until the stream ends, and calls `onChange` whenever data arrives.
 * Throws if the stream does not begin or is aborted.
 */
export async function followOrders(api: Api, onChange: () => void, signal: AbortSignal): Promise<void> {
  const stream = await api.open('/orders?after=newest', signal);
  const reader = stream.getReader();
  try {
    while (!(await reader.read()).done) onChange();
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
