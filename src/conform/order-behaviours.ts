import { isoUtc } from '../core/time.ts';
import type { NewOrder, OrderLine, OrderSnapshot } from '../sandbox/orders.ts';
import { type Article, article, articlesOf, OTHER } from './articles.ts';
import type { Behaviour } from './behaviour.ts';
import { HandOvers, requireCountFirst } from './hand-overs.ts';
import { Failing, type Stage } from './stage.ts';

const drawMs = (stage: Stage, most: number) => Math.floor(stage.place.random.next() * most);
/**
 * Returns the fields in which a new order differs from a usual one. They may be null, because the platform sends null
 * for texts, although its document does not say so.
 */
const withNulls = (patch: Record<string, unknown>): NewOrder => ({ patch: patch as Partial<OrderSnapshot> });

const ORDERS = 20;
const KILLS = 3;

/** Behaviours that a till needs to handle orders. */
export const ORDER_BEHAVIOURS: readonly Behaviour[] = [
  {
    id: 1,
    does: 'loses no order',
    mend: 'Follow the feed by `seq`, and remember a `seq` only in the transaction that books its order.',
    chapter: 'following-orders',
    async play(stage) {
      const orders = Array.from({ length: ORDERS }, () => stage.order(article(1), 1));
      await stage.fence();
      const acknowledged = stage.acknowledged(orders, `${ORDERS} orders`);
      return `${acknowledged} ${await stage.counted(article(1), article(1).qty - ORDERS, 'Their article')}`;
    },
  },
  {
    id: 2,
    does: 'books no order twice, also when it is killed between',
    mend: 'Book by `order_id`, and write the booking and the place in the feed in one transaction.',
    chapter: 'a-till-in-five-writes',
    async play(stage) {
      const orders: OrderSnapshot[] = [];
      for (let n = 0; n < KILLS; n++) {
        orders.push(stage.order(article(2), 2));
        await stage.pause(drawMs(stage, 1_200));
        if (!stage.till) continue;
        await stage.till.kill();
        stage.till.start();
      }
      await stage.fence();
      for (const { internalOrderId } of orders) {
        void stage.control.announceOrder(internalOrderId);
        for (const status of ['inProcess', 'ready', 'routed']) stage.move(internalOrderId, status);
        void stage.control.announceOrder(internalOrderId);
      }
      await stage.control.settled();
      await stage.fence();
      const told = stage.till ? `${KILLS} kills` : 'no kill, for the kit did not start the till';
      return `${told}. ${await stage.counted(article(2), article(2).qty - KILLS * 2, 'The article')}`;
    },
  },
  {
    id: 3,
    does: 'acknowledges an order after the count that contains it',
    mend: 'Hand over the counts first, wait until they are committed or answered, then acknowledge.',
    chapter: 'acknowledging',
    async play(stage) {
      const handOvers = new HandOvers(stage, article(3));
      const watching = handOvers.watch();
      try {
        for (let n = 1; n <= 3; n++) {
          const order = stage.order(article(3), 1);
          await stage.fence();
          await stage.counted(article(3), article(3).qty - n, 'The article');
          stage.acknowledged([order], 'The order');
          requireCountFirst(stage, handOvers, order.internalOrderId, article(3).qty - n);
        }
      } finally {
        handOvers.end();
        await watching;
      }
      return 'Of 3 orders each count came before the acknowledgement.';
    },
  },
  {
    id: 4,
    does: 'takes nothing for an unpaid order, and books it once it is paid',
    mend: 'Pass over `pending` and `payment-pending`: no booking, no count, no acknowledgement.',
    chapter: 'what-to-do-with-an-order',
    async play(stage) {
      const orders = ['pending', 'payment-pending'].map((status) => stage.order(article(4), 3, { status }));
      await stage.fence();
      const { qty } = article(4);
      for (const order of orders) stage.unacknowledged(order, 'Unpaid');
      const unpaid = stage.stays(article(4), qty, 'Unpaid');
      for (const { internalOrderId } of orders) stage.move(internalOrderId, 'payment-approved');
      await stage.control.settled();
      await stage.fence();
      stage.acknowledged(orders, 'Paid');
      return `${unpaid} ${await stage.counted(article(4), qty - 6, 'Paid')}`;
    },
  },
  {
    id: 5,
    does: 'gives back what a cancelled order took, once',
    mend: 'With `cancel`, `refund` and `payment-canceled` undo the booking, and hand over the counts.',
    chapter: 'what-to-do-with-an-order',
    async play(stage) {
      const order = stage.order(article(5), 4);
      await stage.fence();
      const { qty } = article(5);
      await stage.counted(article(5), qty - 4, 'Paid');
      stage.move(order.internalOrderId, 'cancel');
      await stage.control.settled();
      await stage.fence();
      await stage.counted(article(5), qty, 'Cancelled');
      stage.move(order.internalOrderId, 'refund');
      await stage.control.settled();
      await stage.fence();
      return stage.counted(article(5), qty, 'Cancelled, then paid back');
    },
  },
  {
    id: 6,
    does: 'goes on after a status that nobody knows, and books its order',
    mend: 'Treat a status that you do not know as paid and open.',
    chapter: 'what-to-do-with-an-order',
    async play(stage) {
      const known = stage.order(article(6), 1);
      const unknown = stage.order(article(6), 2, { status: 'robot-picking' });
      stage.move(known.internalOrderId, 'drone-waiting');
      await stage.control.settled();
      await stage.fence();
      stage.acknowledged([known, unknown], 'Orders with an unknown status');
      return stage.countedDown(article(6), article(6).qty - 3, 'Their article');
    },
  },
  {
    id: 8,
    does: 'takes of an edited order the difference only, and acknowledges it again',
    mend: 'Keep what each order took, book the difference to what it takes now, and acknowledge it as of the new `seq`.',
    chapter: 'acknowledging',
    async play(stage) {
      const order = stage.order(article(8), 2);
      await stage.fence();
      const { qty } = article(8);
      await stage.counted(article(8), qty - 2, 'At first');
      const seen: string[] = [];
      for (const [amount, what] of [
        [5, 'Edited from 2 to 5'],
        [1, 'Edited from 5 to 1'],
      ] as const) {
        const before = stage.acks(order.internalOrderId)[0]?.seq ?? 0;
        stage.edit(order.internalOrderId, { items: order.items.map((item) => ({ ...item, amount })) });
        await stage.control.settled();
        await stage.fence();
        seen.push(await stage.counted(article(8), qty - amount, what));
        const isAgain = () => {
          const ack = stage.acks(order.internalOrderId)[0];
          return ack !== undefined && ack.editedSeq === null && (ack.seq ?? 0) > before;
        };
        // Only the amount 5 raises what the order takes, so only then must the till acknowledge again.
        if (amount === 5 && !(await stage.until(isAgain)))
          throw new Failing(`${what}: it was not acknowledged again.`);
      }
      return seen.join(' ');
    },
  },
  {
    id: 9,
    does: 'goes on after status, number and items that are NULL, and books an order of 500 lines',
    mend: {
      sql: 'Every column but those that "never NULL" lists may be NULL. Read all lines of an order.',
      api: 'Every property of an order but `orderId`, `seq`, `updatedAt` and `items` may be null. Read all items of an order.',
      files:
        'Every property of an order but `orderId`, `seq`, `updatedAt` and `items` may be null. Read all items of an order.',
    },
    chapter: 'the-mirrors-tables',
    async play(stage) {
      stage.order(article(9), 1, withNulls({ status: null, code: null, items: null }));
      stage.order(article(9), 1, withNulls({ items: [], amountToPay: null, createdAt: null }));
      const { sku, qty } = article(9);
      const items = Array.from({ length: 500 }, () => ({ sku, qty: 1 }));
      const long = stage.order(article(9), 1, { items });
      await stage.fence();
      stage.acknowledged([long], 'The order of 500 lines');
      return stage.counted(article(9), qty - 500, 'Its article');
    },
  },
  {
    id: 10,
    does: 'books amounts with cents, of 0, and of an order that was edited',
    mend: 'Amounts are INTEGER or REAL: read them as decimals, take 0 for an amount, and report an order again when its total changes.',
    chapter: 'the-prices-of-a-line',
    async play(stage) {
      const totals = [5_990.5, 0, 12_990.05];
      const orders = totals.map((amountToPay) => stage.order(article(10), 1, { patch: { amountToPay } }));
      await stage.fence();
      stage.acknowledged(orders, 'The orders');
      checkReport(stage, orders, totals);
      const [edited] = orders as [OrderSnapshot];
      totals[0] = 4_990.25;
      stage.edit(edited.internalOrderId, { amountToPay: totals[0] });
      await stage.control.settled();
      await stage.fence();
      checkReport(stage, orders, totals);
      return `The report has ${totals.join(', ')}, the first after an edit.`;
    },
  },
  {
    id: 11,
    does: 'takes the article of a line that has no id or no `sku`, and leaves to a person what nobody knows',
    mend: 'Take `sku` of the line, else your own article with its id. With a line that you could not book, do not acknowledge.',
    chapter: 'the-mirrors-tables',
    async play(stage) {
      const { sku, qty } = article(11);
      const order = stage.order(article(11), 3, { items: [{ sku, qty: 3, withModifier: true }] });
      await stage.fence();
      stage.acknowledged([order], 'The order');
      const counted = await stage.counted(article(11), qty - 3, 'The article');
      return `${counted} ${await playUnknownLines(stage, order.items[0] as OrderLine)}`;
    },
  },
  {
    id: 12,
    does: 'leaves the orders of another branch alone',
    mend: 'Book, count and acknowledge only what names your own store in `store_external_id`.',
    chapter: 'following-orders',
    async play(stage) {
      const order = stage.order(article(12), 5, { subsidiaryId: OTHER.subsidiaryId });
      await stage.fence();
      const acks = stage.place.rows('SELECT 1 FROM order_acks WHERE order_id = ?', order.internalOrderId);
      if (acks.length > 0) throw new Failing(`Order ${order.code} of another branch was acknowledged.`);
      if (stage.strayCounts(article(12)).length > 0)
        throw new Failing('A count of the other branch was handed over.');
      return stage.stays(article(12), article(12).qty, 'The article');
    },
  },
  {
    id: 13,
    does: 'gives back what an order took that moved to another branch',
    mend: 'Compare `store_external_id` with each event of an order that you have booked.',
    chapter: 'following-orders',
    needs: [8],
    async play(stage) {
      const order = stage.order(article(13), 4);
      await stage.fence();
      const { qty } = article(13);
      await stage.counted(article(13), qty - 4, 'Before');
      stage.edit(order.internalOrderId, { store: { externalId: OTHER.externalId } });
      await stage.control.settled();
      await stage.fence();
      return stage.counted(article(13), qty, 'After it moved');
    },
  },
  {
    id: 14,
    does: 'names its branch where two branches have the same id',
    mend: 'Give `subsidiary_external_id` (SQL) or `subsidiaryExternalId` (HTTP, files) with each count.',
    chapter: 'handing-over-stock-and-prices',
    async play(stage) {
      const { externalId, qty } = article(14);
      const order = stage.order(article(14), 2);
      await stage.fence();
      stage.acknowledged([order], 'The order');
      const sql = `SELECT message FROM outbox WHERE kind = 'stock' AND state = 'rejected' AND json_extract(body, '$.externalId') = ?`;
      const [refused] = stage.place.rows<{ message: string }>(sql, externalId);
      if (refused) throw new Failing(`The count was rejected: ${refused.message}`);
      if (stage.strayCounts(article(14)).length > 0)
        throw new Failing('The count came for the other branch.');
      return stage.counted(article(14), qty - 2, 'The article');
    },
  },
  {
    id: 16,
    does: 'prepares a scheduled order at its time, not before',
    mend: 'Book it at once, and prepare it `TILL_LEAD` seconds before `scheduled_for`, by date and time, in UTC.',
    chapter: 'following-orders',
    play: playScheduled,
  },
  {
    id: 25,
    does: 'gives ids back unharmed: blanks, quotes, emoji, 200 characters',
    mend: 'Bind ids as parameters, in UTF-8, and cut none.',
    chapter: 'acknowledging',
    async play(stage) {
      const sinceAt = isoUtc(stage.clock.nowMs());
      const ids = ['a b  c', `it's "so"; --`, 'pedido 🍕 ñandú', 'x'.repeat(200)];
      const orders = ids.map((id) => stage.order(article(25), 1, { patch: { internalOrderId: id } }));
      await stage.fence();
      const acknowledged = stage.acknowledged(orders, 'Odd ids');
      const sql = `SELECT order_id AS id FROM order_acks
        WHERE acked_at >= ? AND order_id NOT IN (SELECT order_id FROM orders)`;
      const [unknown] = stage.place.rows<{ id: string }>(sql, sinceAt);
      if (unknown) throw new Failing(`"${unknown.id}" was acknowledged, which no order has for its id.`);
      return `${acknowledged} ${await stage.counted(article(25), article(25).qty - ids.length, 'An article with such an id')}`;
    },
  },
];

