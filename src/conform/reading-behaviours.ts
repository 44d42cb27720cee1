import type { NewOrder, OrderLine, OrderSnapshot } from '../sandbox/orders.ts';
import { article, LATE_ID, OTHER, OWN, productsOf } from './articles.ts';
import type { Behaviour } from './behaviour.ts';
import { HandOvers } from './hand-overs.ts';
import { Failing, type Stage, Unjudged } from './stage.ts';

/** Longest wait until the till hands something over that the kit holds. A till that uses SQL shows nothing meanwhile. */
const HELD_MS = 2_500;
/** Longest wait until tillsync has a change of an order, perhaps by the next poll. */
const ARRIVES_MS = 30_000;
/** Time for which a line of the till's sales is incomplete. */
const HALF_MS = 2_500;
const DAYS_AGO = 3;
const DAY_MS = 86_400_000;

/** Behaviours that a till needs to read all that an order or a sale may say, whenever it says it. */
export const READING_BEHAVIOURS: readonly Behaviour[] = [
  {
    id: 26,
    does: 'books and counts fractions, as of goods by weight',
    mend: 'Keep quantities as decimals, in orders, sales and counts, and never round them to whole pieces.',
    chapter: 'the-mirrors-tables',
    async play(stage) {
      const { sku, qty } = article(26);
      const orders = [0.345, 1.2].map((weight) => stage.order(article(26), weight));
      stage.place.sell([{ sku, qty: 0.75 }]);
      await stage.fenceSales();
      stage.acknowledged(orders, 'Orders of 0.345 and 1.2');
      return stage.counted(
        article(26),
        qty - 0.345 - 1.2 - 0.75,
        'Orders of 0.345 and 1.2 and a sale of 0.75',
      );
    },
  },
  {
    id: 27,
    does: 'books an order that it first sees as `dispatched`',
    mend: 'A dispatched order was sold: book and acknowledge it if you have not booked it. `orders_to_book` lists open orders only, the feed and the view `orders_unbooked` all.',
    chapter: 'what-to-do-with-an-order',
    play: (stage) => playOrder(stage, 27, { status: 'dispatched' }, 'First seen as dispatched'),
  },
  {
    id: 28,
    does: 'books an order once a line that had no `sku` has one',
    mend: 'At each event, read the lines of the order again and take the `sku` they have now. Then book and acknowledge the order.',
    chapter: 'the-mirrors-tables',
    needs: [8],
    play: playLateSku,
  },
  {
    id: 29,
    does: 'acknowledges as of the `seq` that it booked',
    mend: 'Give the `seq` of the event that you booked with each acknowledgement, not the newest one. Without it, an edit that arrives meanwhile counts as booked.',
    chapter: 'acknowledging',
    needs: [3, 8],
    play: playSeq,
  },
  {
    id: 30,
    does: 'prepares an order once, whatever status follows',
    mend: 'Remember by `order_id` what was prepared, and report `prepare` for it once only.',
    chapter: 'what-to-do-with-an-order',
    async play(stage) {
      const { internalOrderId } = stage.order(article(30), 1);
      await stage.fence();
      const prepared = () =>
        stage.requireReport().filter(([what, id]) => what === 'prepare' && id === internalOrderId).length;
      await stage.until(() => prepared() > 0);
      for (const status of ['picker-pending', 'inProcess', 'ready', 'routed', 'dispatched']) {
        stage.move(internalOrderId, status);
        await stage.control.settled();
        await stage.fence();
      }
      const times = prepared();
      if (times === 1) return 'Prepared once, through five more statuses.';
      throw new Failing(
        `An order was reported ${times} times for preparation while its status moved on; right is once.`,
      );
    },
  },
  {
    id: 31,
    does: 'reads a sale only when its line is complete',
    mend: 'Read a line of the sales only once its line feed is there, or read it again: a program may still be writing it.',
    chapter: 'judge-a-till',
    async play(stage) {
      const { sku, qty } = article(31);
      const finish = stage.place.beginSale({ sku, qty: 12 });
      await stage.pause(HALF_MS);
      finish();
      await stage.fenceSales();
      const counted = await stage.counted(
        article(31),
        qty - 12,
        'A sale of 12 whose line arrived in two parts',
      );
      stage.stays(article(31), qty - 12, 'A sale of 12 whose line arrived in two parts');
      return counted;
    },
  },
  {
    id: 32,
    does: 'books an order whose status is not known yet',
    mend: 'Treat a status that is NULL as paid and open, as one that you do not know: `status IS NULL OR status NOT IN (…)`.',
    chapter: 'what-to-do-with-an-order',
    play(stage) {
      const patch = { status: null } as unknown as Partial<OrderSnapshot>;
      return playOrder(stage, 32, { patch }, 'Without a status');
    },
  },
  {
    id: 33,
    does: 'books an order that moves to its branch',
    mend: 'Look at `store_external_id` with each event, of orders too that named another store before.',
    chapter: 'following-orders',
    async play(stage) {
      const order = stage.order(article(33), 4, { subsidiaryId: OTHER.subsidiaryId });
      await stage.fence();
      stage.edit(order.internalOrderId, { store: { externalId: OWN.externalId } });
      await stage.control.settled();
      await stage.fence();
      stage.acknowledged([order], 'After it moved here');
      return stage.counted(article(33), article(33).qty - 4, 'After it moved here');
    },
  },
  {
    id: 34,
    does: 'keeps ids that look like numbers as text',
    mend: 'Store and send ids as text. A numeric column or type drops zeros in front and the last digits of a long id.',
    chapter: 'acknowledging',
    async play(stage) {
      const ids = ['0042', '12345678901234567891', '1e3', '7.0'];
      const orders = ids.map((id) => stage.order(article(34), 1, { patch: { internalOrderId: id } }));
      await stage.fence();
      const acknowledged = stage.acknowledged(orders, `Ids such as ${ids[0]}`);
      const what = `An article with the id ${article(34).externalId}`;
      return `${acknowledged} ${await stage.counted(article(34), article(34).qty - ids.length, what)}`;
    },
  },
  {
    id: 35,
    does: 'tells orders with the same number apart',
    mend: 'Book by `order_id`. The number (`code`) is for people: it may come twice, or be NULL.',
    chapter: 'following-orders',
    async play(stage) {
      const first = stage.order(article(35), 2);
      const second = stage.order(article(35), 3, { patch: { code: first.code } });
      await stage.fence();
      stage.acknowledged([first, second], `Two orders with number ${first.code}`);
      return stage.counted(article(35), article(35).qty - 5, `Two orders with number ${first.code}`);
    },
  },
  {
    id: 36,
    does: 'takes nothing for a line of 0 pieces',
    mend: 'A quantity of 0 is 0, not "not told": an edit may set a line to 0.',
    chapter: 'the-mirrors-tables',
    needs: [8],
    async play(stage) {
      const edited = stage.order(article(36), 2);
      const [line] = edited.items as [OrderLine];
      const items = [
        { ...line, amount: 0 },
        { ...line, amount: 3 },
      ];
      const order = stage.order(article(36), 1, { patch: { items } });
      await stage.fence();
      stage.acknowledged([edited, order], 'Orders with a line of 0');
      await stage.counted(article(36), article(36).qty - 5, 'A line of 0');
      stage.edit(edited.internalOrderId, { items: [{ ...line, amount: 0 }] });
      await stage.control.settled();
      await stage.fence();
      return stage.counted(article(36), article(36).qty - 3, 'A line edited to 0');
    },
  },
  {
    id: 37,
    does: 'gives back what a dispatched order took once it is refunded',
    mend: 'Keep what an order took after it is dispatched too: `refund` and `cancel` may follow.',
    chapter: 'what-to-do-with-an-order',
    needs: [5],
    async play(stage) {
      const order = stage.order(article(37), 4);
      const { internalOrderId: id } = order;
      await stage.fence();
      stage.move(id, 'dispatched');
      await stage.control.settled();
      await stage.fence();
      await stage.counted(article(37), article(37).qty - 4, 'Dispatched');
      stage.move(id, 'refund');
      await stage.control.settled();
      if (!(await stage.until(() => stage.mirrored(id, 'refund'), ARRIVES_MS)))
        throw new Unjudged('tillsync did not receive the refund in time.');
      await stage.fence();
      return stage.counted(article(37), article(37).qty, 'Dispatched, then refunded');
    },
  },
  {
    id: 38,
    does: 'books an order that was made days ago',
    mend: 'Go by `seq`, not by `created_at`: an order may arrive late, or be paid days later.',
    chapter: 'following-orders',
    play(stage) {
      const createdAtMs = stage.clock.nowMs() - DAYS_AGO * DAY_MS;
      return playOrder(stage, 38, { createdAtMs }, `Made ${DAYS_AGO} days ago`);
    },
  },
];

