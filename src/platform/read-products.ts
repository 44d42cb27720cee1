import { TillsyncError } from '../domain/errors.ts';
import { jsonText } from '../domain/json/json-text.ts';
import type { ProductPage, ProductRecord } from '../domain/platform/platform.ts';
import { garbled, readAs, readData } from './answers.ts';
import { readProduct } from './schemas/product-answer.ts';
import { productListData } from './schemas/product-query.ts';
import type { CallAnswer } from './transport.ts';

const TOO_DEEP = 'An entry that is nested too deeply to be kept.';

/**
 * Far beyond a whole catalogue in one answer, its SKUs, stocks and integrations included: reading more would keep
 * everything else waiting for minutes.
 */
const OBJECTS_MAX = 300_000;
const OPENING_BRACE = 0x7b;

/** A page of GET /product/list; entries that cannot be read, or only in part, are also given as text. */
export function readProductPage(answer: CallAnswer): ProductPage {
  const { docs: entries, ...counts } = readAs(productListData, readBounded(answer), answer);
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
  const data = readBounded(answer);
  if (data === null || data === undefined) return null;
  const read = readProduct(data);
  if (read) return read.record;
  throw new TillsyncError('platform-garbled', 'The platform sent a product without an id.', {
    httpStatus: answer.status,
  });
}

/** `data` of the envelope; throws as `readData`, and `platform-garbled` for more than any catalogue holds. */
function readBounded(answer: CallAnswer): unknown {
  let objects = 0;
  for (const byte of answer.bytes) if (byte === OPENING_BRACE) objects += 1;
  if (objects > OBJECTS_MAX) throw garbled(answer, `more than ${OBJECTS_MAX} objects`);
  return readData(answer);
}
