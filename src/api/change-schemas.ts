import * as z from 'zod';
import { isoTime, text, whole } from '../core/schema.ts';
import { type ProductChange, productItem, type StockChange, stockItem } from '../outbox/intake/change.ts';
import { digits, errorAnswer, feedQuery, limitOf, storeName } from './schemas.ts';

/** Schemas of the local API for changes on their way to the platform. */

export const ITEMS_MAX = 100_000;
/** Maximum number of items of a whole inventory or of a `dryRun`, which are planned in one piece. */
export const PLANNED_ITEMS_MAX = 20_000;

const itemsOf = <T extends z.ZodType>(item: T) =>
  z
    .array(item)
    .min(1)
    .max(ITEMS_MAX)
    .describe(`1 to ${ITEMS_MAX} items, each checked by itself. The same as NDJSON or as CSV with a header.`);
export const stockItems = itemsOf(stockItem);
export const productItems = itemsOf(productItem);

export const candidate = z.object({
  sku: z.string(),
  productId: z.string(),
  subsidiaryId: z.string().nullable(),
  externalId: z.string().nullable(),
  field: z.enum(['extId', 'productIdPosA', 'productCodePosB']).nullable(),
});

/** Outcome of one submitted item, for a request that waited for it. */
export const outcome = z.object({
  changeId: whole.describe('The change itself, or the one that took its place'),
  state: z.enum(['pending', 'sending', 'done', 'rejected', 'superseded']),
  message: text,
  settledAt: isoTime.nullable().describe('null: it is not settled'),
});

/** What would happen to an item, in the answer to a `dryRun`. */
export const preview = z.object({
  target: z.string().describe('What it is for'),
  values: z.record(z.string(), z.unknown()).describe('What would be sent'),
  verdict: z
    .enum(['send', 'read', 'unchanged', 'held', 'rejected'])
    .describe(
      '`read`: its product would be read first; `unchanged`: the platform has the value, so no call is needed',
    ),
  why: z.string(),
});

export const itemResult = z.object({
  index: whole.describe('Of the item, from 0'),
  unnamed: z
    .string()
    .optional()
    .describe(
      'A stock that a whole inventory does not name and that goes to zero; `index` goes on after the items',
    ),
  line: whole.optional().describe('Where it begins, from 1, in CSV and NDJSON'),
  state: z
    .enum(['pending', 'held', 'rejected', 'superseded'])
    .describe(
      '`pending`: saved, is sent; `held`: saved, waits for a person; `rejected`: not taken; `superseded`: counted too early',
    ),
  changeId: whole.optional().describe('For GET /v1/outbox/{changeId}'),
  code: z
    .string()
    .optional()
    .describe(
      'Why an item could not be used: `bad-value`, `same-article` (other items are of the same article), `twin` (an unknown ' +
        'id that is nearly the id of a missing stock), or another code',
    ),
  column: z.string().optional().describe('The column at fault'),
  rows: z.array(whole).optional().describe('With `same-article`: the indexes of all items of that article'),
  message: z.string().optional(),
  candidates: z.array(candidate).optional().describe('What a rejected item may have meant'),
  outcome: outcome.optional().describe('Where `wait` was asked: what became of the change so far'),
  preview: preview.optional().describe('With `dryRun`, in which `pending` means that it would be taken'),
});

const yesOrNo = z
  .stringbool({ truthy: ['true'], falsy: ['false'], error: 'true or false is needed' })
  .default(false);

export const handOverQuery = z.strictObject({
  wait: digits(0, 30)
    .default(0)
    .describe(
      'Seconds to wait until each change is settled or held; each result then has its `outcome`. For up to 1,000 items',
    ),
  dryRun: yesOrNo.describe(
    'Only answers what would be sent, and why. One result for each target, with its `preview`. For up to 20,000 items',
  ),
  file: z
    .string()
    .min(1)
    .max(255)
    .optional()
    .describe('The file that the items are from: `outbox undo --file`'),
  decimal: z
    .enum(['point', 'comma'])
    .optional()
    .describe('Of CSV: which sign of its numbers is the decimal one; the other may group thousands'),
});

export const stockQuery = handOverQuery.extend({
  full: yesOrNo.describe(
    'The items count everything: only what differs from the mirror or from your last count is handed over, and only ' +
      'that has results. Where an item is of a product that the catalogue lacks, the catalogue is read first, which takes about a second for each ' +
      '100 products and branch. For up to 20,000 items, in one request',
  ),
  branch: storeName
    .optional()
    .describe(
      'The branch of every item that names none, by either id, and with `full` the one that they count',
    ),
  missing: z
    .enum(['keep', 'zero'])
    .optional()
    .describe(
      'With `full`: known stocks that no item names keep their quantity and stay on sale, which is usual, or go to zero',
    ),
  rows: z
    .enum(['sum'])
    .optional()
    .describe('Adds up the quantities of several items of one article; without it, these items are rejected'),
});