/**
 * Plays lines that have no `sku`: one of an article that only the till knows, and two of articles that nobody knows, of
 * which one has modifiers and so no id. `line` is a line with modifiers.
 */
async function playUnknownLines(stage: Stage, line: OrderLine): Promise<string> {
  const [, own] = articlesOf(11) as [Article, Article];
  const orders = [own.externalId, 'K-nobody', null].map((externalId) => {
    const product = { externalId, name: `Conform ${externalId ?? 'with extras'}` };
    const modifiers = externalId === null ? line.modifiers : [];
    return stage.order(article(11), 1, { patch: { items: [{ ...line, product, amount: 2, modifiers }] } });
  });
  await stage.fence();
  const [known, ...unknown] = orders as [OrderSnapshot, ...OrderSnapshot[]];
  for (const order of unknown) stage.unacknowledged(order, 'With a line of an article that nobody knows');
  if (stage.acks(known.internalOrderId).length === 0)
    return 'Orders with a line without `sku` stay for a person.';
  const sql = `SELECT 1 FROM outbox WHERE kind = 'stock' AND json_extract(body, '$.qty') = ?
    AND (json_extract(body, '$.externalId') = ? OR json_extract(body, '$.sku') = ?)`;
  const isCounted = () => stage.place.rows(sql, own.qty - 2, own.externalId, own.sku).length > 0;
  if (await stage.until(isCounted)) return `Without \`sku\`: counted ${own.qty - 2}.`;
  throw new Failing(
    `Order ${known.code} was acknowledged, and no count has the pieces of its line, which has no \`sku\`.`,
  );
}

