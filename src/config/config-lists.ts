import { z } from 'zod';
import { SPELLABLE_FIELDS } from '../domain/order/spelling-tree.ts';
import type { BranchConfig } from './config-type.ts';

/** The parts of the file that are lists or tables of the operator's own. */

const id = z.string({ error: 'text' }).trim().min(1, { error: 'text that is not empty' });

const branch = z
  .strictObject({ subsidiary_id: id.optional(), external_id: id.optional() }, { error: branchFault })
  .refine((value) => value.subsidiary_id !== undefined || value.external_id !== undefined, {
    error: 'a branch with subsidiary_id, external_id or both',
  })
  .transform(
    (value): BranchConfig => ({
      ...(value.subsidiary_id === undefined ? {} : { subsidiaryId: value.subsidiary_id }),
      ...(value.external_id === undefined ? {} : { externalId: value.external_id }),
    }),
  );

function branchFault(): string {
  return 'a table with subsidiary_id, external_id or both, and nothing else';
}

/** `[[branches]]`, each with an id or two, none of them twice. */
export const branches = z
  .array(branch, { error: 'a list of [[branches]] tables, each with subsidiary_id, external_id or both' })
  .superRefine((list, context) => {
    for (const name of ['subsidiaryId', 'externalId'] as const) {
      const seen = new Set<string>();
      for (const [index, { [name]: value }] of list.entries()) {
        if (value === undefined) continue;
        const path = [index, name === 'subsidiaryId' ? 'subsidiary_id' : 'external_id'];
        if (seen.has(value)) {
          context.addIssue({ code: 'custom', path, message: 'an id that no other branch has' });
        }
        seen.add(value);
      }
    }
  });

/** The field's name in the file (`item.product_name`) to its name in the domain (`item.productName`). */
const FIELD_BY_KEY = new Map(
  SPELLABLE_FIELDS.map((name) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), name]),
);

/** Keys that `[orders.fields]` may have. */
export const ORDER_FIELD_KEYS: readonly string[] = [...FIELD_BY_KEY.keys()];

const spelling = z.string({ error: 'text' }).regex(/^[^\s.]+(\.[^\s.]+)*$/, {
  error: 'a field name, or names joined by dots for a field inside another, such as "customer.mail"',
});

/** `[orders.fields]`: for a field, the spellings to look for before the known ones. */
export const orderFields = z
  .preprocess(
    flattened,
    z.record(
      z.string(),
      z.union([z.array(spelling), spelling.transform((one) => [one])], { error: spellingFault }),
      { error: 'a table such as { order_id = ["orderNumber"] }' },
    ),
  )
  .superRefine((table, context) => {
    for (const key of Object.keys(table)) {
      if (!FIELD_BY_KEY.has(key)) {
        context.addIssue({ code: 'unrecognized_keys', keys: [key], input: table });
      }
    }
  })
  .transform((table) =>
    Object.fromEntries(Object.entries(table).map(([key, names]) => [FIELD_BY_KEY.get(key) ?? key, names])),
  );

/** TOML reads `item.quantity = …` as a table within the table; here it is one dotted key. */
function flattened(value: unknown): unknown {
  if (!isTable(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) =>
      isTable(inner)
        ? Object.entries(inner).map(([innerKey, names]): [string, unknown] => [`${key}.${innerKey}`, names])
        : [[key, inner] as [string, unknown]],
    ),
  );
}

function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function spellingFault(): string {
  return 'a field name or a list of field names, such as ["orderNumber", "customer.mail"]';
}