/** Result of comparing a whole inventory with the mirror. */
export const inventory = z.object({
  branch: text.describe('The one branch that it counts; null: all'),
  different: whole.describe('Items that differ from the mirror'),
  unsure: whole.describe(
    'Items that the mirror has, handed over because the platform or your last count may differ',
  ),
  unchanged: whole,
  known: whole.describe('Stocks that it should name'),
  missing: whole.describe('Known stocks that it does not name'),
  missingSample: z.array(z.string()),
  missingNotZero: whole.describe('Of these, those above zero'),
  unknown: whole.describe('Items of what the catalogue does not have; they are passed over'),
  unknownSample: z.array(z.string()),
  unclear: whole.describe('Items that may be what is missing; above 0, nothing goes to zero'),
  catalogFault: text.describe('Why the catalogue could not be read first; nothing goes to zero then'),
  missingBecome: z.enum(['keep', 'zero']),
  hold: text.describe('Why all of it is held for a person'),
});

export const changesAnswer = z.object({
  results: z
    .array(itemResult)
    .describe('One for each item, in order; with `full`, of those that were handed over or rejected'),
  inventory: inventory.optional().describe('With `full`'),
  notes: z
    .array(z.string())
    .optional()
    .describe('How a CSV body was read: as Windows-1252, or without some of its columns'),
  total: whole,
  pending: whole.describe(
    'Results that are pending; with `wait`, those that still are when the answer comes',
  ),
  held: whole,
  done: whole
    .optional()
    .describe('With `wait`: changes that are at the platform, or were replaced by a newer value'),
  rejected: whole.describe('Results that were rejected; with `wait`, by the platform too'),
  superseded: whole.optional().describe('Missing: none'),
  error: errorAnswer.shape.error
    .optional()
    .describe('Why the items that have no result were not taken; the others were'),
});

const OUTBOX_STATES = ['pending', 'sending', 'done', 'rejected', 'superseded'] as const;

const changeBody: z.ZodType<{ [column in keyof (StockChange & ProductChange)]?: unknown }> = z
  .record(z.string(), z.unknown())
  .describe('In the platform\u2019s item shape; of an unread item what was handed over');

/** A change on its way to the platform. */
export const change = z.object({
  changeId: whole,
  kind: z.enum(['product', 'stock']),
  target: z.string().describe('What it is for; two waiting changes of one kind never have the same'),
  body: changeBody,
  state: z.enum(OUTBOX_STATES),
  attempts: whole,
  message: text.describe('Why it is held, rejected or replaced'),
  createdAt: isoTime,
  settledAt: isoTime.nullable(),
  heldGuard: text.describe('The guard rail that holds it for a person'),
  source: z.string().describe('Way in: inbox, http, cli or hold-back'),
  origin: text.describe('Who handed it over, such as "cli ana"; null: taken before this was noted'),
  reference: text.describe('Of the newest value that went into it'),
  countedAt: isoTime.nullable().describe('When it was counted, if `counted_at` said so'),
  replaced: whole.describe('How many earlier values for the target went into it'),
  supersededBy: whole.nullable(),
  settledSeq: whole.nullable().describe('Its place in the feed of settled changes; null: it is not settled'),
});

/** Body of a hook's POST for a rejected change. */
export const rejectedChangeEvent = z.object({
  event: z.literal('change.rejected'),
  seq: whole.describe('The `settledSeq` of the change; rises with each'),
  change: change.describe('As /v1/outbox shows it'),
  test: z.literal(true).optional().describe('Made up by `tillsync hooks test`: pass over it'),
});

export const outboxQuery = z.strictObject({
  state: z
    .enum([...OUTBOX_STATES, 'held', 'waiting'])
    .optional()
    .describe(
      '`held`: the part of `pending` that waits for a person; `waiting`: the rest of it, and what is being sent',
    ),
  kind: z.enum(['product', 'stock']).optional(),
  reference: z
    .string()
    .min(1)
    .max(1_000)
    .optional()
    .describe(
      'Only changes with a value that was handed over under it; where a newer value took its place before it left, or joined it, the change has the `reference` of the newer one',
    ),
  before: digits(1).optional().describe('Only changes with a lower id, for the next page'),
  after: feedQuery.shape.after
    .unwrap()
    .optional()
    .describe(
      'The feed of settled changes: those with a higher `settledSeq`, oldest first; `newest`: none yet, but its end as `next`',
    ),
  wait: digits(0, 30)
    .default(0)
    .describe(
      'Beside `after`: seconds to wait for one where none has settled yet; the page is empty when none did',
    ),
  limit: limitOf(100, 1000),
});

export const outboxPage = z.object({
  changes: z.array(change).describe('Newest first; with `after`, in the order in which they settled'),
  before: whole.nullable().describe('For the next page; null: there is none'),
  next: whole.optional().describe('Where `after` was asked: pass it as `after` for what follows'),
  newest: whole.optional().describe('Where `after` was asked: the newest `settledSeq` there is'),
});

export const changePath = z.strictObject({ changeId: digits(1) });

export const changeAnswer = z.object({
  change,
  became: change.nullable().describe('The change that took its place, where one did'),
});

/** Refusal of a decision that the change's state does not allow. It includes the change. */
export const changeConflict = changeAnswer.extend(errorAnswer.shape);

export const releaseRequest = z.strictObject({
  guard: z
    .enum(['zero-items', 'price-factor', 'missing-share', 'restored'])
    .nullable()
    .describe('Lets go what this guard rail holds; null: all that is held'),
});
export const releaseAnswer = z.object({ released: whole });

export const discardRequest = z.strictObject({
  state: z.literal('rejected'),
  origin: z
    .string()
    .min(1)
    .exactOptional()
    .describe('Only changes of this `origin`, whole or one of its parts, for example `file counts.csv`'),
});
export const discardAnswer = z.object({ discarded: whole });
