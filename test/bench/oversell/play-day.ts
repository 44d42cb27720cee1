import { OPEN_S, type ShopDay, type Visit } from './shop-day.ts';
import type { HeardOrder, ShopView, Strategy } from './strategy.ts';

/** Numbers of pieces, except the first two. */
export interface DayOutcome {
  orders: number;
  sold: number;
  /** Pieces sold online that were not free at that time. */
  atsale: number;
  /** Pieces among `atsale` that were wrongly offered, because by the shop's knowledge they were not free. */
  outside: number;
  /** Pieces that were free when ordered, but sold over the counter before staff took them. Nothing prevents this. */
  conflict: number;
  /** Pieces that a customer wanted, that were free and not offered. */
  lost: number;
  calls: number;
}

/** Interval of calls; a call takes effect within a part of the next second. */
const CALL_EVERY_S = 1;
const CALL_TAKES_S = 0.4;
const CALL_ITEMS = 100;
/** A quantity that was right this recently may still be offered, because a call must be sent and arrive. */
const KNOWN_WITHIN_S = CALL_EVERY_S + CALL_TAKES_S + 0.1;
/** The shortest time in which anybody in the shop learns of an order. */
const HEARD_AFTER_S = 0.2;
const AFTER_CLOSING_S = 3_600;

interface Timer {
  atS: number;
  order: number;
  action: () => unknown;
}

/**
 * Plays one day with a strategy, as fast as possible. With `isOptimum`, the platform always offers the POS's stock less
 * unbooked orders, without a call or delay, which no strategy can surpass.
 */
