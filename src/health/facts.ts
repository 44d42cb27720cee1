import {
  type AlarmKey,
  type AlarmUp,
  type FindingLevel,
  FRESHNESS_SUBJECTS,
  type Freshness,
  type FreshnessState,
  type FreshnessSubject,
} from '../core/alarm.ts';

/** What can be wrong: an alarm, a flow in trouble, or what the figures tell. */
export type FindingCode =
  | AlarmKey
  | FreshnessSubject
  | 'auth.none'
  | 'auth.expiring'
  | 'backup.old'
  | 'orders.starting'
  | 'orders.resuming'
  | 'service.down'
  | 'webhook.external-pos'
  | 'setup.missing'
  | 'state.unusable'
  | 'storage.full'
  | 'storage.low'
  | 'quarantine';

/** One thing that is wrong. The code stays the same in every version; sentences may be worded anew. */
export interface Finding {
  code: FindingCode;
  level: FindingLevel;
  /** What is wrong, one sentence. */
  message: string;
  /** What to do about it, one sentence; empty where it ends with what is told before it. */
  remedy: string;
  /** The words of the part that noticed it; null when there are none. */
  detail: string | null;
  /** How many things it is about; null when that is not the point. */
  count: number | null;
  /** ISO 8601 UTC; null when unknown. */
  since: string | null;
  /** Why it is so, where the remedy depends on it. */
  cause?: Cause | undefined;
}

/** Why calls to the platform fail. */
export const FAILURE_CAUSES = [
  'refuses',
  'no-name',
  'no-dns',
  'no-line',
  'silent',
  'slow',
  'certificate-date',
  'certificate-trust',
  'no-right',
  'fault',
  'refused',
] as const;
export type Cause = (typeof FAILURE_CAUSES)[number];

/** By the code of the failure, as a system or tillsync itself has it. */
const CAUSES: Readonly<Record<string, Cause>> = {
  ECONNREFUSED: 'refuses',
  ENOTFOUND: 'no-name',
  EAI_AGAIN: 'no-dns',
  EHOSTUNREACH: 'no-line',
  ENETUNREACH: 'no-line',
  ETIMEDOUT: 'silent',
  UND_ERR_CONNECT_TIMEOUT: 'silent',
  'platform-unreachable': 'slow',
  CERT_HAS_EXPIRED: 'certificate-date',
  CERT_NOT_YET_VALID: 'certificate-date',
  ERR_TLS_CERT_ALTNAME_INVALID: 'certificate-trust',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'certificate-trust',
  SELF_SIGNED_CERT_IN_CHAIN: 'certificate-trust',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'certificate-trust',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'certificate-trust',
  unauthorized: 'no-right',
  forbidden: 'no-right',
  'platform-refused': 'refused',
  'platform-failed': 'fault',
};
/** What a platform that is being worked on, or a line that comes back, does not say twice in minutes. */
const LASTING: ReadonlySet<Cause> = new Set<Cause>([
  ...(['refuses', 'no-name', 'certificate-date', 'certificate-trust', 'no-right', 'refused'] as const),
]);
/** A line that is cut looks the same, unless it is known that the line is up. */
const LASTING_WITH_LINE: ReadonlySet<Cause> = new Set<Cause>(['no-dns', 'silent']);
const LASTING_TRIES = 2;
const LASTING_MS = 90_000;

/** All that is known of how things stand; null where it could not be looked up. */
export interface Facts {
  nowMs: number;
  /** False: nobody said yet which platform this store is at. */
  isSetUp?: boolean | undefined;
  /** How each flow fares. */
  freshness: readonly Freshness[];
  /** What a part noted as wrong, by the code of its finding. */
  alarms: readonly (Omit<AlarmUp, 'key'> & { key: string })[];
  tokens: { state: 'none' | 'ok' | 'locked-out'; refreshExpiresInMs: number | null } | null;
  outbox: { pending: number; held: number; rejected: number; oldestPendingAt: string | null } | null;
  /** Entries in quarantine. */
  quarantine: number;
  /** Of the storage directory; left out or null where the system does not tell. */
  disk?: DiskSpace | null | undefined;
  /** What is wrong with state.db itself; left out or null when nothing is, or this user may not look. */
  stateFault?: string | null | undefined;
  /** Whether the daemon runs; left out or null where that is not known, or not the point. */
  running?: boolean | null | undefined;
  /** Whether the last sign of life reached the watcher outside; left out or null: none is sent. */
  isLineUp?: boolean | null | undefined;
  /** How old the last good order poll may be. */
  ordersStaleAfterMs: number;
}

/** What facts add to the row of a finding; a level only where it is another one. */
export type FactsOfFinding = Partial<Pick<Finding, 'level' | 'detail' | 'count' | 'since' | 'cause'>>;

export function flowOf(subject: FreshnessSubject, { freshness }: Facts): Freshness | undefined {
  return freshness.find((flow) => flow.subject === subject);
}