/** Places an order of two pieces of the behaviour's article, and requires that the till books and counts it. */
async function playOrder(stage: Stage, id: number, changes: NewOrder, what: string): Promise<string> {
  const order = stage.order(article(id), 2, changes);
  await stage.fence();
  stage.acknowledged([order], what);
  return stage.counted(article(id), article(id).qty - 2, what);
}

/** Plays an order of an article that nobody knows, until the platform maps its id to an article of the till. */
async function playLateSku(stage: Stage): Promise<string> {
  const { qty } = article(28);
  const [line] = stage.order(article(28), 1).items as [OrderLine];
  const items = [{ ...line, product: { externalId: LATE_ID, name: 'Conform late' }, amount: 2 }];
  const order = stage.order(article(28), 1, { patch: { items } });
  await stage.fence();
  for (const product of productsOf([article(28)], stage.clock.nowMs(), true))
    stage.control.putProduct(product);
  await stage.place.sweep();
  const sql = 'SELECT 1 FROM order_items WHERE order_id = ? AND sku = ?';
  const { internalOrderId: id } = order;
  const isFilled = () => stage.place.rows(sql, id, String(article(28).sku)).length > 0;
  if (!(await stage.until(isFilled, ARRIVES_MS)))
    throw new Unjudged('tillsync did not find the article of the line.');
  stage.move(id, 'inProcess');
  await stage.control.settled();
  await stage.fence();
  stage.acknowledged([order], 'Once its line had a `sku`');
  return stage.counted(article(28), qty - 1 - 2, 'Once its line had a `sku`');
}

