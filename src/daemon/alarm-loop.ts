import { currentAssessment } from '../app/read-only-services.ts';
import type { Services, ServicesOptions } from '../app/services.ts';
import { storageSpace } from '../app/storage.ts';
import { productFieldNews } from '../catalog/catalog-store.ts';
import { branchMappings, unmappedItems } from '../catalog/unmapped.ts';
import { isBranch, isHub } from '../config/roles.ts';
import { repeat } from '../core/loop.ts';
import { isoUtc, zoneCalendar } from '../core/time.ts';
import { alarmReport } from '../health/alarm-receivers.ts';
import type { Counters } from '../health/counters.ts';
import { type AlarmFacts, HealthChecks, Recently } from '../health/health-checks.ts';
import { Heartbeat, presentRedCodes } from '../health/heartbeat.ts';
import { type CurrentAssessment, Notifier } from '../health/notifier.ts';
import { PosWatch } from '../health/pos-silence.ts';
import { heldOrders } from '../orders/merging/held-callbacks.ts';
import {
  fieldNews,
  incompleteOrders,
  missingCodes,
  strayOrders,
  sumsOfOrders,
  unknownStatuses,
} from '../orders/merging/incomplete-orders.ts';
import { IS_OPEN, IS_TO_BOOK, IS_UNACKNOWLEDGED } from '../orders/merging/order.ts';
import { orderCompanies, WAITING_MAX, waitingOrders } from '../orders/reading/order-queries.ts';
import { posSigns } from '../outbox/intake/pos-signs.ts';
import { notifyPeople } from '../outbox/sending/maintenance.ts';
import { alarmReceivers, heartbeatTarget, reportContext, testAlarms } from '../support/alarm-test.ts';
import type { NamedLoop } from './outgoing.ts';

const FACTS_EVERY_MS = 15_000;
const TELL_EVERY_MS = 5_000;
const TELL_EVERY_MIN_MS = 200;

type AlarmServices = Pick<
  Services,
  'stores' | 'mirror' | 'state' | 'platform' | 'outbox' | 'branches' | 'limited'
>;

/**
 * Makes the loops for alarms: the health checks, one loop per receiver that sends alarms, and the heartbeats. They are
 * separate, so that none waits for another.
 */
