import type { Endpoint } from '../../../src/platform/platform.ts';
import type { Transport, TransportAnswer } from '../../../src/platform/transport.ts';

type TransportRequest = Parameters<Transport['send']>[0];

/** A call as the client made it, and its answer. */
export interface Delivered {
  endpoint: Endpoint | undefined;
  /** Query of a GET. */
  query: URLSearchParams;
  /** Items of a PUT, in order; only one for a single endpoint. */
  items: Record<string, unknown>[];
  isSingle: boolean;
  status: number;
  text: string | undefined;
  /** False if the call never reached the platform. */
  reached: boolean;
}

export type Liar = (
  request: TransportRequest,
  forward: () => Promise<TransportAnswer>,
) => Promise<TransportAnswer>;

/** A transport to the platform that records all answers. `liar`, if set, answers the calls of product endpoints. */
export class LyingTransport implements Transport {
  readonly calls: Delivered[] = [];
  liar: Liar | undefined;
  readonly #inner: Transport;

  constructor(inner: Transport) {
    this.#inner = inner;
  }

  send: Transport['send'] = async (request) => {
    const liar = request.path.startsWith('/product') ? this.liar : undefined;
    let reached = false;
    const forward = () => {
      reached = true;
      return this.#inner.send(request);
    };
    const answer = liar ? await liar(request, forward) : await forward();
    const items = itemsOf(request);
    this.calls.push({
      endpoint: request.endpoint,
      query: new URLSearchParams(request.path.split('?')[1] ?? ''),
      items: items ?? [],
      isSingle: !/\/batch$/.test(request.path),
      status: answer.status,
      text: textOf(answer.bytes),
      reached,
    });
    return answer;
  };

  close(): Promise<void> {
    return this.#inner.close();
  }
}

/** Returns the items of a PUT, in order; undefined for a request without a body. */
export function itemsOf(request: Pick<TransportRequest, 'body'>): Record<string, unknown>[] | undefined {
  if (request.body === undefined) return undefined;
  const body = JSON.parse(request.body) as Record<string, unknown>;
  return Array.isArray(body.products) ? body.products : [body];
}

/** Decodes bytes as UTF-8; returns undefined if they are not UTF-8. */
function textOf(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}
