import { existsSync } from 'node:fs';
import {
  holdBackStates,
  openReadOnlyServices,
  preparationContext,
  type ReadOnlyServices,
  readStores,
  storedVerdict,
} from '../../app/read-only-services.ts';
import { openState } from '../../app/state.ts';
import { RUNNING, storagePaths } from '../../app/storage.ts';
import type { Branch } from '../../catalog/product.ts';
import { branchMappings } from '../../catalog/unmapped.ts';
import type { Config } from '../../config/config-type.ts';
import { isBranch } from '../../config/roles.ts';
import { asTillsyncError, counted, hasCode } from '../../core/errors.ts';
import { openWhenFree } from '../../core/files.ts';
import { type Clock, formatDuration } from '../../core/time.ts';
import { pidOf } from '../../db/lease.ts';
import type { DiskSpace } from '../../health/facts.ts';
import type { Verdict } from '../../health/verdict.ts';
import type { HookStatus } from '../../hooks/hook.ts';
import { statusesOf } from '../../hooks/hook-cursors.ts';
import type { Mirror } from '../../orders/reading/mirror.ts';
import { lastAcknowledgedAt, WAITING_MAX, waitingOrders } from '../../orders/reading/order-queries.ts';
import { heldBackWords } from '../../outbox/ledger/hold-back.ts';
import { safetyName } from '../../outbox/ledger/stock-ledger.ts';
import type { LastSent } from '../../outbox/sending/outbox-queries.ts';
import type { MirrorStores } from '../../outbox/sending/repositories.ts';
import { describeTokens, type TokenStatus } from '../../platform/tokens.ts';
import { type CheckOutcome, outcomeOfFindings, since, skipped, warned, well } from './check.ts';
import { lockedAway } from './files.ts';

/** Failed tries in a row that count as a fault. Two are normal, for example during a restart. */
const TROUBLED_FROM = 3;

/** Checks a writing endpoint by the last changes that were really sent. The check itself sends nothing. */
export function sentOutcome(
  { takenAt, refused, trouble }: LastSent,
  what: string,
  clock: Clock,
): CheckOutcome {
  const facts = { takenAt, refused, trouble };
  const taken = takenAt === null ? `No ${what} was taken yet.` : `Last taken ${since(takenAt, clock)}.`;
  if (trouble !== null && trouble.attempts >= TROUBLED_FROM) {
    const message = `A ${what} that was sent ${trouble.attempts} times waits to be sent again: "${trouble.message}" ${taken}`;
    return warned(message, 'It is sent again by itself; see: {tillsync} outbox list --state pending', facts);
  }
  if (refused === null)
    return takenAt === null ? skipped(`No ${what} was sent yet.`, null, facts) : well(taken, facts);
  const when = since(refused.at, clock);
  if (takenAt === null || refused.at > takenAt) {
    const message = `The last ${what} that was sent was refused ${when}: "${refused.message}". ${taken}`;
    return warned(message, 'Look at it with: {tillsync} outbox list --state rejected', facts);
  }
  return well(`${taken} One was refused ${when}: "${refused.message}".`, facts);
}

/** The flows of orders, catalogue and changes. */
export const FLOWS = {
  orders: {
    subject: 'orders.poll',
    worked: "The last successful poll (not repeated now because of the platform's limit) was",
  },
  catalog: { subject: 'catalog.sweep', worked: 'The whole catalogue was last read' },
  changes: {
    subject: 'outbox.push',
    worked: 'The platform last took changes (not tried now, since that would write)',
  },
} as const;

/** Checks a flow by the state that the daemon stored in the mirror. */
export function flowOutcome(
  id: keyof typeof FLOWS,
  { verdict, mirror, running }: Stored,
  clock: Clock,
): CheckOutcome {
  const seen = mirror.health.freshness().find(({ subject }) => subject === FLOWS[id].subject);
  const facts = { ...seen };
  const found = outcomeOfFindings(verdict, id, facts);
  if (found) return found;
  if (!seen || seen.state === 'unknown') return skipped('Not tried yet.', null, facts);
  if (seen.state === 'locked-out') return skipped('Waiting for new tokens.', null, facts);
  if (seen.lastOkAt === null) return skipped(seen.message || 'It has not worked yet.', null, facts);
  const worked = `${FLOWS[id].worked} ${since(seen.lastOkAt, clock)}.`;
  return running === false ? skipped(`tillsync does not run. ${worked}`, null, facts) : well(worked, facts);
}

