import type { Branch } from '../catalog/product.ts';
import { type BranchMapping, MAPPINGS_FOR_MS, type UnmappedItem } from '../catalog/unmapped.ts';
import type { Alarms, Freshness } from '../core/alarm.ts';
import { firstNames } from '../core/errors.ts';
import { type Clock, formatDuration, isoUtc, keptFor } from '../core/time.ts';
import type { FieldNews } from '../core/values.ts';
import type { HeldOrder } from '../orders/held-callbacks.ts';
import type {
  IncompleteOrder,
  MissingCodes,
  OddOrder,
  StatusWord,
  SumsOfOrders,
} from '../orders/incomplete-orders.ts';
import type { WaitingOrder } from '../orders/order.ts';
import { type DiskSpace, diskVerdict, healingCode } from './facts.ts';
import type { SilentPos } from './pos-silence.ts';
import { PushMonitor } from './push-monitor.ts';

/**
 * Facts from which the checks find faults that no other part of tillsync notices, such as a full disk or a wrong clock.
 */
export interface AlarmFacts {
  alarms: Alarms;
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
  /** Returns the freshness of each flow. May throw `storage-…`. */
  freshness: () => readonly Freshness[];
  /** Answers in which the platform asked tillsync to wait, each with its endpoint. */
  limited: Pick<Recently, 'of'>;
  /** Returns one reason for each failing alarm receiver: why a message still waits to be sent to it. */
  untold: () => readonly string[];
  /** Requests with a wrong API key to the local API, each with the address of its sender. */
  wrongKeys: Pick<Recently, 'of'>;
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
  clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
}

/** A stock whose quantity on the platform differs from the wanted one. */
interface NamedDifference {
  sku: string;
  branch: string;
  platformQty: number;
  wantedQty: number;
  /** When the difference began, ISO 8601 UTC. */
  since: string;
}

const HOUR_MS = 3_600_000;
const RECENT_MAX = 1_000;

