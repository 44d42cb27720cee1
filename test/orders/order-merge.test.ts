/** Tests src/orders/merging/order-rows.ts and src/orders/merging/mirrored-order.ts. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { OrderItem } from '../../src/orders/merging/mirrored-order.ts';
import { ORDER_STATUSES } from '../../src/orders/merging/order.ts';
import {
  askedNow,
  heldNotifications,
  observation,
  openTestMirror,
  poll,
  receive,
  sampleNotification,
} from './open-test-mirror.ts';

const ID = '65a100000000000000000001';
const order = (changes: Record<string, unknown> = {}) => sampleNotification(1, changes);

/** Returns the lines as the mirror has them if its catalogue has none of the products. */
const kept = (items: readonly OrderItem[] = []) =>
  items.map((item) => ({ ...item, sku: null, productId: null, matchedBy: null }));

describe('keeping a notification', () => {
  it('fills the tables a POS reads, with amounts as numbers', async () => {
    const { mirror } = openTestMirror();
    expect(
      await receive(mirror, order({ amountToPay: '15990.50', scheduledDate: '2026-01-20T10:00:00Z' })),
    ).toEqual(['created']);
    const row = mirror.read((db) => db.prepare('SELECT * FROM orders').get());
    expect(row).toMatchObject({
      order_id: ID,
      code: 1,
      status: 'pending',
      store_external_id: 'B1',
      website_id: 'company-1',
      created_at: '2026-01-10T12:00:00.000Z',
      amount_to_pay: 15990.5,
      amount: 12990,
      is_scheduled: 0,
      scheduled_for: '2026-01-20T10:00:00.000Z',
      address_lat: -33.4372,
      address_phone_number: '+56911111111',
      customer_email: 'ana@example.com',
      seq: 1,
      updated_at: '2026-01-15T12:00:00.000Z',
    });
    const types = mirror.read((db) =>
      db.prepare('SELECT typeof(amount_to_pay), typeof(amount), typeof(code) FROM orders').raw().get(),
    );
    expect(types).toEqual(['real', 'integer', 'integer']);
    const items = mirror.read((db) =>
      db
        .prepare('SELECT line, product_external_id, quantity, unit_price, typeof(quantity) FROM order_items')
        .raw()
        .all(),
    );
    expect(items).toEqual([
      [1, 'P1', 2, 2500.5, 'integer'],
      [2, 'P2', 1, 2500.5, 'integer'],
      [3, null, 1, 5000, 'integer'],
    ]);
    const modifiers = mirror.read((db) =>
      db
        .prepare('SELECT line, modifier, name, option_id, option_price, quantity FROM order_item_modifiers')
        .raw()
        .all(),
    );
    expect(modifiers).toEqual([
      [3, 1, 'Sauces', 'm1', 300, 2],
      [3, 2, 'Sauces', 'm2', 200, 1],
      [3, 3, 'Gift wrap', 'g', null, 1],
    ]);
  });

  it('gives back the same order that was read', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order());
    const { reading, raw } = observation('webhook', order());
    expect(mirror.orders.get(ID)).toEqual({
      orderId: ID,
      seq: 1,
      updatedAt: '2026-01-15T12:00:00.000Z',
      scheduledFor: null,
      channel: 'Web',
      ...reading.fields,
      items: kept(reading.items),
    });
    expect(mirror.orders.payload(ID)).toBe(raw);
    expect(mirror.orders.get('nothing')).toBeUndefined();
  });

  it('keeps every line and every option of a large order in its place', async () => {
    const { mirror } = openTestMirror();
    const options = Array.from({ length: 19 }, (_, n) => ({
      optionId: `m${n}`,
      name: `Salsa ${n}`,
      price: n,
    }));
    const items = Array.from({ length: 17 }, (_, n) => ({
      product: { externalId: null, name: `Plato ${n}` },
      amount: n + 1,
      modifiers: n % 8 === 0 ? [{ name: 'Salsas', options }] : [],
    }));
    await receive(mirror, order({ items }));
    const large = mirror.orders.get(ID);
    expect(large?.items.map(({ productName }) => productName)).toEqual(
      items.map(({ product }) => product.name),
    );
    expect(large?.items).toEqual(kept(observation('webhook', order({ items })).reading.items));
    expect(large?.items[16]?.modifiers).toHaveLength(options.length);
  });

  it('makes an event of each change, and none of a repetition', async () => {
    const { mirror } = openTestMirror();
    const sent = [order(), order(), order({ status: 'ready' }), order({ status: 'ready' })];
    expect(await receive(mirror, ...sent)).toEqual(['created', 'confirmed', 'changed', 'confirmed']);
    expect(mirror.orders.eventsAfter(0, 10)).toEqual([
      {
        seq: 1,
        orderId: ID,
        status: 'pending',
        previousStatus: null,
        source: 'webhook',
        observedAt: '2026-01-15T12:00:00.000Z',
      },
      {
        seq: 2,
        orderId: ID,
        status: 'ready',
        previousStatus: 'pending',
        source: 'webhook',
        observedAt: '2026-01-15T12:00:00.000Z',
      },
    ]);
    expect(mirror.orders.eventsAfter(1, 10).map(({ seq }) => seq)).toEqual([2]);
    expect(mirror.orders.get(ID)).toMatchObject({ seq: 2, status: 'ready' });
  });

  it('keeps what a notification does not speak of', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order(), { internalOrderId: ID, status: 'ready', deliveryTime: '' });
    expect(mirror.orders.get(ID)).toMatchObject({
      status: 'ready',
      deliveryTime: '2026-01-10T13:00:00.000Z',
      amountToPay: 15990,
      code: 1,
    });
    expect(mirror.orders.get(ID)?.items).toHaveLength(3);
    await receive(mirror, { internalOrderId: ID, name: null, items: [] });
    expect(mirror.orders.get(ID)).toMatchObject({
      name: expect.stringContaining('#1'),
      status: 'ready',
      items: [],
    });
  });

  it('sees a change within a modifier', async () => {
    const { mirror } = openTestMirror();
    const changed = order();
    const combo = (changed.items as { modifiers: { countById: Record<string, number> }[] }[])[2]!;
    combo.modifiers[0]!.countById.m1 = 3;
    expect(await receive(mirror, order(), changed)).toEqual(['created', 'changed']);
    expect(mirror.orders.get(ID)?.items[2]?.modifiers[0]?.quantity).toBe(3);
  });

  it.each([
    ['an item more', (items: unknown[]) => [...items, items[0]]],
    [
      'a modifier more',
      ([...items]: unknown[]) => {
        const combo = items[2] as { modifiers: unknown[] };
        return [...items.slice(0, 2), { ...combo, modifiers: [...combo.modifiers, combo.modifiers[1]] }];
      },
    ],
    ['an item less', (items: unknown[]) => items.slice(0, 2)],
    [
      'a modifier less',
      ([...items]: unknown[]) => {
        const combo = items[2] as { modifiers: unknown[] };
        return [...items.slice(0, 2), { ...combo, modifiers: combo.modifiers.slice(0, 1) }];
      },
    ],
  ])('sees %s', async (_what, change) => {
    const { mirror } = openTestMirror();
    const changed = order({ items: change(order().items as unknown[]) });
    expect(await receive(mirror, order(), changed)).toEqual(['created', 'changed']);
    expect(mirror.orders.get(ID)?.items).toEqual(kept(observation('webhook', changed).reading.items));
  });

  it('writes all of a group or, when the process dies in it, nothing', async () => {
    const { mirror } = openTestMirror();
    const broken = observation('webhook', order());
    const entries = [2, 3].map((n) => ({
      kind: 'order' as const,
      observation: observation('webhook', sampleNotification(n)),
    }));
    const wrong = { ...broken, reading: { ...broken.reading, fields: { status: {} as never } } };
    await expect(mirror.save([...entries, { kind: 'order', observation: wrong }])).rejects.toThrow();
    expect(mirror.orders.list({ limit: 9 })).toEqual([]);
    expect(mirror.orders.eventsAfter(0, 9)).toEqual([]);
    expect(await mirror.save(entries)).toEqual(['created', 'created']);
  });
});

