import type { AlarmUp, Freshness } from '../core/alarm.ts';
import { asTyped } from '../core/errors.ts';
import { type DiskSpace, diskVerdict } from './disk-space.ts';
import { FINDING_SENTENCES, type Finding, type FindingCode } from './finding.ts';

/** What the verdict is made from; null where it could not be looked up. */
export interface VerdictFacts {
  nowMs: number;
  /** False: nobody said yet which platform this store is at. */
  isSetUp?: boolean | undefined;
  freshness: readonly Freshness[];
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
  /** How old the last good order poll may be. */
  ordersStaleAfterMs: number;
}

/**
 * - `green`: all is well
 * - `amber`: works, and somebody should look at it today
 * - `red`: orders or changes do not get through, somebody is needed now
 */
export interface Verdict {
  level: 'green' | 'amber' | 'red';
  /** Worst first; empty when all is well. */
  findings: Finding[];
}

const MINUTE_MS = 60_000;
const CHANGES_LATE_AFTER_MS = 5 * MINUTE_MS;
const CHANGES_LOST_AFTER_MS = 30 * MINUTE_MS;
const REFRESH_TOKEN_SOON_MS = 3 * 24 * 60 * MINUTE_MS;

/** Counted from the outbox itself, which knows better than an alarm that nobody lowered yet. */
const COUNTED: ReadonlySet<string> = new Set<FindingCode>(['outbox.rejected', 'outbox.held', 'outbox.stuck']);
/** Read off the disk itself: an alarm about a full disk may not have found room, nor its end. */
const MEASURED: ReadonlySet<string> = new Set<FindingCode>(['storage.low', 'storage.full']);
/** A flow is not told beside an alarm that says the same better. */
const COVERED: Partial<Record<FindingCode, readonly FindingCode[]>> = {
  'orders.poll': ['orders.stale', 'orders.unreadable', 'orders.more-pages', 'orders.starting'],
  'webhook.silent': ['webhook.refused'],
  'orders.webhook': ['webhook.refused', 'webhook.silent', 'webhook.mismatch', 'webhook.unreadable'],
  'catalog.sweep': ['catalog.incomplete'],
  // What was healed just now goes on by itself.
  'orders.stale': ['orders.resuming'],
  'outbox.stuck': ['orders.resuming'],
};
/** What follows from a daemon that does not run is not told beside it: it was so when it ended, or since. */
const WHILE_DOWN: ReadonlySet<FindingCode> = new Set<FindingCode>([
  'auth',
  'orders.resuming',
  'orders.starting',
  'orders.stale',
  'orders.poll',
  'orders.webhook',
  'orders.unbooked',
  'outbox.stuck',
  'outbox.push',
  'catalog.sweep',
  'hooks.lagging',
]);
/** What is told before the set-up; all else only waits for it. */
const BEFORE_SET_UP: ReadonlySet<FindingCode> = new Set<FindingCode>([
  'setup.missing',
  'state.unusable',
  'storage.full',
  'storage.failing',
  'storage.low',
]);
/** What follows from having no tokens is not told beside it: its remedy would lead astray. */
const WITHOUT_TOKENS: ReadonlySet<FindingCode> = new Set<FindingCode>([
  'auth',
  'auth.expiring',
  'orders.resuming',
  'orders.starting',
  'orders.stale',
  'orders.poll',
  'outbox.stuck',
  'outbox.push',
  'catalog.incomplete',
  'catalog.sweep',
]);
/** Whether it is only a consequence while there are no usable tokens. */
export function followsFromNoTokens(code: FindingCode): boolean {
  return WITHOUT_TOKENS.has(code);
}

const ORDER = Object.keys(FINDING_SENTENCES);

/** Whether everything is all right, and if not, what is wrong and what to do. */
export function verdictOf(facts: VerdictFacts): Verdict {
  const found = new Map<FindingCode, Finding>();
  const add = (code: FindingCode, more: Partial<Finding> = {}) => {
    if (!found.has(code)) found.set(code, findingOf(code, more));
  };
  for (const { key, message, level, raisedAt } of facts.alarms) {
    const isKnownBetter = (facts.outbox && COUNTED.has(key)) || (facts.disk && MEASURED.has(key));
    const areThere = key === 'auth.none' && facts.tokens !== null && facts.tokens.state !== 'none';
    if (isCode(key) && !isKnownBetter && !areThere)
      add(key, { detail: message, since: raisedAt, ...(level && { level }) });
  }
  if (facts.isSetUp === false) add('setup.missing');
  if (facts.running === false) add('service.down');
  if (facts.stateFault) add('state.unusable', { detail: facts.stateFault });
  if (facts.disk) {
    const { code, message } = diskVerdict(facts.disk);
    if (code) add(code, { detail: message });
  }
  lookAtTokens(facts, add);
  lookAtOutbox(facts, add);
  if (facts.quarantine > 0) add('quarantine', { count: facts.quarantine });
  for (const flow of facts.freshness) lookAtFlow(flow, facts, add);

  putCauseFirst(found, facts);
  const hasNoTokens = found.has('auth.locked-out') || found.has('auth.none');
  const findings = [...found.values()]
    .filter(({ code }) => !COVERED[code]?.some((better) => found.has(better)))
    .filter(({ code }) => !(hasNoTokens && WITHOUT_TOKENS.has(code)))
    .filter(({ code }) => !(facts.running === false && WHILE_DOWN.has(code)))
    .filter(({ code }) => facts.isSetUp !== false || BEFORE_SET_UP.has(code))
    .sort((a, b) => rank(a) - rank(b));
  return { level: findings[0]?.level ?? 'green', findings };
}

