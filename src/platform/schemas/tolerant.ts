import { z } from 'zod';
import { jsonText } from '../../domain/json/json-text.ts';

/**
 * Pieces for reading answers whose types the document does not show: numbers may come as texts, anything may be
 * missing. What cannot be read is null, and the raw record keeps it.
 */

/** An identifier, sent as text or number. */
export const idText = z
  .union([z.string().min(1), z.number(), z.bigint()])
  .transform((value) => String(value));

export const nullableId = idText.nullable().catch(null);

export const nullableText = z
  .union([z.string(), z.number(), z.boolean()])
  .transform((value) => String(value))
  .nullable()
  .catch(null);

/** An amount stays as sent, so that no digit is lost. */
export const nullableAmount = z
  .union([z.number(), z.string().min(1)])
  .nullable()
  .catch(null);

/** A count, also from a numeric text. */
export const nullableCount = z
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

/** A yes or no, also as 1, 0, "true" or "false". */
export const nullableFlag = z
  .union([
    z.boolean(),
    z
      .union([z.string(), z.number()])
      .refine((value) => Object.hasOwn(FLAGS, String(value)))
      .transform((value) => FLAGS[String(value)] ?? null),
  ])
  .nullable()
  .catch(null);

/** A scalar as sent; JSON text of anything deeper. */
export const scalarOrJson = z
  .unknown()
  .optional()
  .transform((value): string | number | boolean | null => {
    if (value === undefined || value === null) return null;
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value;
    return jsonText(value) ?? null;
  });

/** The entries of an array that `entry`, an object's, can read; not an array counts as none. */
export function readableEntries<T>(entry: z.ZodType<T>): z.ZodType<T[]> {
  return z
    .array(z.unknown())
    .catch([])
    .transform((values) =>
      values.flatMap((value) => {
        // What is no object is told apart at once: there may be millions.
        if (typeof value !== 'object' || value === null) return [];
        const read = entry.safeParse(value);
        return read.success ? [read.data] : [];
      }),
    );
}
