import type { ErrorCode } from './errors.ts';

/** Things a person must hear of once, and once more when they are over. */
export type AlarmKey =
  | 'auth.locked-out'
  | 'auth.none'
  | 'auth.other-company'
  | 'platform.blocked'
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
  | 'webhook.silent'
  | 'webhook.refused'
  | 'webhook.unreadable'
  | 'webhook.mismatch'
  | 'storage.failing'
  | 'storage.full'
  | 'storage.low'
  | 'mirror.reader-holds-wal'
  | 'mirror.too-large'
  | 'customers.not-forgotten'
  | 'clock.wrong'
  | 'clock.off'
  | 'mirror.locked'
  | 'catalog.incomplete'
  | 'catalog.unmapped'
  | 'catalog.unmapped-ordered'
  | 'hub.link'
  | 'hub.refused'
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
  | 'local.wrong-key';

/**
 * - `amber`: works, and somebody should look at it today
 * - `red`: orders or changes do not get through, somebody is needed now
 */
export type FindingLevel = 'amber' | 'red';

/** An alarm that is up. */
export interface AlarmUp {
  key: AlarmKey;
  /** The words of the part that raised it. */
  message: string;
  /** How serious it is; null or left out: as its finding is. */
  level?: FindingLevel | null;
  /** ISO 8601 UTC. */
  raisedAt: string;
}

/** Where the parts say what they found; the table of findings makes of it what a person is told. */
export interface Alarms {
  /** What is wrong under this code by now, or null: nothing is. `level`: left out where the code has one only. */
  note(key: AlarmKey, trouble: string | null, level?: FindingLevel): void;
}

/** The flows whose freshness a POS and support can see, as rows of the mirror's `freshness` table. */
export const FRESHNESS_SUBJECTS = [
  'orders.poll',
  'orders.webhook',
  'catalog.sweep',
  'outbox.push',
  'auth',
  'backup',
  // Only where there is a hub or a link to one.
  'hub.link',
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

/** What a call that failed for `code` says of its flow. */
export function freshnessOfFailure(code: ErrorCode): FreshnessState {
  if (code === 'auth-required') return 'locked-out';
  return code === 'blocked' ? 'blocked' : 'failing';
}

export interface Freshness {
  subject: FreshnessSubject;
  lastOkAt: string | null;
  lastTryAt: string | null;
  state: FreshnessState;
  /** One sentence for a person: what happened and what to do; empty when all is well. */
  message: string;
  /** Why the last tries failed, all for one reason; left out: the last one did not fail. */
  failure?: Failure | undefined;
}

/** Tries in a row that failed for one reason. */
export interface Failure {
  /** As `failureCode` has it. */
  code: string;
  /** ISO 8601 UTC; the first of them. */
  since: string;
  tries: number;
}

/** Where the parts report how their flow fares. One call is one small durable write. */
export interface FreshnessBoard {
  /** Reports a try that worked (`lastOkAt` and `lastTryAt` move to now). */
  ok(subject: FreshnessSubject, message?: string): void;
  /** Reports a try that did not work, with the code of its failure, or a state of rest; `lastOkAt` stays. */
  report(subject: FreshnessSubject, state: FreshnessState, message: string, failure?: string): void;
}
