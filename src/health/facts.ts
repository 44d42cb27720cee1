import type { Branch } from '../catalog/product.ts';
import type { BranchMapping, UnmappedItem } from '../catalog/unmapped.ts';
import {
  type AlarmKey,
  type AlarmUp,
  CALLBACKS_SILENT,
  type FindingLevel,
  FRESHNESS_SUBJECTS,
  type Freshness,
  type FreshnessState,
  type FreshnessSubject,
} from '../core/alarm.ts';
import type { Clock } from '../core/time.ts';
import type { FieldNews } from '../core/values.ts';
import type {
  IncompleteOrder,
  MissingCodes,
  OddOrder,
  StatusWord,
  SumsOfOrders,
} from '../orders/merging/incomplete-orders.ts';
import type { HeldOrder, WaitingOrder } from '../orders/merging/order.ts';
import type { SilentPos } from './pos-silence.ts';

/** Codes of findings. A finding comes from an alarm, from the state of a flow, or from another fact. */
export type FindingCode =
  | AlarmKey
  | FreshnessSubject
  | 'auth.expiring'
  | 'auth.locked-out'
  | 'backup.old'
  | 'catalog.incomplete'
  | 'orders.starting'
  | 'orders.resuming'
  | 'service.down'
  | 'webhook.external-pos'
  | 'webhook.silent'
  | 'hub.refused'
  | 'platform.blocked'
  | 'setup.missing'
  | 'state.unusable'
  | 'storage.filesystem'
  | 'storage.full'
  | 'storage.low'
  | 'quarantine';

/** A fault that exists now. Its code is the same in every version; its sentences may change. */
export interface Finding {
  code: FindingCode;
  level: FindingLevel;
  /** Sentence that says what is wrong. */
  message: string;
  /** Sentence that says what to do; empty if the remedy of an earlier finding also ends this one. */
  remedy: string;
  /** Message from the part of tillsync that found the fault; null if it gave none. */
  detail: string | null;
  /** Number of affected rows or files; null if the number is irrelevant. */
  count: number | null;
  /** When the fault began, ISO 8601 UTC; null if unknown. */
  since: string | null;
  /** Cause of the fault, if the remedy depends on the cause. */
  cause?: Cause | undefined;
  /** Flow on whose card the page shows the finding. */
  flow?: FreshnessSubject | undefined;
}

/** Causes of failed calls to the platform. */
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

/**
 * Cause of a failed call for each error code. The codes come from the operating system, Node.js, undici or tillsync.
 */
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
/**
 * Causes that last until somebody acts. If two tries in a row fail for one of them, neither maintenance of the platform
 * nor a recovering connection explains it.
 */
const LASTING: ReadonlySet<Cause> = new Set<Cause>([
  ...(['refuses', 'no-name', 'certificate-date', 'certificate-trust', 'no-right', 'refused'] as const),
]);
/** Causes that also occur when the internet connection is cut. They count as lasting only while heartbeats arrive. */
const LASTING_WITH_LINE: ReadonlySet<Cause> = new Set<Cause>(['no-dns', 'silent']);
const LASTING_TRIES = 2;
const LASTING_MS = 90_000;

/** All facts from which the verdict follows. A fact is null if it could not be read. */
export interface Facts {
  nowMs: number;
  /** False if no platform is configured yet. */
  isSetUp?: boolean | undefined;
  /** State of each flow. */
  freshness: readonly Freshness[];
  /** Faults that parts of tillsync reported, by code of the finding. */
  alarms: readonly (Omit<AlarmUp, 'key'> & { key: string })[];
  tokens: { state: 'none' | 'ok' | 'locked-out'; refreshExpiresInMs: number | null } | null;
  outbox: { pending: number; held: number; rejected: number; oldestPendingAt: string | null } | null;
  /** Number of entries in quarantine. */
  quarantine: number;
  /** Space on the disk of the storage directory; null or missing if the system does not report it. */
  disk?: DiskSpace | null | undefined;
  /** Fault of state.db itself; null or missing if there is none or this user may not read the file. */
  stateFault?: string | null | undefined;
  /** Whether the daemon runs; null or missing if unknown or irrelevant. */
  running?: boolean | null | undefined;
  /** Whether the last heartbeat reached its watcher; null or missing if none is sent. */
  isLineUp?: boolean | null | undefined;
  /** Age of the last good order poll above which orders count as stale. */
  ordersStaleAfterMs: number;
}

