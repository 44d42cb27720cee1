import { TillsyncError } from '../domain/errors.ts';
import { jsonText } from '../domain/json/json-text.ts';
import type { ProductPage, ProductRecord } from '../domain/platform/platform.ts';
import { readAs, readData } from './answers.ts';
import { readProduct } from './schemas/product-answer.ts';
import { productListData } from './schemas/product-query.ts';
import type { CallAnswer } from './transport.ts';

const TOO_DEEP = 'An entry that is nested too deeply to be kept.';

/** A page of GET /product/list; entries that cannot be read, or only in part, are also given as text. */
export function readProductPage(answer: CallAnswer): ProductPage {
  const { docs: entries, ...counts } = readAs(productListData, readData(answer), answer);
  const docs: ProductRecord[] = [];
  const unreadable: string[] = [];
  for (const entry of entries) {
    const read = readProduct(entry);
    if (read) docs.push(read.record);
    if (!read?.complete) unreadable.push(jsonText(entry) ?? TOO_DEEP);
  }
  const { totalDocs, limit, page, totalPages, hasNextPage } = counts;
  return { docs, unreadable, totalDocs, limit, page, totalPages, hasNextPage };
}

/** The product of GET /product; null when the platform does not know it. */
export function readProductData(answer: CallAnswer): ProductRecord | null {
  const data = readData(answer);
  if (data === null || data === undefined) return null;
  const read = readProduct(data);
  if (read) return read.record;
  throw new TillsyncError('platform-garbled', 'The platform sent a product without an id.', {
    httpStatus: answer.status,
  });
}
