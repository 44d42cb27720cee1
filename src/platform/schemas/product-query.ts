import { z } from 'zod';
import { nullableCount, nullableFlag } from './tolerant.ts';

/** Far more than any page asked for; an entry that cannot be read is kept by itself. */
const DOCS_MAX = 20_000;

const pageNumber = z.union([z.number(), z.string().regex(/^\d+$/).transform(Number)]).pipe(z.int().min(1));

/** Query of GET /product/list, as sent or as a server reads it from the address. */
export const productListQuery = z
  .strictObject({
    subsidiaryId: z.string().min(1).optional(),
    /** The branch's extId. */
    externalId: z.string().min(1).optional(),
    page: pageNumber.default(1),
    limit: pageNumber.default(20),
    order: z.enum(['asc', 'desc']).default('desc'),
    orderBy: z.string().min(1).default('CreatedDate'),
  })
  .refine((query) => (query.subsidiaryId === undefined) !== (query.externalId === undefined), {
    error: 'exactly one of subsidiaryId and externalId is needed',
  });

/** `data` of GET /product/list around its docs. */
export const productListData = z.looseObject({
  docs: z.array(z.unknown()).max(DOCS_MAX),
  totalDocs: nullableCount,
  limit: nullableCount,
  page: nullableCount,
  totalPages: nullableCount,
  hasNextPage: nullableFlag,
});

/** Query of GET /product: one of the two. */
export const productGetQuery = z
  .strictObject({ sku: z.string().min(1).optional(), externalId: z.string().min(1).optional() })
  .refine((query) => (query.sku === undefined) !== (query.externalId === undefined), {
    error: 'one of sku and externalId is needed',
  });
