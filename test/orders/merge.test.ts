import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { mergeOutcome } from '../../src/orders/merge.ts';
import { isBackwards, isEnded, isKnownStatus, ORDER_STATUSES } from '../../src/orders/order.ts';

type KnownOrder = NonNullable<Parameters<typeof mergeOutcome>[0]>;

/** A model of a mirror with one order, of which it knows only the status. */
class Model {
  known: KnownOrder | undefined;
  seq = 0;

  see(source: 'webhook' | 'poll', status: string, asOfSeq?: number) {
    const sameContent = this.known?.status === status;
    const outcome = mergeOutcome(this.known, {
      source,
      status,
      sameContent,
      ...(asOfSeq === undefined ? {} : { asOfSeq }),
    });
    if (outcome === 'created' || outcome === 'changed') this.known = { status, seq: ++this.seq, source };
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

describe('the merge of webhook and poll', () => {
  it('ends equal to the platform after a poll, whatever webhooks were repeated, lost or reordered', () => {
    fc.assert(
      fc.property(deliveries, ({ statuses, delivered }) => {
        const model = new Model();
        for (const each of delivered) model.see('webhook', each);
        model.see('poll', statuses.at(-1)!, model.seq);
        expect(model.known?.status).toBe(statuses.at(-1));
      }),
    );
  });

  it('takes the word of a poll over that of another poll, and confirms what a callback has said already', () => {
    const known = { status: 'pending', seq: 9, source: 'poll' } as const;
    const input = { source: 'poll', status: 'ready', asOfSeq: 3 } as const;
    expect(mergeOutcome(known, { ...input, sameContent: false })).toBe('changed');
    const callback = { ...known, source: 'webhook' } as const;
    expect(mergeOutcome(callback, { ...input, sameContent: true })).toBe('confirmed');
    expect(mergeOutcome(callback, { ...input, sameContent: false })).toBe('superseded');
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
          expect(model.known?.status).toBe(webhook);
          expect(['confirmed', 'superseded']).toContain(outcome);
        }
      }),
    );
  });

  it('leaves the status alone when it holds a webhook, and holds only steps back', () => {
    fc.assert(
      fc.property(deliveries, ({ delivered }) => {
        const model = new Model();
        for (const each of delivered) {
          const before = model.known?.status;
          const outcome = model.see('webhook', each);
          expect(outcome === 'held').toBe(isBackwards(before, each));
          if (outcome === 'held') expect(model.known?.status).toBe(before);
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
        const once = structuredClone(model.known);
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
