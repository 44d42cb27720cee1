import { z } from 'zod';
import { ENDPOINTS } from '../domain/platform/limits.ts';
import { FAULT_KINDS } from './faults.ts';
import { ORDER_ENVELOPES, ORDER_RECORDS } from './settings.ts';

const chance = z.number().min(0).max(1);
const ms = z.number().min(0);

/** Bodies of the control routes. */
export const faultBody = z.strictObject({
  kind: z.enum(FAULT_KINDS),
  endpoint: z.enum(ENDPOINTS).exactOptional(),
  times: z.int().min(1).exactOptional(),
  skip: z.int().min(0).exactOptional(),
  probability: chance.exactOptional(),
  when: z.enum(['before', 'after']).exactOptional(),
  status: z.int().min(400).max(599).exactOptional(),
  delayMs: ms.exactOptional(),
  retryAfter: z.string().nullable().exactOptional(),
  poison: z.array(z.union([z.string(), z.number()])).exactOptional(),
});

export const orderBody = z.strictObject({
  subsidiaryId: z.string().exactOptional(),
  status: z.string().exactOptional(),
  deliveryType: z.enum(['delivery', 'pickup']).exactOptional(),
  isScheduled: z.boolean().exactOptional(),
  items: z
    .array(z.strictObject({ sku: z.number(), qty: z.number(), withModifier: z.boolean().exactOptional() }))
    .exactOptional(),
  /** No notification of it ever leaves. */
  hidden: z.boolean().exactOptional(),
});

export const behaviourBody = z.strictObject({
  drop: chance.exactOptional(),
  duplicate: chance.exactOptional(),
  reorder: chance.exactOptional(),
  reorderMs: ms.exactOptional(),
  delay: chance.exactOptional(),
  delayMs: z.tuple([ms, ms]).exactOptional(),
});

export const settingsBody = z.strictObject({
  shape: z
    .strictObject({
      envelope: z.enum(ORDER_ENVELOPES),
      record: z.enum(ORDER_RECORDS),
      pageSize: z.int().min(1).nullable(),
    })
    .exactOptional(),
  retryAfter: z.enum(['seconds', 'date', 'absent']).exactOptional(),
  slackMs: ms.exactOptional(),
  blockMs: ms.exactOptional(),
  clockSkewMs: z.number().exactOptional(),
  latencyMs: z.tuple([ms, ms]).exactOptional(),
  maxPageSize: z.int().min(1).nullable().exactOptional(),
  webhookReadPath: z.string().nullable().exactOptional(),
  webhookReadMethod: z.string().exactOptional(),
  webhookFlagName: z.string().exactOptional(),
  externalPos: z.boolean().exactOptional(),
  refusalStatus: z.int().exactOptional(),
  validationStatus: z.int().exactOptional(),
  webhookRetry: z.strictObject({ delaysMs: z.array(ms) }).exactOptional(),
  webhookTimeoutMs: ms.exactOptional(),
  reuseRevokes: z.boolean().exactOptional(),
});

/** `status` left out: a plausible next one. */
export const advanceBody = z.strictObject({ status: z.string().exactOptional() });

export const webhookBody = z
  .strictObject({
    callbackUrl: z.url({ protocol: /^https?$/ }),
    secret: z.string().default(''),
    active: z.boolean().default(true),
  })
  .nullable();
