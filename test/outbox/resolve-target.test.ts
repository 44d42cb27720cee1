/** Tests src/outbox/intake/resolve.ts. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  branchDirectory,
  type CatalogLookup,
  type CatalogMapping,
  type MappingField,
} from '../../src/catalog/product.ts';
import { resolveProduct, resolveStock } from '../../src/outbox/intake/resolve.ts';

type Row = [sku: string, subsidiaryId: string, externalId: string, field?: MappingField];

function catalogOf(rows: Row[], isComplete = true): CatalogLookup {
  const all: CatalogMapping[] = rows.map(([sku, subsidiaryId, externalId, field = 'extId']) => ({
    sku,
    productId: `p${sku[0]}`,
    subsidiaryId,
    externalId,
    field,
  }));
  const isIn = (each: CatalogMapping, within?: string) =>
    within === undefined || each.subsidiaryId === within;
  return {
    isComplete,
    productOf: (sku) => all.find((each) => each.sku === sku)?.productId,
    mappingsOf: (sku, within) => all.filter((each) => each.sku === sku && isIn(each, within)),
    byExternalId: (externalId, within) =>
      all.filter((each) => each.externalId === externalId && isIn(each, within)),
    twinsOf: () => [],
  };
}

const branches = branchDirectory([
  { subsidiaryId: 's1', externalId: 'B1' },
  { subsidiaryId: 's2', externalId: 'B2' },
]);
const catalog = catalogOf([
  ['10', 's1', 'A'],
  ['10', 's2', 'A'],
  ['11', 's1', 'posA', 'productIdPosA'],
  ['11', 's1', 'posB', 'productCodePosB'],
  ['20', 's1', 'twin'],
  ['21', 's1', 'twin'],
  ['21', 's1', 'own', 'productCodePosB'],
]);
const stock = (change: object, more: object = {}) =>
  resolveStock({ qty: 1, ...change }, { catalog, branches, ...more });
const brief = (resolution: ReturnType<typeof stock>) =>
  resolution.state === 'rejected'
    ? resolution.code
    : resolution.state === 'needs-read'
      ? resolution.query
      : [resolution.state, resolution.target.key, resolution.address];

describe('the target of a stock change', () => {
  it('is one, named by sku or by any externalId', () => {
    for (const name of [
      { externalId: 'posA' },
      { externalId: 'posB' },
      { sku: '11' },
      { sku: '11', externalId: 'posA' },
    ]) {
      const resolution = stock(name);
      expect(resolution).toMatchObject({ state: 'resolved', target: { key: 'sku:11@s1' } });
    }
    expect(brief(stock({ sku: '11' }))).toEqual(['resolved', 'sku:11@s1', { externalId: 'posA' }]);
  });

  it('gets its branch added where the externalId is in several', () => {
    const expected = ['resolved', 'sku:10@s2', { externalId: 'A', subsidiaryId: 's2' }];
    expect(brief(stock({ externalId: 'A', subsidiaryExternalId: 'B2' }))).toEqual(expected);
    expect(brief(stock({ externalId: 'A', subsidiaryId: 's2' }))).toEqual(expected);
    expect(brief(stock({ sku: '10', subsidiaryId: 's2' }))).toEqual(expected);
    const single = branchDirectory([{ subsidiaryId: 's2', externalId: null }]);
    expect(brief(stock({ externalId: 'A' }, { branches: single }))).toEqual(expected);
  });

  it('is refused with its candidates when it cannot be told', () => {
    const resolution = stock({ externalId: 'A' });
    expect(brief(resolution)).toBe('ambiguous');
    expect(resolution).toMatchObject({ candidates: [{ subsidiaryId: 's1' }, { subsidiaryId: 's2' }] });
    expect('message' in resolution && resolution.message).toMatch(/branch s1.*branch s2/);
    expect(brief(stock({ externalId: 'twin' }))).toBe('ambiguous');
    expect(brief(stock({ externalId: 'twin', subsidiaryId: 's1' }))).toBe('ambiguous');
  });

  it('is refused when its names contradict each other', () => {
    expect(brief(stock({ externalId: 'posA', sku: '10' }))).toBe('contradiction');
    expect(brief(stock({ externalId: 'A', subsidiaryId: 's1', subsidiaryExternalId: 'B2' }))).toBe(
      'contradiction',
    );
  });

  it('is named by an externalId that is its own, even next to a shared one', () => {
    expect(brief(stock({ sku: '21' }))).toEqual(['resolved', 'sku:21@s1', { externalId: 'own' }]);
    expect(brief(stock({ sku: '20' }))).toBe('no-external-id');
  });

  it('is read again before an unknown product is refused', () => {
    expect(brief(stock({ externalId: 'new' }))).toEqual({ externalId: 'new' });
    expect(brief(stock({ sku: '99' }))).toEqual({ sku: '99' });
    expect(brief(stock({ externalId: 'posA', subsidiaryId: 's2' }))).toEqual({ externalId: 'posA' });
    const alreadyRead = true;
    expect(brief(stock({ externalId: 'new' }, { alreadyRead }))).toBe('unknown-product');
    expect(brief(stock({ externalId: 'posA', subsidiaryId: 's2' }, { alreadyRead }))).toBe('not-in-branch');
  });

  it('names no place of another branch where each has a tillsync of its own', () => {
    const apart = branchDirectory([{ subsidiaryId: 's2', externalId: 'B2' }], true);
    const messageOf = (change: object) => {
      const found = stock({ ...change, subsidiaryId: 's2' }, { branches: apart, alreadyRead: true });
      return found.state === 'rejected' ? found.message : found.state;
    };
    expect(messageOf({ externalId: 'posA' })).toBe('externalId posA is not in branch s2.');
    expect(messageOf({ externalId: 'posA', sku: '20' })).toBe('externalId posA is no mapping of sku 20.');
    const told = stock({ externalId: 'posA', subsidiaryId: 's2' }, { alreadyRead: true });
    expect(told).toMatchObject({ message: expect.stringContaining('s1') });
  });

  it('is sent as it is while the catalogue is not whole, except that a sku must be read', () => {
    const empty = catalogOf([], false);
    expect(brief(stock({ externalId: 'new', subsidiaryExternalId: 'B9' }, { catalog: empty }))).toEqual([
      'as-is',
      'ext:new@ext:B9',
      { externalId: 'new', subsidiaryExternalId: 'B9' },
    ]);
    expect(brief(stock({ externalId: 'new', subsidiaryExternalId: 'B1' }, { catalog: empty }))).toEqual([
      'as-is',
      'ext:new@s1',
      { externalId: 'new', subsidiaryId: 's1' },
    ]);
    expect(brief(stock({ sku: '5' }, { catalog: empty }))).toEqual({ sku: '5' });
  });

  it('in a branch whose internal id nobody knows is left to the platform', () => {
    expect(brief(stock({ externalId: 'A', subsidiaryExternalId: 'B9' }))).toEqual([
      'as-is',
      'ext:A@ext:B9',
      { externalId: 'A', subsidiaryExternalId: 'B9' },
    ]);
    expect(brief(stock({ sku: '11', subsidiaryExternalId: 'B9' }))).toBe('unknown-branch');
  });

  it('never stands for more than one stock entry on the platform', () => {
    const row = fc.tuple(
      fc.constantFrom('10', '11', '20'),
      fc.constantFrom('s1', 's2'),
      fc.constantFrom('A', 'B', 'C'),
      fc.constantFrom<MappingField>('extId', 'productIdPosA', 'productCodePosB'),
    );
    const change = fc.record(
      {
        sku: fc.constantFrom('10', '11', '20', '30'),
        externalId: fc.constantFrom('A', 'B', 'C', 'D'),
        subsidiaryId: fc.constantFrom('s1', 's2', 's3'),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.array(row, { maxLength: 8 }), change, (rows, words) => {
        if (words.sku === undefined && words.externalId === undefined) return;
        const resolution = stock(words, { catalog: catalogOf(rows) });
        if (resolution.state !== 'resolved') return;
        const { target, address } = resolution;
        const meant = rows.filter(
          ([, subsidiaryId, externalId]) =>
            externalId === address.externalId &&
            (address.subsidiaryId === undefined || address.subsidiaryId === subsidiaryId),
        );
        expect(new Set(meant.map(([sku, branch]) => `sku:${sku}@${branch}`))).toEqual(new Set([target.key]));
        if (words.subsidiaryId !== undefined) expect(target.subsidiaryId).toBe(words.subsidiaryId);
        if (words.sku !== undefined) expect(target.sku).toBe(words.sku);
      }),
    );
  });
});

describe('the target of a product change', () => {
  const product = (change: object, more: object = {}) => resolveProduct(change, { catalog, ...more });

  it('is one sku, named by sku or by externalId in any branch', () => {
    const expected = ['resolved', 'sku:10', { sku: 10 }];
    expect(brief(product({ sku: '10', price: 1 }))).toEqual(expected);
    expect(brief(product({ externalId: 'A', price: 1 }))).toEqual(expected);
    expect(product({ sku: '10', price: 1 })).toMatchObject({ target: { conflictKey: 'product:p1' } });
  });

  it('of a price is refused when several skus share the externalId; of a name it is the product', () => {
    expect(brief(product({ externalId: 'twin', price: 1 }))).toBe('ambiguous');
    expect(brief(product({ externalId: 'twin', name: 'x' }))).toEqual(['resolved', 'sku:20', { sku: 20 }]);
  });

  it('is refused when sku and externalId contradict each other', () => {
    expect(brief(product({ sku: '10', externalId: 'posA', price: 1 }))).toBe('contradiction');
  });

  it('is read again before it is unknown, and sent as it is before the first sweep', () => {
    expect(brief(product({ externalId: 'new', price: 1 }))).toEqual({ externalId: 'new' });
    expect(brief(product({ externalId: 'new', price: 1 }, { alreadyRead: true }))).toBe('unknown-product');
    const empty = catalogOf([], false);
    expect(brief(product({ sku: '5', price: 1 }, { catalog: empty }))).toEqual([
      'as-is',
      'sku:5',
      { sku: 5 },
    ]);
    expect(brief(product({ externalId: 'x', show: true }, { catalog: empty }))).toEqual([
      'as-is',
      'ext:x',
      { externalId: 'x' },
    ]);
  });
});
