/** Tests src/cli/order.ts. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { namedOrder } from '../../src/cli/order.ts';
import type { OrderItem } from '../../src/orders/merging/mirrored-order.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { invoke } from './invoke.ts';

const directory = mkdtempSync(join(tmpdir(), 'tillsync-finding-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const env = {
  TILLSYNC_CONFIG: join(import.meta.dirname, '../../config/tillsync.sample.toml'),
  TILLSYNC_STORAGE_DIRECTORY: directory,
  TILLSYNC_BRANCHES: '[{"external_id":"B1"},{"external_id":"B2"}]',
};
const AT = Date.UTC(2026, 0, 2, 3, 4, 5);
const BIDI = '\u202ename\u200b';

interface Told {
  orderId: string;
  code: number;
  status: string;
  store?: string;
  createdAt?: string;
  customer?: [string, string, string];
  amount?: number;
  items?: OrderItem[];
}

const observe = (told: Told) => ({
  kind: 'order' as const,
  observation: {
    source: 'webhook' as const,
    observedAtMs: AT,
    raw: JSON.stringify({ id: told.orderId, name: BIDI }),
    reading: {
      orderId: told.orderId,
      fields: {
        status: told.status,
        code: told.code,
        storeExternalId: told.store ?? 'B1',
        // In Santiago, this is the evening before.
        createdAt: told.createdAt ?? '2026-01-02T02:00:00.000Z',
        customerFirstName: told.customer?.[0] ?? 'Ana',
        customerLastName: told.customer?.[1] ?? 'Rojas',
        customerPhoneNumber: told.customer?.[2] ?? null,
        name: BIDI,
        ...(told.amount !== undefined && { amount: told.amount, amountToPay: told.amount }),
      },
      items: told.items ?? [],
    },
  },
});

const LATTE: OrderItem = {
  ...{ productExternalId: null, productName: 'Latte', quantity: 2, comment: null, modifiers: [] },
  ...{ unitPrice: 2000, baseUnitPrice: 2500, productPrice: 5001, productBasePrice: 6001 },
};
const option = (name: string, id: string, quantity: number, optionPrice: number | null) => ({
  ...{ name: 'Extra', shortName: null, description: null, optionId: null, optionExternalId: id },
  ...{ optionName: name, optionPrice, quantity, modifierExternalId: null },
});

beforeAll(async () => {
  const clock = new FakeClock(AT);
  const mirror = openMirror({ path: freshMirror(directory), clock });
  await mirror.save([
    observe({ orderId: 'ord-a', code: 1005, status: 'payment-approved' }),
    observe({ orderId: 'ord-a', code: 1005, status: 'ready' }),
    observe({ orderId: 'ord-b', code: 1006, status: 'dispatched', customer: ['Eva', 'Soto', '+569123'] }),
    observe({ orderId: 'ord-c', code: 1007, status: 'cancel', store: 'B2' }),
    observe({ orderId: 'ord-d', code: 1008, status: 'ready', createdAt: '2026-01-02T15:00:00.000Z' }),
    observe({ orderId: 'ord-e', code: 1008, status: 'ready', store: 'B2' }),
    observe({ orderId: '1006', code: 9, status: 's'.repeat(100_000) }),
    observe({
      ...{
        orderId: 'ord-f',
        code: 1010,
        status: 'ready',
        amount: 1990.5,
        createdAt: '2026-01-04T02:00:00.000Z',
      },
      customer: ['=HYPERLINK(1)', 'Díaz, Ñ', '+569 1'],
      items: [
        {
          productName: 'Espresso',
          quantity: 2,
          productExternalId: 'A-1',
          comment: null,
          modifiers: [],
          unitPrice: null,
          baseUnitPrice: null,
          productPrice: null,
          productBasePrice: null,
        },
      ],
    }),
    observe({
      ...{ orderId: 'ord-g', code: 1011, status: 'ready', createdAt: '2026-01-05T02:00:00.000Z' },
      items: [
        { ...LATTE, modifiers: [option('Leche', 'o-1', 1, 500.5), option('Jarabe|dulce', 'o-2', 2, null)] },
        { ...LATTE, productExternalId: 'A-2', productName: 'Té', comment: 'sin azúcar', modifiers: [] },
      ],
    }),
  ]);
  const stores = new MirrorStores({ mirror, branches: [], clock });
  await stores.write(({ reservations }) => reservations.acknowledge(['ord-b'], 'http'));
  await mirror.close();
});

const run = (...words: string[]) => invoke(words, { env });
const codes = async (...words: string[]) =>
  JSON.parse((await run('order', 'list', ...words, '--json')).stdout)
    .orders.map(({ orderId }: { orderId: string }) => orderId)
    .sort();

test('an order is shown by the number that people say, and by its id', async () => {
  for (const word of ['1005', '#1005', 'ord-a']) {
    const { code, stdout } = await run('order', 'show', word);
    expect({ word, code }).toEqual({ word, code: 0 });
    expect(stdout).toMatch(/order_id: +ord-a\n/);
  }
  expect((await run('order', 'show', '1006')).stdout).toMatch(/order_id: +1006\n/);
  expect((await run('order', 'show', '#1006')).stdout).toMatch(/order_id: +ord-b\n/);
});

test('several orders of one number are named', async () => {
  const { code, stderr } = await run('order', 'show', '1008');
  expect(code).toBe(2);
  expect(stderr).toContain('2 orders have the number 1008');
  expect(stderr).toMatch(/ord-d {2}2026-01-02 12:00:00 \(America\/Santiago\) {2}branch B1/);
  expect(stderr).toMatch(/ord-e .* branch B2/);
});

test('its statuses are told, and whether the POS has it', async () => {
  const { stdout } = await run('order', 'show', '1005');
  expect(stdout).toMatch(/HEARD \(America\/Santiago\) +STATUS +BEFORE +BY +SEQ\n/);
  expect(stdout).toMatch(/2026-01-02 00:04:05 +ready +payment-approved +callback +2\n/);
  expect(stdout).toContain('No POS has acknowledged this order.');
  expect((await run('order', 'show', 'ord-b')).stdout).toMatch(
    /Acknowledged by the POS at 2026-01-02 00:04:05 \(America\/Santiago\), by http\./,
  );
  const document = JSON.parse((await run('order', 'show', '1005', '--json')).stdout);
  expect(document.events).toMatchObject([{ status: 'payment-approved' }, { status: 'ready' }]);
  expect(document.acknowledged).toBeNull();
});

test('orders are found by number, day, branch, customer and what the POS lacks', async () => {
  expect(await codes('--code', '#1005')).toEqual(['ord-a']);
  expect(await codes('--day', '2026-01-02')).toEqual(['ord-d']);
  expect(await codes('--branch', 'B2')).toEqual(['ord-c', 'ord-e']);
  expect(await codes('--customer', 'soto')).toEqual(['ord-b']);
  expect(await codes('--customer', '569123')).toEqual(['ord-b']);
  expect(await codes('--unbooked', '--day', '2026-01-01')).toEqual(['1006', 'ord-a', 'ord-e']);
  const { code, stderr } = await run('order', 'list', '--branch', 'B7');
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining('Configured are: B1, B2.') });
});

test('all orders that no POS has are listed, and a list that is cut says so', async () => {
  const many = mkdtempSync(join(tmpdir(), 'tillsync-many-'));
  onTestFinished(() => rmSync(many, { recursive: true, force: true }));
  const mirror = openMirror({ path: freshMirror(many), clock: new FakeClock(AT) });
  const numbers = Array.from({ length: 25 }, (_, i) => 2000 + i);
  await mirror.save(numbers.map((code) => observe({ orderId: `ord-${code}`, code, status: 'ready' })));
  await mirror.close();
  const list = async (...words: string[]) => {
    const options = { env: { ...env, TILLSYNC_STORAGE_DIRECTORY: many } };
    const { stdout, stderr } = await invoke(['order', 'list', ...words], options);
    return { orders: stdout.match(/ord-2/g)?.length, stderr };
  };
  expect(await list('--unbooked')).toEqual({ orders: 25, stderr: '' });
  expect(await list('--unbooked', '--json')).toEqual({ orders: 25, stderr: '' });
  const more = (than: number) => `There are more than these ${than}: raise --limit.\n`;
  expect(await list('--unbooked', '--limit', '7')).toEqual({ orders: 7, stderr: more(7) });
  expect(await list()).toEqual({ orders: 20, stderr: more(20) });
  expect(await list('--json')).toEqual({ orders: 20, stderr: '' });
  expect(await list('--limit', '25')).toEqual({ orders: 25, stderr: '' });
});

test('a till that reads files gets what changed after an event, in the order of the feed', async () => {
  const changed = async (...words: string[]) =>
    JSON.parse((await run('order', 'list', ...words, '--json')).stdout).orders.map(
      ({ orderId, seq }: { orderId: string; seq: number }) => [seq, orderId],
    );
  const all = await changed('--after', '0');
  const seqs = all.map(([seq]: [number]) => seq);
  expect(seqs).toEqual(seqs.toSorted((a: number, b: number) => a - b));
  // Event 1 was an earlier event of ord-a, so ord-a has changed since.
  expect(await changed('--after', '1', '--limit', '2')).toEqual([
    [2, 'ord-a'],
    [3, 'ord-b'],
  ]);
  // Orders of other branches and ended orders are listed too, because a till may have booked them.
  expect(await changed('--after', '3', '--limit', '1')).toEqual([[4, 'ord-c']]);
  expect(await changed('--after', String(seqs.at(-1)))).toEqual([]);
  expect((await run('order', 'list', '--after', '3', '--due')).code).toBe(2);
  // Nothing comes after an event that a new feed does not have yet, so the till has to begin again.
  const { code, stdout } = await run('order', 'list', '--after', String(seqs.at(-1) + 1), '--json');
  expect([code, JSON.parse(stdout).error?.code]).toEqual([1, 'feed-restarted']);
});

test('nothing that came from outside steers or deceives a terminal, nor pads a list', async () => {
  const list = (await run('order', 'list')).stdout;
  expect(list.length).toBeLessThan(4_000);
  const shown = (await run('order', 'show', 'ord-a')).stdout;
  expect(shown).toContain('\\u202ename\\u200b');
  const json = (await run('order', 'show', 'ord-a', '--json')).stdout;
  expect(json).not.toMatch(/[\u202e\u200b]/u);
  expect(JSON.parse(json).order.name).toBe(BIDI);
});

test('any text of an order finds it: its customer, its number, its id', async () => {
  const found = async (text: string) => {
    const { stdout } = await run('order', 'list', '--text', text, '--json');
    return JSON.parse(stdout).orders.map(({ orderId }: { orderId: string }) => orderId);
  };
  expect(await found('SOTO')).toEqual(['ord-b']);
  expect(await found('1007')).toEqual(['ord-c']);
  expect(await found('espresso')).toEqual(['ord-f']);
  expect(await found('no such text')).toEqual([]);
});

test('orders are a file for a spreadsheet, in the currency and under the name of the shop', async () => {
  const shop = { TILLSYNC_SHOP_NAME: 'Corner', TILLSYNC_SHOP_CURRENCY: 'CLP' };
  const csv = async (...words: string[]) =>
    (await invoke(['order', 'list', '--csv', ...words], { env: { ...env, ...shop } })).stdout;
  const [titles, line] = (await csv('--code', '1010')).split('\r\n');
  expect(titles).toMatch(/^\ufeffshop,code,order_id,status,created_at,/);
  expect(line).toBe(
    'Corner,1010,ord-f,ready,2026-01-03 23:00:00,B1,,,\'=HYPERLINK(1),"Díaz, Ñ",\'+569 1,,,,2 x Espresso,1990.5,,,1990.5,CLP',
  );
  expect((await csv('--code', '1010', '--decimal', 'comma')).split('\r\n')[1]).toContain(';1990,5;CLP');
  const lines = (await csv()).trimEnd().split('\r\n');
  expect(lines).toHaveLength(1 + 8);
  expect(await csv('--day', '2019-01-01')).toBe(`${titles}\r\n`);
  expect((await csv('--limit', '2')).trimEnd().split('\r\n')).toHaveLength(3);
  expect((await run('order', 'list', '--csv', '--json')).code).toBe(2);
  const shown = await invoke(['order', 'list'], { env: { ...env, ...shop } });
  expect(shown.stdout).toContain('TO PAY (CLP)');
  const one = await invoke(['order', 'show', 'ord-f'], { env: { ...env, ...shop } });
  expect(one.stdout).toMatch(/amount_to_pay: +1990.5 CLP\n/);
});

test('lines of orders are rows of their own, with their ids, prices and modifiers', async () => {
  const csv = async (...words: string[]) => {
    const { stdout } = await run('order', 'list', '--csv', '--lines', ...words);
    return stdout
      .replace(/^\ufeff/, '')
      .trimEnd()
      .split('\r\n');
  };
  const [titles = '', ...rows] = await csv('--code', '1011');
  const named = rows.map((row) => {
    const cells = row.split(',');
    return Object.fromEntries(titles.split(',').map((title, i) => [title, cells[i]]));
  });
  expect(named).toMatchObject([
    {
      ...{ code: '1011', order_id: 'ord-g', seq: '9', line: '1', product_name: 'Latte', quantity: '2' },
      ...{ unit_price: '2000', base_unit_price: '2500', product_price: '5001', product_base_price: '6001' },
      ...{ modifier_names: 'Extra|Extra', modifier_option_names: 'Leche|Jarabe/dulce' },
      ...{ modifier_option_ids: 'o-1|o-2', modifier_quantities: '1|2', modifier_prices: '500.5|' },
    },
    { line: '2', product_external_id: 'A-2', product_name: 'Té', comment: 'sin azúcar', modifier_prices: '' },
  ]);
  expect((await csv('--code', '1011', '--decimal', 'comma'))[1]).toMatch(/;500,5\|$/);
  // An order without lines keeps its row.
  expect((await csv('--code', '1007')).slice(1)).toEqual([expect.stringMatching(/1007,ord-c,.*,,,,,,,,$/)]);
  expect(await run('order', 'list', '--lines')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('give --csv too'),
  });
});

test('an order is acknowledged by the number that the alarm names, and what the mirror lacks is told apart', async () => {
  const setUp = { ...env, TILLSYNC_PLATFORM_BASE_URL: 'http://127.0.0.1:9' };
  const ack = async (words: string[], input = '') => {
    const { code, stdout, stderr } = await invoke(['order', 'ack', ...words, '--json'], {
      env: setUp,
      input,
    });
    return { code, stderr, results: JSON.parse(stdout).results };
  };
  const booked = async (word: string) =>
    !(await run('order', 'show', word)).stdout.includes('No POS has acknowledged this order.');
  const several = await invoke(['order', 'ack', '1005', '1008'], { env: setUp });
  expect(several).toMatchObject({ code: 2, stdout: '' });
  expect(several.stderr).toMatch(/2 orders have the number 1008:\n +ord-[de] .*\n +ord-[de] /);
  expect(await booked('ord-a')).toBe(false);
  // The word 1006 is an order's id and another order's number; the id is preferred. Standard input has ids only.
  expect(await ack(['1005', '1006'])).toMatchObject({
    code: 0,
    results: [
      { orderId: 'ord-a', state: 'new' },
      { orderId: '1006', state: 'new' },
    ],
  });
  expect(await booked('ord-a')).toBe(true);
  expect(await ack([], '1007\n')).toMatchObject({
    code: 3,
    results: [
      { orderId: '1007', state: 'rejected', message: expect.stringContaining('has the orderId ord-c') },
    ],
  });
  expect(await booked('ord-c')).toBe(false);
  const later = await invoke(['order', 'ack', '1005', '4711'], { env: setUp });
  expect(later).toMatchObject({
    code: 3,
    stdout: '0 orders acknowledged, 1 were before, 1 noted that the mirror does not have yet.\n',
  });
  // The acknowledgement stays stored until the order arrives.
  const mirror = openMirror({ path: join(directory, 'mirror.db'), clock: new FakeClock(AT), readonly: true });
  expect(
    mirror.read((db) => db.prepare("SELECT 1 FROM order_acks WHERE order_id = '4711'").all()),
  ).toHaveLength(1);
  await mirror.close();
});

test('order show: names the numbers beside one that is not there', () => {
  const mirror = openMirror({ path: join(directory, 'mirror.db'), clock: new FakeClock(AT), readonly: true });
  try {
    const told = (word: string) => {
      try {
        return namedOrder(mirror, word, 'America/Santiago').orderId;
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(told('1009')).toBe('The mirror has no order "1009". The nearest numbers it has: 1008 and 1010.');
    expect(told('3')).toBe('The mirror has no order "3". The nearest numbers it has: 9.');
    expect(told('somebody')).toBe('The mirror has no order "somebody".');
  } finally {
    void mirror.close();
  }
});

test('a test of a hook takes no order for another with the same number', async () => {
  const withHook = { ...env, TILLSYNC_HOOKS: '[{"name":"pos","url":"http://127.0.0.1:9/"}]' };
  const { code, stderr } = await invoke(['hooks', 'test', 'pos', '--order', '1008'], { env: withHook });
  expect({ code, stderr }).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('2 orders have the number'),
  });
});