/**
 * Plays two orders that are edited after the till has booked them and before it acknowledges them. The first
 * acknowledgement must not cover the edit, because the counts before it cannot contain the edit.
 */
async function playSeq(stage: Stage): Promise<string> {
  const handOvers = new HandOvers(stage, article(29));
  const watching = handOvers.watch();
  try {
    let right = article(29).qty;
    for (const edited of [5, 3]) {
      right -= edited;
      const { order, editSeq } = await editMeanwhile(stage, edited);
      await stage.fence();
      await stage.counted(article(29), right, `Edited to ${edited} before the acknowledgement`);
      const acks = handOvers.acksOf(order.internalOrderId);
      if (acks.length === 0) throw new Unjudged('The kit saw no acknowledgement on its way to tillsync.');
      if (acks.some(({ seq }) => seq === null))
        throw new Failing(
          'An order was acknowledged without `seq`, so an edit that arrives meanwhile is lost.',
        );
      const covering = acks.find(({ seq }) => (seq ?? 0) >= editSeq);
      if (covering?.hasCountBefore(right) === false)
        throw new Failing('An edit was acknowledged before the count that contains it.');
    }
  } finally {
    handOvers.end();
    await watching;
  }
  return 'Each acknowledgement names the event that was booked, and none covers an edit that came meanwhile.';
}

/** Makes an order and edits it while the kit holds what the till hands over. Returns the event of the edit too. */
async function editMeanwhile(
  stage: Stage,
  amount: number,
): Promise<{ order: OrderSnapshot; editSeq: number }> {
  const { gate } = stage.place;
  const seqOf = (orderId: string) =>
    stage.place.rows<{ seq: number }>('SELECT seq FROM orders WHERE order_id = ?', orderId)[0]?.seq ?? 0;
  // The till has processed everything before, so what it hands over next belongs to the order.
  await stage.fence();
  const heldBefore = gate.held;
  const release = stage.place.hold();
  try {
    const order = stage.order(article(29), 2);
    const { internalOrderId: id } = order;
    if (!(await stage.until(() => seqOf(id) > 0, HELD_MS)))
      throw new Unjudged('tillsync did not receive the order in time.');
    const seq = seqOf(id);
    await stage.until(() => gate.held > heldBefore, HELD_MS);
    stage.edit(id, { items: order.items.map((item) => ({ ...item, amount })) });
    if (!(await stage.until(() => seqOf(id) > seq, HELD_MS)))
      throw new Unjudged('tillsync did not receive the edit in time.');
    return { order, editSeq: seqOf(id) };
  } finally {
    release();
  }
}