/**
 * What the daemon's look at its store may ask for, to find faults that no other part of tillsync notices, such as a full
 * disk or a wrong clock. Each is read when a rule asks for it.
 */
export interface Sights {
  /** Returns the space on the disk of the storage directory; null if the system does not report it. */
  disk: () => DiskSpace | null;
  /** Returns whether no tokens were ever entered. May throw `storage-…`. */
  hasNoTokens: () => boolean;
  /** Returns the platform's clock minus this machine's; undefined if unknown. */
  clockSkewMs: () => number | undefined;
  /** Returns the companies of the oldest and newest order; undefined if no order names one. May throw `storage-…`. */
  orderCompanies: () => { oldest: string; newest: string } | undefined;
  /** Returns orders that the POS should have acknowledged by now, longest wait first. May throw `storage-…`. */
  waitingOrders: () => readonly WaitingOrder[];
  /** Returns stores whose POS gives no sign of life although it usually does. May throw `storage-…`. */
  silentPos: () => readonly SilentPos[];
  /** Returns orders with an unreadable part, oldest first. May throw `storage-…`. */
  incompleteOrders: () => readonly IncompleteOrder[];
  /** Returns orders whose callbacks wait for a poll, longest wait first. May throw `storage-…`. */
  heldOrders: () => readonly HeldOrder[];
  /** Returns statuses of the last day that the document does not name, newest first. May throw `storage-…`. */
  unknownStatuses: () => readonly StatusWord[];
  /**
   * Returns stocks whose quantity on the platform differs from the POS's count, worst first. May throw `storage-…`.
   */
  stockDifferences: () => { count: number; worst: readonly NamedDifference[] };
  /** Returns orders of the last day that belong to no branch, newest first. May throw `storage-…`. */
  strayOrders: () => readonly (OddOrder & { store: string | null })[];
  /** Returns the last day's orders whose sums do not add up, and their usual share. May throw `storage-…`. */
  sumsOfOrders: () => SumsOfOrders;
  /** Returns order numbers that are missing between those of the day's orders. May throw `storage-…`. */
  missingCodes: () => MissingCodes;
  /** Returns fields that are new in payloads, and fields that are no longer sent. May throw `storage-…`. */
  fieldNews: () => Record<'orders' | 'products', FieldNews>;
  /** Returns endpoints that the platform does not permit, each with the platform's message. May throw `storage-…`. */
  forbidden: () => readonly { endpoint: string; message: string }[];
  /** Returns why callbacks are refused, and why some were unreadable; null if none are. May throw `storage-…`. */
  callbacks: () => { refused: string | null; unreadable: string | null };
  /**
   * Returns why sending fails while polls succeed; null if sending works, undefined if neither is certain yet. May throw
   * `storage-…`.
   */
  pushFails: () => string | null | undefined;
  /** Answers in which the platform asked tillsync to wait, each with its endpoint. */
  limited: { of(): Repeated };
  /** Returns one reason for each failing alarm receiver: why a message still waits to be sent to it. */
  untold: () => readonly string[];
  /** Requests with a wrong API key to the local API, each with the address of its sender. */
  wrongKeys: { of(): Repeated };
  /** Time that an order may wait for its acknowledgement before people are notified; 0 means for ever. */
  unbookedAfterMs: number;
  /** Returns, for each branch, how many of its shown products have an id of the POS. May throw `storage-…`. */
  branchMappings: () => readonly BranchMapping[];
  /**
   * Returns items without an id of the POS, in orders of these branches that were first seen paid at `from` or later.
   * May throw `storage-…`.
   */
  unmappedItems: (branches: readonly Branch[], from: string) => readonly UnmappedItem[];
  /** Formats a time in the shop's time zone. */
  localTime: (iso: string) => string;
  /** Time since the daemon's start, in milliseconds. */
  upMs: () => number;
  clock: Pick<Clock, 'nowMs'>;
}

