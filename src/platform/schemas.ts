import * as z from 'zod';
import { jsonText, readNumber } from '../core/values.ts';
import { BATCH_ITEMS_MAX } from './platform.ts';

/**
 * Schemas for answers whose types the document does not show. Numbers may come as text, and any field may be missing.
 * An unreadable value becomes null; the raw record still has it.
 */

/** An id that was sent as text or as a number. */
const idText = z.union([z.string().min(1), z.number(), z.bigint()]).transform((value) => String(value));

const nullableId = idText.nullable().catch(null);

const nullableText = z
  .union([z.string(), z.union([z.number(), z.boolean()]).transform(String)])
  .nullable()
  .catch(null);

/** An amount or quantity, sent as a number or as decimal text. */
const nullableNumber = z
  .unknown()
  .optional()
  .transform((value) => readNumber(value) ?? null);

/** A number such as an index or a total, sent as a number or as text. */
const nullableCount = z
  .union([
    z.number(),
    z
      .string()
      .regex(/^\s*\d+\s*$/)
      .transform(Number),
  ])
  .nullable()
  .catch(null);

const FLAGS: Record<string, boolean> = { true: true, false: false, '1': true, '0': false };

/** A boolean that may be sent as 1, 0, "true" or "false". */
const nullableFlag = z
  .union([
    z.boolean(),
    z
      .union([z.string(), z.number()])
      .refine((value) => Object.hasOwn(FLAGS, String(value)))
      .transform((value) => FLAGS[String(value)] ?? null),
  ])
  .nullable()
  .catch(null);

/** A discount or its indicator: a number, or a flag. */
const numberOrFlag = z
  .unknown()
  .optional()
  .transform((value): number | boolean | null => readNumber(value) ?? nullableFlag.parse(value));

/** A scalar as it was sent; an object or array becomes its JSON text. */
const scalarOrJson = z
  .unknown()
  .optional()
  .transform((value): string | number | boolean | null => {
    if (value === undefined || value === null) return null;
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value;
    return jsonText(value) ?? null;
  });

/**
 * Returns a schema that reads an array and skips entries that `entry` cannot read. Anything else is read as an empty
 * array.
 */
function readableEntries<T>(entry: z.ZodType<T>): z.ZodType<T[]> {
  return z
    .array(z.unknown())
    .catch([])
    .transform((values) =>
      values.flatMap((value) => {
        // Skipped before zod reads it, because there may be millions of such values.
        if (typeof value !== 'object' || value === null) return [];
        const read = entry.safeParse(value);
        return read.success ? [read.data] : [];
      }),
    );
}

/** Envelope of answers (document, "Response envelope"). Unknown fields are kept. */
export const envelopeAnswer = z.looseObject({
  success: nullableFlag,
  message: nullableText,
  data: z.unknown().optional(),
});

/** Query of GET /order/all. Further parameters may be configured, because the document does not show its paging. */
export const orderAllQuery = z
  .looseObject({ startDate: z.iso.date(), endDate: z.iso.date() })
  .refine((query) => query.startDate <= query.endDate, { error: 'startDate is after endDate' });

/** Maximum number of errors in an answer: 20 for each item of a full batch. Reading very many would take minutes. */
const ERRORS_MAX = 20 * BATCH_ITEMS_MAX;

const batchError = z.union([
  z
    .looseObject({
      index: nullableCount,
      sku: z.union([z.number(), z.string()]).nullable().catch(null),
      externalId: nullableId,
      message: z.unknown().optional(),
    })
    .transform(({ index, sku, externalId, message }) => ({
      index,
      sku,
      externalId,
      message: asMessage(message),
    })),
  z.unknown().transform((value) => ({ index: null, sku: null, externalId: null, message: asMessage(value) })),
]);

/**
 * `data` of the batch endpoints: { updated, total, errors }. If `errors` is something other than an array, the answer
 * is garbled, because reading it as empty would hide items that the platform discarded.
 */
export const batchData = z.object({
  updated: nullableCount,
  total: nullableCount,
  errors: z
    // The length is checked first, so that too many entries are never read.
    .union([z.array(z.unknown()).max(ERRORS_MAX).pipe(z.array(batchError)), z.null().transform(() => [])])
    .default([]),
});
/** Result of a batch. `readBatchData` has cut its messages short, put each on one line, and removed secrets. */
export type BatchAnswer = z.output<typeof batchData>;

