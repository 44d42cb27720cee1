import type { ErrorCode } from './errors.ts';

/** Keys of alarms. A person is notified once when an alarm is raised, and once more when it is over. */
export type AlarmKey =
  | 'auth.none'
  | 'auth.other-company'
  | 'platform.forbidden'
  | 'platform.limits-shared'
  | 'orders.stale'
  | 'orders.unreadable'
  | 'orders.incomplete'
  | 'orders.held'
  | 'orders.status-unknown'
  | 'orders.unassigned'
  | 'orders.sums'
  | 'orders.code-missing'
  | 'orders.fields'
  | 'orders.more-pages'
  | 'orders.lists'
  | 'orders.unlisted'
  | 'orders.unbooked'
  | 'pos.silent'
  | 'webhook.refused'
  | 'webhook.unreadable'
  | 'webhook.mismatch'
  | 'webhook.active-field'
  | 'storage.failing'
  | 'storage.full'
  | 'storage.low'
  | 'mirror.reader-holds-wal'
  | 'mirror.too-large'
  | 'mirror.damaged'
  | 'backup.differential'
  | 'customers.not-forgotten'
  | 'clock.wrong'
  | 'clock.off'
  | 'mirror.locked'
  | 'catalog.shrunk'
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
 * - `amber`: tillsync works, but somebody should check it today
 * - `red`: orders or changes do not get through; somebody must act now
 */
export type FindingLevel = 'amber' | 'red';

/** An alarm that was raised and is not over. */
export interface AlarmUp {
  key: AlarmKey;
  /** Message of the code that raised the alarm. */
  message: string;
  /** Level of the alarm. null, or left out, means the level of its finding. */
  level?: FindingLevel | null;
  /** ISO 8601 UTC. */
  raisedAt: string;
}

/** Receives reports of what is wrong from the parts of tillsync. The texts for people are in the table of findings. */
export interface Alarms {
  /**
   * Raises the alarm with the text `trouble`, or clears it if `trouble` is null. `level` is left out for a key with
   * only one level.
   */
  note(key: AlarmKey, trouble: string | null, level?: FindingLevel): void;
}

/** Flows whose freshness is shown. Each is a row of the mirror's table `freshness`. */
export const FRESHNESS_SUBJECTS = [
  'orders.poll',
  'orders.webhook',
  'catalog.sweep',
  'outbox.push',
  'auth',
  'backup',
  // Only a hub or a branch has this flow.
  'hub.link',
] as const;
export type FreshnessSubject = (typeof FRESHNESS_SUBJECTS)[number];

/**
 * - `unknown`: never tried
 * - `ok`: the last try succeeded
 * - `waiting`: waits for a rate limit; nothing is wrong
 * - `degraded`: works in part; the message names what fails
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
  /** Sentence for a person about what happened and what to do; '' if all is well. */
  message: string;
  /** Reason that the last failed tries have in common; left out if the last try succeeded. */
  failure?: Failure | undefined;
}

/** Failure code of `orders.webhook`: several new orders in a row arrived only by polls. */
export const CALLBACKS_SILENT = 'callbacks-silent';
/** Number of new orders in a row that only polls brought, from which callbacks count as silent. */
export const SILENT_IN_A_ROW = 3;

/** Tries in a row that failed for the same reason. */
interface Failure {
  /** Reason, as `failureCode` returns it. */
  code: string;
  /** Time of the first of these tries, ISO 8601 UTC. */
  since: string;
  tries: number;
}

/** Receives reports about each flow. Each report is one small durable write. */
export interface FreshnessBoard {
  /** Reports a successful try: sets `lastOkAt` and `lastTryAt` to now. */
  ok(subject: FreshnessSubject, message?: string): void;
  /**
   * Reports a state. `failure` is the error code of the failed try that caused it, and is left out if no failed try
   * did. `lastOkAt` is not changed.
   */
  report(subject: FreshnessSubject, state: FreshnessState, message: string, failure?: string): void;
}
