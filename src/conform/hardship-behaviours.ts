import type { OrderSnapshot } from '../sandbox/orders.ts';
import { type Article, article, articlesOf } from './articles.ts';
import type { Behaviour } from './behaviour.ts';
import { Failing, type Stage, Unjudged } from './stage.ts';

/** Time within which the till must hand over a count of 0 after it sold the last piece. */
const LAST_PIECE_MS = 5_000;
const OFF_MS = 5_000;
const REFUSED_MS = 7_000;
/** Time limit for the till's longest tasks, such as to process 1,000 events after it was off. */
const DAY_OFF_MS = 90_000;
const DAY_ORDERS = 250;
/**
 * Maximum number of times that a till may repeat a refused or held count. A till that repeats it more often would
 * probably never stop.
 */
const AGAIN_MAX = 3;
const QUIET_MS = 6_000;
const ASKS_A_SECOND = 2;
/** Share of one processor that a waiting till may use. */
const IDLE_SHARE = 0.5;
const READ_MAX_MS = 10_000;
const ARRIVES_MS = 30_000;

/** Behaviours that a till needs because tillsync or the platform may fail. */
export const HARDSHIP_BEHAVIOURS: readonly Behaviour[] = [
  {
    id: 7,
    does: 'keeps its counts when the mirror is made anew, a million events further or from event 1',
    mend: {
      sql: 'Open the mirror again for each look, go on from your `seq`, or from 0 if the feed ends below it, and book by `order_id`.',
      api: 'If `GET /v1/orders` answers 400 with the code `feed-restarted`, start again with `after=0`. A stream ends then: connect again without Last-Event-ID. Book by `order_id`: orders you know arrive again.',
      files:
        'If `tillsync order list --after` ends with exit code 1 and the code `feed-restarted`, start again with `--after 0`. Book by `order_id`: orders you know arrive again.',
    },
    chapter: 'following-orders',
    needs: [18],
    play: playLostMirror,
  },
  {
    id: 15,
    does: `tells within ${LAST_PIECE_MS / 1000} seconds that the last piece was sold over the counter`,
    mend: 'Hand over each count that changes, from whatever sale, within seconds.',
    chapter: 'handing-over-stock-and-prices',
    async play(stage) {
      await stage.fence();
      const startMs = stage.clock.monotonicMs();
      stage.place.sell([{ sku: article(15).sku, qty: 1 }]);
      const isTold = await stage.until(() => stage.count(article(15)) === 0, LAST_PIECE_MS);
      if (!isTold) throw new Failing(`No count of 0 came within ${LAST_PIECE_MS / 1000} s of the sale.`);
      return `The count of 0 came after ${((stage.clock.monotonicMs() - startMs) / 1000).toFixed(1)} s.`;
    },
  },
  {
    id: 17,
    does: 'catches up after tillsync was off, and hands over what it sold meanwhile',
    mend: 'Take a refused connection for "later": keep counts and acknowledgements, and hand them over again.',
    chapter: 'what-a-reader-does-and-does-not',
    async play(stage) {
      await stage.fence();
      await stage.place.stopDaemon();
      const orders = [1, 2, 3].map(() => stage.order(article(17), 2));
      stage.place.sell([{ sku: article(17).sku, qty: 3 }]);
      await stage.pause(OFF_MS);
      await stage.place.startDaemon();
      // Waits for the next poll, which brings these orders.
      await stage.until(
        () => orders.every(({ internalOrderId, status }) => stage.mirrored(internalOrderId, status)),
        ARRIVES_MS,
      );
      await stage.fence();
      stage.acknowledged(orders, 'Orders of that time');
      return stage.counted(article(17), article(17).qty - 6 - 3, 'Three orders and a sale over the counter');
    },
  },
  {
    id: 18,
    does: 'works through 1,000 events after it was off',
    mend: 'Read the feed page by page (100 events), and go on until a page is empty.',
    chapter: 'following-orders',
    async play(stage) {
      const till = stage.requireCommand();
      await till.kill();
      const orders = Array.from({ length: DAY_ORDERS }, () => stage.order(article(18), 1));
      for (const status of ['picker-pending', 'inProcess', 'ready'])
        for (const { internalOrderId } of orders) stage.move(internalOrderId, status);
      await stage.control.settled();
      await stage.until(
        () => orders.every((order) => stage.mirrored(order.internalOrderId, 'ready')),
        ARRIVES_MS,
      );
      till.start();
      const startMs = stage.clock.monotonicMs();
      await stage.fence(DAY_OFF_MS);
      const acknowledged = stage.acknowledged(orders, `${DAY_ORDERS} orders`);
      await stage.countedDown(article(18), article(18).qty - DAY_ORDERS, 'Their article');
      return `${acknowledged} It took ${Math.ceil((stage.clock.monotonicMs() - startMs) / 1000)} s.`;
    },
  },
  {
    id: 19,
    does: 'misses no order in a feed whose old events were deleted',
    mend: 'Ask for what is above your `seq`, and take gaps: the newest event of each order is always there.',
    chapter: 'following-orders',
    needs: [5],
    play: playTrimmedFeed,
  },
  {
    id: 20,
    does: 'hands over again what a locked inbox, 429 or 503 refused',
    mend: 'Strike a count off your list only once it is committed or answered with a result.',
    chapter: 'handing-over-stock-and-prices',
    async play(stage) {
      await stage.fence();
      const { commands, gate } = stage.place;
      const unlock = stage.place.lockInbox();
      commands.refuse(true);
      let refused = 0;
      gate.refuse = (method) => {
        if (method !== 'POST') return undefined;
        refused += 1;
        return { status: refused % 2 === 0 ? 503 : 429, retryAfterS: 1 };
      };
      let orders: OrderSnapshot[];
      try {
        orders = [stage.order(article(20), 2), stage.order(article(20), 3)];
        await stage.pause(REFUSED_MS);
      } finally {
        gate.refuse = undefined;
        commands.refuse(false);
        unlock();
      }
      await stage.fence();
      stage.acknowledged(orders, 'Orders of that time');
      const counted = await stage.counted(article(20), article(20).qty - 5, 'Their article');
      return `${counted} Refused by HTTP: ${refused}; commands: ${commands.refused}.`;
    },
  },
  {
    id: 21,
    does: 'hands over 99 counts beside one that is refused, and does not repeat that one for ever',
    mend: 'Hand over count by count or read the result of each; tell a person of the refused one, and leave it.',
    chapter: 'handing-over-stock-and-prices',
    async play(stage) {
      const articles = articlesOf(21);
      stage.place.sell(articles.map(({ sku }) => ({ sku, qty: 1 })));
      const good = articles.filter(({ isListed }) => isListed);
      const have = () => good.filter((each) => stage.count(each) === each.qty - 1).length;
      await stage.fenceSales();
      await stage.until(() => have() === good.length, ARRIVES_MS);
      if (have() < good.length) throw new Failing(`${have()} of ${good.length} counts came.`);
      return `${good.length} of ${good.length} counts came.`;
    },
    async close(stage) {
      const refused = articlesOf(21).find(({ isListed }) => !isListed) as Article;
      const { gate, commands } = stage.place;
      const bodies = gate.asked.filter(
        ({ path, body }) => path === '/v1/stock' && JSON.stringify(body ?? '').includes(refused.externalId),
      ).length;
      return again(bodies + commands.textsWith(refused.externalId).length, 'The refused count');
    },
  },
  {
    id: 22,
    does: 'leaves counts alone that a guard holds for a person',
    mend: 'Take `held` for an answer, and hand over a count again only when it changes.',
    chapter: 'guards',
    async play(stage) {
      const articles = articlesOf(22);
      stage.place.sell(articles.map(({ sku }) => ({ sku, qty: 1 })));
      const have = () => articles.filter((each) => stage.count(each) === 0).length;
      await stage.fenceSales();
      await stage.until(() => have() === articles.length, ARRIVES_MS);
      if (have() < articles.length) throw new Failing(`${have()} of ${articles.length} counts of 0 came.`);
      const sql = "SELECT 1 FROM outbox WHERE state = 'pending' AND held_guard IS NOT NULL";
      if (stage.place.rows(sql).length === 0)
        throw new Failing('The counts of 0 came so slowly that no guard held one.');
      return `${articles.length} counts of 0 came; a guard holds some.`;
    },
    async close(stage) {
      return again(Math.max(...articlesOf(22).map((each) => stage.handOvers(each))), 'A held count');
    },
  },
  {
    id: 23,
    does: `keeps no read of the mirror open for ${READ_MAX_MS / 1000} seconds, and never locks it`,
    mend: 'Read a page, close the transaction, then work. Open the mirror read-only.',
    chapter: 'what-a-reader-does-and-does-not',
    async play(stage) {
      await stage.fence();
      const { looks, fault, longestMs, longest } = stage.readers;
      if (looks === 0) throw new Unjudged(`The programs that read the mirror could not be listed: ${fault}`);
      const alarms = stage.place.daemon.services.mirror.health.raised();
      const alarm = alarms.find(({ key }) => key === 'mirror.locked' || key === 'mirror.reader-holds-wal');
      if (alarm) throw new Failing(`tillsync tells: ${alarm.message}`);
      if (longestMs >= READ_MAX_MS)
        throw new Failing(`${longest} kept a read open for ${Math.round(longestMs / 1000)} s.`);
      return longestMs === 0
        ? 'No read was seen twice.'
        : `The longest read took about ${longestMs / 1000} s.`;
    },
  },
  {
    id: 24,
    does: `asks at most ${ASKS_A_SECOND} times a second while nothing happens`,
    mend: 'Look once a second, or ask with `wait=30`, or hold a stream open.',
    chapter: 'following-orders',
    async play(stage) {
      await stage.fence();
      const { gate, commands } = stage.place;
      const arrived = () => gate.arrived + commands.arrived;
      await stage.pause(1_000);
      const [asked, usedS] = [arrived(), stage.till?.usedS()];
      await stage.pause(QUIET_MS);
      const asks = arrived() - asked;
      const seconds = QUIET_MS / 1000;
      if (asks > ASKS_A_SECOND * (seconds + 1)) throw new Failing(`It asked ${asks} times in ${seconds} s.`);
      const nowS = stage.till?.usedS();
      const share = usedS === undefined || nowS === undefined ? 0 : (nowS - usedS) / seconds;
      if (share > IDLE_SHARE)
        throw new Failing(`It used ${Math.round(share * 100)} % of a processor while nothing happened.`);
      return `${asks} requests in ${seconds} s, ${Math.round(share * 100)} % of a processor.`;
    },
  },
];

