import type { Endpoint } from '../../../src/platform/platform.ts';
import type { Transport, TransportAnswer } from '../../../src/platform/transport.ts';

export type Garble = (answer: TransportAnswer) => TransportAnswer;

/** The way to the platform, on which the answers of one endpoint are spoiled while `garble` is set. */
export class GarblingTransport implements Transport {
  readonly #inner: Transport;
  /** The last answer that was spoiled, as it went on. */
  last: TransportAnswer | undefined;
  #garble: { endpoint: Endpoint; garble: Garble } | undefined;

  constructor(inner: Transport) {
    this.#inner = inner;
  }

  spoil(endpoint: Endpoint, garble: Garble): void {
    this.last = undefined;
    this.#garble = { endpoint, garble };
  }

  stop(): void {
    this.#garble = undefined;
  }

  send: Transport['send'] = async (request) => {
    const answer = await this.#inner.send(request);
    if (this.#garble?.endpoint !== request.endpoint || this.#garble === undefined) return answer;
    this.last = this.#garble.garble(answer);
    // The reader of a large answer takes its memory over.
    return { ...this.last, bytes: Buffer.from(this.last.bytes) };
  };

  close(): Promise<void> {
    return this.#inner.close();
  }
}
