import { describe, expect, it } from 'vitest';
import { verifyApplied } from '../../src/outbox/sending/call-plan.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';

const mapping = (subsidiaryId: string, extId: string) => ({
  subsidiaryId,
  extId,
  productIdPosA: null,
  productCodePosB: null,
});
const record: ProductRecord = {
  id: 'p1',
  name: 'Tea',
  category: null,
  show: true,
  raw: '{}',
  children: [
    {
      sku: '10',
      barcode: null,
      price: 1990,
      withDiscount: null,
      discount: null,
      show: true,
      stocks: [
        { subsidiaryId: 's1', qty: 5, show: true },
        { subsidiaryId: 's2', qty: 7, show: null },
      ],
      integrations: [mapping('s1', 'A'), mapping('s2', 'A'), mapping('s1', 'B')],
    },
  ],
};

describe('a product read again', () => {
  it.each([
    [{ externalId: 'A', qty: 5, subsidiaryId: 's1' }, 'applied'],
    [{ externalId: 'A', qty: 5, subsidiaryId: 's2' }, 'differs'],
    [{ externalId: 'A', qty: 7, show: false, subsidiaryId: 's2' }, 'applied'],
    [{ externalId: 'B', qty: 5, show: false }, 'differs'],
    [{ externalId: 'Z', qty: 5 }, 'differs'],
    [{ sku: 10, price: 1990 }, 'applied'],
    [{ sku: 10, price: 1990, name: 'Coffee' }, 'differs'],
    [{ externalId: 'A', show: false }, 'differs'],
    [{ sku: 11, price: 1990 }, 'differs'],
    [{ sku: 10, description: 'hot' }, 'unseen'],
    [{ externalId: 'A', qty: 5 }, 'unseen'],
    [{ externalId: 'A', qty: 6 }, 'differs'],
    [{ sku: 11, name: 'Tea' }, 'differs'],
    [{ externalId: 'Z', description: 'hot' }, 'differs'],
  ])('says of %j: %s', (body, verdict) => {
    expect(verifyApplied(body, record)).toBe(verdict);
  });

  it('that is gone proves nothing was applied', () => {
    expect(verifyApplied({ sku: 10, price: 1990 }, null)).toBe('differs');
  });
});