function again(times: number, what: string): string {
  const repeats = Math.max(0, times - 1);
  if (repeats > AGAIN_MAX) throw new Failing(`${what} was handed over ${times} times.`);
  return repeats === 0
    ? `${what} was not handed over again.`
    : `${what} was handed over ${times} times, then left.`;
}

/**
 * Checks twice that the counts are as before, after the till has read all orders again from a new mirror. The feed
 * goes on a million further at first; then `state.db` is lost too, and the feed begins at 1.
 */
async function playLostMirror(stage: Stage): Promise<string> {
  const order = stage.order(article(7), 3);
  await stage.fence();
  const right = article(7).qty - 3;
  await stage.counted(article(7), right, 'Before');
  const seen: string[] = [];
  for (const [what, withState] of [
    ['After', false],
    ['After state.db was lost too', true],
  ] as const) {
    await stage.place.loseMirror(withState);
    await stage.until(() => stage.mirrored(order.internalOrderId, order.status), ARRIVES_MS);
    await stage.fence(DAY_OFF_MS);
    seen.push(stage.stays(article(7), right, what));
    if (!(await stage.until(() => stage.acks(order.internalOrderId).length > 0)))
      throw new Failing(`${what}: the order was not acknowledged again, and tillsync keeps its pieces back.`);
  }
  return seen.join(' ');
}

