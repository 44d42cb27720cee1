import { OPEN_S, type ShopDay } from './shop-day.ts';
import { type DayOutcome, ShopFloor } from './shop-floor.ts';
import type { ShopView, Strategy } from './strategy.ts';

/** Interval between two calls to the platform, and time until a call takes effect. */
const CALL_EVERY_S = 1;
const CALL_TAKES_S = 0.4;
const CALL_ITEMS = 100;
const KNOWN_WITHIN_S = CALL_EVERY_S + CALL_TAKES_S + 0.1;
/** Time after closing in which staff still book orders. */
export const AFTER_CLOSING_S = 3_600;

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
  day: ShopDay,
  strategy: Strategy,
  { isOptimum = false }: { isOptimum?: boolean } = {},
): Promise<DayOutcome> {
  const platform = [...day.stock];
  const timers: Timer[] = [];
  let [nowS, count, nextCallS, nextReadS] = [0, 0, 0, 0];
  // `running` is the number of unfinished tasks, `reads` the number of those that wait for an answer of the platform.
  // The day's time goes on only while all unfinished tasks wait for the platform.
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
  /**
   * Waits until each task has ended or waits for the platform, because the day's time stands still while a task
   * computes.
   */
  const atRest = async () => {
    while (running > reads) await new Promise<void>((resolve) => (wake = resolve));
    if (fault) throw fault.error;
  };
  const at = (atS: number, action: () => unknown) => {
    insert(timers, { atS: Math.max(atS, nowS), order: count++, action });
  };
  const floor = new ShopFloor(
    day,
    {
      nowS: () => nowS,
      at,
      offered: (product) => platform[product] ?? 0,
      order({ product, qty }) {
        platform[product] = (platform[product] ?? 0) - qty;
        return `order-${count++}`;
      },
      heard: (order) => strategy.heard?.(order),
      async posChanged(product) {
        if (isOptimum) platform[product] = Math.max(0, floor.freeByRecord(product));
        await strategy.posChanged?.(product, floor.posStock(product));
      },
      booked: (order) => strategy.booked?.(order),
    },
    KNOWN_WITHIN_S,
  );
  const waiting = new Map<number, number>();
  const send = () => {
    const items = [...waiting].slice(0, CALL_ITEMS);
    if (items.length === 0) return;
    for (const [product] of items) waiting.delete(product);
    floor.outcome.calls += 1;
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
    products: day.stock.length,
    nowS: () => nowS,
    posStock: (product) => floor.posStock(product),
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

  run(() => strategy.open?.(shop));
  await atRest();
  for (const visit of day.visits) at(visit.atS, () => floor.visit(visit));
  for (let next = timers.pop(); next && next.atS <= OPEN_S + AFTER_CLOSING_S; next = timers.pop()) {
    nowS = next.atS;
    run(next.action);
    await atRest();
  }
  await strategy.close?.();
  return floor.outcome;
}

/** Inserts a timer into the list, whose last one is due first. */
function insert(timers: Timer[], timer: Timer): void {
  let [from, to] = [0, timers.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    const { atS, order } = timers[middle] as Timer;
    if (atS > timer.atS || (atS === timer.atS && order > timer.order)) from = middle + 1;
    else to = middle;
  }
  timers.splice(from, 0, timer);
}
