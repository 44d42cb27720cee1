import { existsSync } from 'node:fs';
import { openReaders, type Readers, readStores, storedVerdict } from '../../app/readers.ts';
import { RUNNING, storagePaths } from '../../app/storage.ts';
import { openState } from '../../app/stores.ts';
import type { Config } from '../../config/config-type.ts';
import type { Freshness, FreshnessSubject } from '../../core/alarm.ts';
import { asTillsyncError, hasCode } from '../../core/errors.ts';
import { openWhenFree } from '../../core/files.ts';
import { type Clock, formatDuration } from '../../core/time.ts';
import { pidOf } from '../../db/lease.ts';
import { FINDING_SENTENCES, type FindingCode } from '../../health/finding.ts';
import type { Verdict } from '../../health/verdict.ts';
import type { ChangeKind } from '../../outbox/change.ts';
import type { LastSent } from '../../outbox/outbox-queries.ts';
import { describeTokens, type TokenStatus } from '../../platform/tokens.ts';
import {
  type Check,
  type CheckId,
  hidden,
  type Outcome,
  outcomeOfFindings,
  since,
  skipped,
  warned,
  well,
} from './check.ts';
import { lockedAway } from './files.ts';

/** One that did not arrive once or twice is everyday: a restart is enough. */
const TROUBLED_FROM = 3;

const KINDS: readonly { kind: ChangeKind; id: CheckId; what: string }[] = [
  { kind: 'stock', id: 'changes.stock', what: 'stock' },
  { kind: 'product', id: 'changes.products', what: 'price or text' },
];

/** The endpoints that write, by what became of the last changes that were really sent: nothing is sent for it. */
export function sentChecks(lastSent: (kind: ChangeKind) => LastSent, clock: Clock): Check[] {
  return KINDS.map(({ kind, id, what }) => ({ id, run: () => sentOutcome(lastSent(kind), what, clock) }));
}

function sentOutcome({ takenAt, refused, trouble }: LastSent, what: string, clock: Clock): Outcome {
  const facts = { takenAt, refused, trouble };
  const taken = takenAt === null ? `No ${what} was taken yet.` : `Last taken ${since(takenAt, clock)}.`;
  if (trouble !== null && trouble.attempts >= TROUBLED_FROM) {
    const message = `A ${what} that was sent ${trouble.attempts} times waits to be sent again: "${trouble.message}" ${taken}`;
    return warned(message, 'It is sent again by itself; see: {tillsync} outbox list --state pending', facts);
  }
  if (refused !== null && (takenAt === null || refused.at > takenAt)) {
    const when = since(refused.at, clock);
    const message = `The last ${what} that was sent was refused ${when}: "${refused.message}". ${taken}`;
    return warned(message, 'Look at it with: {tillsync} outbox list --state rejected', facts);
  }
  if (takenAt === null) return skipped(`No ${what} was sent yet.`, null, facts);
  if (refused === null) return well(taken, facts);
  return well(`${taken} One was refused ${since(refused.at, clock)}: "${refused.message}".`, facts);
}

export interface FlowChecksOptions {
  verdict: Verdict;
  freshness: readonly Freshness[];
  running: boolean | null;
  outbox: { pending: number; held: number; sending: number; rejected: number };
  sent: (kind: ChangeKind) => LastSent;
  quarantine: number;
  clock: Clock;
}

interface Flow {
  id: CheckId;
  subject: FreshnessSubject;
  codes: readonly FindingCode[];
  /** Such as `The last poll (GET /order/all) was answered`. */
  worked: string;
}

const FLOWS: readonly Flow[] = [
  {
    id: 'orders',
    subject: 'orders.poll',
    codes: [
      'orders.stale',
      'orders.unreadable',
      'orders.more-pages',
      'orders.starting',
      'orders.resuming',
      'orders.poll',
    ],
    worked: "The last successful poll (not repeated now because of the platform's limit) was",
  },
  {
    id: 'catalog',
    subject: 'catalog.sweep',
    codes: ['catalog.incomplete', 'catalog.sweep'],
    worked: 'The whole catalogue was last read',
  },
  {
    id: 'changes',
    subject: 'outbox.push',
    codes: ['outbox.push'],
    worked: 'The platform last took changes (not tried now, since that would write)',
  },
];

