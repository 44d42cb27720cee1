import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ORDER_FIELDS } from '../../src/orders/merging/field-aliases.ts';
import { merge } from '../../src/orders/merging/merge.ts';
import { isBackwards, isEnded, isKnownStatus, ORDER_STATUSES } from '../../src/orders/merging/order.ts';

type Known = NonNullable<Parameters<typeof merge>[0]>;

const STATUS_AT = ORDER_FIELDS.indexOf('status');
const lines: Known['lines'] = { items: () => [], has: () => true };

/** A mirror with one order, which was never stored. */
class Model {
  known: Known | undefined;
  seq = 0;

  get status() {
    return this.known?.values[STATUS_AT];
  }

  see(source: 'webhook' | 'poll', status: string, asOfSeq?: number) {
    const reading = { orderId: 'a', fields: { status } };
    const merged = merge(this.known, { source, reading, asOfSeq });
    const { outcome, values, weights } = merged;
    if (outcome === 'created' || outcome === 'changed')
      this.known = { values, weights, lines, seq: ++this.seq, source };
    return outcome;
  }
}

const status = fc.oneof(fc.constantFrom(...ORDER_STATUSES), fc.constantFrom('unheard-of', 'Ready'));
const history = fc.array(status, { minLength: 1, maxLength: 8 });
/** A history of statuses, with webhooks that deliver any of its statuses in any order and any number of times. */
const deliveries = history.chain((statuses) =>
  fc.record({
    statuses: fc.constant(statuses),
    delivered: fc.array(fc.constantFrom(...statuses), { maxLength: 20 }),
  }),
);

const LIVES = [
  ...['pending', 'payment-pending', 'payment-approved', 'picker-pending', 'inProcess'],
  ...['ready', 'routed', 'shippingError', 'dispatched'],
];
const PAID = LIVES.slice(2);
const OVER = ['payment-canceled', 'cancel', 'refund'];

/** Returns whether a callback waits, by the table in docs/pos.md alone. */
function isHeld(known: string, said: string): boolean {
  if (LIVES.includes(said)) return OVER.includes(known) || LIVES.indexOf(known) > LIVES.indexOf(said);
  if (!OVER.includes(said)) return false;
  if (known === 'refund') return said !== 'refund';
  return known === 'dispatched' || (said === 'payment-canceled' && PAID.includes(known));
}

describe('the merge of webhook and poll', () => {
  it('ends equal to the platform after a poll, whatever webhooks were repeated, lost or reordered', () => {
    fc.assert(
      fc.property(deliveries, ({ statuses, delivered }) => {
        const model = new Model();
        for (const each of delivered) model.see('webhook', each);
        model.see('poll', statuses.at(-1)!, model.seq);
        const isNamed = isKnownStatus(statuses.at(-1)!) || !delivered.some(isKnownStatus);
        // A word that the document does not name replaces none that it does.
        if (isNamed) expect(model.status).toBe(statuses.at(-1));
        else expect(isKnownStatus(String(model.status))).toBe(true);
      }),
    );
  });

  it('takes the word of a poll over that of another poll, and confirms what a callback has said already', () => {
    const model = new Model();
    for (const each of ['pending', 'payment-pending']) model.see('poll', each);
    expect(model.see('poll', 'ready', 0)).toBe('changed');
    model.see('webhook', 'dispatched');
    expect(model.see('poll', 'dispatched', 0)).toBe('confirmed');
    expect(model.see('poll', 'ready', 0)).toBe('superseded');
  });

  it('never lets a poll undo a webhook that was applied after it began', () => {
    fc.assert(
      fc.property(history, status, status, (before, polled, webhook) => {
        const model = new Model();
        for (const each of before) model.see('webhook', each);
        const asOfSeq = model.seq;
        const applied = model.see('webhook', webhook);
        const outcome = model.see('poll', polled, asOfSeq);
        if (applied === 'changed') {
          expect(model.status).toBe(webhook);
          expect(['confirmed', 'superseded']).toContain(outcome);
        }
      }),
    );
  });

  it('leaves the status alone when it holds a webhook, and holds only what contradicts it', () => {
    fc.assert(
      fc.property(deliveries, ({ delivered }) => {
        const model = new Model();
        for (const each of delivered) {
          const before = model.status;
          const outcome = model.see('webhook', each);
          expect(outcome === 'held').toBe(isHeld(String(before), each));
          if (outcome === 'held') expect(model.status).toBe(before);
        }
      }),
    );
  });

  it('does the same twice as once', () => {
    fc.assert(
      fc.property(deliveries, fc.constantFrom('webhook', 'poll'), status, ({ delivered }, source, last) => {
        const model = new Model();
        for (const each of delivered) model.see('webhook', each);
        model.see(source as 'webhook' | 'poll', last, model.seq);
        const once = { ...model.known };
        const again = model.see(source as 'webhook' | 'poll', last, model.seq);
        expect(model.known).toEqual(once);
        expect(['confirmed', 'held']).toContain(again);
      }),
    );
  });
});

describe('the life cycle', () => {
  it('ranks every status of the document and no other', () => {
    for (const each of ORDER_STATUSES) expect(isKnownStatus(each)).toBe(true);
    for (const each of ['toString', '__proto__', 'READY', '']) expect(isKnownStatus(each)).toBe(false);
  });

  it('knows a step back, an end, and that an unknown status is neither', () => {
    expect(isBackwards('ready', 'inProcess')).toBe(true);
    expect(isBackwards('ready', 'cancel')).toBe(false);
    expect(isBackwards('cancel', 'payment-canceled')).toBe(false);
    expect(isBackwards('unheard-of', 'pending')).toBe(false);
    expect([isEnded('dispatched'), isEnded('refund'), isEnded('ready'), isEnded('new')]).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });
});
