import type { Endpoint } from '../domain/platform/limits.ts';

/** How one request reaches the platform; tests and simulations pass one that lives in the process. */
export interface Transport {
  /**
   * Sends once, without retry, and reads the whole answer. Throws `platform-unreachable` when no whole answer
   * came in time, `platform-garbled` when it is larger than `bodyMaxBytes`, `aborted` when the signal ended it.
   */
  send(request: TransportRequest): Promise<TransportAnswer>;
  close(): Promise<void>;
}

export interface TransportRequest {
  /** For whoever counts and measures; it changes nothing. */
  endpoint?: Endpoint;
  method: string;
  /** Below the base address, with its query. */
  path: string;
  headers: Record<string, string>;
  body?: string;
  /** From the first attempt to connect to the last byte of the answer; left out: as long as the connection stands. */
  timeoutMs?: number;
  bodyMaxBytes: number;
  signal?: AbortSignal;
  /** Not on a kept-alive connection: one that the other side is just closing would leave its fate unknown. */
  freshConnection?: boolean;
}

export interface TransportAnswer {
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  bytes: Uint8Array;
}

/** An answer to a call, with the secrets that were sent: no message from it may repeat one. */
export interface CallAnswer extends TransportAnswer {
  secrets: readonly string[];
}
