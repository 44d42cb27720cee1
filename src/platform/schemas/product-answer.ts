import { z } from 'zod';
import { jsonText } from '../../domain/json/json-text.ts';
import type { ProductRecord } from '../../domain/platform/platform.ts';
import {
  idText,
  nullableAmount,
  nullableFlag,
  nullableId,
  nullableText,
  readableEntries,
  scalarOrJson,
} from './tolerant.ts';

const stockEntry = z.object({ subsidiaryId: idText, qty: nullableAmount, show: nullableFlag });

const integrationEntry = z.object({
  subsidiaryId: idText,
  productIdPosA: nullableId,
  productCodePosB: nullableId,
  extId: nullableId,
});

const skuEntry = z.object({
  sku: idText,
  barcode: nullableText,
  price: nullableAmount,
  withDiscount: scalarOrJson,
  discount: scalarOrJson,
  show: nullableFlag,
  stocks: readableEntries(stockEntry),
  integrations: readableEntries(integrationEntry),
});

const productEntry = z.object({
  id: idText,
  name: nullableText,
  category: scalarOrJson.transform((value) => (value === null ? null : String(value))),
  show: nullableFlag,
  children: z.array(z.unknown()).catch([]),
});

/** One product as read, and whether all of its SKU entries could be. */
export interface ReadProduct {
  record: ProductRecord;
  /** False: an entry of `children` has no sku; it is in `raw` alone. */
  complete: boolean;
}

/** Reads a product of GET /product or of a page's docs; undefined when it has no id or is nested too deeply. */
export function readProduct(value: unknown): ReadProduct | undefined {
  const read = productEntry.safeParse(value);
  if (!read.success) return undefined;
  const raw = jsonText(value);
  if (raw === undefined) return undefined;
  const children = readableEntries(skuEntry).parse(read.data.children);
  return {
    record: { ...read.data, children, raw },
    complete: children.length === read.data.children.length,
  };
}