export function alarmLoops(
  options: ServicesOptions,
  services: AlarmServices,
  counters: Pick<Counters, 'alarmMessages' | 'heartbeats'>,
  {
    wrongKeys = new Recently(options.clock),
    callbacks = () => ({ refused: null, unreadable: null }),
  }: Partial<Pick<AlarmFacts, 'wrongKeys' | 'callbacks'>> = {},
): NamedLoop[] {
  const { config, clock, log, lookEveryMs } = options;
  const { mirror, state, platform, branches } = services;
  const { settleMs, unbookedAfterMs, heartbeatEveryMs } = config.alarms;
  const tellEveryMs = Math.min(TELL_EVERY_MS, Math.max(TELL_EVERY_MIN_MS, settleMs / 2));
  const calendar = zoneCalendar(config.orders.timezone);
  const wallTime = (ms: number) => new Date(calendar.wallMs(ms)).toISOString();
  const now = currentAssessment({ ...services, config, clock });
  const onError = (error: unknown) =>
    log.debug({ err: error }, 'what alarms are about cannot be read or written now');
  const loop = (
    name: string,
    everyMs: number,
    act: (signal: AbortSignal, beat: () => void) => void | Promise<void>,
  ): NamedLoop => ({
    name,
    run: (signal, beat) => repeat({ act: () => act(signal, beat), everyMs, onError, clock, beat }, signal),
  });

  const posWatch = new PosWatch(clock, { calendar, after: config.alarms.posSilentAfterMs });
  const orderNowMs = () => clock.nowMs() + (isBranch(config) ? (platform.clock.skewMs() ?? 0) : 0);
  const notifiers = notifiersOf(options, services, counters, (ms) => wallTime(ms).slice(0, 10));
  const facts = new HealthChecks({
    alarms: mirror.health,
    disk: () => storageSpace(config.storage.directory),
    hasNoTokens: () => !isBranch(config) && platform.tokens.describe().state === 'none',
    orderCompanies: () => mirror.read(orderCompanies),
    clockSkewMs: () => platform.clock.agreedSkewMs(),
    freshness: () => mirror.health.freshness(),
    // At a branch, the waiting time of an order is measured by the hub's clock.
    waitingOrders: () => mirror.read((db) => waitingOrders(db, orderNowMs(), WAITING_MAX)),
    unbookedAfterMs,
    silentPos: () =>
      posWatch.look(isHub(config) ? [] : mirror.read((db) => posSigns(db, branches, clock.nowMs()))),
    branchMappings: () => mirror.read((db) => branchMappings(db, branches)),
    unmappedItems: (of, from) => {
      const waits = `${IS_OPEN} AND ${IS_TO_BOOK} AND ${IS_UNACKNOWLEDGED}`;
      return mirror.read((db) => unmappedItems(db, { waits, branches: of, from }));
    },
    ...mirrorFacts(services, clock, oddOrders(config, services, orderNowMs)),
    untold: () => notifiers.flatMap(({ notifier }) => notifier.trouble() ?? []),
    forbidden: () => state.ledger.forbidden(),
    limited: services.limited,
    wrongKeys,
    callbacks,
    localTime: (iso) => wallTime(Date.parse(iso)).slice(0, 16).replace('T', ' '),
    clock,
  });
  const heartbeat = heartbeatOf(options, services, counters, now);
  return [
    loop('health-checks', lookEveryMs ?? FACTS_EVERY_MS, () => {
      facts.run();
      // A branch does not have the loop that sends changes, which elsewhere raises the alarms about them.
      if (isBranch(config)) notifyPeople(mirror.health, services.outbox.counts());
    }),
    ...notifiers.map(({ name, notifier }) =>
      loop(`alarms.${name}`, tellEveryMs, (signal, beat) => notifier.notify(now.read(), signal, beat)),
    ),
    ...(heartbeat
      ? [
          loop('alarms.heartbeat', Math.min(TELL_EVERY_MS, heartbeatEveryMs), (signal) =>
            heartbeat.pingIfDue(signal),
          ),
        ]
      : []),
  ];
}

/** Returns the function that sends a test message to every receiver, in the surroundings of the daemon. */
export function alarmTest({ config, secrets, clock }: ServicesOptions, services: AlarmServices) {
  const now = currentAssessment({ ...services, config, clock });
  const redCodes = () => presentRedCodes(() => now.read());
  return (signal: AbortSignal) => testAlarms({ config, secrets, env: process.env, redCodes, clock, signal });
}

interface NamedNotifier {
  name: string;
  notifier: Notifier;
}

/** Makes a notifier for each configured receiver. `dayOf` returns the calendar day in the shop's time zone. */
function notifiersOf(
  { config, secrets, clock, log }: ServicesOptions,
  { state }: AlarmServices,
  counters: Pick<Counters, 'alarmMessages'>,
  dayOf: (nowMs: number) => string,
): NamedNotifier[] {
  const about = reportContext(config);
  return alarmReceivers({ config, secrets, env: process.env }).map((receiver) => {
    const notifier = new Notifier({
      receiver,
      rules: config.alarms,
      rows: state.alarms,
      report: (news) => alarmReport(news, { ...about, nowMs: clock.nowMs() }),
      dayOf,
      onNotified: (channel, outcome) => counters.alarmMessages.add(1, { channel, outcome }),
      clock,
      log,
    });
    return { name: receiver.name, notifier };
  });
}

/** Maximum number of stocks that an alarm names. */
const WORST_MAX = 5;

const NO_NEWS = { added: [], gone: [] };

