import type { FindingLevel } from '../core/alarm.ts';
import { firstNames } from '../core/errors.ts';
import { formatDuration, isoUtc } from '../core/time.ts';
import type { HeldOrder, WaitingOrder } from '../orders/merging/order.ts';
import {
  diskVerdict,
  healingCode,
  type Look,
  type NamedDifference,
  type Repeated,
  type Sights,
} from './facts.ts';

/**
 * The rules of findings that the daemon finds by a look at its store, one function each. How long, how many and how bad
 * stands in the finding's row, which calls them.
 */

const named = <Item>(items: readonly Item[], name: (item: Item) => string, count?: number): string =>
  firstNames(items, name, count).join(', ');

const numberOf = ({ code, orderId }: { code: number | null; orderId: string }) => `${code ?? orderId}`;

/** A full or nearly full disk. It ends only with clearly more room, so that it does not flap. */
export function diskIs(code: 'storage.full' | 'storage.low', { disk }: Sights): ReturnType<Look> {
  const space = disk();
  if (space === null) return undefined;
  const { code: now, message } = diskVerdict(space);
  if (now === code) return { words: message };
  const nearly = healingCode(space);
  // While the disk is full, the low space stays noted too.
  const isStill = code === 'storage.full' ? nearly === code : nearly !== null;
  return isStill ? undefined : null;
}

/** A clock that is off by more than `fromMs`, and by at most `toMs`. */
export function clockIsOff(
  { clockSkewMs }: Sights,
  { fromMs, toMs = Number.POSITIVE_INFINITY }: { fromMs: number; toMs?: number },
): ReturnType<Look> {
  const skewMs = clockSkewMs();
  if (skewMs === undefined) return undefined;
  const offMs = Math.abs(skewMs);
  if (offMs <= fromMs || offMs > toMs) return null;
  // Rounded to whole minutes, so that the text does not change with each look.
  const off = formatDuration(Math.round(offMs / 60_000) * 60_000);
  return { words: `It is ${off} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's clock.` };
}

export function companyIsOther({ orderCompanies }: Sights): ReturnType<Look> {
  const { oldest, newest } = orderCompanies() ?? {};
  if (oldest === newest) return null;
  return { words: `Earlier orders were from company ${oldest}; the newest is from ${newest}.` };
}

export function tokensAreMissing({ hasNoTokens }: Sights): ReturnType<Look> {
  return hasNoTokens() ? { words: 'To set them, run: {tillsync} auth set' } : null;
}

/**
 * Orders that the POS should have acknowledged by now. From `redAfterTimes` the allowed wait on they are red. For
 * `graceMs` after a start they are no finding, because the POS may be starting too.
 */
export function ordersWait(
  { waitingOrders, unbookedAfterMs, localTime, clock, upMs }: Sights,
  { redAfterTimes, graceMs }: { redAfterTimes: number; graceMs: number },
): ReturnType<Look> {
  const nowMs = clock.nowMs();
  const waitedMs = ({ since }: WaitingOrder) => nowMs - Date.parse(since);
  const late =
    unbookedAfterMs === 0 ? [] : waitingOrders().filter((order) => waitedMs(order) >= unbookedAfterMs);
  const [oldest] = late;
  if (oldest === undefined) return null;
  if (upMs() < graceMs) return undefined;
  const names = named(late, (order) => `${numberOf(order)} (${localTime(order.since)})`);
  return {
    words: `Orders, and since when they wait: ${names}.`,
    level: waitedMs(oldest) >= redAfterTimes * unbookedAfterMs ? 'red' : 'amber',
  };
}

export function posIsSilent({ silentPos, localTime }: Sights): ReturnType<Look> {
  const names = named(silentPos(), ({ store, lastAt }) =>
    store === '' ? localTime(lastAt) : `${store} (${localTime(lastAt)})`,
  );
  return names === '' ? null : { words: `Last sign of life: ${names}.` };
}

export function ordersAreIncomplete({ incompleteOrders }: Sights): ReturnType<Look> {
  const orders = incompleteOrders();
  const [first] = orders;
  if (first === undefined) return null;
  const lacksTime = orders.some((order) => order.lacksTime === 1);
  const number = numberOf(first);
  const words = lacksTime
    ? `Orders: ${named(orders, numberOf)}. To see the first, run: {tillsync} order show ${number}. A scheduled order has no time. Set scheduled_for in [orders.fields] to the name of its field.`
    : `Orders: ${named(orders, numberOf)}. To see the first, run: {tillsync} order show ${number}`;
  return { words };
}

export function ordersAreHeld({ heldOrders, localTime }: Sights): ReturnType<Look> {
  const orders = heldOrders();
  if (orders.length === 0) return null;
  const nameOf = (order: HeldOrder) =>
    `${numberOf(order)} (${order.createdAt === null ? '-' : localTime(order.createdAt)}) ${order.status ?? '-'} ≠ ${order.heldStatus ?? '-'}`;
  return { words: `Orders, when they were placed, and mirror ≠ callback status: ${named(orders, nameOf)}.` };
}

export function statusesAreUnknown({ unknownStatuses }: Sights): ReturnType<Look> {
  const words = unknownStatuses();
  if (words.length === 0) return null;
  const names = named(words, ({ word, ...order }) => `${word} (${numberOf(order)})`);
  return { words: `Statuses and orders: ${names}.` };
}