/** What a part noted under this code; undefined: nothing. */
export function notedAs(code: FindingCode, { alarms }: Facts): FactsOfFinding | undefined {
  const noted = alarms.find(({ key }) => key === code);
  if (!noted) return undefined;
  const { message, level, raisedAt } = noted;
  return { detail: message, since: raisedAt, ...(level && { level }) };
}

/** By the disk itself: what was noted of a full one may not have found room, nor its end; undefined: it does not tell. */
export function hasDisk(
  code: 'storage.full' | 'storage.low',
  facts: Facts,
): FactsOfFinding | null | undefined {
  const { disk } = facts;
  if (!disk) return undefined;
  const { code: now, message } = diskVerdict(disk);
  const isStill = notedAs(code, facts) !== undefined && healingCode(disk) === code && now !== 'storage.full';
  return now === code || isStill ? { detail: message } : null;
}

/** How old the last complete order poll is; null: there was none. */
function ordersAge(facts: Facts): number | null {
  return ageMs(flowOf('orders.poll', facts)?.lastOkAt ?? null, facts.nowMs);
}

const MINUTE_MS = 60_000;
const CHANGES_LATE_AFTER_MS = 5 * MINUTE_MS;
const CHANGES_LOST_AFTER_MS = 30 * MINUTE_MS;

/** How serious it is that a change waits since then; null: not yet. A long queue takes its time: red needs silence, too. */
export function changesLate({
  since,
  freshness,
  nowMs,
}: Pick<Facts, 'freshness' | 'nowMs'> & { since: string | null }): FindingLevel | null {
  const waitedMs = ageMs(since, nowMs);
  if (waitedMs === null || waitedMs < CHANGES_LATE_AFTER_MS) return null;
  const { lastOkAt = null } = freshness.find(({ subject }) => subject === 'outbox.push') ?? {};
  const silentMs = ageMs(lastOkAt, nowMs) ?? waitedMs;
  return Math.min(waitedMs, silentMs) < CHANGES_LOST_AFTER_MS ? 'amber' : 'red';
}

/** null for a time that is missing or cannot be read; a time to come counts as now. */
function ageMs(iso: string | null, nowMs: number): number | null {
  const ms = iso === null ? Number.NaN : Date.parse(iso);
  return Number.isNaN(ms) ? null : Math.max(nowMs - ms, 0);
}

const REFRESH_TOKEN_SOON_MS = 3 * 24 * 3_600_000;

/** None of the orders was announced, and no callback ever was: the platform does not send any. */
export function neverCalled(facts: Facts): FactsOfFinding | undefined {
  const webhook = flowOf('orders.webhook', facts);
  return webhook && webhook.lastOkAt === null ? notedAs('webhook.silent', facts) : undefined;
}

export function hasNoTokens(facts: Facts): FactsOfFinding | null | undefined {
  if (!facts.tokens) return undefined;
  return facts.tokens.state === 'none' ? (notedAs('auth.none', facts) ?? {}) : null;
}

export function isLockedOut(facts: Facts): FactsOfFinding | undefined {
  const noted = notedAs('auth.locked-out', facts);
  if (noted || facts.tokens) return noted ?? (facts.tokens?.state === 'locked-out' ? {} : undefined);
  // Tokens that are there are known better, and those that never were cannot be refused.
  const [first] = flowsIn('locked-out', facts);
  return first && { detail: first.message || null, since: first.lastOkAt };
}

export function endsSoon({ tokens }: Facts): FactsOfFinding | undefined {
  const restMs = tokens?.refreshExpiresInMs ?? null;
  return restMs !== null && restMs < REFRESH_TOKEN_SOON_MS ? {} : undefined;
}

export function isBlocked(facts: Facts): FactsOfFinding | undefined {
  // Any answer since proves that the block is over, also for a flow that was not tried again.
  const okAt =
    facts.freshness
      .map(({ lastOkAt }) => lastOkAt ?? '')
      .sort()
      .at(-1) ?? '';
  const isSince = ({ lastTryAt }: Freshness) => okAt <= (lastTryAt ?? '');
  const first = flowsIn('blocked', facts).find(isSince);
  return notedAs('platform.blocked', facts) ?? (first && { detail: first.message || null });
}

export function changesWait(facts: Facts): FactsOfFinding | null | undefined {
  if (!facts.outbox) return undefined;
  const { pending, oldestPendingAt: since } = facts.outbox;
  const level = changesLate({ ...facts, since });
  const push = flowOf('outbox.push', facts);
  return level && { level, count: pending, since, ...(push && causeOf(push)) };
}

/** What is known of the age of the orders; the first of these is told. */
type OrdersCode = 'orders.resuming' | 'orders.starting' | 'orders.stale';

function causeOf({ failure }: Freshness): { cause?: Cause } {
  const cause = failure ? CAUSES[failure.code] : undefined;
  return cause ? { cause } : {};
}

