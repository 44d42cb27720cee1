import type { Branch } from '../catalog/product.ts';
import { type BranchMapping, MAPPINGS_FOR_MS, type UnmappedItem } from '../catalog/unmapped.ts';
import type { Alarms } from '../core/alarm.ts';
import { firstNames } from '../core/errors.ts';
import { type Clock, formatDuration, isoUtc, keptFor } from '../core/time.ts';
import type {
  FieldNews,
  IncompleteOrder,
  MissingCodes,
  OddOrder,
  SumsOfOrders,
} from '../orders/incomplete-orders.ts';
import type { WaitingOrder } from '../orders/order.ts';
import { type DiskSpace, diskVerdict, healingCode } from './facts.ts';

/** What no flow notices by itself: room on the disk, the clock, tokens that never came, orders of another company. */
export interface AlarmFacts {
  alarms: Alarms;
  /** Of the storage directory; null where the system does not tell. */
  disk: () => DiskSpace | null;
  /** Whether no tokens were ever handed in. May throw `storage-…`. */
  hasNoTokens: () => boolean;
  /** Platform's wall clock minus ours; undefined: not known. */
  clockSkewMs: () => number | undefined;
  /** Of which companies the orders are; undefined: none says. May throw `storage-…`. */
  orderCompanies: () => { oldest: string; newest: string } | undefined;
  /** Orders that the POS was to acknowledge by now and has not, the oldest first. May throw `storage-…`. */
  waitingOrders: () => readonly WaitingOrder[];
  /** Orders of which a part could not be read, the oldest first. May throw `storage-…`. */
  incompleteOrders: () => readonly IncompleteOrder[];
  /** Stocks of which the platform has another number than the POS counted, the worst first. May throw `storage-…`. */
  stockDifferences: () => { count: number; worst: readonly NamedDifference[] };
  /** Orders of a day that are of no branch, the newest first. May throw `storage-…`. */
  strayOrders: () => readonly (OddOrder & { store: string | null })[];
  /** Whether the sums of the day's orders hold. May throw `storage-…`. */
  sumsOfOrders: () => SumsOfOrders;
  /** Numbers between those of the day's orders that no order has. May throw `storage-…`. */
  missingCodes: () => MissingCodes;
  /** Which fields of orders are new, and which are sent no more. May throw `storage-…`. */
  fieldNews: () => FieldNews;
  /** When the platform asked to wait, with which endpoint. */
  limited: Pick<Recently, 'of'>;
  /** Who asked here with a wrong key. */
  wrongKeys: Pick<Recently, 'of'>;
  /** How long one may wait before a person is told; 0: for ever. */
  unbookedAfterMs: number;
  /** How many shown products of each branch have an id of the POS. May throw `storage-…`. */
  branchMappings: () => readonly BranchMapping[];
  /** Ordered items that have none, first seen at the time or later, of these branches. May throw `storage-…`. */
  unmappedItems: (branches: readonly Branch[], from: string) => readonly UnmappedItem[];
  /** A time as the shop's clock shows it. */
  localTime: (iso: string) => string;
  clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
}

/** A stock of which the platform has another number than is wanted there. */
export interface NamedDifference {
  sku: string;
  branch: string;
  platformQty: number;
  wantedQty: number;
  /** ISO 8601 UTC. */
  since: string;
}

const HOUR_MS = 3_600_000;
const RECENT_MAX = 1_000;

