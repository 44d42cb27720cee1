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

/** Returns the statements of each SQL block in a chapter: for setting up, booking, handing over and forgetting. */
function tillSql(file: string, heading: string): string[][] {
  const chapter = read(file).split(`### ${heading}\n`)[1]?.split(/^## /m)[0] ?? '';
  return [...chapter.matchAll(/```sql\n(.*?)```/gs)].map(([, block = '']) =>
    block.split(/;.*\n/).filter((statement) => statement.trim() !== ''),
  );
}

class Crash extends Error {}

const booksOnce = async (file: string, heading: string) => {
  const [make = [], book = [], hand = [], forget = []] = tillSql(file, heading);
  expect([make, book, hand, forget].map(({ length }) => length)).toEqual([4, 5, 4, 1]);
  const { mirror } = openTestMirror();
  for (const number of [1, 2]) await receive(mirror, sampleNotification(number, { status: 'ready' }));
  await receive(mirror, sampleNotification(3), sampleNotification(1, { status: 'routed' }));
  for (let crashAt = 0; crashAt < 60; crashAt++) {
    const directory = temporaryDirectory();
    const open = (name: string) => new Database(join(directory, name));
    const inbox = open('inbox.db');
    inbox.exec(read('src/outbox/inbox-schema.sql'));
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
          if (statement.includes(':')) prepared.run(values);
          else prepared.run();
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
    const settle = () => {
      for (const owed of rows('till.db', 'SELECT order_id, seq FROM owed ORDER BY seq')) {
        run('inbox.db', hand, { ...owed, sku: 1001, qty: 12, store: 'B1' });
        run('till.db', forget, owed);
      }
    };
    const work = () => {
      settle();
      const [{ seq } = { seq: 0 }] = rows('till.db', 'SELECT seq FROM place');
      for (const event of mirror.orders.eventsAfter(Number(seq), 100)) {
        const order = mirror.orders.get(event.orderId);
        const values = { order_id: event.orderId, seq: event.seq, amount_to_pay: order?.amountToPay };
        run(
          'till.db',
          event.status === 'pending' ? book.filter((each) => !each.startsWith('INSERT')) : book,
          values,
        );
        settle();
      }
    };
    run('till.db', make, {});
    step = 0;
    try {
      work();
    } catch (error) {
      if (!(error instanceof Crash)) throw error;
      work();
    }
    expect(rows('till.db', 'SELECT order_id FROM bookings')).toHaveLength(2);
    expect(rows('till.db', 'SELECT * FROM owed')).toEqual([]);
    const acks = rows('inbox.db', 'SELECT DISTINCT order_id, seq FROM order_acks ORDER BY seq');
    expect(acks.map(({ seq }) => seq)).toEqual([1, 2, 4]);
    const counts = rows('inbox.db', 'SELECT DISTINCT reference FROM stock_changes');
    expect(counts).toHaveLength(2);
    if (step < crashAt) return;
  }
  expect.unreachable('the till takes more steps than were tried');
};
// test/readme.test.ts checks that pos.md and pos.es.md have the same SQL.
const TITLE = 'the till of %s books, counts and acknowledges once, wherever it is killed';
it.each([['docs/pos.md', 'A till in five writes']])(TITLE, booksOnce);
it.each([['docs/pos.es.md', 'Una caja en cinco escrituras']])(TITLE, { tags: ['bulk'] }, booksOnce);