export async function playDay(
  { stock, visits }: ShopDay,
  strategy: Strategy,
  { isOptimum = false, onOrder }: { isOptimum?: boolean; onOrder?: (offered: number) => void } = {},
): Promise<DayOutcome> {
  const outcome: DayOutcome = { orders: 0, sold: 0, atsale: 0, outside: 0, conflict: 0, lost: 0, calls: 0 };
  const shelf = [...stock];
  const pos = [...stock];
  const platform = [...stock];
  /** Pieces of each product that are ordered online and still on the shelf. */
  const unpicked = stock.map(() => 0);
  /**
   * For each product, the quantities that were right to offer by the shop's knowledge, and the times from which they
   * were.
   */
  const known = stock.map((qty) => [{ atS: 0, qty }]);
  let [nowS, count, nextCallS, nextReadS] = [0, 0, 0, 0];
  let timers: Timer[] = [];
  // Running tasks, and how many of them wait for an answer of the platform, which takes time of the day.
  let [running, reads] = [0, 0];
  let fault: { error: unknown } | undefined;
  let wake = () => {};
  const run = (action: () => unknown) => {
    running += 1;
    void (async () => {
      try {
        await action();
      } catch (error) {
        fault ??= { error };
      }
      running -= 1;
      wake();
    })();
  };
  /** Waits until no task computes, because time stands still meanwhile. */
  const atRest = async () => {
    while (running > reads) await new Promise<void>((resolve) => (wake = resolve));
    if (fault) throw fault.error;
  };
  const at = (atS: number, action: () => unknown) => {
    timers.push({ atS: Math.max(atS, nowS), order: count++, action });
  };
  /** Unbooked orders that somebody in the shop can know of. */
  const knowable = stock.map(() => 0);
  const learn = (product: number) => {
    const qty = (pos[product] ?? 0) - (knowable[product] ?? 0);
    known[product]?.push({ atS: nowS, qty });
  };
  /** Returns the highest quantity that was right to offer within the time that a call needs. */
  const rightOf = (product: number) => {
    const all = known[product] ?? [];
    let most = Number.NEGATIVE_INFINITY;
    for (let i = all.length - 1; i >= 0; i--) {
      const fact = all[i];
      if (!fact) break;
      most = Math.max(most, fact.qty);
      if (fact.atS < nowS - KNOWN_WITHIN_S) break;
    }
    return most;
  };
  const waiting = new Map<number, number>();
  const send = () => {
    const items = [...waiting].slice(0, CALL_ITEMS);
    if (items.length === 0) return;
    for (const [product] of items) waiting.delete(product);
    outcome.calls += 1;
    nextCallS = nowS + CALL_EVERY_S;
    at(nowS + CALL_TAKES_S, async () => {
      for (const [product, qty] of items) {
        platform[product] = qty;
        await strategy.arrived?.(product, qty);
      }
    });
    if (waiting.size > 0) at(nextCallS, send);
  };
  const shop: ShopView = {
    products: stock.length,
    nowS: () => nowS,
    posStock: (product) => pos[product] ?? 0,
    send(product, qty) {
      if (!Number.isFinite(qty)) throw new Error(`it offered ${qty} of product ${product}`);
      const isFirst = waiting.size === 0;
      waiting.set(product, Math.max(0, qty));
      if (isFirst) at(nextCallS, send);
    },
    read(product) {
      const atS = Math.max(nextReadS, nowS) + CALL_TAKES_S;
      nextReadS = atS - CALL_TAKES_S + CALL_EVERY_S;
      reads += 1;
      wake();
      return new Promise((resolve) =>
        at(atS, () => {
          reads -= 1;
          resolve(platform[product] ?? 0);
        }),
      );
    },
    every(seconds, action) {
      const again = async () => {
        await action();
        if (nowS < OPEN_S) at(nowS + seconds, again);
      };
      at(seconds, again);
    },
  };
  const best = (product: number) => {
    if (isOptimum) platform[product] = Math.max(0, (pos[product] ?? 0) - (unbooked[product] ?? 0));
  };
  const unbooked = stock.map(() => 0);
  const posChanged = async (product: number) => {
    learn(product);
    best(product);
    await strategy.posChanged?.(product, pos[product] ?? 0);
  };

  const visit = ({ product, qty, isOnline, basketS, hearingS, bookingS }: Visit) => {
    const free = (shelf[product] ?? 0) - (unpicked[product] ?? 0);
    if (!isOnline) {
      const taken = Math.min(qty, shelf[product] ?? 0);
      if (taken === 0) return;
      shelf[product] = (shelf[product] ?? 0) - taken;
      at(nowS + basketS, async () => {
        pos[product] = Math.max(0, (pos[product] ?? 0) - taken);
        await posChanged(product);
      });
      return;
    }
    const offered = platform[product] ?? 0;
    onOrder?.(offered);
    if (offered < qty) {
      if (free >= qty) outcome.lost += qty;
      return;
    }
    const missing = Math.min(qty, Math.max(0, qty - Math.max(0, free)));
    outcome.orders += 1;
    outcome.sold += qty;
    outcome.atsale += missing;
    outcome.outside += Math.min(missing, Math.max(0, offered - Math.max(0, rightOf(product))));
    platform[product] = offered - qty;
    unpicked[product] = (unpicked[product] ?? 0) + qty;
    unbooked[product] = (unbooked[product] ?? 0) + qty;
    const order: HeardOrder = { id: `order-${count++}`, product, qty, atS: nowS };
    at(nowS + HEARD_AFTER_S, () => {
      knowable[product] = (knowable[product] ?? 0) + qty;
      learn(product);
    });
    at(nowS + hearingS, () => strategy.heard?.(order));
    at(nowS + hearingS + bookingS, async () => {
      const there = Math.min(qty, shelf[product] ?? 0);
      // Pieces that were free when ordered and are gone were sold over the counter in between.
      outcome.conflict += Math.max(0, qty - there - missing);
      shelf[product] = (shelf[product] ?? 0) - there;
      unpicked[product] = (unpicked[product] ?? 0) - qty;
      unbooked[product] = (unbooked[product] ?? 0) - qty;
      knowable[product] = (knowable[product] ?? 0) - qty;
      pos[product] = Math.max(0, (pos[product] ?? 0) - qty);
      await posChanged(product);
      await strategy.booked?.(order);
    });
  };

  run(() => strategy.open?.(shop));
  await atRest();
  for (const each of visits) at(each.atS, () => visit(each));
  while (timers.length > 0) {
    let next = timers[0] as Timer;
    for (const each of timers)
      if (each.atS < next.atS || (each.atS === next.atS && each.order < next.order)) next = each;
    if (next.atS > OPEN_S + AFTER_CLOSING_S) break;
    timers = timers.filter((each) => each !== next);
    nowS = next.atS;
    run(next.action);
    await atRest();
  }
  await strategy.close?.();
  return outcome;
}