/** Plays orders that ended while the till was off. The feed has only the newest event of each. */
async function playTrimmedFeed(stage: Stage): Promise<string> {
  const till = stage.requireCommand();
  const [cancelled, dispatched] = [stage.order(article(19), 4), stage.order(article(19), 2)];
  await stage.fence();
  const { qty } = article(19);
  await stage.counted(article(19), qty - 6, 'Before');
  await till.kill();
  for (const status of ['inProcess', 'ready']) {
    stage.move(cancelled.internalOrderId, status);
    stage.move(dispatched.internalOrderId, status);
  }
  stage.move(cancelled.internalOrderId, 'cancel');
  stage.move(dispatched.internalOrderId, 'dispatched');
  const fresh = [stage.order(article(19), 5), stage.order(article(19), 1)];
  const never = stage.order(article(19), 7);
  stage.move(never.internalOrderId, 'cancel');
  await stage.control.settled();
  const ends = [cancelled, never].map(({ internalOrderId }) => [internalOrderId, 'cancel'] as const);
  const areThere = () =>
    ends.every(([id, status]) => stage.mirrored(id, status)) &&
    stage.mirrored(dispatched.internalOrderId, 'dispatched');
  await stage.until(areThere, ARRIVES_MS);
  await stage.place.trimFeed();
  const trimmedTo = stage.place.daemon.services.mirror.orders.trimmedTo();
  till.start();
  if (trimmedTo === 0) throw new Unjudged('tillsync had no event to delete.');
  await stage.fence();
  stage.acknowledged(fresh, 'New orders');
  return stage.counted(article(19), qty - 2 - 6, 'One cancelled, one dispatched, two new');
}
