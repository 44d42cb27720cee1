/** Tests src/hooks/preparation.ts: the rules of order.prepare, order.changed and order.undone. */

import { expect, it } from 'vitest';
import { madeUpEvent } from '../../src/hooks/hook.ts';
import {
  type Content,
  canonical,
  contentOf,
  dueAtOf,
  nextEvent,
  preparedStatuses,
  prepareFromMs,
  type ToldOrder,
} from '../../src/hooks/preparation.ts';
import type { MirroredOrder } from '../../src/orders/merging/mirrored-order.ts';
import { ORDER_STATUSES } from '../../src/orders/merging/order.ts';

type Item = MirroredOrder['items'][number];
type Modifier = Item['modifiers'][number];

const SAMPLE = madeUpEvent('2026-03-01T18:30:00.000Z').order as MirroredOrder;
const [LINE] = SAMPLE.items as [Item];

function order(changes: Partial<MirroredOrder> = {}): MirroredOrder {
  return { ...SAMPLE, status: 'inProcess', items: [pizza(2), pizza(1, { productName: 'Jugo' })], ...changes };
}

function pizza(quantity: number | null, changes: Partial<Item> = {}): Item {
  return { ...LINE, productName: 'Pizza', quantity, comment: null, modifiers: [], ...changes };
}

function option(optionName: string, quantity: number | null): Modifier {
  const nothing = { name: 'Extra', shortName: null, description: null, optionId: null };
  return {
    ...nothing,
    optionExternalId: null,
    optionName,
    optionPrice: null,
    quantity,
    modifierExternalId: null,
  };
}

function facts(now: MirroredOrder) {
  const content = contentOf(now, (text) => `#${text}`);
  const digest = canonical(content);
  return { order: now, store: now.storeExternalId, isAway: false, isForgotten: false, content, digest };
}

const DUE = { isDue: true, statuses: [] };

/** What a hook was told of this order. */
function told(of: MirroredOrder, changes: Partial<ToldOrder> = {}): ToldOrder {
  const next = nextEvent(facts(of), undefined, DUE);
  if (next === undefined) throw new Error('nothing was told');
  return { ...next.told, ...changes };
}

const changesOf = (before: MirroredOrder, after: MirroredOrder) =>
  nextEvent(facts(after), told(before), DUE)?.changes;

it('an order is prepared while it is paid and in the house, whatever it was before', () => {
  const prepared = ORDER_STATUSES.filter((status) => nextEvent(facts(order({ status })), undefined, DUE));
  expect(prepared).toEqual(['payment-approved', 'picker-pending', 'inProcess', 'ready']);
  expect(nextEvent(facts(order({ status: null })), undefined, DUE)?.event).toBe('order.prepare');
  expect(nextEvent(facts(order()), undefined, { ...DUE, isDue: false })).toBeUndefined();
});

it('says once that it is to be prepared, and nothing for steps of the status, prices or another order of lines', () => {
  const before = order();
  for (const status of ['picker-pending', 'ready', 'routed', 'dispatched', 'pending']) {
    expect(nextEvent(facts(order({ status })), told(before), DUE)).toBeUndefined();
  }
  const [first, second] = before.items as [Item, Item];
  const dearer = { ...first, unitPrice: 1, productPrice: 2, sku: '77', matchedBy: 'name' as const };
  const same = order({ items: [second, dearer], amountToPay: 1, customerFirstName: 'Otra' });
  expect(nextEvent(facts(same), told(before), DUE)).toBeUndefined();
  const spaced = order({
    items: [
      { ...first, productName: ' Pizza  ' },
      { ...second, comment: '' },
    ],
  });
  expect(nextEvent(facts(spaced), told(before), DUE)).toBeUndefined();
});