describe('a webhook that would take an order back', () => {
  it('is noted once and not applied, until a poll decides against it', async () => {
    const { mirror } = openTestMirror();
    const outcomes = await receive(
      mirror,
      order({ status: 'ready' }),
      order({ status: 'inProcess' }),
      order({ status: 'inProcess' }),
    );
    expect(outcomes).toEqual(['created', 'held', 'held']);
    expect(mirror.orders.get(ID)?.status).toBe('ready');
    expect(heldNotifications(mirror)).toEqual([
      expect.objectContaining({ orderId: ID, status: 'inProcess', knownStatus: 'ready', resolution: null }),
    ]);
    await poll(mirror, [order({ status: 'ready' })]);
    expect(heldNotifications(mirror, ID)).toMatchObject([{ resolution: 'refuted' }]);
    expect(mirror.orders.newestSeq()).toBe(1);
  });

  it('is applied by the poll that says the same', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: 'ready' }), order({ status: 'inProcess' }));
    expect(await poll(mirror, [order({ status: 'inProcess' })])).toMatchObject({ changed: 1 });
    expect(mirror.orders.get(ID)?.status).toBe('inProcess');
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: 'confirmed' }]);
  });

  it('makes the next poll read the order again, although its record is the same as before', async () => {
    const { mirror } = openTestMirror();
    await poll(mirror, [order({ status: 'ready' })]);
    await receive(mirror, order({ status: 'pending' }));
    expect(await poll(mirror, [order({ status: 'ready' })])).toMatchObject({ confirmed: 1 });
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: 'refuted' }]);
  });

  it('is not decided by a poll that is older than what is known, nor by one that is read again', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: 'ready' }), order({ status: 'inProcess' }));
    expect(await poll(mirror, [order({ status: 'inProcess' })], 0)).toMatchObject({ superseded: 1 });
    const again = observation('poll', order({ status: 'ready' }), { isReplay: true });
    await mirror.save([{ kind: 'order', observation: again }]);
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: null }]);
  });

  it('is not decided by a poll that was asked before it, and polls reach back to its order until one decides', async () => {
    const { mirror } = openTestMirror();
    const record = order({ status: 'cancel' });
    await poll(mirror, [record]);
    const asked = askedNow(mirror);
    await receive(mirror, order({ status: 'inProcess' }));
    expect(await poll(mirror, [record], ...asked)).toMatchObject({ confirmed: 1 });
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: null }]);
    expect(mirror.orders.oldestOpenMs()).toBe(Date.UTC(2026, 0, 10, 12));
    const askedAfter = askedNow(mirror);
    // The same callback counts as new each time, because the order may have changed in between.
    await receive(mirror, order({ status: 'inProcess' }));
    await poll(mirror, [record], ...askedAfter);
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: null }]);
    await poll(mirror, [record]);
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: 'refuted' }]);
    expect(mirror.orders.oldestOpenMs()).toBeNull();
    const askedLast = askedNow(mirror);
    await receive(mirror, order({ status: 'inProcess' }));
    await poll(mirror, [record], ...askedLast);
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: null }]);
    expect(await poll(mirror, [order({ status: 'inProcess' })])).toMatchObject({ changed: 1 });
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: 'confirmed' }]);
  });

  it('that comes again takes no other one with it', async () => {
    const { mirror } = openTestMirror();
    const other = sampleNotification(2);
    await receive(mirror, order({ status: 'ready' }), order({ status: 'inProcess' }), {
      ...other,
      status: 'ready',
    });
    await receive(mirror, { ...other, status: 'inProcess' });
    await poll(mirror, [order({ status: 'ready' })]);
    const events = Array.from({ length: 1_100 }, (_, i) => ({
      kind: 'order' as const,
      observation: observation('webhook', sampleNotification(10 + i)),
    }));
    await mirror.save(events);
    expect(await receive(mirror, order({ status: 'inProcess' }))).toEqual(['held']);
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: null }, { resolution: null }]);
  });

  it('is kept among at most a thousand', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: 'ready' }));
    const entries = Array.from({ length: 1_005 }, (_, i) => ({
      kind: 'order' as const,
      observation: observation('webhook', order({ status: 'pending', name: `n${i}` })),
    }));
    await mirror.save(entries);
    expect(heldNotifications(mirror)).toHaveLength(1_000);
    expect(heldNotifications(mirror)[0]?.payload).toContain('n1004');
  });
});