/** Throws `Failing` unless the last line of the till's report on each order has its total. */
function checkReport(stage: Stage, orders: readonly OrderSnapshot[], totals: readonly number[]): void {
  for (const [i, { internalOrderId }] of orders.entries()) {
    const lines = stage.requireReport().filter(([what, id]) => what === 'booked' && id === internalOrderId);
    const text = lines.at(-1)?.[2] ?? '';
    if (text !== '' && Number(text) === totals[i]) continue;
    throw new Failing(`The report has ${text === '' ? 'no total' : text} for an order of ${totals[i]}.`);
  }
}

const SOON_MS = 6_000;
/** Time after the right moment within which a scheduled order must be prepared. */
const LATE_MS = 10_000;
/** A till may read its clock in whole seconds, so it may be this much early. */
const EARLY_MS = 1_000;

/**
 * Plays three scheduled orders: one that must be prepared soon, one just after a midnight, and one on a day on which
 * Chile's clocks change.
 */
async function playScheduled(stage: Stage): Promise<string> {
  const nowMs = stage.clock.nowMs();
  const at = (ms: number): NewOrder => ({
    isScheduled: true,
    patch: { isScheduled: true, scheduledDate: new Date(ms).toISOString() },
  });
  const year = new Date(nowMs).getUTCFullYear() + 1;
  const leadMs = stage.place.leadS * 1_000;
  const midnightMs = Math.ceil((nowMs + leadMs + 3_600_000) / 86_400_000) * 86_400_000 + 600_000;
  const later = [
    stage.order(article(16), 1, at(midnightMs)),
    stage.order(article(16), 1, at(Date.UTC(year, 3, firstSunday(year, 3), 3, 30))),
  ];
  const dueMs = stage.clock.nowMs() + SOON_MS;
  const soon = stage.order(article(16), 1, at(dueMs + leadMs));
  await stage.fence();
  stage.acknowledged([...later, soon], 'Scheduled orders');
  await stage.counted(article(16), article(16).qty - 3, 'Their article');
  stage.requireReport();
  const isPrepared = ({ internalOrderId }: OrderSnapshot) =>
    stage.place.report().some(([what, id]) => what === 'prepare' && id === internalOrderId);
  const isInTime = await stage.until(() => isPrepared(soon), dueMs - stage.clock.nowMs() + LATE_MS);
  const whenMs = stage.clock.nowMs();
  const lead = leadMs === 0 ? '' : ` less the lead of ${stage.place.leadS} s`;
  if (!isInTime) throw new Failing(`An order for ${soon.scheduledDate} was not prepared at its time${lead}.`);
  if (whenMs < dueMs - EARLY_MS)
    throw new Failing(
      `An order was prepared ${Math.round((dueMs - whenMs) / 1000)} s before its time${lead}. If your till prepares ahead on purpose, judge it with --lead.`,
    );
  const early = later.find(isPrepared);
  if (early) throw new Failing(`The order for ${early.scheduledDate} was prepared today.`);
  return `Prepared at its time${lead}. Orders for tomorrow and for a day on which clocks change wait.`;
}

function firstSunday(year: number, month: number): number {
  return 1 + ((7 - new Date(Date.UTC(year, month, 1)).getUTCDay()) % 7);
}