/** A stock whose quantity on the platform differs from the wanted one. */
export interface NamedDifference {
  sku: string;
  branch: string;
  platformQty: number;
  wantedQty: number;
  /** When the difference began, ISO 8601 UTC. */
  since: string;
}

/** Events of the last hour: how many, over what time, and where the last one was. */
export interface Repeated {
  count: number;
  /** Time between the first and the last event. */
  forMs: number;
  where: string;
}

/** What a look found. The level is left out if it is that of the finding's row. */
interface Noted {
  words: string;
  level?: FindingLevel;
}

/** Judges a store: null means that there is no fault, undefined that what was found before stays. */
export type Look = (seen: Sights) => Noted | null | undefined;

/** What the facts add to a finding's row. The level is set only if it differs from the row's. */
export type FactsOfFinding = Partial<Pick<Finding, 'level' | 'detail' | 'count' | 'since' | 'cause'>>;

/** A row of the table of findings: everything about one code. */
export interface FindingRow {
  level: FindingLevel;
  /** Sentence that says what is wrong. It may end in `: {count}`, which is left out if there is no count. */
  message: string;
  remedy: string;
  /** Remedy for the output of `doctor`, if the normal remedy says to run `doctor`. */
  inDoctor?: string;
  /** Remedies for known causes, used instead of the normal one. */
  remedies?: Partial<Record<Cause, string>>;
  /**
   * Judges the facts: null means that there is no fault, undefined that the facts cannot tell. If undefined, or without
   * this function, the finding exists while an alarm with its code is raised.
   */
  when?: (facts: Facts) => FactsOfFinding | null | undefined;
  /**
   * Rule by which the daemon finds it with a look at its store, several times a minute. What it finds is noted in the
   * mirror as an alarm, and then is the finding unless `when` says otherwise.
   */
  look?: Look;
  /** Findings that hide this one, because they are its cause or more precise. */
  hiddenBy?: readonly FindingCode[];
  /**
   * When people are notified: with `red` only while the finding is red, with `never` not at all, and if left out,
   * always. The finding is shown in any case.
   */
  sent?: 'never' | 'red';
  /** True if the finding exists only after the fault has lasted for a time. People are then notified at once. */
  lasted?: true;
  /**
   * Finding that causes this one. Nobody is notified of this finding while its cause lasts, or within `withinMs` after
   * the cause has ended, because this finding then also ends by itself.
   */
  follows?: { code: FindingCode; withinMs: number };
  /**
   * True if the finding is shown even before the set-up is finished. Other findings are hidden until then, because the
   * missing set-up is their cause.
   */
  isToldBeforeSetUp?: true;
  /**
   * True if the fault also arises while tillsync does not run. After a start, or after the machine slept, nobody is
   * notified of the finding for some minutes, so that the fault can end.
   */
  growsOld?: true;
  /** Flow on whose card the page shows the finding. */
  flow?: FreshnessSubject;
  /** Check in the output of `doctor` that shows the finding. */
  check: FindingCheck;
}

/** Checks of `doctor` that show findings. `alarms` shows the findings that have no check of their own. */
export type FindingCheck =
  | 'storage.disk'
  | 'storage.state'
  | 'service'
  | 'tokens'
  | 'orders'
  | 'orders.booked'
  | 'catalog'
  | 'catalog.mapped'
  | 'changes'
  | 'outbox'
  | 'stock.differs'
  | 'hooks'
  | 'quarantine'
  | 'hub'
  | 'hub.branches'
  | 'hub.certificate'
  | 'backup'
  | 'platform.limits'
  | 'webhook.registered'
  | 'webhook.arriving'
  | 'alarms';

