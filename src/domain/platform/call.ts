import type { Endpoint } from './limits.ts';

/** Why a call is not sent yet; shown to people as "next order poll allowed in 1m 12s". */
export type WaitReason =
  | 'interval' // the endpoint was called too recently
  | 'in-flight' // another call of this endpoint, perhaps of another process, is not answered yet
  | 'window' // the five-minute cap is used up
  | 'retry-after' // the platform answered 429
  | 'blocked' // the platform answered 403
  | 'refreshing'; // another process is refreshing the tokens

export interface Wait {
  endpoint: Endpoint;
  reason: WaitReason;
  /** Best estimate; the true moment is checked again at its end. */
  waitMs: number;
}

/** What a caller of the platform may say about one call. */
export interface CallOptions {
  /** Ends a wait or a call under way with code `aborted`. A refresh under way is finished first. */
  signal?: AbortSignal;
  /** Told each time the call has to wait, before it does. */
  onWait?: (wait: Wait) => void;
  /** Told at the moment the request really leaves, after every wait; again if it is sent once more after a 401. */
  onSend?: () => void;
}
