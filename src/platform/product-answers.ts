import { TillsyncError } from '../core/errors.ts';
import { jsonText } from '../core/values.ts';
import type { SingleAnswer } from './platform.ts';
import {
  type BatchAnswer,
  batchData,
  type ProductPage,
  type ProductRecord,
  productListData,
  readProduct,
} from './schemas.ts';
import { bounded, type CallAnswer, garbled, readAs, readData, readEnvelope } from './transport.ts';

const TOO_DEEP = 'An entry that is nested too deeply to be kept.';

/**
 * Maximum number of JSON objects in one answer. It is far more than a catalogue with its skus, stocks and integrations
 * has. Parsing more would block the event loop for minutes.
 */
const OBJECTS_MAX = 300_000;

const OPENING_BRACE = 0x7b;

/**
 * Reads a page of GET /product/list. The JSON text of products that are unreadable, even in part, is in `unreadable`;
 * those that cannot be read at all are only there.
 */
export function readProductPage(answer: CallAnswer): ProductPage {
  // null in the place of the page means that there are no products.
  const data = readBounded(answer) ?? { docs: null, totalDocs: 0, hasNextPage: false };
  const { docs: entries, ...counts } = readAs(productListData, data, answer);
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

/** Reads the product in an answer of GET /product. Returns null if the platform does not know it. */
export function readProductData(answer: CallAnswer): ProductRecord | null {
  const data = readBounded(answer);
  if (data === null || data === undefined) return null;
  const read = readProduct(data);
  if (read) return read.record;
  throw new TillsyncError('platform-garbled', 'The platform sent a product without an id.', {
    httpStatus: answer.status,
  });
}

/** Reads `data` of the envelope. Throws as `readData` does, and `platform-garbled` for too many objects. */
function readBounded(answer: CallAnswer): unknown {
  let objects = 0;
  for (const byte of answer.bytes) if (byte === OPENING_BRACE) objects += 1;
  if (objects > OBJECTS_MAX) throw garbled(answer, `more than ${OBJECTS_MAX} objects`);
  return readData(answer);
}

/** Reads the answer of PUT /product or PUT /product/stock. Throws `platform-refused` or `platform-garbled`. */
export function readSingle(answer: CallAnswer): SingleAnswer {
  return readEnvelope(answer).success === true ? 'applied' : 'unsaid';
}

/** Reads the answer of either batch endpoint. Throws `platform-refused` or `platform-garbled`. */
export function readBatchData(answer: CallAnswer): BatchAnswer {
  const { updated, total, errors } = readAs(batchData, readData(answer), answer);
  const told = (text: string) => bounded(text, answer) || 'The platform gives no reason.';
  return { updated, total, errors: errors.map((error) => ({ ...error, message: told(error.message) })) };
}