/** Remedies for calls to the platform that keep failing, by cause. */
export const WITHOUT_AN_ANSWER: Partial<Record<Cause, string>> = {
  refuses:
    "The platform's server refuses connections. Check platform.base_url. If it is right, ask the platform's support whether the server is down.",
  'no-name': "Check the spelling of platform.base_url and this machine's DNS.",
  'no-dns': "This machine's name server doesn't answer. Check the router and its DNS.",
  'no-line': 'This machine has no network connection. Check its cable or Wi-Fi, and the router.',
  silent:
    "The platform's server doesn't answer. If other sites open on this machine, ask the platform's support. Otherwise check the router.",
  slow: "The platform's answers take too long. Check whether this machine's internet connection is slow. If it isn't, ask the platform's support.",
  'certificate-date':
    "Check this machine's clock. If the time is right, tell the platform's support that its certificate has expired.",
  'certificate-trust':
    'A proxy or antivirus intercepts the connection with its own certificate. Ask your network admin.',
  'no-right': 'Create a new token in the company panel. Then run {tillsync} auth set and paste it.',
  fault: 'The platform answers with an error. Ask its support. tillsync retries automatically.',
  refused: 'The platform rejects the call. Send its support and ours the output of: {tillsync} doctor',
};

export function flowOf(subject: FreshnessSubject, { freshness }: Facts): Freshness | undefined {
  return freshness.find((flow) => flow.subject === subject);
}

/** Returns the alarm that a part of tillsync raised under this code; undefined if there is none. */
export function notedAs(code: FindingCode, { alarms }: Facts): FactsOfFinding | undefined {
  const noted = alarms.find(({ key }) => key === code);
  if (!noted) return undefined;
  const { message, level, raisedAt } = noted;
  return { detail: message, since: raisedAt, ...(level && { level }) };
}

/**
 * Judges the present free space, because a full disk may have no room to store an alarm or its end. A stored alarm only
 * extends a finding until there is clearly more room. Returns undefined if the free space is unknown.
 */
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

export function isUnsafe({ disk }: Facts): FactsOfFinding | undefined {
  return disk?.unsafe === undefined ? undefined : { detail: `File system: ${disk.unsafe}.` };
}

/** Returns the age of the last complete order poll; null if there was none. */
function ordersAge(facts: Facts): number | null {
  return ageMs(flowOf('orders.poll', facts)?.lastOkAt ?? null, facts.nowMs);
}

/** Times from which something is amber, and red. */
interface LevelTimes {
  amberAfterMs: number;
  redAfterMs: number;
}

/**
 * Returns the level for changes that wait since `since`; null if the wait is normal. A long queue takes time, so a long
 * wait is red only if the platform has also accepted no change for as long.
 */
function changesLate(
  { since, freshness, nowMs }: Pick<Facts, 'freshness' | 'nowMs'> & { since: string | null },
  { amberAfterMs, redAfterMs }: LevelTimes,
): FindingLevel | null {
  const waitedMs = ageMs(since, nowMs);
  if (waitedMs === null || waitedMs < amberAfterMs) return null;
  const { lastOkAt = null } = freshness.find(({ subject }) => subject === 'outbox.push') ?? {};
  const silentMs = ageMs(lastOkAt, nowMs) ?? waitedMs;
  return Math.min(waitedMs, silentMs) < redAfterMs ? 'amber' : 'red';
}

/** Returns the age of a time in ms; null if the time is missing or unreadable. A future time counts as now. */
function ageMs(iso: string | null, nowMs: number): number | null {
  const ms = iso === null ? Number.NaN : Date.parse(iso);
  return Number.isNaN(ms) ? null : Math.max(nowMs - ms, 0);
}

/** Returns a finding if several new orders came without a callback. The next callback ends the finding. */
export function areCallbacksSilent(facts: Facts): FactsOfFinding | null {
  const { failure, message } = flowOf('orders.webhook', facts) ?? {};
  return failure?.code === CALLBACKS_SILENT ? { detail: message || null, since: failure.since } : null;
}

/** Returns the finding for silent callbacks if no callback ever arrived; the platform then probably sends none. */
export function neverCalled(facts: Facts): FactsOfFinding | null {
  return flowOf('orders.webhook', facts)?.lastOkAt === null ? areCallbacksSilent(facts) : null;
}

/**
 * Returns a finding if the last read of the catalogue did not finish, with the reason. In an outage shorter than
 * `outageMs`, only the missing orders are a finding, because the catalogue is soon read again.
 */
