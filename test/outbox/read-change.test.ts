/** Tests src/outbox/intake/change.ts. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ChangeFault, readChange, type StockChange } from '../../src/outbox/intake/change.ts';

function readStockChange(value: unknown): { change: StockChange } | { fault: ChangeFault } {
  const { kind: _, ...reading } = readChange('stock', value);
  return reading as { change: StockChange } | { fault: ChangeFault };
}

function readProductChange(value: unknown) {
  const { kind: _, ...reading } = readChange('product', value);
  return reading;
}

function stockFault(value: unknown) {
  const reading = readStockChange(value);
  return 'fault' in reading ? [reading.fault.code, reading.fault.column] : reading;
}

function productFault(value: unknown) {
  const reading = readProductChange(value);
  return 'fault' in reading ? [reading.fault.code, reading.fault.column] : reading;
}

describe('a stock change', () => {
  it('is taken as it is', () => {
    const change = { externalId: 'A-1', qty: 2.5, show: false, subsidiaryExternalId: 'B1' };
    expect(readStockChange(change)).toEqual({ change });
    expect(readStockChange({ sku: 12, qty: 0 })).toEqual({ change: { sku: '12', qty: 0 } });
    expect(readStockChange({ sku: '12', qty: 0, subsidiaryId: 's' })).toEqual({
      change: { sku: '12', qty: 0, subsidiaryId: 's' },
    });
  });

  it.each([
    [{ externalId: 'A', qty: '5' }, 'bad-value', 'qty'],
    [{ externalId: 'A', qty: Number.NaN }, 'bad-value', 'qty'],
    [{ externalId: 'A', qty: Number.POSITIVE_INFINITY }, 'bad-value', 'qty'],
    [{ externalId: 'A', qty: -1e300 }, 'bad-value', 'qty'],
    [{ externalId: 'A', qty: 2 ** 60 }, 'bad-value', 'qty'],
    [{ externalId: 'A', qty: null }, 'bad-value', 'qty'],
    [{ externalId: 'A' }, 'nothing-to-change', 'qty'],
    [{ externalId: 'A', show: true }, 'nothing-to-change', 'qty'],
    [{ externalId: 'A', qty: 1, show: 1 }, 'bad-value', 'show'],
    [{ externalId: 'A', qty: 1, price: 3 }, 'unknown-column', 'price'],
    [{ externalId: 'A', qty: 1, constructor: 3 }, 'unknown-column', 'constructor'],
    [{ qty: 1 }, 'no-product', null],
    [{ externalId: '', qty: 1 }, 'bad-value', 'externalId'],
    [{ externalId: 5, qty: 1 }, 'bad-value', 'externalId'],
    [{ externalId: 'Ñ\uFFFD', qty: 1 }, 'bad-text', 'externalId'],
    [{ externalId: 'a\0', qty: 1 }, 'bad-value', 'externalId'],
    [{ sku: 1.5, qty: 1 }, 'bad-value', 'sku'],
    [{ sku: -1, qty: 1 }, 'bad-value', 'sku'],
    [{ sku: '007', qty: 1 }, 'bad-value', 'sku'],
    [{ sku: 2 ** 53, qty: 1 }, 'bad-value', 'sku'],
    [[1], 'not-an-object', null],
    [null, 'not-an-object', null],
    ['x', 'not-an-object', null],
  ])('%j is refused as %s of %s', (value, code, column) => {
    expect(stockFault(value)).toEqual([code, column]);
  });

  it('is refused for a value of any depth', () => {
    const deep: unknown = JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`);
    for (const column of ['externalId', 'sku', 'qty', 'show', 'subsidiaryId', 'colour']) {
      expect(stockFault({ externalId: 'A', qty: 1, [column]: deep })).toContain(column);
    }
    expect(stockFault(deep)).toEqual(['not-an-object', null]);
  });

  it('names every fault of one item', () => {
    const reading = readStockChange({ qty: 'x', colour: 'red' });
    expect('fault' in reading && reading.fault.message).toMatch(/colour.*Neither.*not a number/s);
  });

  it('is either taken exactly or refused, whatever is handed over', () => {
    const value = fc.oneof(
      fc.anything(),
      fc.record(
        { externalId: fc.anything(), sku: fc.anything(), qty: fc.anything(), show: fc.anything() },
        { requiredKeys: [] },
      ),
      fc.record({ externalId: fc.string(), qty: fc.double() }),
    );
    fc.assert(
      fc.property(value, (given) => {
        const reading = readStockChange(given);
        if ('fault' in reading) return reading.fault.message.length > 0;
        const source = given as Record<string, unknown>;
        expect(reading.change.qty).toBe(source.qty === 0 ? 0 : source.qty);
        expect(reading.change.externalId).toBe((source.externalId as string | undefined)?.trim());
        expect(Number.isFinite(reading.change.qty)).toBe(true);
        return true;
      }),
    );
  });
});

describe('a product change', () => {
  it('is taken as it is, an empty description included', () => {
    const change = { sku: '7', price: 1990, name: 'Té', description: '', show: true };
    expect(readProductChange({ ...change, sku: 7 })).toEqual({ change });
  });

  it.each([
    [{ sku: 7 }, 'nothing-to-change', null],
    [{ sku: 7, price: '1990' }, 'bad-value', 'price'],
    [{ sku: 7, price: -1 }, 'bad-value', 'price'],
    [{ sku: 7, name: ' ' }, 'bad-value', 'name'],
    [{ sku: 7, name: 3 }, 'bad-value', 'name'],
    [{ sku: 7, description: null }, 'bad-value', 'description'],
    [{ sku: 7, price: 1, qty: 3 }, 'unknown-column', 'qty'],
    [{ sku: 7, price: 1, subsidiaryId: 's' }, 'unknown-column', 'subsidiaryId'],
    [{ price: 1 }, 'no-product', null],
  ])('%j is refused as %s of %s', (value, code, column) => {
    expect(productFault(value)).toEqual([code, column]);
  });
});
