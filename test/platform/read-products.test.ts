/** Tests src/platform/answers.ts. */

import { describe, expect, it } from 'vitest';
import { readProductData, readProductPage } from '../../src/platform/answers.ts';
import type { CallAnswer } from '../../src/platform/transport.ts';

const MIB = 1024 * 1024;

function answer(data: string): CallAnswer {
  const bytes = new TextEncoder().encode(`{"success":true,"data":${data}}`);
  return { status: 200, headers: { 'content-type': 'application/json' }, bytes, secrets: [] };
}

/** Returns a JSON array with as many copies of `unit` as fit into `bytes`. */
const list = (unit: string, bytes: number) =>
  `[${Array.from({ length: Math.floor(bytes / (unit.length + 1)) }, () => unit).join(',')}]`;

const GARBLED = expect.objectContaining({ code: 'platform-garbled' });

describe('a product answer larger than any catalogue', () => {
  it.each([
    ['entries without an id', list('{}', 2 * MIB)],
    ['numbers for entries', list('0', MIB)],
  ])('is refused with millions of %s', (_what, docs) => {
    expect(() => readProductPage(answer(`{"docs":${docs}}`))).toThrow(GARBLED);
  });

  it.each([
    ['SKUs', (text: string) => `{"id":1,"children":${text}}`],
    ['stocks', (text: string) => `{"id":1,"children":[{"sku":1,"stocks":${text}}]}`],
  ])('is refused with millions of %s', { tags: ['bulk'] }, (_what, product) => {
    const huge = product(list('{"sku":1,"subsidiaryId":1}', 10 * MIB));
    expect(() => readProductData(answer(huge))).toThrow(GARBLED);
    expect(() => readProductPage(answer(`{"docs":[${huge}]}`))).toThrow(GARBLED);
  });

  it('is read without what is no object, however much of that there is', { tags: ['bulk'] }, () => {
    const product = `{"id":1,"children":[{"sku":1,"stocks":${list('0', 2 * MIB)}}]}`;
    expect(readProductData(answer(product))?.children).toMatchObject([{ sku: '1', stocks: [] }]);
  });
});

describe('a list of products', () => {
  it.each(['null', '{"docs":null,"totalDocs":0}', '{"totalDocs":0,"page":1}', '{"docs":[]}'])(
    'is empty in %s',
    (data) => {
      expect(readProductPage(answer(data))).toMatchObject({ docs: [], unreadable: [] });
    },
  );

  it.each(['{}', '[]', '{"docs":{}}', '{"totalDocs":3}', '"none"'])('is not found in %s', (data) => {
    expect(() => readProductPage(answer(data))).toThrow(GARBLED);
  });

  it('is empty without data, where one product is not found, and keeps an entry that is null for a person', () => {
    const bytes = new TextEncoder().encode('{"success":true}');
    expect(readProductPage({ ...answer('0'), bytes }).docs).toEqual([]);
    expect(() => readProductData({ ...answer('0'), bytes })).toThrow(GARBLED);
    expect(readProductPage(answer('{"docs":[null]}'))).toMatchObject({ docs: [], unreadable: ['null'] });
  });
});

const wholeCatalogue = (parts: number) => {
  const stocks = list('{"subsidiaryId":"s","qty":1}', 300);
  const docs = list(`{"id":1,"name":"Tea","children":[{"sku":1,"stocks":${stocks}}]}`, MIB / parts);
  const page = readProductPage(answer(`{"docs":${docs}}`));
  expect(page.docs.length).toBeGreaterThan(2_500 / parts);
  expect(page.docs.at(-1)?.children[0]?.stocks).toHaveLength(10);
};
const TITLE = 'a whole catalogue in one page is read (1/%i MiB)';
it.each([4])(TITLE, wholeCatalogue);
it.each([1])(TITLE, { tags: ['bulk'] }, wholeCatalogue);