it('says what changed: a new line, a quantity, options, a comment, what is removed', () => {
  const before = order({
    items: [pizza(2, { modifiers: [option('Queso', 1)] }), pizza(1, { productName: 'Jugo' })],
  });
  const after = order({
    items: [
      pizza(1, { productName: 'Torta' }),
      pizza(3, { modifiers: [option('Queso', 2)], comment: 'sin sal' }),
    ],
  });
  expect(changesOf(before, after)).toEqual([
    {
      what: 'line',
      change: 'new',
      line: 1,
      before: null,
      after: { name: 'Torta', quantity: 1, options: [] },
    },
    {
      what: 'line',
      change: 'changed',
      line: 2,
      before: { name: 'Pizza', quantity: 2, options: [{ name: 'Queso', quantity: 1 }] },
      after: { name: 'Pizza', quantity: 3, options: [{ name: 'Queso', quantity: 2 }] },
      comment: true,
    },
    {
      what: 'line',
      change: 'removed',
      line: null,
      before: { name: 'Jugo', quantity: 1, options: [] },
      after: null,
    },
  ]);
});

it('a quantity of 0 takes a line away, and a line that never had more is none', () => {
  expect(changesOf(order(), order({ items: [pizza(2), pizza(0, { productName: 'Jugo' })] }))).toMatchObject([
    { change: 'removed', before: { name: 'Jugo' } },
  ]);
  const more = order({ items: [...order().items, pizza(0, { productName: 'Nada' })] });
  expect(changesOf(order(), more)).toBeUndefined();
});

it('of two lines of one product, the one that stays the same is not marked', () => {
  const two = order({ items: [pizza(1, { modifiers: [option('Queso', 1)] }), pizza(1)] });
  const one = order({ items: [pizza(1), pizza(1, { modifiers: [option('Queso', 3)] })] });
  expect(changesOf(two, one)).toMatchObject([{ change: 'changed', line: 2 }]);
});

it('an option without a quantity counts as one', () => {
  const bare = order({ items: [pizza(1, { modifiers: [option('Queso', null)] })] });
  const counted = order({ items: [pizza(1, { modifiers: [option('Queso', 1)] })] });
  expect(changesOf(bare, counted)).toBeUndefined();
});

it('another due time, way of delivery or address is a change; the customer who is removed is none', () => {
  const before = order({
    isScheduled: true,
    scheduledFor: '2026-03-01T20:00:00.000Z',
    addressDetails: 'depto 12',
  });
  const later = { ...before, scheduledFor: '2026-03-01T21:00:00.000Z', addressDetails: 'timbre malo' };
  expect(changesOf(before, later)).toEqual([
    { what: 'dueAt', before: '2026-03-01T20:00:00.000Z', after: '2026-03-01T21:00:00.000Z' },
    { what: 'address' },
  ]);
  // What was not said before, or is not said any more, is no other address.
  for (const addressDetails of ['timbre malo', null]) {
    const other = addressDetails === null ? 'timbre malo' : null;
    const said = { ...before, addressDetails };
    expect(changesOf(said, { ...said, addressDetails: other })).toBeUndefined();
  }
  expect(changesOf(before, { ...before, deliveryType: 'pickup' })).toMatchObject([{ what: 'deliveryType' }]);
  const commented = order({ items: [pizza(1, { comment: 'sin sal' })] });
  const forgotten = order({ items: [pizza(1)], addressAddress: null, addressStreetAddress: null });
  const without = { ...facts(forgotten), isForgotten: true };
  expect(nextEvent(without, told(commented), DUE)).toBeUndefined();
  expect(nextEvent(without, told(commented, { content: null }), DUE)).toBeUndefined();
});

it('says that it changed, and not what, where only a digest of the earlier content is known', () => {
  const after = order({ items: [pizza(9)] });
  expect(nextEvent(facts(after), told(order(), { content: null }), DUE)).toMatchObject({
    event: 'order.changed',
    changes: null,
  });
  expect(nextEvent(facts(order()), told(order(), { content: null }), DUE)).toBeUndefined();
});