export function stocksDiffer({ stockDifferences, localTime }: Sights): ReturnType<Look> {
  const { count, worst } = stockDifferences();
  if (count === 0) return null;
  const nameOf = ({ sku, branch, platformQty, wantedQty, since }: NamedDifference) =>
    `${sku} ${branch} ${platformQty} ≠ ${wantedQty} (${localTime(since)})`;
  return {
    words: `The largest of ${count} differences (SKU, branch, platform ≠ POS, since when): ${named(worst, nameOf, count)}.`,
  };
}

export function ordersStray({ strayOrders }: Sights): ReturnType<Look> {
  const orders = strayOrders();
  const names = named(orders, (order) => `${numberOf(order)} (${order.store ?? '-'})`);
  return orders.length === 0 ? null : { words: `Orders and stores: ${names}.` };
}

/** Orders whose sums do not add up: more than `share` of them, and more than `times` the usual share. */
export function sumsAreOdd(
  { sumsOfOrders }: Sights,
  { share, times }: { share: number; times: number },
): ReturnType<Look> {
  const { orders, odd, usualShare } = sumsOfOrders();
  const found = odd.length / Math.max(orders, 1);
  if (found <= share || found <= times * usualShare) return null;
  return { words: `Orders, of ${orders} in the last day: ${named(odd, numberOf)}.` };
}

/** Missing numbers of orders: more than `times` the usual share. */
export function codesAreMissing({ missingCodes }: Sights, { times }: { times: number }): ReturnType<Look> {
  const { missing, codes, usualShare } = missingCodes();
  if (missing.length <= times * usualShare * codes) return null;
  return { words: `Numbers, of ${codes} in the last day: ${named(missing, String)}.` };
}

export function fieldsChange({ fieldNews }: Sights): ReturnType<Look> {
  const { orders, products } = fieldNews();
  const words = [
    orders.added.length > 0 && `New fields: ${named(orders.added, String)}.`,
    orders.gone.length > 0 && `Missing fields: ${named(orders.gone, String)}.`,
    products.added.length > 0 && `New fields of products: ${named(products.added, String)}.`,
    products.gone.length > 0 && `Missing fields of products: ${named(products.gone, String)}.`,
  ];
  return noted(words.filter(Boolean).join(' '));
}

export function sendingFails({ pushFails }: Sights, level: FindingLevel): ReturnType<Look> {
  const reason = pushFails();
  if (reason === undefined) return undefined;
  const words = `The connection works, because orders still arrive. ${reason}`;
  return reason === null ? null : { words, level };
}

/**
 * Waits that the platform asked for: at least `count` in an hour, over `forMs` or more. Then another program must be
 * using up the company's limits, because tillsync itself stays within them.
 */
export function limitsAreShared(
  { limited }: Sights,
  least: Pick<Repeated, 'count' | 'forMs'>,
): ReturnType<Look> {
  const { count, forMs, where } = limited.of();
  const words = `In the last hour, the platform asked tillsync ${count} times to wait, last with ${where}, although tillsync kept the published limits.`;
  return count >= least.count && forMs >= least.forMs ? { words } : null;
}

export function callsAreForbidden({ forbidden }: Sights): ReturnType<Look> {
  const words = forbidden().map(({ endpoint, message }) => `${endpoint} (403: ${message})`);
  return words.length === 0 ? null : { words: `Rejected calls: ${words.join(', ')}.` };
}

/** At least `count` wrong keys in an hour. A person who mistypes a key stops or corrects it. */
export function keysAreWrong({ wrongKeys }: Sights, least: Pick<Repeated, 'count'>): ReturnType<Look> {
  const { count, where } = wrongKeys.of();
  const words = `Wrong keys in the last hour: ${count}, the last from ${where}.`;
  return count >= least.count ? { words } : null;
}

/** Branches that give ids, and have shown products without one. */
export function productsAreUnmapped({ branchMappings }: Sights): ReturnType<Look> {
  const names = branchMappings()
    .filter(({ isMapping, unmapped }) => isMapping && unmapped > 0)
    .map(({ branch, unmapped }) => `${branch.externalId ?? branch.subsidiaryId} (${unmapped})`);
  const words = `Products on sale without a POS ID, by branch: ${names.join(', ')}.`;
  return names.length === 0 ? null : { words };
}

/**
 * Items without an id, in orders of branches that give ids. An order older than `withinMs` was either prepared or never
 * will be.
 */
export function itemsAreUnmapped(
  { branchMappings, unmappedItems, clock }: Sights,
  { withinMs }: { withinMs: number },
): ReturnType<Look> {
  const branches = branchMappings().flatMap(({ branch, isMapping }) => (isMapping ? [branch] : []));
  const items = branches.length === 0 ? [] : unmappedItems(branches, isoUtc(clock.nowMs() - withinMs));
  const names = named(items, (item) => `${numberOf(item)} (${item.productName ?? '-'})`);
  return items.length === 0 ? null : { words: `Orders and products: ${names}.` };
}

/** Notes the words that another part gives; without words there is no fault. */
export function noted(words: string | null): ReturnType<Look> {
  return words ? { words } : null;
}