export function isCatalogueCut(facts: Facts, { outageMs }: { outageMs: number }): FactsOfFinding | null {
  const { failure, message, lastOkAt } = flowOf('catalog.sweep', facts) ?? {};
  if (!failure) return null;
  const failingMs = ageMs(failure.since, facts.nowMs) ?? 0;
  if (failure.code === 'platform-unreachable' && failingMs < outageMs) return null;
  return { detail: message || null, since: lastOkAt ?? failure.since };
}

export function hasNoTokens(facts: Facts): FactsOfFinding | null | undefined {
  if (!facts.tokens) return undefined;
  return facts.tokens.state === 'none' ? (notedAs('auth.none', facts) ?? {}) : null;
}

/**
 * Returns a finding if the platform refuses the tokens. If the tokens cannot be read here, a flow in state `locked-out`
 * shows that they are refused.
 */
export function isLockedOut(facts: Facts): FactsOfFinding | null {
  if (facts.tokens && facts.tokens.state !== 'locked-out') return null;
  const [first] = [flowOf('auth', facts), ...flowsIn('locked-out', facts)].filter(
    (flow) => flow?.state === 'locked-out',
  );
  if (!first) return facts.tokens ? {} : null;
  return { detail: first.message || null, since: first.failure?.since ?? first.lastOkAt };
}

export function endsSoon({ tokens }: Facts, { withinMs }: { withinMs: number }): FactsOfFinding | undefined {
  const restMs = tokens?.refreshExpiresInMs ?? null;
  return restMs !== null && restMs < withinMs ? {} : undefined;
}

export function isBlocked(facts: Facts): FactsOfFinding | null {
  // Any later answer proves that the block is over, even for a flow that has not tried again.
  const okAt =
    facts.freshness
      .map(({ lastOkAt }) => lastOkAt ?? '')
      .sort()
      .at(-1) ?? '';
  const isSince = ({ lastTryAt }: Freshness) => okAt <= (lastTryAt ?? '');
  const first = flowsIn('blocked', facts).find(isSince);
  return first ? { detail: first.message || null, since: first.failure?.since ?? null } : null;
}

/** Failure codes that are not a fault of sending, or that have findings of their own. */
const NOT_OF_SENDING = /^(rate-limited|forbidden|blocked|aborted|auth-|storage-|link-)/;

/** Returns whether the last try to send failed, for a reason that has no finding of its own. */
export function isPushFailing({ state, failure }: Freshness): boolean {
  return state === 'failing' && failure !== undefined && !NOT_OF_SENDING.test(failure.code);
}

export function changesWait(facts: Facts, times: LevelTimes): FactsOfFinding | null | undefined {
  if (!facts.outbox) return undefined;
  const { pending, oldestPendingAt: since } = facts.outbox;
  const push = flowOf('outbox.push', facts);
  const noted = notedAs('outbox.stuck', facts);
  if (noted && push && push.state !== 'ok' && pending > 0) {
    const { detail = null } = noted;
    // The alarm is raised only while polls succeed, so an unknown cause counts as a fault of the platform.
    return { level: 'red', detail, count: pending, since, cause: 'fault', ...causeOf(push) };
  }
  const level = changesLate({ ...facts, since }, times);
  return level && { level, count: pending, since, ...(push && causeOf(push)) };
}

/** Findings about the age of orders, in order of precedence: the first that applies is used. */
type OrdersCode = 'orders.resuming' | 'orders.starting' | 'orders.stale';

function causeOf({ failure }: Freshness): { cause?: Cause } {
  const cause = failure ? CAUSES[failure.code] : undefined;
  return cause ? { cause } : {};
}

/** Returns whether a flow fails repeatedly for a lasting cause, so that it is a finding before its data is old. */
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
  // The last try was refused, but the tokens were replaced afterwards.
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

/** Returns a finding if the flow's last try failed, in whole or in part. */
export function troubleOf(subject: FreshnessSubject, facts: Facts): FactsOfFinding | undefined {
  const flow = flowOf(subject, facts);
  if (flow?.state !== 'degraded' && flow?.state !== 'failing') return undefined;
  return notedAs(subject, facts) ?? { detail: flow.message || null, since: flow.lastOkAt };
}

/**
 * Returns a finding if at least `tries` backups in a row have failed. A failed backup is tried again after an hour.
 */