/** Whether a flow fails for the same reason, try after try, so that its age need not be waited for. */
function isLasting(flow: Freshness, { nowMs, isLineUp }: Facts): boolean {
  const { cause } = causeOf(flow);
  if (!flow.failure || cause === undefined) return false;
  if (!LASTING.has(cause) && !(isLineUp && LASTING_WITH_LINE.has(cause))) return false;
  const { tries, since } = flow.failure;
  return tries >= LASTING_TRIES && nowMs - Date.parse(since) >= LASTING_MS;
}

function ordersFare(facts: Facts): { code: OrdersCode; more: FactsOfFinding } | undefined {
  const poll = flowOf('orders.poll', facts);
  if (!poll || poll.state === 'off') return undefined;
  const { state, lastOkAt: since } = poll;
  const ageMs = ordersAge(facts);
  // The last try was refused, and the tokens are others since.
  if (state === 'locked-out' && facts.tokens?.state === 'ok')
    return { code: 'orders.resuming', more: { since } };
  if (ageMs === null && (state === 'unknown' || state === 'waiting'))
    return { code: 'orders.starting', more: {} };
  const isOld = ageMs === null || ageMs > facts.ordersStaleAfterMs;
  if (!isOld && !isLasting(poll, facts)) return undefined;
  return { code: 'orders.stale', more: { detail: poll.message || null, since, ...causeOf(poll) } };
}

export function ordersAre(code: OrdersCode, facts: Facts): FactsOfFinding | undefined {
  const fare = ordersFare(facts);
  return notedAs(code, facts) ?? (fare?.code === code ? fare.more : undefined);
}

/** A flow of which the last try did not work, or only in part. */
export function troubleOf(subject: FreshnessSubject, facts: Facts): FactsOfFinding | undefined {
  const flow = flowOf(subject, facts);
  if (flow?.state !== 'degraded' && flow?.state !== 'failing') return undefined;
  return notedAs(subject, facts) ?? { detail: flow.message || null, since: flow.lastOkAt };
}

const BACKUP_TRIES = 2;

/** No backup came about at several times, an hour apart. */
export function backupsFail(facts: Facts): FactsOfFinding | undefined {
  const flow = flowOf('backup', facts);
  if (flow?.state !== 'failing' || (flow.failure?.tries ?? 0) < BACKUP_TRIES) return undefined;
  return { detail: flow.message, since: flow.lastOkAt };
}

/** Always in the same order. */
function flowsIn(state: FreshnessState, facts: Facts): Freshness[] {
  return FRESHNESS_SUBJECTS.flatMap((subject) => flowOf(subject, facts) ?? []).filter(
    (flow) => flow.state === state,
  );
}

export function counted(count: number): FactsOfFinding | null {
  return count > 0 ? { count } : null;
}

/** Of the file system that holds the storage directory, as `statfs` tells: what this user may still write. */
export interface DiskSpace {
  freeBytes: number;
  totalBytes: number;
}

/**
 * - `ok`: there is room
 * - `low`: free some today
 * - `full`: what comes in soon can no longer be kept, or cannot already
 */
export interface DiskVerdict {
  level: 'ok' | 'low' | 'full';
  /** How the status page and `doctor` name it; null when all is well. */
  code: 'storage.low' | 'storage.full' | null;
  /** One sentence: how much is free. */
  message: string;
}

export const DISK_FULL_BYTES = 50 * 1024 ** 2;
export const DISK_LOW_BYTES = 500 * 1024 ** 2;
export const DISK_LOW_SHARE = 0.05;
/** A twentieth of a large disk is more than tillsync fills in years. */
const LOW_SHARE_MAX_BYTES = 5 * 1024 ** 3;

/** Whether the disk has room for what comes in: low below 500 MiB or 5 %, full below 50 MiB. */
export function diskVerdict({ freeBytes, totalBytes }: DiskSpace): DiskVerdict {
  const message = `${formatBytes(freeBytes)} of ${formatBytes(totalBytes)} are free.`;
  if (freeBytes < DISK_FULL_BYTES) return { level: 'full', code: 'storage.full', message: `Only ${message}` };
  const share = Math.min(totalBytes * DISK_LOW_SHARE, LOW_SHARE_MAX_BYTES);
  if (freeBytes < Math.max(DISK_LOW_BYTES, share)) {
    return { level: 'low', code: 'storage.low', message: `Only ${message}` };
  }
  return { level: 'ok', code: null, message };
}

/** A disk counts as well again only with a tenth more room than the mark, so that it does not flap around it. */
const ROOM_TO_HEAL = 0.9;

/** What the disk still counts as until it has that room. */
export function healingCode(disk: DiskSpace): DiskVerdict['code'] {
  return diskVerdict({ ...disk, freeBytes: disk.freeBytes * ROOM_TO_HEAL }).code;
}

/** Bytes as a person says them: `812 MiB`, `1.5 GiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = Math.max(0, bytes);
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  const digits = unit > 2 && value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