/** How orders, catalogue and changes flow, by what the daemon left in the mirror. */
export function flowChecks(options: FlowChecksOptions): Check[] {
  const { verdict, quarantine, outbox } = options;
  return [
    ...FLOWS.map((flow) => ({ id: flow.id, run: () => flowOutcome(flow, options) })),
    ...sentChecks(options.sent, options.clock),
    { id: 'outbox', run: () => outboxOutcome(verdict, outbox) },
    {
      id: 'quarantine',
      run: () =>
        outcomeOfFindings(verdict, ['quarantine'], { entries: quarantine }) ??
        well('Everything received could be read.', { entries: 0 }),
    },
  ];
}

function flowOutcome(flow: Flow, { verdict, freshness, running, clock }: FlowChecksOptions): Outcome {
  const seen = freshness.find(({ subject }) => subject === flow.subject);
  const facts = { ...seen };
  const found = outcomeOfFindings(verdict, flow.codes, facts);
  if (found) return found;
  if (!seen || seen.state === 'unknown') return skipped('Not tried yet.', null, facts);
  if (seen.state === 'locked-out') return skipped('Waiting for new tokens.', null, facts);
  if (seen.lastOkAt === null) return skipped(seen.message || 'It has not worked yet.', null, facts);
  const worked = `${flow.worked} ${since(seen.lastOkAt, clock)}.`;
  return running === false ? skipped(`tillsync does not run. ${worked}`, null, facts) : well(worked, facts);
}

function outboxOutcome(verdict: Verdict, outbox: FlowChecksOptions['outbox']): Outcome {
  const codes = ['outbox.stuck', 'outbox.rejected', 'outbox.held'] as const;
  const found = outcomeOfFindings(verdict, codes, { ...outbox });
  if (found) {
    const list = found.level === 'fail' ? null : 'To see them, run: {tillsync} outbox list';
    return { ...found, remedy: [found.remedy, list].filter(Boolean).join(' ') };
  }
  const waiting = outbox.pending + outbox.sending;
  return well(
    waiting === 0 ? 'Nothing is waiting to be sent.' : `Waiting to be sent, for a short time: ${waiting}.`,
    {
      ...outbox,
    },
  );
}

/** A refresh under way is not stored yet either. */
const REFRESH_TAKES_MS = 60_000;

const WHY = {
  refused: 'It refused the refresh token.',
  'reply-lost':
    'Its answer to a refresh was lost before it could be saved, and the old pair was worth nothing then.',
};

export interface TokensCheckOptions {
  tokens: TokenStatus;
  verdict: Verdict;
  nowMs: number;
}

/** The token pair and its days left, without a refresh: that would rotate it. */
export function tokensCheck({ tokens, verdict, nowMs }: TokensCheckOptions): Check {
  return { id: 'tokens', run: () => tokensOutcome(tokens, verdict, nowMs) };
}

function tokensOutcome(tokens: TokenStatus, verdict: Verdict, nowMs: number): Outcome {
  const { refreshExpiresInMs, accessExpiresInMs, openIntentAtMs, generation, state, lockedOut } = tokens;
  const facts = {
    state,
    refreshExpiresInMs,
    accessExpiresInMs,
    generation,
    lockedOutBy: lockedOut?.cause ?? null,
  };
  const codes = ['auth.none', 'auth.locked-out', 'auth', 'auth.expiring'] as const;
  const found = outcomeOfFindings(verdict, codes, facts, ['auth.locked-out']);
  if (found)
    return {
      ...found,
      message: [found.message, lockedOut && WHY[lockedOut.cause]].filter(Boolean).join(' '),
    };
  const left = `${rest('refresh', refreshExpiresInMs)}; ${rest('access', accessExpiresInMs)}.`;
  const openMs = openIntentAtMs === null ? 0 : nowMs - openIntentAtMs;
  if (openMs > REFRESH_TAKES_MS) {
    const message = `A refresh began ${formatDuration(openMs)} ago and its answer was never stored, so the next one may be refused. ${left}`;
    return warned(
      message,
      'Try it with: {tillsync} auth refresh; if it is refused, {tillsync} auth set',
      facts,
    );
  }
  return well(left, facts);
}

function rest(what: 'refresh' | 'access', restMs: number | null): string {
  const token = what === 'refresh' ? 'The refresh token' : 'the access token';
  if (restMs === null) return `${token} has no known end`;
  return restMs > 0 ? `${token} is good for ${formatDuration(restMs)}` : `${token} is due to be renewed`;
}

/** Whether the daemon runs on this directory, by the mark that it holds, and as which process. */
export interface RunningMark {
  /** null when state.db cannot be read. */
  running: boolean | null;
  pid: number | undefined;
}

