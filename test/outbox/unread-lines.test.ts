/** Tests src/outbox/ledger/line-stocks.ts: edits of an order with lines that do not say how many, or of what. */

import { describe, expect, it } from 'vitest';
import { HOLDING, holding, placed } from './held-back-steps.ts';
import { order } from './outbox-fixture.ts';

/** Counts 10 of A after an order of two, edits the order, and returns the quantity that is sent next. */
function sentAfter(edit: [externalId: string | null, quantity: number | string | null, name?: string][]) {
  const out = holding();
  const when = placed(out, 60);
  order(out, 'one', 's1', [['A', 2]], 'payment-approved', { ...when, source: 'webhook' });
  while (out.dispatcher.catchUp({ holdBack: true }));
  order(out, 'one', 's1', edit as never, 'payment-approved', { ...when, source: 'webhook' });
  out.accept('stock', [{ sku: '10', subsidiaryId: 's1', qty: 10 }]);
  const { items } = out.dispatcher.claim('stock', 100, HOLDING);
  return items.map(({ body }) => 'qty' in body && body.qty);
}

describe('an edit of an order of 2, before a count of 10', () => {
  it.each([
    ['to 3', [['A', 3]], 7],
    ['to nothing', [], 10],
    ['to another product', [['B', 1]], 10],
    ['to a number that cannot be read', [['A', '2,0']], 8],
    ['to a line without a number', [['A', null]], 8],
    [
      'to two lines, one of them without a number',
      [
        ['A', 1],
        ['A', null],
      ],
      8,
    ],
    ['to a line without id and name', [[null, 2]], 8],
    [
      'to a third piece beside a line without id and name',
      [
        ['A', 3],
        [null, 1],
      ],
      7,
    ],
  ] as const)('%s', (_name, edit, sent) => {
    expect(sentAfter(edit as never)).toEqual([sent]);
  });
});