describe('any true history', () => {
  it('ends equal to the platform after a poll, with a feed that tells every step', async () => {
    const statuses = fc.array(fc.oneof(fc.constantFrom(...ORDER_STATUSES), fc.constant('unheard-of')), {
      minLength: 1,
      maxLength: 6,
    });
    const plan = statuses.chain((history) =>
      fc.record({
        history: fc.constant(history),
        delivered: fc.array(fc.nat({ max: history.length - 1 }), { maxLength: 12 }),
      }),
    );
    const { mirror } = openTestMirror();
    let number = 100;
    await fc.assert(
      fc.asyncProperty(plan, async ({ history, delivered }) => {
        const id = ++number;
        const snapshots = history.map((status, step) =>
          sampleNotification(id, { status, amountToPay: 1000 + step }),
        );
        await receive(mirror, ...delivered.map((step) => snapshots[step]!));
        const truth = snapshots.at(-1)!;
        await poll(mirror, [truth]);
        const { reading } = observation('poll', truth);
        // A word that the document does not name replaces none that it does.
        const named = (each: string) => ORDER_STATUSES.includes(each as never);
        const isNamed = named(history.at(-1)!) || !delivered.some((step) => named(history[step]!));
        const { status: _unnamed, ...others } = reading.fields;
        expect(mirror.orders.get(reading.orderId)).toMatchObject(isNamed ? reading.fields : others);
        expect(mirror.orders.get(reading.orderId)?.items).toEqual(kept(reading.items));
        const events = mirror.orders
          .eventsAfter(0, 100_000)
          .filter(({ orderId }) => orderId === reading.orderId);
        for (const [i, event] of events.entries()) {
          expect(event.previousStatus).toBe(events[i - 1]?.status ?? null);
        }
        expect(events.at(-1)?.status).toBe(mirror.orders.get(reading.orderId)?.status);
        if (isNamed) expect(events.at(-1)?.status).toBe(history.at(-1));
        else expect(named(events.at(-1)?.status ?? '')).toBe(true);
        expect(mirror.orders.get(reading.orderId)?.seq).toBe(events.at(-1)?.seq);
        const before = mirror.orders.newestSeq();
        expect(await poll(mirror, [truth])).toMatchObject({ confirmed: 1 });
        expect(mirror.orders.newestSeq()).toBe(before);
      }),
      { numRuns: Number(process.env.TILLSYNC_RUNS ?? 20) },
    );
  });
});