/** Checks the last automatic backup. */
export function backupOutcome({ verdict, mirror }: Stored, clock: Clock): CheckOutcome {
  const seen = mirror.health.freshness().find(({ subject }) => subject === 'backup');
  const facts = { ...seen };
  const found = outcomeOfFindings(verdict, 'backup', facts);
  if (found) return found;
  if (seen?.state === 'off') return skipped(seen.message, null, facts);
  if (seen?.lastOkAt == null)
    return skipped('None was made yet; the first one follows some minutes after a start.', null, facts);
  return well(`Last made ${since(seen.lastOkAt, clock)}: ${seen.message}`, facts);
}

/** Checks that the POS acknowledges its orders, by its last acknowledgement. */
export function bookedOutcome({ verdict, mirror }: Stored, clock: Clock): CheckOutcome {
  const { lastAckAt, waiting } = mirror.read((db) => ({
    lastAckAt: lastAcknowledgedAt(db),
    waiting: waitingOrders(db, clock.nowMs(), WAITING_MAX).length,
  }));
  const facts = { lastAckAt, waiting };
  const found = outcomeOfFindings(verdict, 'orders.booked', facts);
  if (found) return found;
  if (lastAckAt === null) return skipped('No POS acknowledges orders here.', null, facts);
  return well(
    `The POS last acknowledged an order ${since(lastAckAt, clock)}; waiting now: ${waiting}.`,
    facts,
  );
}

/** Checks, for each branch, whether the POS could identify ordered products. */
export function mappedOutcome({ verdict, mirror }: Stored, branches: readonly Branch[]): CheckOutcome {
  const mappings = mirror.read((db) => branchMappings(db, branches));
  const named = mappings.map(({ branch, ...rest }) => ({
    ...rest,
    name: branch.externalId ?? branch.subsidiaryId,
  }));
  const facts = { branches: named };
  const missing = named.filter(({ unmapped, isMapping }) => isMapping && unmapped > 0);
  if (missing.length > 0) {
    const sentences = missing.map(
      ({ name, unmapped }) =>
        `${counted(unmapped, 'shown product')} of ${name} ${unmapped === 1 ? 'has' : 'have'} no id of yours.`,
    );
    const remedy =
      'List them with: {tillsync} product list --unmapped. Give them their ids in the company panel.';
    return warned(sentences.join(' '), remedy, facts);
  }
  const found = outcomeOfFindings(verdict, 'catalog.mapped', facts);
  if (found) return found;
  const mapped = named.filter(({ isMapping }) => isMapping);
  if (mapped.length === 0)
    return skipped('Products have no ids of yours here, or were not read yet.', null, facts);
  return well(
    `All shown products have one: ${mapped.map(({ name, shown }) => `${name} (${shown})`).join(', ')}.`,
    facts,
  );
}

/** Checks that heartbeats reach the watcher outside. It sends none, because that would hide a dead daemon. */
export function heartbeatOutcome(
  host: string | null,
  { readers, running }: Stored,
  clock: Clock,
): CheckOutcome {
  if (host === null) {
    const why = 'Nobody outside is told when this machine falls silent: alarms.heartbeat_url is empty.';
    return skipped(why);
  }
  const memory = readers.heartbeat();
  const facts = { host, ...memory };
  if (running === false) return skipped('tillsync does not run, so it sends none.', null, facts);
  if (!memory) return skipped(`None was sent to ${host} yet.`, null, facts);
  const when = since(memory.since, clock);
  if (memory.ok) return well(`It arrives at ${host}; the first one of this row was ${when}.`, facts);
  const remedy =
    'Check alarms.heartbeat_url and the internet connection. To test them, run: {tillsync} config test-alarms';
  return warned(`It has not arrived since ${when}: ${memory.message}`, remedy, facts);
}

export function outboxOutcome({ verdict, stores }: Stored): CheckOutcome {
  const outbox = stores.read(({ queries }) => queries.counts());
  const found = outcomeOfFindings(verdict, 'outbox', { ...outbox });
  if (found) {
    const list = found.level === 'fail' ? null : 'To see them, run: {tillsync} outbox list';
    return { ...found, remedy: [found.remedy, list].filter(Boolean).join(' ') };
  }
  const waiting = outbox.pending + outbox.sending;
  const message =
    waiting === 0 ? 'Nothing is waiting to be sent.' : `Waiting to be sent, for a short time: ${waiting}.`;
  return well(message, { ...outbox });
}