function asMessage(value: unknown): string {
  return typeof value === 'string' ? value : (jsonText(value) ?? '');
}

const stockEntry = z.object({ subsidiaryId: idText, qty: nullableNumber, show: nullableFlag });

const integrationEntry = z.object({
  subsidiaryId: idText,
  productIdPosA: nullableId,
  productCodePosB: nullableId,
  extId: nullableId,
});

const skuEntry = z.object({
  sku: idText,
  barcode: nullableText,
  price: nullableNumber,
  withDiscount: numberOrFlag,
  discount: numberOrFlag,
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

export type SkuRecord = z.output<typeof skuEntry>;

/** A product as the platform sent it: the fields that were readable, and everything in `raw`. */
export type ProductRecord = Omit<z.output<typeof productEntry>, 'children'> & {
  children: SkuRecord[];
  /**
   * True if a sku, stock or integration is unreadable, or if a list of them is null or missing, so that an entry that
   * is missing here may exist.
   */
  isPartial?: true;
  /** JSON text of the whole record. */
  raw: string;
};

/**
 * Reads one product of the platform. Returns undefined if it has no id or is nested too deeply. `complete` is false if
 * a sku, stock or integration was unreadable; such an entry is only in `raw`.
 */
export function readProduct(value: unknown): { record: ProductRecord; complete: boolean } | undefined {
  const read = productEntry.safeParse(value);
  if (!read.success) return undefined;
  const raw = jsonText(value);
  if (raw === undefined) return undefined;
  const children = readableEntries(skuEntry).parse(read.data.children);
  const complete =
    children.length === entriesIn((value as { children?: unknown }).children) &&
    children.every((child, i) => {
      const { stocks, integrations } = read.data.children[i] as Record<string, unknown>;
      return (
        child.stocks.length === entriesIn(stocks) && child.integrations.length === entriesIn(integrations)
      );
    });
  const isPartial = !complete || !saysEveryList(value as Record<string, unknown>);
  return { record: { ...read.data, children, raw, ...(isPartial && { isPartial }) }, complete };
}

/** Returns whether a product says its skus, and of each its stocks and integrations. An empty list says so too. */
function saysEveryList({ children }: Record<string, unknown>): boolean {
  const isSaid = (child: unknown) =>
    typeof child === 'object' &&
    child !== null &&
    Array.isArray(Reflect.get(child, 'stocks')) &&
    Array.isArray(Reflect.get(child, 'integrations'));
  return Array.isArray(children) && children.every(isSaid);
}

/** Returns the number of entries of a list, 0 if it is missing; undefined if the value is no list. */
function entriesIn(value: unknown): number | undefined {
  if (value === undefined || value === null) return 0;
  return Array.isArray(value) ? value.length : undefined;
}

/** Body of PUT /product, and an item of PUT /product/batch (the platform's document, rules 1 and 2 of each of these endpoints). */
export const productChangeItem = z
  .strictObject({
    sku: z.number().optional(),
    externalId: z.string().min(1).optional(),
    price: z.number().optional(),
    name: z.string().min(1).optional(),
    /** Description; '' deletes it. */
    description: z.string().optional(),
    /** Visibility of the whole product. Each stock has its own visibility. */
    show: z.boolean().optional(),
  })
  .refine((item) => item.sku !== undefined || item.externalId !== undefined, {
    error: 'sku or externalId is needed',
  })
  .refine(
    (item) =>
      item.price !== undefined ||
      item.name !== undefined ||
      item.description !== undefined ||
      item.show !== undefined,
    { error: 'at least one of price, name, description, show is needed' },
  );

export type ProductChangeItem = z.output<typeof productChangeItem>;

/** Body of PUT /product/batch, with every item valid. */
export const productBatchRequest = z.strictObject({
  products: z.array(productChangeItem).min(1).max(BATCH_ITEMS_MAX),
});

/**
 * Body of a batch endpoint before its items are checked. Used by the sandbox, so that a bad item does not reject the
 * others.
 */
export const batchRequestFrame = z.looseObject({
  products: z.array(z.unknown()).min(1).max(BATCH_ITEMS_MAX),
});

/** Maximum number of products in a page, far more than any requested page has. */
const DOCS_MAX = 20_000;

const pageNumber = z.union([z.number(), z.string().regex(/^\d+$/).transform(Number)]).pipe(z.int().min(1));

/** Query of GET /product/list, for tillsync and for the sandbox. */
export const productListQuery = z
  .strictObject({
    subsidiaryId: z.string().min(1).optional(),
    /** The external id of the branch. */
    externalId: z.string().min(1).optional(),
    page: pageNumber.default(1),
    limit: pageNumber.default(20),
    order: z.enum(['asc', 'desc']).default('desc'),
    orderBy: z.string().min(1).default('CreatedDate'),
  })
  .refine((query) => (query.subsidiaryId === undefined) !== (query.externalId === undefined), {
    error: 'exactly one of subsidiaryId and externalId is needed',
  });

export type ProductListQuery = z.output<typeof productListQuery>;

/** The fields of an answer of GET /product/list. */
export const productListData = z
  .object({
    docs: z.array(z.unknown()).max(DOCS_MAX).nullish(),
    totalDocs: nullableCount,
    limit: nullableCount,
    page: nullableCount,
    totalPages: nullableCount,
    hasNextPage: nullableFlag,
  })
  // null in the place of the list means no products; a missing list only if the answer counts none.
  .refine(({ docs, totalDocs }) => docs !== undefined || totalDocs === 0, { path: ['docs'] })
  .transform(({ docs, ...counts }) => ({ ...counts, docs: docs ?? [] }));

export type ProductPage = Omit<z.output<typeof productListData>, 'docs'> & {
  docs: ProductRecord[];
  /** JSON text of entries that are not readable as a product, or only in part. */
  unreadable: string[];
};

/** Query of GET /product, with exactly one of the two ids. */
export const productGetQuery = z
  .strictObject({ sku: z.string().min(1).optional(), externalId: z.string().min(1).optional() })
  .refine((query) => (query.sku === undefined) !== (query.externalId === undefined), {
    error: 'one of sku and externalId is needed',
  });

/** Body of PUT /product/stock, and an item of PUT /product/stock/batch. */
export const stockChangeItem = z.strictObject({
  externalId: z.string().min(1),
  qty: z.number(),
  /** Visibility of the stock in its branch. If left out, it is unchanged. */
  show: z.boolean().optional(),
  subsidiaryExternalId: z.string().min(1).optional(),
  subsidiaryId: z.string().min(1).optional(),
});

export type StockChangeItem = z.output<typeof stockChangeItem>;

/** Body of PUT /product/stock/batch, with every item valid. */
export const stockBatchRequest = z.strictObject({
  products: z.array(stockChangeItem).min(1).max(BATCH_ITEMS_MAX),
});

/** Body of POST /token/refresh. */
export const tokenRefreshRequest = z.strictObject({ refreshToken: z.string().min(1) });

/**
 * `data` of POST /token/refresh: a new token pair, and a lifetime such as `1h`. A refresh token with other characters
 * than visible ASCII is unusable, so it is rejected here, and the loss of the pair is reported.
 */
export const tokenRefreshData = z.looseObject({
  token: z.string().min(1),
  refreshToken: z.string().regex(/^[\x21-\x7e]+$/),
  expiresIn: nullableText,
});

/**
 * Returns the body of PUT /webhook. The name of the enable flag is a parameter, because the document does not show it.
 */
export function webhookPutRequest(enableFlag: string) {
  return z.strictObject({
    callbackUrl: z.url({ protocol: /^https?$/ }).optional(),
    /** '' deletes the secret. If the field is left out, the secret stays. */
    secret: z.string().optional(),
    [enableFlag]: z.boolean().optional(),
  });
}

/** `data` in answers of PUT /webhook and of the webhook read. */
export const webhookData = z.object({
  callbackUrl: nullableText,
  active: nullableFlag,
  hasSecret: nullableFlag,
});
export type WebhookState = z.output<typeof webhookData>;