/** Looks at the mark; makes no file that is not there. */
export async function readRunningMark(directory: string, clock: Clock): Promise<RunningMark> {
  const { state: path } = storagePaths(directory);
  if (lockedAway(path)) return { running: null, pid: undefined };
  if (!existsSync(path)) return { running: false, pid: undefined };
  try {
    const state = await openWhenFree(clock, () => openState({ path, clock }));
    try {
      const holder = state.leases.holder(RUNNING);
      return { running: holder !== undefined, pid: holder === undefined ? undefined : pidOf(holder) };
    } finally {
      state.close();
    }
  } catch {
    // The check of state.db says what is wrong with it.
    return { running: null, pid: undefined };
  }
}

/** What the mirror and state.db tell, opened for looking. */
export interface Stored {
  readers: Readers;
  verdict: Verdict;
  tokens: TokenStatus | null;
}

/** Opens what is stored, or says why that cannot be looked at. */
export async function openStored(
  config: Config,
  clock: Clock,
  running: boolean | null,
): Promise<Stored | Outcome> {
  const { mirror, state } = storagePaths(config.storage.directory);
  const away = lockedAway(mirror);
  if (away) return away;
  if (!existsSync(mirror)) return skipped('There is no mirror yet.', null);
  try {
    const readers = await openReaders({ config, clock });
    try {
      const tokens = lockedAway(state) ? null : tokensOf(readers, clock);
      const { verdict } = storedVerdict({ readers, config, clock, tokens, running });
      return { readers, verdict, tokens };
    } catch (error) {
      await readers.close();
      throw error;
    }
  } catch (thrown) {
    const { message } = asTillsyncError(thrown);
    return skipped('The mirror cannot be looked into.', null, { cause: message });
  }
}

function tokensOf(readers: Readers, clock: Clock): TokenStatus | null {
  try {
    return readers.tokens();
  } catch (error) {
    if (hasCode(error, 'not-found')) return describeTokens(null, null, clock.nowMs());
    return null;
  }
}

/** What cannot be told without looking into what is stored. */
export const STORED_CHECKS: readonly CheckId[] = [
  'tokens',
  'orders',
  'catalog',
  'changes',
  'changes.stock',
  'changes.products',
  'outbox',
  'quarantine',
  'alarms',
];

/** Findings that a check of their own tells, or looks at anew. */
const CHECKED: ReadonlySet<string> = new Set<FindingCode>([
  'service.down',
  'state.unusable',
  'storage.full',
  'storage.low',
  'auth',
  'auth.none',
  'auth.locked-out',
  'auth.expiring',
  'orders.stale',
  'orders.unreadable',
  'orders.more-pages',
  'orders.starting',
  'orders.resuming',
  'orders.poll',
  'orders.webhook',
  'webhook.refused',
  'webhook.silent',
  'webhook.unreadable',
  'webhook.mismatch',
  'catalog.incomplete',
  'catalog.sweep',
  'outbox.push',
  'outbox.stuck',
  'outbox.rejected',
  'outbox.held',
  'quarantine',
  'platform.blocked',
  'platform.forbidden',
]);
const OTHERS = (Object.keys(FINDING_SENTENCES) as FindingCode[]).filter((code) => !CHECKED.has(code));

export interface StoredChecksOptions {
  stored: Stored;
  config: Config;
  running: boolean | null;
  clock: Clock;
}

/** Tokens, flows, outbox and quarantine, in the words of the status page. */
export function storedChecks({ stored, config, running, clock }: StoredChecksOptions): Check[] {
  const { readers, verdict, tokens } = stored;
  const { mirror } = readers;
  const stores = readStores(mirror, config, clock);
  const tokenCheck: Check =
    tokens === null
      ? {
          id: 'tokens',
          run: () => hidden('state.db cannot be read, so nothing is known of the tokens.'),
        }
      : tokensCheck({ tokens, verdict, nowMs: clock.nowMs() });
  return [
    tokenCheck,
    ...flowChecks({
      verdict,
      freshness: mirror.freshness(),
      running,
      outbox: stores.read(({ queries }) => queries.counts()),
      sent: (kind) => stores.read(({ queries }) => queries.lastSent(kind)),
      quarantine: readers.counts().quarantine,
      clock,
    }),
    {
      id: 'alarms',
      run: () => outcomeOfFindings(verdict, OTHERS) ?? well('The status page tells of nothing else.'),
    },
  ];
}