/** Remembers events of the last hour, each with its time and origin. */
export class Recently {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #times: { atMonoMs: number; where: string }[] = [];

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  note(where: string): void {
    this.#times.push({ atMonoMs: this.#clock.monotonicMs(), where });
    if (this.#times.length > RECENT_MAX) this.#times.shift();
  }

  /**
   * Counts the events of the last hour. `forMs` is the time between the first and the last event, `where` the origin of
   * the last event.
   */
  of(): { count: number; forMs: number; where: string } {
    const fromMs = this.#clock.monotonicMs() - HOUR_MS;
    this.#times = this.#times.filter(({ atMonoMs }) => atMonoMs >= fromMs);
    const [first, last] = [this.#times[0], this.#times.at(-1)];
    if (!first || !last) return { count: 0, forMs: 0, where: '' };
    return { count: this.#times.length, forMs: last.atMonoMs - first.atMonoMs, where: last.where };
  }
}

/** Raises and ends alarms according to the facts. Methods throw the errors of the facts. */
export class HealthChecks {
  readonly #facts: AlarmFacts;
  readonly #checks: readonly ((facts: AlarmFacts) => void)[];

  constructor(facts: AlarmFacts) {
    this.#facts = facts;
    const { clock } = facts;
    const startMonoMs = clock.monotonicMs();
    const isPosUp = () => clock.monotonicMs() - startMonoMs >= POS_STARTS_WITHIN_MS;
    const pushMonitor = new PushMonitor(clock.nowMs());
    const sums = keptFor(SUMS_FOR_MS, clock, facts.sumsOfOrders);
    const codes = keptFor(SUMS_FOR_MS, clock, facts.missingCodes);
    const fields = keptFor(FIELDS_FOR_MS, clock, facts.fieldNews);
    const mappings = keptFor(MAPPINGS_FOR_MS, clock, () =>
      facts.branchMappings().filter(({ isMapping }) => isMapping),
    );
    this.#checks = [
      ...[checkDisk, checkClock, checkTokens, checkCompany],
      () => checkWaitingOrders(facts, isPosUp()),
      ...[checkSilentPos, checkIncompleteOrders, checkHeldOrders, checkUnknownStatuses],
      ...[checkStockDifferences, checkStrayOrders],
      () => checkSums(facts, sums()),
      () => checkCodes(facts, codes()),
      () => checkFields(facts, fields()),
      () => checkPush(facts, pushMonitor),
      ...[checkLimits, checkForbidden, checkCallbacks, checkKeys, checkReceivers],
      () => checkUnmapped(facts, mappings()),
      () => checkUnmappedItems(facts, mappings()),
    ];
  }

  /**
   * Runs all checks. If facts cannot be read, the other checks still run, and the first error is thrown at the end.
   */
  run(): void {
    const facts = this.#facts;
    const failed: unknown[] = [];
    for (const check of this.#checks) {
      try {
        check(facts);
      } catch (error) {
        failed.push(error);
      }
    }
    if (failed.length > 0) throw failed[0];
  }
}

/**
 * Clock errors above which `clock.off` and `clock.wrong` are raised. A clock that is half a day off makes polls request
 * wrong days.
 */
const CLOCK_OFF_MS = 5 * 60_000;
const CLOCK_WRONG_MS = 12 * 3_600_000;

/** Raises and ends the alarms of a full disk. An alarm ends only with clearly more room, so that it does not flap. */
function checkDisk({ alarms, disk }: AlarmFacts): void {
  const space = disk();
  if (space === null) return;
  const { code, message } = diskVerdict(space);
  const nearly = healingCode(space);
  if (code !== null) alarms.note(code, message);
  if (nearly !== 'storage.full') alarms.note('storage.full', null);
  // While the disk is full, the alarm for low space stays raised too.
  if (nearly === null) alarms.note('storage.low', null);
}

function checkClock({ alarms, clockSkewMs }: AlarmFacts): void {
  const skewMs = clockSkewMs();
  if (skewMs === undefined) return;
  const offMs = Math.abs(skewMs);
  // Rounded to whole minutes, so that the text does not change with each check.
  const off = formatDuration(Math.round(offMs / 60_000) * 60_000);
  const words = `It is ${off} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's clock.`;
  const isWrong = offMs > CLOCK_WRONG_MS;
  alarms.note('clock.wrong', isWrong ? words : null);
  alarms.note('clock.off', !isWrong && offMs > CLOCK_OFF_MS ? words : null);
}

function checkCompany({ alarms, orderCompanies }: AlarmFacts): void {
  const { oldest, newest } = orderCompanies() ?? {};
  const words = `The orders were of company ${oldest}, and the newest is of ${newest}.`;
  alarms.note('auth.other-company', oldest === newest ? null : words);
}

function checkTokens({ alarms, hasNoTokens }: AlarmFacts): void {
  const words = 'No tokens were handed over yet. Hand them over with: {tillsync} auth set';
  alarms.note('auth.none', hasNoTokens() ? words : null);
}

/** Time after a start in which unacknowledged orders raise no alarm, because the POS may be starting too. */
const POS_STARTS_WITHIN_MS = 5 * 60_000;
/** Multiple of the allowed wait from which unacknowledged orders are a red finding. */
const RED_AFTER_TIMES = 3;
const named = <Item>(items: readonly Item[], name: (item: Item) => string, count?: number): string =>
  firstNames(items, name, count).join(', ');

const numberOf = ({ code, orderId }: { code: number | null; orderId: string }) => `${code ?? orderId}`;

function checkWaitingOrders(
  { alarms, waitingOrders, unbookedAfterMs, localTime, clock }: AlarmFacts,
  mayRaise: boolean,
): void {
  const nowMs = clock.nowMs();
  const waitedMs = ({ since }: WaitingOrder) => nowMs - Date.parse(since);
  const late =
    unbookedAfterMs === 0 ? [] : waitingOrders().filter((order) => waitedMs(order) >= unbookedAfterMs);
  const [oldest] = late;
  if (oldest === undefined) alarms.note('orders.unbooked', null);
  else if (mayRaise) {
    const level = waitedMs(oldest) >= RED_AFTER_TIMES * unbookedAfterMs ? 'red' : 'amber';
    const names = named(late, (order) => `${numberOf(order)} (${localTime(order.since)})`);
    alarms.note('orders.unbooked', `Their numbers, and since when they wait: ${names}.`, level);
  }
}

function checkSilentPos({ alarms, silentPos, localTime }: AlarmFacts): void {
  const names = named(silentPos(), ({ store, lastAt }) =>
    store === '' ? localTime(lastAt) : `${store} (${localTime(lastAt)})`,
  );
  alarms.note('pos.silent', names === '' ? null : `Last sign of life: ${names}.`);
}

function checkIncompleteOrders({ alarms, incompleteOrders }: AlarmFacts): void {
  const orders = incompleteOrders();
  const lacksTime = orders.some((order) => order.lacksTime === 1);
  const [first] = orders;
  const number = first && numberOf(first);
  const words = lacksTime
    ? `Look at order ${named(orders, numberOf)}: {tillsync} order show ${number}. A scheduled order has no time: name its field as scheduled_for in [orders.fields].`
    : `Look at order ${named(orders, numberOf)}: {tillsync} order show ${number}`;
  alarms.note('orders.incomplete', first ? words : null);
}

function checkHeldOrders({ alarms, heldOrders, localTime }: AlarmFacts): void {
  const orders = heldOrders();
  const nameOf = (order: HeldOrder) =>
    `${numberOf(order)} (${order.createdAt === null ? '-' : localTime(order.createdAt)}) ${order.status ?? '-'} ≠ ${order.heldStatus ?? '-'}`;
  const words = `Order, when it was placed, known ≠ held status: ${named(orders, nameOf)}.`;
  alarms.note('orders.held', orders.length === 0 ? null : words);
}

function checkUnknownStatuses({ alarms, unknownStatuses }: AlarmFacts): void {
  const words = unknownStatuses();
  const names = named(words, ({ word, ...order }) => `${word} (${numberOf(order)})`);
  alarms.note('orders.status-unknown', words.length === 0 ? null : `Status and order: ${names}.`);
}

function checkStockDifferences({ alarms, stockDifferences, localTime }: AlarmFacts): void {
  const { count, worst } = stockDifferences();
  const nameOf = ({ sku, branch, platformQty, wantedQty, since }: NamedDifference) =>
    `${sku} ${branch} ${platformQty} ≠ ${wantedQty} (${localTime(since)})`;
  const words = `The largest of ${count}, as sku, branch, platform ≠ POS and since when: ${named(worst, nameOf, count)}.`;
  alarms.note('stock.differs', count === 0 ? null : words);
}

function checkStrayOrders({ alarms, strayOrders }: AlarmFacts): void {
  const orders = strayOrders();
  const names = named(orders, (order) => `${numberOf(order)} (${order.store ?? '-'})`);
  alarms.note('orders.unassigned', orders.length === 0 ? null : `Order and store: ${names}.`);
}

/**
 * Time for which the results of `sumsOfOrders` and `missingCodes` are cached, because reading a day of orders takes
 * longer than other checks.
 */
const SUMS_FOR_MS = 5 * 60_000;
const ODD_SHARE = 0.01;
/** Factor by which the last day's share must exceed that of the week before to be a finding. */
const ODD_TIMES = 3;

function checkSums({ alarms }: AlarmFacts, { orders, odd, usualShare }: SumsOfOrders): void {
  const share = odd.length / Math.max(orders, 1);
  const isOdd = share > ODD_SHARE && share > ODD_TIMES * usualShare;
  const words = `Of the last day's ${orders} orders: ${named(odd, numberOf)}.`;
  alarms.note('orders.sums', isOdd ? words : null);
}

function checkCodes({ alarms }: AlarmFacts, { missing, codes, usualShare }: MissingCodes): void {
  const isOdd = missing.length > ODD_TIMES * usualShare * codes;
  const words = `Of the last day's ${codes} numbers: ${named(missing, String)}.`;
  alarms.note('orders.code-missing', isOdd ? words : null);
}

/** Time for which the result of `fieldNews` is cached, because it reads whole orders. */
const FIELDS_FOR_MS = 3_600_000;

function checkFields(
  { alarms }: AlarmFacts,
  { orders, products }: ReturnType<AlarmFacts['fieldNews']>,
): void {
  const words = [
    orders.added.length > 0 && `Newly sent: ${named(orders.added, String)}.`,
    orders.gone.length > 0 && `No longer sent: ${named(orders.gone, String)}.`,
    products.added.length > 0 && `Newly sent with products: ${named(products.added, String)}.`,
    products.gone.length > 0 && `No longer sent with products: ${named(products.gone, String)}.`,
  ];
  alarms.note('orders.fields', words.filter(Boolean).join(' ') || null);
}

function checkPush({ alarms, freshness, clock }: AlarmFacts, watch: PushMonitor): void {
  const reason = watch.judge(freshness(), clock.nowMs());
  if (reason === undefined) return;
  const words = `Orders are fetched meanwhile, so the connection works. ${reason}`;
  alarms.note('outbox.stuck', reason === null ? null : words, 'red');
}

/**
 * Minimum number of waits that the platform asked for in an hour, and minimum time from the first to the last. If both
 * are reached, another program must be using up the company's limits, because tillsync itself stays within them.
 */
const LIMITED_MIN = 3;
const LIMITED_FOR_MS = 3 * 60_000;

function checkLimits({ alarms, limited }: AlarmFacts): void {
  const { count, forMs, where } = limited.of();
  const words = `In the last hour the platform asked ${count} times to wait, the last with ${where}, though the published limits were kept.`;
  alarms.note('platform.limits-shared', count >= LIMITED_MIN && forMs >= LIMITED_FOR_MS ? words : null);
}

function checkForbidden({ alarms, forbidden }: AlarmFacts): void {
  const words = forbidden().map(({ endpoint, message }) => `${endpoint} (403: ${message})`);
  alarms.note('platform.forbidden', words.length === 0 ? null : `Refused are: ${words.join(', ')}.`);
}

function checkCallbacks({ alarms, callbacks }: AlarmFacts): void {
  const { refused, unreadable } = callbacks();
  alarms.note('webhook.refused', refused);
  alarms.note('webhook.unreadable', unreadable);
}

function checkReceivers({ alarms, untold }: AlarmFacts): void {
  alarms.note('alarms.untold', untold().join(' ') || null);
}

/** Number of wrong API keys within an hour that makes a finding. A person who mistypes a key stops or corrects it. */
const WRONG_KEYS_MIN = 10;

function checkKeys({ alarms, wrongKeys }: AlarmFacts): void {
  const { count, where } = wrongKeys.of();
  const words = `${count} times in the last hour, the last from ${where}.`;
  alarms.note('local.wrong-key', count >= WRONG_KEYS_MIN ? words : null);
}

/** Age of orders up to which their items are examined. An older order was either prepared or never will be. */
const ORDERED_WITHIN_MS = 24 * 3_600_000;

function checkUnmapped({ alarms }: AlarmFacts, mappings: readonly BranchMapping[]): void {
  const names = mappings
    .filter(({ unmapped }) => unmapped > 0)
    .map(({ branch, unmapped }) => `${branch.externalId ?? branch.subsidiaryId} (${unmapped})`);
  const words = `Shown products without an id of yours, by branch: ${names.join(', ')}.`;
  alarms.note('catalog.unmapped', names.length === 0 ? null : words);
}

function checkUnmappedItems(
  { alarms, unmappedItems, clock }: AlarmFacts,
  mappings: readonly BranchMapping[],
): void {
  const branches = mappings.map(({ branch }) => branch);
  const items =
    branches.length === 0 ? [] : unmappedItems(branches, isoUtc(clock.nowMs() - ORDERED_WITHIN_MS));
  const names = named(items, (item) => `${numberOf(item)} (${item.productName ?? '-'})`);
  alarms.note('catalog.unmapped-ordered', items.length === 0 ? null : `Order and product: ${names}.`);
}
