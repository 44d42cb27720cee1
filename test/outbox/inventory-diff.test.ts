import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { diffInventory } from '../../src/outbox/intake/guards.ts';

describe('a whole inventory', () => {
  it('gives only what differs, what is unknown, and what it lacks', () => {
    const known = new Map([
      ['a', { qty: 1, show: true }],
      ['b', { qty: '2', show: null }],
      ['c', { qty: null, show: true }],
      ['d', { qty: 4, show: true }],
    ]);
    const lines = [
      { key: 'a', qty: 1, show: true },
      { key: 'b', qty: 2 },
      { key: 'c', qty: 0 },
      { key: 'x', qty: 7 },
      { key: 'a', qty: 1, show: false },
    ];
    const diff = diffInventory(lines, known);
    expect(diff.changes.map((each) => each.key)).toEqual(['a', 'c', 'x']);
    expect(diff.unchanged).toBe(1);
    expect(diff.missing).toEqual(['d']);
  });

  it('applied to the mirror leaves nothing to send', () => {
    const stock = fc.dictionary(fc.string({ maxLength: 2 }), fc.nat(5));
    fc.assert(
      fc.property(stock, stock, (mirror, inventory) => {
        const known = new Map(Object.entries(mirror).map(([key, qty]) => [key, { qty, show: null }]));
        const lines = Object.entries(inventory).map(([key, qty]) => ({ key, qty }));
        for (const { key, qty } of diffInventory(lines, known).changes) known.set(key, { qty, show: null });
        const again = diffInventory(lines, known);
        expect(again.changes).toEqual([]);
        for (const { key, qty } of lines) expect(known.get(key)?.qty).toBe(qty);
      }),
    );
  });
});
