import { describe, expect, it } from 'vitest';
import {
  GUARDS_OFF,
  type GuardSettings,
  guardMissing,
  guardPrice,
  guardZeroItems,
  guardZeroShare,
} from '../../src/outbox/intake/guards.ts';

const on: GuardSettings = { ...GUARDS_OFF, zeroItemsMax: 50, priceFactorMax: 3, missingShareMax: 0.2 };

describe('guards', () => {
  it('hold stocks beyond the number that may go to zero', () => {
    expect(guardZeroItems({ inHandOver: 50, withinWindow: 0 }, on)).toBeUndefined();
    expect(guardZeroItems({ inHandOver: 51, withinWindow: 0 }, on)?.guard).toBe('zero-items');
    expect(guardZeroItems({ inHandOver: 1, withinWindow: 50 }, on)?.message).toContain('51');
  });

  it.each([
    [9, 9, false],
    [10, 33, true],
    [10, 34, false],
    [30, 100, false],
    [31, 100, true],
    [90, 90, true],
  ])('%s of %s stocks above zero to zero are held: %s', (zeros, aboveZero, isHeld) => {
    const hold = guardZeroShare({ branch: 's1', zeros, aboveZero }, { ...GUARDS_OFF, zeroShareMax: 0.3 });
    expect(hold !== undefined).toBe(isHeld);
    expect(guardZeroShare({ branch: 's1', zeros, aboveZero }, GUARDS_OFF)).toBeUndefined();
  });

  it.each([
    [1000, 3000, false],
    [1000, 3001, true],
    [3000, 1000, false],
    [3001, 1000, true],
    ['1000', 5000, true],
    [1000, 0, true],
    [0, 5000, false],
    [null, 5000, false],
    [undefined, 5000, false],
    ['on request', 5000, false],
  ])('a price from %s to %s is held: %s', (known, price, held) => {
    expect(guardPrice(known, price, on) !== undefined).toBe(held);
  });

  it('hold an inventory that lacks too much of what is known', () => {
    expect(guardMissing({ known: 100, missing: 20 }, on)).toBeUndefined();
    expect(guardMissing({ known: 100, missing: 21 }, on)?.guard).toBe('missing-share');
    expect(guardMissing({ known: 0, missing: 0 }, on)).toBeUndefined();
  });

  it('are each off at 0', () => {
    expect(guardZeroItems({ inHandOver: 9999, withinWindow: 0 }, GUARDS_OFF)).toBeUndefined();
    expect(guardPrice(1, 9999, GUARDS_OFF)).toBeUndefined();
    expect(guardMissing({ known: 9, missing: 9 }, GUARDS_OFF)).toBeUndefined();
  });
});