type OddOrderFacts = Pick<AlarmFacts, 'strayOrders' | 'sumsOfOrders' | 'missingCodes' | 'fieldNews'>;

/**
 * Returns the facts about orders that look wrong. Only a store that is neither hub nor branch searches for orders that
 * belong to no branch, because a hub reports them with its feed, and a branch gets none.
 */
function oddOrders(
  config: ServicesOptions['config'],
  { mirror, branches }: AlarmServices,
  orderNowMs: () => number,
): OddOrderFacts {
  const isOwn = branches.length > 0 && !isHub(config) && !isBranch(config);
  return {
    strayOrders: () => (isOwn ? mirror.read((db) => strayOrders(db, storesOf(branches), orderNowMs())) : []),
    sumsOfOrders: () => mirror.read((db) => sumsOfOrders(db, orderNowMs())),
    missingCodes: () => mirror.read((db) => missingCodes(db, orderNowMs(), mirror.polls.lastWideAskedMs())),
    fieldNews: () =>
      mirror.read((db) => ({
        orders: isBranch(config) ? NO_NEWS : fieldNews(db, orderNowMs()),
        products: isBranch(config) ? NO_NEWS : productFieldNews(db, orderNowMs()),
      })),
  };
}

/**
 * Returns all ids by which orders may name a branch. Returns null if they are not all known: if an external id is not
 * configured, or if there is only one branch, because the company may have others.
 */
function storesOf(branches: AlarmServices['branches']): string[] | null {
  if (branches.length === 1) return null;
  if (branches.some(({ externalId }) => externalId === null)) return null;
  return branches.flatMap(({ subsidiaryId, externalId }) =>
    [subsidiaryId, externalId].filter((id) => id !== null),
  );
}

function mirrorFacts(
  { mirror, stores, branches }: AlarmServices,
  clock: ServicesOptions['clock'],
  odd: OddOrderFacts,
) {
  return {
    ...odd,
    stockDifferences: () =>
      stores.read(({ differences }) => {
        const count = differences.count;
        const worst = count === 0 ? [] : differences.list(WORST_MAX);
        return {
          count: worst.length === 0 ? 0 : count,
          worst: worst.map(({ sku, subsidiaryId, platformQty, wantedQty, sinceMs }) => ({
            sku,
            platformQty,
            wantedQty,
            since: isoUtc(sinceMs),
            branch: branches.find((each) => each.subsidiaryId === subsidiaryId)?.externalId ?? subsidiaryId,
          })),
        };
      }),
    incompleteOrders: () => mirror.read((db) => incompleteOrders(db, clock.nowMs())),
    heldOrders: () => mirror.read((db) => heldOrders(db, clock.nowMs())),
    unknownStatuses: () => mirror.read((db) => unknownStatuses(db, clock.nowMs())),
  };
}

/** Deletes the stored result of the last heartbeat, because it becomes outdated when no heartbeats are sent. */
function forgetHeartbeat({ alarms }: AlarmServices['state'], log: ServicesOptions['log']): undefined {
  try {
    alarms.forgetHeartbeat();
  } catch (error) {
    log.debug({ err: error }, 'how the heartbeat fared cannot be forgotten now');
  }
}

/** Makes the heartbeat; returns undefined if no outside watcher is configured. */
function heartbeatOf(
  { config, secrets, clock, log }: ServicesOptions,
  { state }: AlarmServices,
  counters: Pick<Counters, 'heartbeats'>,
  now: CurrentAssessment,
): Heartbeat | undefined {
  const target = heartbeatTarget({ config, secrets });
  if (!target) return forgetHeartbeat(state, log);
  return new Heartbeat({
    ...target,
    everyMs: config.alarms.heartbeatEveryMs,
    assessment: () => now.read(),
    remember: (memory) => state.alarms.rememberHeartbeat(memory),
    onSent: (outcome) => counters.heartbeats.add(1, { outcome }),
    clock,
    log,
  });
}