/** Returns the name of a hook as shown: `pos` for orders, `pos (change.rejected)` for rejected changes. */
function calledHook({ name, event }: HookStatus): string {
  return event === 'order' ? name : `${name} (${event})`;
}

/** Reports each hook's position, and the last error of a failing one. */
export function hooksOutcome({ verdict, mirror }: Stored, config: Config, clock: Clock): CheckOutcome {
  const { hooks } = config;
  if (hooks.length === 0) return skipped('None is configured.');
  const context = preparationContext(config, mirror, clock);
  const found = mirror.read((db) => statusesOf(db, hooks, context));
  const facts = { hooks: found };
  const lagging = outcomeOfFindings(verdict, 'hooks', facts);
  if (lagging) return lagging;
  const failing = found.filter(({ failures }) => failures > 0);
  if (failing.length > 0) {
    const told = failing.map((hook) => `${calledHook(hook)} failed last: ${hook.lastFailure}.`);
    return warned(
      told.join(' '),
      'It is tried again by itself. To try it now: {tillsync} hooks test NAME',
      facts,
    );
  }
  const told = found.map((hook) => {
    const { seq, waiting, isMore, lastOkAt } = hook;
    const name = calledHook(hook);
    if (seq === null) return `${name} begins when tillsync starts.`;
    const last = lastOkAt === null ? 'took nothing yet' : `took an event ${since(lastOkAt, clock)}`;
    return `${name} ${last}; waiting: ${waiting}${isMore ? ' or more' : ''}.`;
  });
  return well(told.join(' '), facts);
}

/** Checks that the platform has the quantities that the POS counted. */
export function differsOutcome({ verdict, stores }: Stored): CheckOutcome {
  const { differing, counted: counts } = stores.read(({ differences, ledger }) => ({
    differing: differences.count,
    counted: ledger.size,
  }));
  const facts = { differing, counted: counts };
  const found = outcomeOfFindings(verdict, 'stock.differs', facts);
  if (found) return found;
  if (counts === 0) return skipped('The POS has counted nothing yet.', null, facts);
  return well(
    `Of ${counted(counts, 'counted stock')} the platform has what is wanted, or may have it.`,
    facts,
  );
}

/** Reports for which branches unbooked orders are held back, and what is missing for it in the others. */
export function heldBackOutcome({ mirror }: Stored, config: Config): CheckOutcome {
  const branches = holdBackStates(mirror, config);
  const facts = { setting: config.stock.holdBackUnbooked, branches };
  if (isBranch(config)) return skipped('At a branch its hub keeps stock back.', null, facts);
  if (config.stock.holdBackUnbooked === true)
    return well('On in every branch (stock.hold_back_unbooked).', facts);
  if (config.stock.holdBackUnbooked === false) {
    return skipped('Off in the configuration (stock.hold_back_unbooked).', null, facts);
  }
  if (branches.length === 0) return skipped('No branch is configured.', null, facts);
  const message = branches.map(heldBackWords).join(' ');
  return branches.every(({ isOn }) => isOn) ? well(message, facts) : skipped(message, null, facts);
}

/** Reports safety stock rules that leave nothing to sell, or whose product the mirror does not know. */
export function safetyOutcome({ stores }: Stored): CheckOutcome {
  const { rules, odd } = stores.read(({ safety }) => ({ rules: safety.list(), odd: safety.odd() }));
  const facts = { rules, odd };
  if (rules.length === 0) return skipped('None is set.', null, facts);
  if (odd.length === 0) return well(`${counted(rules.length, 'rule')} in use.`, facts);
  const told = odd.slice(0, 5).map((rule) => {
    const { qty, highestQty } = rule;
    const whose = safetyName(rule);
    return highestQty === null
      ? `Kept back are ${qty} of ${whose}, which the mirror does not know.`
      : `Kept back are ${qty} of ${whose}, of which no more than ${highestQty} were counted, so that nothing is offered.`;
  });
  if (odd.length > told.length) told.push(`And ${odd.length - told.length} more.`);
  return warned(
    told.join(' '),
    'See all with: {tillsync} stock safety. Those by product are changed there, those of branches and of all in the configuration.',
    facts,
  );
}

