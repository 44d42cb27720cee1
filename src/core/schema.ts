import * as z from 'zod';

/** Parts of which the schemas for the mirror's data are composed. */

export const isoTime = z.string().describe('ISO 8601 in UTC');
/** An amount of money as the platform sent it, so that no digit is lost. */
export const amount = z.union([z.number(), z.string()]).nullable();
export const text = z.string().nullable();
export const flag = z.boolean().nullable();
export const whole = z.number().int();
