import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { sqlOf } from '../../src/db/sqlite.ts';
import { createSandbox } from '../../src/sandbox/sandbox.ts';
import { LIMITS } from '../sandbox/fixture.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';
import { openTestMirror, receive, sampleNotification, temporaryDirectory } from './open-test-mirror.ts';

const read = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');

/** Returns the cells of a Markdown table, row by row. `mark` is the table's name in the comment above it. */
function tableOf(text: string, mark: string): string[][] {
  const table = text.split(`<!-- table: ${mark} -->\n`)[1]?.split('\n\n')[0] ?? '';
  return table.split('\n').map((row) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

it.each(['docs/pos.md', 'docs/pos.es.md'])(
  '%s has the prices of the order that the sandbox makes',
  async (file) => {
    const { control } = createSandbox({ clock: new FakeClock(), random: seededRandom(69), limits: LIMITS });
    const sent = control.createOrder({
      subsidiaryId: 'sub-1',
      deliveryType: 'delivery',
      isScheduled: false,
      items: [
        { sku: 1003, qty: 2 },
        { sku: 1001, qty: 2, withModifier: true },
      ],
    });
    const { mirror } = openTestMirror();
    await receive(mirror, sent as unknown as Record<string, unknown>);
    const lines = mirror.read((db) =>
      sqlOf(db).rows<Record<string, unknown>>('SELECT * FROM order_items ORDER BY line'),
    );
    const [order] = mirror.read((db) => sqlOf(db).rows<Record<string, number>>('SELECT * FROM orders'));
    const [head, , ...prices] = tableOf(read(file), 'prices');
    expect(head?.slice(2).map((cell) => cell.split(',')[0])).toEqual(lines.map((line) => line.product_name));
    expect(prices.map(([column]) => column?.replaceAll('`', ''))).toContain('product_base_price');
    for (const [column = '', , ...values] of prices) {
      expect(lines.map((line) => line[column.replaceAll('`', '')])).toEqual(values.map(Number));
    }
    const [, , total, ...sums] = tableOf(read(file), 'sums');
    for (const [column = '', , value] of sums)
      expect(order?.[column.replaceAll('`', '')]).toBe(Number(value));
    // The prices of the lines, including additions, sum up to the total.
    const sum = lines.reduce((all, line) => all + Number(line.product_price), 0);
    expect(sum).toBe(Number(total?.[2]));
    const { coupon_discount = 0, amount, delivery_fee = 0, amount_to_pay } = order ?? {};
    expect([sum - coupon_discount, sum - coupon_discount + delivery_fee]).toEqual([amount, amount_to_pay]);
    const [, second] = lines as Record<string, number>[];
    expect((second?.product_price ?? 0) - (second?.quantity ?? 0) * (second?.unit_price ?? 0)).toBe(500);
  },
);

/** Returns the statements of each SQL block in a chapter: for setting up, booking, undoing, handing over and forgetting. */
function tillSql(file: string, heading: string): string[][] {
  const chapter = read(file).split(`### ${heading}\n`)[1]?.split(/^## /m)[0] ?? '';
  return [...chapter.matchAll(/```sql\n(.*?)```/gs)].map(([, block = '']) =>
    block.split(/;.*\n/).filter((statement) => statement.trim() !== ''),
  );
}

class Crash extends Error {}

const SHELF = 20;
const TAKE = 'INSERT OR REPLACE INTO taken (order_id, qty) VALUES (:order_id, :pieces)';
const GIVE_BACK = 'DELETE FROM taken WHERE order_id = :order_id';

/** Returns each event with its order as of then: two orders, one unpaid, a next step, an edit and a move. */
async function feedOfADay() {
  const { mirror } = openTestMirror();
  const steps = [
    sampleNotification(1, { status: 'ready' }),
    sampleNotification(2, { status: 'ready' }),
    sampleNotification(3),
    sampleNotification(1, { status: 'routed' }),
  ];
  const items = (steps[1]?.items as object[] | undefined)?.map((item) => ({ ...item, amount: 4 }));
  steps.push({ ...steps[1], items, amountToPay: 77_000 });
  steps.push(sampleNotification(1, { status: 'routed', store: { externalId: 'B2' } }));
  const feed = [];
  for (const [i, step] of steps.entries()) {
    await receive(mirror, step);
    const [event] = mirror.orders.eventsAfter(i, 100);
    const order = mirror.orders.get(event?.orderId ?? '');
    feed.push({
      seq: event?.seq ?? 0,
      orderId: event?.orderId ?? '',
      store: order?.storeExternalId,
      total: order?.amountToPay,
      pieces: order?.items.reduce((sum, item) => sum + Number(item.quantity), 0) ?? 0,
      isToBook: order?.status !== 'pending',
    });
  }
  return feed;
}

const booksOnce = async (file: string, heading: string) => {
  const [make = [], book = [], undo = [], hand = [], forget = []] = tillSql(file, heading);
  expect([make, book, undo, hand, forget].map(({ length }) => length)).toEqual([4, 5, 1, 4, 1]);
  const feed = await feedOfADay();
  const [first, edited] = [feed[0], feed[4]];
  expect(feed.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6]);
  for (let crashAt = 0; crashAt < 90; crashAt++) {
    const directory = temporaryDirectory();
    const open = (name: string) => new Database(join(directory, name));
    const inbox = open('inbox.db');
    inbox.exec(read('src/outbox/intake/inbox-schema.sql'));
    inbox.close();
    // Steps are counted only after the set-up, because crashes are tried from there on.
    let step = Number.NEGATIVE_INFINITY;
    /** Runs statements on a connection. A transaction that a crash leaves open is rolled back. */
    const run = (name: string, statements: string[], values: object) => {
      const db = open(name);
      try {
        for (const statement of statements) {
          step += 1;
          if (step === crashAt) throw new Crash();
          const prepared = db.prepare(statement);
          const { changes } = statement.includes(':') ? prepared.run(values) : prepared.run();
          // The stock of the till follows each booking that is written or deleted.
          if (changes > 0 && statement.includes(' INTO bookings')) db.prepare(TAKE).run(values);
          if (changes > 0 && statement.includes('DELETE FROM bookings')) db.prepare(GIVE_BACK).run(values);
        }
      } finally {
        db.close();
      }
    };
    const rows = (name: string, sql: string) => {
      const db = open(name);
      try {
        return db.prepare<[], Record<string, unknown>>(sql).all();
      } finally {
        db.close();
      }
    };
    const idsOf = (sql: string) => rows('till.db', sql).map((row) => row.order_id);
    const settle = () => {
      for (const owed of rows('till.db', 'SELECT order_id, seq FROM owed ORDER BY seq')) {
        const [taken] = rows('till.db', 'SELECT total(qty) AS qty FROM taken');
        const isBooked = idsOf('SELECT order_id FROM bookings').includes(owed.order_id);
        const writes = hand.filter((each) => isBooked || !each.includes('INTO order_acks'));
        run('inbox.db', writes, { ...owed, sku: 1001, qty: SHELF - Number(taken?.qty), store: 'B1' });
        run('till.db', forget, owed);
      }
    };
    const work = () => {
      settle();
      const [place] = rows('till.db', 'SELECT seq FROM place');
      for (const { seq, orderId, store, total, pieces, isToBook } of feed) {
        if (seq <= Number(place?.seq)) continue;
        const isOwn = isToBook && store === 'B1';
        const isUndone = !isOwn && idsOf('SELECT order_id FROM bookings').includes(orderId);
        const [begin = '', first = '', ...rest] = book;
        const writes = isUndone
          ? [begin, ...undo, ...rest]
          : [begin, first, ...rest].filter((each) => isOwn || !each.startsWith('INSERT'));
        run('till.db', writes, { order_id: orderId, seq, amount_to_pay: total, pieces });
        settle();
      }
    };
    run('till.db', [...make, 'CREATE TABLE taken (order_id TEXT PRIMARY KEY, qty)'], {});
    step = 0;
    try {
      work();
    } catch (error) {
      if (!(error instanceof Crash)) throw error;
      work();
    }
    // The first order moved away; the second has the total and the pieces of its edit.
    const bookings = [{ order_id: edited?.orderId, total: edited?.total }];
    expect(rows('till.db', 'SELECT * FROM bookings')).toEqual(bookings);
    expect(rows('till.db', 'SELECT * FROM owed')).toEqual([]);
    const acks = rows('inbox.db', 'SELECT DISTINCT order_id, seq FROM order_acks ORDER BY seq');
    expect(acks.map(({ seq }) => seq)).toEqual([1, 2, 4, 5]);
    const counts = rows('inbox.db', 'SELECT qty, reference FROM stock_changes ORDER BY id');
    expect(counts.at(-1)).toEqual({ qty: SHELF - (edited?.pieces ?? 0), reference: first?.orderId });
    if (step < crashAt) return;
  }
  expect.unreachable('the till takes more steps than were tried');
};
// test/readme.test.ts checks that pos.md and pos.es.md have the same SQL.
const TITLE = 'the till of %s books, counts and acknowledges once, wherever it is killed';
it.each([['docs/pos.md', 'A till in five writes']])(TITLE, booksOnce);
it.each([['docs/pos.es.md', 'Una caja en cinco escrituras']])(TITLE, { tags: ['bulk'] }, booksOnce);
