import { z } from 'zod';

export const isoTime = z.string().describe('ISO 8601 in UTC');
/** As the platform sent it, so that no digit is lost. */
export const amount = z.union([z.number(), z.string()]).nullable();
export const text = z.string().nullable();
export const flag = z.boolean().nullable();

/** `limit` of a list. */
export function limitOf(usual: number, max: number) {
  return z.coerce.number().int().min(1).max(max).default(usual).describe('How many at most');
}

export const errorAnswer = z.object({
  error: z.object({
    code: z.string().describe('Stays the same; branch on it, never on the message'),
    message: z.string().describe('What happened and what was kept'),
    hint: z.string().nullable().describe('What to do about it'),
  }),
});