/** Why no orders are fetched, where that is known, is as serious as what follows from it, and is told first. */
function putCauseFirst(found: Map<FindingCode, Finding>, { freshness }: VerdictFacts): void {
  const stale = found.get('orders.stale');
  const poll = freshness.find(({ subject }) => subject === 'orders.poll');
  const cause = found.get(poll?.state === 'blocked' ? 'platform.blocked' : 'orders.unreadable');
  if (!stale || !cause) return;
  found.set('orders.stale', { ...stale, remedy: '' });
  found.set(cause.code, { ...cause, level: stale.level });
}

type Add = (code: FindingCode, more?: Partial<Finding>) => void;

function lookAtTokens({ tokens }: VerdictFacts, add: Add): void {
  if (tokens?.state === 'none') add('auth.none');
  if (tokens?.state === 'locked-out') add('auth.locked-out');
  const restMs = tokens?.refreshExpiresInMs ?? null;
  if (restMs !== null && restMs < REFRESH_TOKEN_SOON_MS) add('auth.expiring');
}

function lookAtOutbox(facts: VerdictFacts, add: Add): void {
  const { outbox } = facts;
  if (!outbox) return;
  const { pending, held, rejected, oldestPendingAt: since } = outbox;
  if (rejected > 0) add('outbox.rejected', { count: rejected });
  if (held > 0) add('outbox.held', { count: held });
  const level = lateLevel({ ...facts, since });
  if (level !== null) add('outbox.stuck', { level, count: pending, since });
}

/** How serious it is that a change waits since then; null: not yet. A long queue takes its time: red needs silence, too. */
export function lateLevel({
  since,
  freshness,
  nowMs,
}: Pick<VerdictFacts, 'freshness' | 'nowMs'> & { since: string | null }): Finding['level'] | null {
  const waitedMs = ageMs(since, nowMs);
  if (waitedMs === null || waitedMs < CHANGES_LATE_AFTER_MS) return null;
  const { lastOkAt = null } = freshness.find(({ subject }) => subject === 'outbox.push') ?? {};
  const silentMs = ageMs(lastOkAt, nowMs) ?? waitedMs;
  return Math.min(waitedMs, silentMs) < CHANGES_LOST_AFTER_MS ? 'amber' : 'red';
}

function lookAtFlow(flow: Freshness, facts: VerdictFacts, add: Add): void {
  const { subject, state, lastOkAt: since } = flow;
  const detail = flow.message === '' ? null : flow.message;
  if (subject === 'orders.poll' && state !== 'off') {
    const silentMs = ageMs(since, facts.nowMs);
    // The last try was refused, and the tokens are others since.
    if (state === 'locked-out' && facts.tokens?.state === 'ok') add('orders.resuming', { since });
    else if (silentMs === null && (state === 'unknown' || state === 'waiting')) add('orders.starting');
    else if (silentMs === null || silentMs > facts.ordersStaleAfterMs) add('orders.stale', { detail, since });
  }
  if (state === 'degraded' || state === 'failing') add(subject, { detail, since });
  if (state === 'blocked') add('platform.blocked', { detail });
  // Tokens that are there are known better, and those that never were cannot be refused.
  if (state === 'locked-out' && !facts.tokens) add('auth.locked-out', { detail, since });
}

function findingOf(code: FindingCode, more: Partial<Finding>): Finding {
  const { level, message, remedy } = FINDING_SENTENCES[code];
  const count = more.count ?? null;
  const told = message.replace(': {count}', count === null ? '' : `: ${count}`);
  return { code, level, remedy: asTyped(remedy), detail: null, since: null, ...more, count, message: told };
}

function isCode(key: string): key is FindingCode {
  return Object.hasOwn(FINDING_SENTENCES, key);
}

function rank({ code, level }: Finding): number {
  return (level === 'red' ? 0 : ORDER.length) + ORDER.indexOf(code);
}

/** null for a time that is missing or cannot be read; a time to come counts as now. */
function ageMs(iso: string | null, nowMs: number): number | null {
  const ms = iso === null ? Number.NaN : Date.parse(iso);
  return Number.isNaN(ms) ? null : Math.max(nowMs - ms, 0);
}