it('is undone once by a cancellation, also after the order left, and prepared again if it comes back', () => {
  for (const status of ['cancel', 'refund', 'payment-canceled']) {
    const undone = nextEvent(facts(order({ status })), told(order()), DUE);
    expect(undone).toMatchObject({ event: 'order.undone', reason: status, told: { step: 2 } });
    expect(nextEvent(facts(order({ status })), undone?.told, DUE)).toBeUndefined();
    expect(nextEvent(facts(order({ status })), undefined, DUE)).toBeUndefined();
    expect(nextEvent(facts(order()), undone?.told, DUE)).toMatchObject({
      event: 'order.prepare',
      told: { step: 3 },
    });
  }
});

it('an order that moves is undone at one store and prepared at the other; at a branch it is only undone', () => {
  const moved = facts(order({ storeExternalId: 'B2' }));
  const undone = nextEvent(moved, told(order({ storeExternalId: 'B1' })), DUE);
  expect(undone).toMatchObject({ event: 'order.undone', reason: 'moved', told: { store: 'B1' } });
  expect(nextEvent(moved, undone?.told, DUE)).toMatchObject({
    event: 'order.prepare',
    told: { store: 'B2' },
  });
  const away = { ...moved, isAway: true };
  expect(nextEvent(away, undone?.told, DUE)).toBeUndefined();
  expect(nextEvent(away, undefined, DUE)).toBeUndefined();
  // An order that names its store only later did not move.
  expect(nextEvent(moved, told(order({ storeExternalId: null })), DUE)).toBeUndefined();
});

it('of an order that was due before the hook began nothing is said, whatever becomes of it', () => {
  const old = told(order(), { step: 0, isPrepared: false });
  for (const status of ORDER_STATUSES) {
    expect(nextEvent(facts(order({ status, items: [] })), old, DUE)).toBeUndefined();
  }
});

it('waits for the first of the asked statuses; a change or an end is told in any', () => {
  const statuses = preparedStatuses(['inProcess', 'cancel']);
  const only = { isDue: true, statuses };
  expect(nextEvent(facts(order({ status: 'payment-approved' })), undefined, only)).toBeUndefined();
  expect(nextEvent(facts(order({ status: 'inProcess' })), undefined, only)?.event).toBe('order.prepare');
  const edited = order({ status: 'ready', items: [pizza(5)] });
  expect(nextEvent(facts(edited), told(order()), only)?.event).toBe('order.changed');
  expect(preparedStatuses(['cancel', 'dispatched'])).toEqual([]);
});

it('reads when an order is due: its own time, else the delivery time, else a day', () => {
  const time = '2026-03-01T20:00:00.000Z';
  expect(dueAtOf(order({ isScheduled: true, scheduledFor: time }))).toBe(time);
  expect(dueAtOf(order({ isScheduled: null, scheduledFor: time }))).toBe(time);
  expect(dueAtOf(order({ isScheduled: false, scheduledFor: time }))).toBeNull();
  expect(dueAtOf(order({ isScheduled: true, scheduledFor: 'mañana', deliveryTime: time }))).toBe(time);
  expect(dueAtOf(order({ isScheduled: true, scheduledFor: '2026-03-05' }))).toBe('2026-03-05');
  expect(dueAtOf(order({ isScheduled: true, scheduledFor: 'mañana' }))).toBeNull();
  const how = { beforeMs: 60_000, dayStartMs: (day: string) => Date.parse(`${day}T03:00:00Z`) };
  expect(prepareFromMs(time, how)).toBe(Date.parse(time) - 60_000);
  expect(prepareFromMs('2026-03-05', how)).toBe(Date.parse('2026-03-05T03:00:00Z'));
  expect(prepareFromMs(null, how)).toBeUndefined();
});

it('no text of the customer is in what is kept of an order', () => {
  const content: Content = contentOf(order({ items: [pizza(1, { comment: 'para Ñusta' })] }), (text) =>
    String(text.length),
  );
  expect(JSON.stringify(content)).not.toMatch(/Ñusta|Ñuñoa/);
});