/** Longest duration of a refresh. A younger refresh may still be running, so its missing answer is no fault. */
const REFRESH_TAKES_MS = 60_000;

const WHY = {
  refused: 'It refused the refresh token.',
  'reply-lost':
    'Its answer to a refresh was lost before it could be saved, and the old pair was worth nothing then.',
};

/** Checks the token pair and its remaining days, without a refresh, which would rotate it. */
export function tokensOutcome(tokens: TokenStatus, verdict: Verdict, nowMs: number): CheckOutcome {
  const { refreshExpiresInMs, accessExpiresInMs, openIntentAtMs, generation, state, lockedOut } = tokens;
  const lockedOutBy = lockedOut?.cause ?? null;
  const facts = { state, refreshExpiresInMs, accessExpiresInMs, generation, lockedOutBy };
  const found = outcomeOfFindings(verdict, 'tokens', facts, 'auth.locked-out');
  if (found) {
    return lockedOutBy === null ? found : { ...found, message: `${found.message} ${WHY[lockedOutBy]}` };
  }
  const left = `${rest('The refresh token', refreshExpiresInMs)}; ${rest('the access token', accessExpiresInMs)}.`;
  const openMs = openIntentAtMs === null ? 0 : nowMs - openIntentAtMs;
  if (openMs <= REFRESH_TAKES_MS) return well(left, facts);
  const message = `A refresh began ${formatDuration(openMs)} ago and its answer was never stored, so the next one may be refused. ${left}`;
  return warned(
    message,
    'Try it with: {tillsync} auth refresh; if it is refused, {tillsync} auth set',
    facts,
  );
}

function rest(token: string, restMs: number | null): string {
  if (restMs === null) return `${token} has no known end`;
  return restMs > 0 ? `${token} is good for ${formatDuration(restMs)}` : `${token} is due to be renewed`;
}

/** What the daemon's mark, a lease in state.db, says: whether the daemon runs on this directory, and its process id. */
export interface RunningMark {
  /** Whether the daemon runs; null if state.db is unreadable. */
  running: boolean | null;
  pid: number | undefined;
}

/** Reads the daemon's mark. Does not create a missing state.db. */
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
    // Another check reports that state.db cannot be read.
    return { running: null, pid: undefined };
  }
}

/** Mirror and state.db, opened for reading. */
export interface Stored {
  readers: ReadOnlyServices;
  mirror: Mirror;
  stores: MirrorStores;
  verdict: Verdict;
  tokens: TokenStatus | null;
  running: boolean | null;
}

/** Opens the stored databases, or returns an outcome with the reason why they are unreadable. */
export async function openStored(
  config: Config,
  clock: Clock,
  running: boolean | null,
): Promise<Stored | CheckOutcome> {
  const path = storagePaths(config.storage.directory).mirror;
  const away = lockedAway(path);
  if (away) return away;
  if (!existsSync(path)) return skipped('There is no mirror yet.');
  let readers: ReadOnlyServices | undefined;
  try {
    readers = await openReadOnlyServices({ config, clock });
    const { mirror } = readers;
    const { verdict, tokens } = verdictNow(readers, { config, clock, running });
    return { readers, mirror, stores: readStores(mirror, config, clock), verdict, tokens, running };
  } catch (thrown) {
    await readers?.close();
    const { message } = asTillsyncError(thrown);
    return skipped('The mirror cannot be looked into.', null, { cause: message });
  }
}

/** Returns the status page's verdict; `tokens` is null if this user may not see them. */
export function verdictNow(
  readers: ReadOnlyServices,
  { config, clock, running }: { config: Config; clock: Clock; running: boolean | null },
): { verdict: Verdict; disk: DiskSpace | null; tokens: TokenStatus | null } {
  const tokens = tokensOf(readers, clock);
  return { ...storedVerdict({ readers, config, clock, tokens, running }), tokens };
}

function tokensOf(readers: ReadOnlyServices, clock: Clock): TokenStatus | null {
  try {
    return readers.tokens();
  } catch (error) {
    return hasCode(error, 'not-found') ? describeTokens(null, null, clock.nowMs()) : null;
  }
}
