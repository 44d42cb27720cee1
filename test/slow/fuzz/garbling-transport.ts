import type { Endpoint } from '../../../src/platform/platform.ts';
import type { Transport, TransportAnswer } from '../../../src/platform/transport.ts';

export type Garble = (answer: TransportAnswer) => TransportAnswer;

/** A transport to the platform that damages one endpoint's answers while `garble` is set. */
export class GarblingTransport implements Transport {
  readonly #inner: Transport;
  /** The last damaged answer, as it was passed on. */
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
    // The bytes are copied, because the reader of a large answer takes over their memory.
    return { ...this.last, bytes: Buffer.from(this.last.bytes) };
  };

  close(): Promise<void> {
    return this.#inner.close();
  }
}
