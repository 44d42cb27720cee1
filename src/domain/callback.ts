/** Why a callback was not kept as an order; null: it was. */
export type CallbackFault =
  | 'secret-missing'
  /** No secret and no JSON either: somebody who tries addresses, not the platform. */
  | 'no-callback'
  | 'secret-wrong'
  | 'too-large'
  | 'not-json'
  | 'unreadable'
  | 'not-kept'
  | 'cut-off';

/** One callback and its answer, without a secret or a customer. */
export interface Callback {
  /** Arrival, epoch milliseconds. */
  atMs: number;
  /** HTTP status of the answer; null: its sender was gone before. */
  status: number | null;
  fault: CallbackFault | null;
  orderId: string | null;
  /** Order number. */
  code: number | null;
  orderStatus: string | null;
  /** Address of the sender, as a proxy on this machine names it where there is one. */
  from: string;
  /** tillsync's own try of the address. */
  isProbe: boolean;
}

/** As it is kept: of refused ones from one sender in a short time only the first, with their number. */
export interface KeptCallback extends Callback {
  id: number;
  count: number;
}

/** Sent with tillsync's own tries, so that they are no trouble of anybody's. */
export const PROBE_HEADER = 'x-tillsync-probe';

/** Where the last callbacks are kept. May throw `storage-…`. */
export interface CallbackStore {
  /** Those without an id are new and get one; oldest first. Keeps the newest 1,000. */
  keep(callbacks: readonly (Omit<KeptCallback, 'id'> & { id: number | null })[]): number[];
  /** After `id`, oldest first, the newest `limit` of them. */
  list(after: number, limit: number): KeptCallback[];
}
