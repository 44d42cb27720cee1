import type { ErrorCode } from './errors.ts';

/** Keys of alarms. A person is notified once of each, and once more when it is over. */
export type AlarmKey =
  | 'auth.none'
  | 'auth.other-company'
  | 'platform.forbidden'
  | 'platform.limits-shared'
  | 'orders.stale'
  | 'orders.unreadable'
  | 'orders.incomplete'
  | 'orders.unassigned'
  | 'orders.sums'
  | 'orders.code-missing'
  | 'orders.fields'
  | 'orders.more-pages'
  | 'orders.unbooked'
  | 'webhook.refused'
  | 'webhook.unreadable'
  | 'webhook.mismatch'
  | 'storage.failing'
  | 'storage.full'
  | 'storage.low'
  | 'mirror.reader-holds-wal'
  | 'mirror.too-large'
  | 'backup.differential'
  | 'customers.not-forgotten'
  | 'clock.wrong'
  | 'clock.off'
  | 'mirror.locked'
  | 'catalog.unmapped'
  | 'catalog.unmapped-ordered'
  | 'hub.unassigned'
  | 'hub.unapplied'
  | 'hub.certificate'
  | 'hub.server'
  | 'hub.misuse'
  | 'hub.branches'
  | 'outbox.rejected'
  | 'outbox.held'
  | 'outbox.full'
  | 'outbox.stuck'
  | 'inbox.damaged'
  | 'inbox.locked'
  | 'hooks.lagging'
  | 'stock.differs'
  | 'local.wrong-key'
  | 'alarms.untold';

/**
 * - `amber`: works, but somebody should check it today
 * - `red`: orders or changes do not get through; somebody is needed now
 */
export type FindingLevel = 'amber' | 'red';

/** An alarm that is up. */
export interface AlarmUp {
  key: AlarmKey;
  /** Message of the part that raised the alarm. */
  message: string;
  /** Level of the alarm; null or left out means the level of its finding. */
  level?: FindingLevel | null;
  /** ISO 8601 UTC. */
  raisedAt: string;
}

/** Receives what the parts found wrong. The table of findings turns it into what a person reads. */
export interface Alarms {
  /** Sets what is wrong under this key; null means nothing. `level` is left out if the key has only one. */
  note(key: AlarmKey, trouble: string | null, level?: FindingLevel): void;
}

/** Flows whose freshness a POS and support can see, as rows of the mirror's `freshness` table. */
export const FRESHNESS_SUBJECTS = [
  'orders.poll',
  'orders.webhook',
  'catalog.sweep',
  'outbox.push',
  'auth',
  'backup',
  // This flow exists only at a hub or a branch.
  'hub.link',
] as const;
export type FreshnessSubject = (typeof FRESHNESS_SUBJECTS)[number];

/**
 * - `unknown`: never tried
 * - `ok`: the last try worked
 * - `waiting`: waits for a limit; nothing is wrong
 * - `degraded`: works in part; the message names the part that fails
 * - `failing`: the last try failed; tillsync keeps trying
 * - `blocked`: the platform blocked the token for a while
 * - `locked-out`: only a person can help (`tillsync auth set`)
 * - `off`: switched off in the configuration
 */
export const FRESHNESS_STATES = [
  'unknown',
  'ok',
  'waiting',
  'degraded',
  'failing',
  'blocked',
  'locked-out',
  'off',
] as const;
export type FreshnessState = (typeof FRESHNESS_STATES)[number];

/** Returns the state of a flow whose call failed with `code`. */
export function freshnessOfFailure(code: ErrorCode): FreshnessState {
  if (code === 'auth-required') return 'locked-out';
  return code === 'blocked' ? 'blocked' : 'failing';
}

export interface Freshness {
  subject: FreshnessSubject;
  lastOkAt: string | null;
  lastTryAt: string | null;
  state: FreshnessState;
  /** A sentence for a person on what happened and what to do; empty if all is well. */
  message: string;
  /** Common reason of the last failed tries; left out if the last try worked. */
  failure?: Failure | undefined;
}

/** Failure of `orders.webhook`: several new orders in a row came only by polling. */
export const CALLBACKS_SILENT = 'callbacks-silent';

/** Failed tries in a row with the same reason. */
interface Failure {
  /** Reason as `failureCode` returns it. */
  code: string;
  /** Time of the first of these tries, ISO 8601 UTC. */
  since: string;
  tries: number;
}

/** Receives reports of how each flow works. Each call is one small durable write. */
export interface FreshnessBoard {
  /** Reports a successful try: sets `lastOkAt` and `lastTryAt` to now. */
  ok(subject: FreshnessSubject, message?: string): void;
  /** Reports a failed try with its error code, or a state without tries. `lastOkAt` stays. */
  report(subject: FreshnessSubject, state: FreshnessState, message: string, failure?: string): void;
}
