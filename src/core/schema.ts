import * as z from 'zod';

/* Pieces of the schemas of what the mirror has. */

export const isoTime = z.string().describe('ISO 8601 in UTC');
/** As the platform sent it, so that no digit is lost. */
export const amount = z.union([z.number(), z.string()]).nullable();
export const text = z.string().nullable();
export const flag = z.boolean().nullable();
export const whole = z.number().int();