export function backupsFail(facts: Facts, { tries }: { tries: number }): FactsOfFinding | undefined {
  const flow = flowOf('backup', facts);
  if (flow?.state !== 'failing' || (flow.failure?.tries ?? 0) < tries) return undefined;
  return { detail: flow.message, since: flow.lastOkAt };
}

/**
 * Returns the finding for the link. `hub.link` is a broken link, which recovers by itself; `hub.refused` needs a
 * person.
 */
export function linkIs(code: 'hub.link' | 'hub.refused', facts: Facts): FactsOfFinding | null {
  const link = flowOf('hub.link', facts);
  if (link?.state !== 'degraded' && link?.state !== 'failing') return null;
  if ((link.failure?.code === 'link-refused') !== (code === 'hub.refused')) return null;
  return { detail: link.message || null, since: link.lastOkAt, ...causeOf(link) };
}

/** Returns the flows that are in this state, in the order of `FRESHNESS_SUBJECTS`. */
function flowsIn(state: FreshnessState, facts: Facts): Freshness[] {
  return FRESHNESS_SUBJECTS.flatMap((subject) => flowOf(subject, facts) ?? []).filter(
    (flow) => flow.state === state,
  );
}

export function counted(count: number): FactsOfFinding | null {
  return count > 0 ? { count } : null;
}

/** Free and total space for this user on the file system of the storage directory, from `statfs`. */
export interface DiskSpace {
  freeBytes: number;
  totalBytes: number;
  /** Name of the file system if SQLite databases are not safe on it; missing otherwise. */
  unsafe?: string;
}

/**
 * - `ok`: there is room
 * - `low`: somebody should make room today
 * - `full`: new data will soon not fit, or does not fit now
 */
export interface DiskVerdict {
  level: 'ok' | 'low' | 'full';
  /** Code of the finding, or null if there is enough room. */
  code: 'storage.low' | 'storage.full' | null;
  /** Sentence with the free space. */
  message: string;
}

const DISK_FULL_BYTES = 50 * 1024 ** 2;
const DISK_LOW_BYTES = 500 * 1024 ** 2;
const DISK_LOW_SHARE = 0.05;
/** Upper limit of the 5 %, because even on a large disk tillsync does not fill more than this in years. */
const LOW_SHARE_MAX_BYTES = 5 * 1024 ** 3;

/** Judges the free space: `full` below 50 MiB, `low` below 500 MiB or below 5 % of the disk (at most 5 GiB). */
export function diskVerdict({ freeBytes, totalBytes }: DiskSpace): DiskVerdict {
  const message = `${formatBytes(freeBytes)} of ${formatBytes(totalBytes)} are free.`;
  if (freeBytes < DISK_FULL_BYTES) return { level: 'full', code: 'storage.full', message: `Only ${message}` };
  const share = Math.min(totalBytes * DISK_LOW_SHARE, LOW_SHARE_MAX_BYTES);
  if (freeBytes < Math.max(DISK_LOW_BYTES, share)) {
    return { level: 'low', code: 'storage.low', message: `Only ${message}` };
  }
  return { level: 'ok', code: null, message };
}

/**
 * Factor by which the free space is reduced before deciding whether an alarm ends. An alarm thus ends only with about
 * a tenth more room than its limit, so that it does not flap.
 */
const ROOM_TO_HEAL = 0.9;

/**
 * Returns the code of the alarm that stays raised because the free space is not clearly above its limit; null if no
 * alarm stays raised.
 */
export function healingCode(disk: DiskSpace): DiskVerdict['code'] {
  return diskVerdict({ ...disk, freeBytes: disk.freeBytes * ROOM_TO_HEAL }).code;
}

/** Formats bytes for people: `812 MiB`, `1.5 GiB`. */
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

export const NO_TOKENS = ['auth.locked-out', 'auth.none'] as const;
/** Hides findings that would follow from a stopped daemon, such as stale orders. */
export const NOT_RUNNING = ['service.down'] as const;

/** Remedy of a fault on the way to the platform. */
export const TRIES_AGAIN =
  'tillsync retries automatically. If the problem continues, check the connection to the platform.';