/** What happened within the last hour, each time with where it came from. */
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

  /** `forMs`: from the first of them to the last. */
  of(): { count: number; forMs: number; where: string } {
    const fromMs = this.#clock.monotonicMs() - HOUR_MS;
    this.#times = this.#times.filter(({ atMonoMs }) => atMonoMs >= fromMs);
    const [first, last] = [this.#times[0], this.#times.at(-1)];
    if (!first || !last) return { count: 0, forMs: 0, where: '' };
    return { count: this.#times.length, forMs: last.atMonoMs - first.atMonoMs, where: last.where };
  }
}

/** Notes them. The looks throw what the facts throw. */
export class FactWatch {
  readonly #facts: AlarmFacts;
  readonly #startMonoMs: number;
  readonly #mappings: () => readonly BranchMapping[];
  readonly #sums: () => SumsOfOrders;
  readonly #codes: () => MissingCodes;
  readonly #fields: () => FieldNews;

  constructor(facts: AlarmFacts) {
    this.#facts = facts;
    this.#startMonoMs = facts.clock.monotonicMs();
    const look = () => facts.branchMappings().filter(({ isMapping }) => isMapping);
    this.#sums = keptFor(SUMS_FOR_MS, facts.clock, facts.sumsOfOrders);
    this.#codes = keptFor(SUMS_FOR_MS, facts.clock, facts.missingCodes);
    this.#fields = keptFor(FIELDS_FOR_MS, facts.clock, facts.fieldNews);
    this.#mappings = keptFor(MAPPINGS_FOR_MS, facts.clock, look);
  }

  look(): void {
    const { clock } = this.#facts;
    const nowMonoMs = clock.monotonicMs();
    lookAtDisk(this.#facts);
    lookAtClock(this.#facts);
    lookAtTokens(this.#facts);
    lookAtCompany(this.#facts);
    lookAtWaitingOrders(this.#facts, nowMonoMs - this.#startMonoMs >= POS_STARTS_WITHIN_MS);
    lookAtIncompleteOrders(this.#facts);
    lookAtStockDifferences(this.#facts);
    lookAtStrayOrders(this.#facts);
    lookAtSums(this.#facts, this.#sums());
    lookAtCodes(this.#facts, this.#codes());
    lookAtFields(this.#facts, this.#fields());
    lookAtLimits(this.#facts);
    lookAtKeys(this.#facts);
    const mappings = this.#mappings();
    tellUnmapped(this.#facts, mappings);
    tellUnmappedItems(this.#facts, mappings);
  }
}

/** From here on a clock is not right, and from there on it is wrong: orders are looked for on other days. */
const CLOCK_OFF_MS = 5 * 60_000;
const CLOCK_WRONG_MS = 12 * 3_600_000;

/** Kept for whoever cannot measure it, and so that it does not flap around the mark. */
function lookAtDisk({ alarms, disk }: AlarmFacts): void {
  const space = disk();
  if (space === null) return;
  const { code, message } = diskVerdict(space);
  const nearly = healingCode(space);
  if (code !== null) alarms.note(code, message);
  if (nearly !== 'storage.full') alarms.note('storage.full', null);
  // Nearly full is not over when the disk is full.
  if (nearly === null) alarms.note('storage.low', null);
}

function lookAtClock({ alarms, clockSkewMs }: AlarmFacts): void {
  const skewMs = clockSkewMs();
  if (skewMs === undefined) return;
  const offMs = Math.abs(skewMs);
  // In whole minutes, so that the words stay the same from one look to the next.
  const off = formatDuration(Math.round(offMs / 60_000) * 60_000);
  const words = `It is ${off} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's clock.`;
  const isWrong = offMs > CLOCK_WRONG_MS;
  alarms.note('clock.wrong', isWrong ? words : null);
  alarms.note('clock.off', !isWrong && offMs > CLOCK_OFF_MS ? words : null);
}

function lookAtCompany({ alarms, orderCompanies }: AlarmFacts): void {
  const { oldest, newest } = orderCompanies() ?? {};
  const words = `The orders were of company ${oldest}, and the newest is of ${newest}.`;
  alarms.note('auth.other-company', oldest === newest ? null : words);
}

function lookAtTokens({ alarms, hasNoTokens }: AlarmFacts): void {
  const words = 'No tokens were handed over yet. Hand them over with: {tillsync} auth set';
  alarms.note('auth.none', hasNoTokens() ? words : null);
}

/** After a start the POS may have to start, too, before it can acknowledge what came before. */
const POS_STARTS_WITHIN_MS = 5 * 60_000;
/** After so many times as long as it may wait, an order that nobody took is red. */
const RED_AFTER_TIMES = 3;
const named = <Item>(items: readonly Item[], name: (item: Item) => string, count?: number): string =>
  firstNames(items, name, count).join(', ');

const numberOf = ({ code, orderId }: { code: number | null; orderId: string }) => `${code ?? orderId}`;

function lookAtWaitingOrders(
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

function lookAtIncompleteOrders({ alarms, incompleteOrders }: AlarmFacts): void {
  const orders = incompleteOrders();
  const lacksTime = orders.some((order) => order.lacksTime === 1);
  const [first] = orders;
  const number = first && numberOf(first);
  const words = lacksTime
    ? `Look at order ${named(orders, numberOf)}: {tillsync} order show ${number}. A scheduled order has no time: name its field as scheduled_for in [orders.fields].`
    : `Look at order ${named(orders, numberOf)}: {tillsync} order show ${number}`;
  alarms.note('orders.incomplete', first ? words : null);
}

function lookAtStockDifferences({ alarms, stockDifferences, localTime }: AlarmFacts): void {
  const { count, worst } = stockDifferences();
  const nameOf = ({ sku, branch, platformQty, wantedQty, since }: NamedDifference) =>
    `${sku} ${branch} ${platformQty} ≠ ${wantedQty} (${localTime(since)})`;
  const words = `The largest of ${count}, as sku, branch, platform ≠ POS and since when: ${named(worst, nameOf, count)}.`;
  alarms.note('stock.differs', count === 0 ? null : words);
}

function lookAtStrayOrders({ alarms, strayOrders }: AlarmFacts): void {
  const orders = strayOrders();
  const names = named(orders, (order) => `${numberOf(order)} (${order.store ?? '-'})`);
  alarms.note('orders.unassigned', orders.length === 0 ? null : `Order and store: ${names}.`);
}

/** Reading a day of orders takes longer than other looks. */
const SUMS_FOR_MS = 5 * 60_000;
const ODD_SHARE = 0.01;
/** So many times as many as in the week before are no custom of the shop. */
const ODD_TIMES = 3;

function lookAtSums({ alarms }: AlarmFacts, { orders, odd, usualShare }: SumsOfOrders): void {
  const share = odd.length / Math.max(orders, 1);
  const isOdd = share > ODD_SHARE && share > ODD_TIMES * usualShare;
  const words = `Of the last day's ${orders} orders: ${named(odd, numberOf)}.`;
  alarms.note('orders.sums', isOdd ? words : null);
}

function lookAtCodes({ alarms }: AlarmFacts, { missing, codes, usualShare }: MissingCodes): void {
  const isOdd = missing.length > ODD_TIMES * usualShare * codes;
  const words = `Of the last day's ${codes} numbers: ${named(missing, String)}.`;
  alarms.note('orders.code-missing', isOdd ? words : null);
}

/** Whole orders are read for it. */
const FIELDS_FOR_MS = 3_600_000;

function lookAtFields({ alarms }: AlarmFacts, { added, gone }: FieldNews): void {
  const words = [
    added.length > 0 && `Newly sent: ${named(added, String)}.`,
    gone.length > 0 && `No longer sent: ${named(gone, String)}.`,
  ];
  alarms.note('orders.fields', words.filter(Boolean).join(' ') || null);
}

/** Nobody exceeds them here: so many, over so long a time, are brought on by somebody else. */
const LIMITED_MIN = 3;
const LIMITED_FOR_MS = 3 * 60_000;

function lookAtLimits({ alarms, limited }: AlarmFacts): void {
  const { count, forMs, where } = limited.of();
  const words = `In the last hour the platform asked ${count} times to wait, the last with ${where}, though the published limits were kept.`;
  alarms.note('platform.limits-shared', count >= LIMITED_MIN && forMs >= LIMITED_FOR_MS ? words : null);
}

/** A person who mistypes it gives up sooner, or gets it right. */
const WRONG_KEYS_MIN = 10;

function lookAtKeys({ alarms, wrongKeys }: AlarmFacts): void {
  const { count, where } = wrongKeys.of();
  const words = `${count} times in the last hour, the last from ${where}.`;
  alarms.note('local.wrong-key', count >= WRONG_KEYS_MIN ? words : null);
}

/** Who was to take such an order has, or nobody will. */
const ORDERED_WITHIN_MS = 24 * 3_600_000;

function tellUnmapped({ alarms }: AlarmFacts, mappings: readonly BranchMapping[]): void {
  const names = mappings
    .filter(({ unmapped }) => unmapped > 0)
    .map(({ branch, unmapped }) => `${branch.externalId ?? branch.subsidiaryId} (${unmapped})`);
  const words = `Shown products without an id of yours, by branch: ${names.join(', ')}.`;
  alarms.note('catalog.unmapped', names.length === 0 ? null : words);
}

function tellUnmappedItems(
  { alarms, unmappedItems, clock }: AlarmFacts,
  mappings: readonly BranchMapping[],
): void {
  const branches = mappings.map(({ branch }) => branch);
  const items =
    branches.length === 0 ? [] : unmappedItems(branches, isoUtc(clock.nowMs() - ORDERED_WITHIN_MS));
  const names = named(items, (item) => `${numberOf(item)} (${item.productName ?? '-'})`);
  alarms.note('catalog.unmapped-ordered', items.length === 0 ? null : `Order and product: ${names}.`);
}
