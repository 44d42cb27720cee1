/** The flows whose freshness a POS and support can see, as rows of the mirror's `freshness` table. */
export const FRESHNESS_SUBJECTS = [
  'orders.poll',
  'orders.webhook',
  'catalog.sweep',
  'outbox.push',
  'auth',
] as const;
export type FreshnessSubject = (typeof FRESHNESS_SUBJECTS)[number];

/**
 * - `unknown`: never tried
 * - `ok`: the last try worked
 * - `waiting`: held back by a limit, nothing is wrong
 * - `degraded`: works in part, the message says which part does not
 * - `failing`: the last try did not work; tillsync goes on trying
 * - `blocked`: the platform blocked the token for a while
 * - `locked-out`: only a person can mend it (`tillsync auth set`)
 * - `off`: switched off in the configuration
 */
export type FreshnessState =
  | 'unknown'
  | 'ok'
  | 'waiting'
  | 'degraded'
  | 'failing'
  | 'blocked'
  | 'locked-out'
  | 'off';

export interface Freshness {
  subject: FreshnessSubject;
  lastOkAt: string | null;
  lastTryAt: string | null;
  state: FreshnessState;
  /** One sentence for a person: what happened and what to do; empty when all is well. */
  message: string;
}

/** Where the parts report how their flow fares. One call is one small durable write. */
export interface FreshnessBoard {
  /** Reports a try that worked (`lastOkAt` and `lastTryAt` move to now). */
  ok(subject: FreshnessSubject, message?: string): void;
  /** Reports a try that did not work, or a state of rest; `lastOkAt` stays. */
  report(subject: FreshnessSubject, state: FreshnessState, message: string): void;
}
