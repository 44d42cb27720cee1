import { z } from 'zod';

export const ITEMS_MAX = 100_000;

const sound = /^[^\0\uFFFD]*$/;
const id = z.string().max(200).regex(/\S/).regex(sound);
const sku = z.union([
  z.number().int().min(0),
  z
    .string()
    .regex(/^(0|[1-9]\d*)$/)
    .refine((digits) => Number.isSafeInteger(Number(digits)))
    .describe('Digits without leading zeros'),
]);
const value = z.number().min(0).max(Number.MAX_SAFE_INTEGER);
const oneName = {
  error: 'sku or externalId says which product is meant; at least one is needed',
};
const names = (item: { sku?: unknown; externalId?: unknown }) =>
  item.sku !== undefined || item.externalId !== undefined;

/** Item of `POST /v1/stock`: the item of the platform's PUT /product/stock/batch, or one named by its sku. */
export const stockItem = z
  .strictObject({
    externalId: id.optional().describe('Integration id of the product'),
    sku: sku.optional(),
    qty: value.describe('New stock quantity'),
    show: z.boolean().optional().describe('Stock visibility in the branch; left as it is when missing'),
    subsidiaryId: id.optional().describe('Branch, where the product is in several'),
    subsidiaryExternalId: id.optional(),
  })
  .refine(names, oneName);

/** Item of `POST /v1/products`: the item of the platform's PUT /product/batch. */
export const productItem = z
  .strictObject({
    externalId: id.optional().describe('Integration id of the product'),
    sku: sku.optional(),
    price: value.optional(),
    name: z.string().regex(/\S/).regex(sound).max(100_000).optional(),
    description: z.string().regex(sound).max(100_000).optional().describe('An empty text clears it'),
    show: z.boolean().optional().describe('Visibility of the whole product'),
  })
  .refine(names, oneName)
  .refine(
    ({ price, name, description, show }) => [price, name, description, show].some((v) => v !== undefined),
    {
      error: 'at least one of price, name, description and show is needed',
    },
  );

const itemsText = `1 to ${ITEMS_MAX} items, each checked by itself. The same as NDJSON or as CSV with a header.`;
export const stockItems = z.array(stockItem).min(1).max(ITEMS_MAX).describe(itemsText);
export const productItems = z.array(productItem).min(1).max(ITEMS_MAX).describe(itemsText);

const candidate = z.object({
  sku: z.string(),
  productId: z.string(),
  subsidiaryId: z.string().nullable(),
  externalId: z.string().nullable(),
  field: z.enum(['extId', 'productIdPosA', 'productCodePosB']).nullable(),
});

export const itemResult = z.object({
  index: z.number().int().describe('Of the item, from 0'),
  line: z.number().int().optional().describe('Where it begins, from 1, in CSV and NDJSON'),
  state: z
    .enum(['pending', 'held', 'rejected'])
    .describe(
      '`pending`: on the disk, will be sent; `held`: on the disk, waits for a person; `rejected`: not taken',
    ),
  changeId: z.number().int().optional().describe('For GET /v1/outbox/{changeId}'),
  code: z.string().optional().describe('Why an item could not be read'),
  column: z.string().optional().describe('The column at fault'),
  message: z.string().optional(),
  candidates: z.array(candidate).optional().describe('What a rejected item may have meant'),
});

export const changesAnswer = z.object({
  results: z.array(itemResult).describe('One for each item, in order'),
  total: z.number().int(),
  pending: z.number().int(),
  held: z.number().int(),
  rejected: z.number().int(),
});
